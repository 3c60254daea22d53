"""How a probe is shown: the prediction before it, the table after it."""

from __future__ import annotations

import json

import streamlit as st

from gpu_probe import measurements
from gpu_probe.result import ProbeRequest, ProbeResult, ProbeRow
from pages.parts import history, jobs, probe_table, tables
from pages.parts.errors import plain
from pages.parts.jobs import Prediction
from planner.messages import render
from planner.report.content import probe_value
from planner.units import count, memory, percent, seconds

WIDTH = 205
NOTE_COLUMNS = ("level", "text", "field")


def prediction(p: Prediction, r: ProbeRequest, whole: int) -> None:
    with st.container(horizontal=True, gap="small", key="probe_cards"):
        _card("validate.predicted", memory(p.bytes), {"layers": p.layers, "whole": whole}, {"bytes": count(p.bytes)})
        _card("validate.whole", memory(p.whole_bytes), {}, {"bytes": count(p.whole_bytes)})
        held = render("page.validate.tokens.value", {"tokens": count(sum((r.tokens(),) * r.batch))})
        _card("validate.tokens", held, {"batch": r.batch, "each": count(r.tokens())}, None)


def outcome(r: ProbeResult, model_name: str) -> None:
    name = str(r.model.get("name", ""))
    if name != model_name:
        st.info(render("page.probe.other_model", {"model": plain(name)}))
    if r.bytes_agree:
        st.success(render("page.probe.agree", {"bytes": count(r.measured_kv_bytes)}))
    else:
        st.error(render("page.probe.differ", {"predicted": count(r.predicted_kv_bytes), "measured": count(r.measured_kv_bytes)}))
    with st.container(horizontal=True, gap="small", key="probe_outcome"):
        agree = "yes" if r.bytes_agree else "no"
        _metric(render("page.probe.kv"), memory(r.measured_kv_bytes), render(f"page.probe.kv.delta.{agree}"), "green" if r.bytes_agree else "red")
        _metric(render("page.probe.ttft"), seconds(r.ttft_s), render("page.probe.ttft.delta", {"rate": _rate(r.prefill_tokens_per_s)}))
        itl = {q: seconds(v) for q, v in r.itl_s.items()}
        _metric(render("page.probe.itl"), itl["p50"], render("page.probe.itl.delta", itl))
        rates = {"rate": _rate(r.tokens_per_s), "decode": _rate(r.decode_tokens_per_s)}
        _metric(render("page.probe.rate"), render("page.probe.rate.value", rates), render("page.probe.rate.delta", rates))
        _metric(render("page.probe.error"), "-" if r.logits_max_rel_error is None else f"{r.logits_max_rel_error:.1e}", render("page.probe.error.delta"))
        _pace(r)
    st.subheader(render("page.probe.table"), anchor=False)
    tables.text(
        tables.Listing(
            columns=("line", "predicted", "measured", "difference", "how"),
            rows=tuple(_row(row) for row in r.rows if (row.predicted, row.measured) != (None, None)),
        )
    )
    versions = ", ".join(sorted(f"{k} {v}" for k, v in r.versions.items()))
    facts = {"device_name": r.device_name, "backend": r.backend, "layers_run": r.layers_run, "layers_total": r.layers_total, "kv_dtype": r.kv_dtype,
             "compute_dtype": r.compute_dtype, "versions": versions}  # fmt: skip
    st.caption(render("page.probe.where", {k: plain(str(v)) for k, v in facts.items()}))
    if r.backends_refused:
        refused = ", ".join(render("page.probe.refused.one", {k: plain(str(b.get(k, ""))) for k in ("name", "reason")}) for b in r.backends_refused)
        st.caption(render("page.probe.refused", {"refused": refused}))
    if r.notes:
        rows = tuple({c: str(n.get(c, "")) for c in NOTE_COLUMNS} for n in r.notes)
        tables.text(tables.Listing(columns=NOTE_COLUMNS, rows=rows))


def results(model_name: str) -> None:
    """The one that was chosen, and all of this session side by side."""
    found = jobs.results()
    if st.session_state.pop(jobs.NEWEST, False):
        st.session_state[jobs.SHOWN] = 0
    if len(found) > 1:
        names = probe_table.names(found)
        st.selectbox(render("page.probe.shown"), range(len(found)), key=jobs.SHOWN, format_func=lambda i: names[i], width=420,
                     help=render("page.probe.shown.help"), persist_state="session")  # fmt: skip
    result = jobs.result()
    assert result is not None
    outcome(result, model_name)
    with st.container(horizontal=True):
        body = json.dumps(result.to_json(), indent=1)
        st.download_button(render("page.probe.download"), data=body, file_name="probe-result.json", mime="application/json", on_click="ignore",
                           key="probe_download", icon=":material/download:")  # fmt: skip
        st.button(render("page.probe.forget"), key="probe_forget", on_click=jobs.forget, help=render("page.probe.forget.help"))
    history.save_box("probe", *probe_table.words_of(result), body.encode)
    if len(found) > 1:
        st.subheader(render("page.probe.compare"), anchor=False)
        probe_table.side_by_side(found)


def gpu_note() -> None:
    """Until a measurement of a GPU lies beside the code: that its path was not timed."""
    if not measurements.of_gpus():
        st.caption(render("page.suite.gpu_unmeasured"))


def _pace(r: ProbeResult) -> None:
    """Decode against the ceilings of the same run, and the largest batch; a result of an older version has neither."""
    rate, share = (probe_table.number(r.roofline, name) for name in ("bytes_per_s", "share"))
    if rate is not None:
        code = "page.probe.roofline.share" if share is not None else "page.probe.roofline.none"
        words = {"share": percent(share or 0), "bound": plain(str(r.roofline.get("bound") or "-"))}
        _metric(render("page.probe.roofline"), render("page.probe.roofline.value", {"rate": f"{rate / 1e9:.3g}"}), render(code, words))
    found, predicted = (probe_table.number(r.capacity, name) for name in ("found", "predicted"))
    if found is not None and predicted is not None:
        words = {"predicted": count(predicted), "tokens": count(probe_table.number(r.capacity, "tokens") or 0)}
        agree = "green" if found == predicted else "red"
        _metric(render("page.probe.capacity"), render("page.probe.capacity.value", {"found": count(found)}), render("page.probe.capacity.delta", words), agree)


def _row(row: ProbeRow) -> dict[str, str]:
    same = "" if not row.exact else render("page.yes" if row.predicted == row.measured else "page.no")
    return {
        "line": row.name,
        "predicted": probe_value(row.predicted, row.unit),
        "measured": probe_value(row.measured, row.unit),
        "difference": same,
        "how": row.how,
    }


def _rate(value: float) -> str:
    return f"{value:,.1f}"


def _card(code: str, value: str, delta: dict[str, object], help_: dict[str, object] | None) -> None:
    note = None if help_ is None else render(f"page.{code}.help", help_)
    _metric(render(f"page.{code}"), value, render(f"page.{code}.delta", delta), help_=note)


def _metric(label: str, value: str, delta: str, colour: str = "gray", help_: str | None = None) -> None:
    st.metric(label, value, delta, delta_color=colour, delta_arrow="off", border=True, width=WIDTH, height="stretch", help=help_)  # type: ignore[arg-type]

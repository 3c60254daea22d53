"""How a probe is shown: the prediction before it, the table after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from gpu_probe import calibration, claims
from gpu_probe.result import ProbeRequest, ProbeResult, ProbeRow
from pages.parts import tables
from pages.parts.errors import plain
from pages.parts.jobs import Prediction
from planner.errors import PlannerError
from planner.messages import render
from planner.report.content import probe_value
from planner.units import count, memory, seconds

WIDTH = 205
NOTE_COLUMNS = ("level", "text", "field")


def prediction(p: Prediction, r: ProbeRequest, whole: int) -> None:
    with st.container(horizontal=True, gap="small"):
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
    with st.container(horizontal=True, gap="small"):
        agree = "yes" if r.bytes_agree else "no"
        _metric(render("page.probe.kv"), memory(r.measured_kv_bytes), render(f"page.probe.kv.delta.{agree}"), "green" if r.bytes_agree else "red")
        _metric(render("page.probe.ttft"), seconds(r.ttft_s), render("page.probe.ttft.delta", {"rate": _rate(r.prefill_tokens_per_s)}))
        itl = {q: seconds(v) for q, v in r.itl_s.items()}
        _metric(render("page.probe.itl"), itl["p50"], render("page.probe.itl.delta", itl))
        rates = {"rate": _rate(r.tokens_per_s), "decode": _rate(r.decode_tokens_per_s)}
        _metric(render("page.probe.rate"), render("page.probe.rate.value", rates), render("page.probe.rate.delta", rates))
        _metric(render("page.probe.error"), "-" if r.logits_max_rel_error is None else f"{r.logits_max_rel_error:.1e}", render("page.probe.error.delta"))
    st.subheader(render("page.probe.table"), anchor=False)
    tables.text(tables.Listing(columns=("line", "predicted", "measured", "difference", "how"), rows=tuple(_row(row) for row in r.rows)))
    versions = ", ".join(sorted(f"{k} {v}" for k, v in r.versions.items()))
    facts = {"device_name": r.device_name, "backend": r.backend, "layers_run": r.layers_run, "layers_total": r.layers_total, "kv_dtype": r.kv_dtype,
             "compute_dtype": r.compute_dtype, "versions": versions}  # fmt: skip
    st.caption(render("page.probe.where", {k: plain(str(v)) for k, v in facts.items()}))
    if r.notes:
        rows = tuple({c: str(n.get(c, "")) for c in NOTE_COLUMNS} for n in r.notes)
        tables.text(tables.Listing(columns=NOTE_COLUMNS, rows=rows))


def suite(result: Mapping[str, Any]) -> None:
    """The claims of the articles beside what some host measured, and what that host is worth to a latency model."""
    st.subheader(render("page.suite.title"), anchor=False)
    st.caption(render("page.suite.about", {"device": plain(str(result.get("device_name", ""))[:80])}))
    rows = [{"claims": " ".join(i.claims), "says": i.says, "found": i.measured, "verdict": render(f"suite.verdict.{i.verdict}")} for i in claims.read(result)]
    tables.text(tables.Listing(columns=("claims", "says", "found", "verdict"), rows=tuple(rows)))
    try:
        c = calibration.of(result)
    except PlannerError as e:
        st.info(render("page.suite.no_calibration", {"reason": plain(e.message)}))
    else:
        words = {"read": f"{c.read_bytes_per_s / 1e9:.3g}", "flop": f"{c.flop_per_s / 1e9:.3g}", "fixed": seconds(c.t_fixed_s), "layer": seconds(c.t_layer_s)}
        st.caption(render("page.suite.calibration", words))


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

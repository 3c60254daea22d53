"""The parts of the Reconcile page: the log as it was given, what was read of it, and its figures beside their predictions."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from pages.parts import log_charts, state
from pages.parts.errors import plain
from pages.parts.source import Current, harmless
from planner.enginelogs import LogReading, Reconciliation, read_log, reconcile
from planner.enginelogs.answer import shown
from planner.enginelogs.example import example
from planner.enginelogs.measured import measured_options
from planner.hardware import find
from planner.messages import render
from planner.report.extras import rounded
from planner.sources import known_weight_bytes
from planner.units import memory

LOG, RESULT, TAKEN, DRAWN = "_log", "_log_result", "_log_taken", "_log_drawn"
UPLOAD_MB = 16
MOST_LINES = 200
SHOWN_FIRST = ("weights_bytes", "available_kv_bytes", "num_blocks", "kv_tokens", "max_concurrency")
# Pixels: all of them stand side by side on a laptop.
WIDTHS = {"log_line": 60, "log_rank": 70, "reported": 135, "expected": 135, "left": 130, "status": 90, "why": 420, "value": 420}
COLUMNS = ("log_line", "log_rank", "figure", "reported", "expected", "left", "status", "why")


# -- the log ---------------------------------------------------------------------------------------------------------------


def ask() -> None:
    """A field to paste into, a file to upload, and what to compare with. What was given last counts, and is kept in the session alone."""
    s = st.session_state
    drawn = s.setdefault(DRAWN, 0)  # the widgets are drawn anew, and so empty, after the log was forgotten
    st.text_area(render("page.log.paste"), key=f"log_paste_{drawn}", on_change=_pasted, height=160, help=render("page.log.paste.help"))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.file_uploader(render("page.log.upload"), key=f"log_upload_{drawn}", max_upload_size=UPLOAD_MB, on_change=_uploaded,
                         help=render("page.log.upload.help"), width=420)  # fmt: skip
        with st.container(width="content"):
            st.checkbox(render("page.log.with_model"), key="log_model", value=True, help=render("page.log.with_model.help"), persist_state="session")
            st.checkbox(render("page.log.with_gpu"), key="log_gpu", value=False, help=render("page.log.with_gpu.help"), persist_state="session")
            st.button(render("page.log.clear"), key="log_clear", on_click=_forget, disabled=LOG not in s)


def _pasted() -> None:
    s = st.session_state
    _keep(str(s[f"log_paste_{s[DRAWN]}"] or "").encode("utf-8", errors="replace"))


def _uploaded() -> None:
    s = st.session_state
    file = s[f"log_upload_{s[DRAWN]}"]
    if file is not None:
        _keep(file.getvalue())


def _keep(data: bytes) -> None:
    _drop()
    if data.strip():
        st.session_state[LOG] = read_log(data)  # what was read of it; the text itself is not kept


def _forget() -> None:
    _drop()
    st.session_state[DRAWN] += 1


def _drop() -> None:
    for key in (LOG, RESULT, TAKEN):
        st.session_state.pop(key, None)


def result(current: Current) -> Reconciliation | None:
    """The log that was given beside the plan, made once for each log, model and device; None without one. Raises PlannerError."""
    log: LogReading | None = st.session_state.get(LOG)
    return None if log is None else _beside(log, current, None)


def example_result(current: Current) -> Reconciliation | None:
    """The example beside the plan; None where the plan prints no such log. Raises PlannerError."""
    text = example(current.plan())
    return None if text is None else _beside(read_log(text.encode()), current, current.scenario)


def _beside(log: LogReading, current: Current, made_of: object) -> Reconciliation:
    s, chosen = st.session_state, current.scenario
    with_model, with_gpu = s.get("log_model", True), s.get("log_gpu", False)
    wanted = (made_of, with_model and (current.loaded.provenance, harmless()), with_gpu and chosen.gpu)
    if s.get(RESULT, (None,))[0] != wanted:
        stored = known_weight_bytes(current.loaded.provenance)
        s[RESULT] = (wanted, reconcile(log, model=current.model if with_model else None, hardware=find(chosen.gpu) if with_gpu else None,
                                       given={"weight_bytes": stored} if stored else {}))  # fmt: skip
    found: Reconciliation = s[RESULT][1]
    return found


def say_example(current: Current) -> None:
    """That this is an example, and its lines."""
    st.info(render("page.log.example"))
    with st.expander(render("page.log.example.text")):
        st.code(example(current.plan()), language=None, wrap_lines=True)


# -- the answer ------------------------------------------------------------------------------------------------------------


def answer(found: Reconciliation) -> None:
    """One sentence, coloured by what it says; what the log alone leaves open below it."""
    args: dict[str, Any] = {"who": plain(" ".join(filter(None, (found.log.engine or "?", found.log.version))))}
    differ, agree = len(found.flagged), sum(line.status == "agrees" for line in found.lines)
    if differ:
        where = ", ".join(str(n) for n in sorted({line.figure.line for line in found.flagged}))
        st.error(render("page.log.answer.one" if differ == 1 else "page.log.answer.bad", {**args, "differ": differ, "where": where, "agree": agree}))
    elif agree:
        st.success(render("page.log.answer.good", {**args, "agree": agree}))
    else:
        st.info(render("page.log.answer.none", {**args, "figures": len(found.log.figures)}))
    first = {f.name: f.value for f in reversed(found.log.figures) if f.name in SHOWN_FIRST}
    if told := ", ".join(f"{render(f'log.figure.{name}')} {shown(name, first[name])}" for name in SHOWN_FIRST if name in first):
        st.caption(render("page.log.read", {"figures": plain(told)}))
    if left := sum(line.status == "open" for line in found.lines):
        st.warning(render("page.log.open", {"count": left}))
    for note in found.notes:
        st.caption(plain(note.text))


def causes(found: Reconciliation) -> None:
    """Each cause that closes a difference, with the closed difference."""
    for line in found.lines:
        if line.cause is None:
            continue
        told = line.cause.to_json(line.name)
        args = {"line": line.figure.line, "label": plain(line.label), "text": plain(told["text"]), "predicted": plain(shown(line.name, told.get("predicted"))),
                "difference": plain(_left(line.name, told.get("difference")))}  # fmt: skip
        st.markdown(render("page.log.cause", args))
        if told["also"]:
            st.caption(render("page.log.also", {"also": plain(" ".join(line.cause.also_texts))}))


def refusals(found: Reconciliation) -> None:
    if not found.log.refusals:
        return
    st.markdown(render("page.log.refusals"))
    for r in found.log.refusals:
        told = r.to_json()
        st.warning(render("page.log.refusal", {"line": r.line, "meaning": plain(told["meaning"]), "text": plain(r.text)}))


def lines(found: Reconciliation) -> None:
    """All figures that another one or the plan gives, those that differ first."""
    if not found.lines:
        return
    if points := log_charts.drawn(found.lines):
        st.markdown(render("page.chart.title", {"title": log_charts.title(points)}))
        st.plotly_chart(log_charts.figure(points), key="log_chart", config={"displayModeBar": False}, alt=render("page.log.chart.alt"))
    st.markdown(render("page.log.lines"))
    rows = [
        {
            "log_line": line.figure.line,
            "log_rank": line.figure.rank,
            "figure": line.label,
            "reported": shown(line.name, line.figure.value),
            "expected": shown(line.name, line.predicted),
            "left": render("log.rounded") if rounded(line.figure.value, line.predicted, line.difference) else _left(line.name, line.difference),
            "status": render(f"log.status.{line.status}"),
            "why": line.why,
        }
        for line in found.lines[:MOST_LINES]
    ]
    _table(rows, COLUMNS, "log_lines")


def _left(name: str, value: Any) -> str:
    if value is None:
        return ""
    text = memory(value) if name.endswith("_bytes") else shown(name, value)  # a small difference of sizes is no 0.00 GiB
    return f"+{text}" if value > 0 else text


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...], key: str) -> None:
    used = [c for c in columns if any(row.get(c) not in (None, "") for row in rows)]
    config = {c: st.column_config.Column(render(f"page.column.{c}"), width=WIDTHS.get(c, 200)) for c in used}
    st.dataframe([{c: row.get(c) for c in used} for row in rows], hide_index=True, column_config=config, key=key, height="content", placeholder="",
                 alt=", ".join(render(f"page.column.{c}") for c in used))  # fmt: skip


# -- into the plan ---------------------------------------------------------------------------------------------------------


def take(found: Reconciliation) -> None:
    """Measured values into the plan's own fields, on request."""
    changes = measured_options(found.log)
    if not changes:
        st.caption(render("page.log.nothing_to_take"))
        return
    st.button(render("page.log.take"), key="log_take", on_click=_take, args=(found,), help=render("page.log.take.help"), icon=":material/input:")
    if taken := st.session_state.get(TAKEN):
        st.success(render("page.log.taken", {"names": plain(", ".join(f"{name} {value}" for name, value in taken.items()))}))


def _take(found: Reconciliation) -> None:
    changes = {**{k: v for k, v in found.taken.items() if k in ("engine", "tp", "pp", "max_model_len", "kv_dtype")}, **measured_options(found.log)}
    st.session_state[TAKEN] = changes
    state.take(changes)


def details(found: Reconciliation) -> None:
    """Everything that was read, on request; and the whole answer as a file."""
    out = found.to_json()
    with st.expander(render("page.log.found"), key="log_found"):
        rows = [{"log_line": f.line, "log_rank": f.rank or f.device, "figure": render(f"log.figure.{f.name}"), "reported": f.text, "value": str(f.value)}
                for f in found.log.figures[:MOST_LINES]]  # fmt: skip
        _table(rows, ("log_line", "log_rank", "figure", "reported", "value"), "log_figures")
    if found.log.flags:
        with st.expander(render("page.log.flags"), key="log_flags"):
            _table([{"log_line": f.line, "flag": name, "value": str(f.value)} for name, f in found.log.flags.items()], ("log_line", "flag", "value"),
                   "log_flag_table")  # fmt: skip
    st.download_button(render("page.log.download"), data=json.dumps(out, indent=1), file_name="kv-reconcile.json", mime="application/json",
                       on_click="ignore", key="log_download", icon=":material/download:")  # fmt: skip

"""The Diagnose page: fields of what is seen, the answer with its evidence, and the remedies, each taken over with one click."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.parts import diagnose_charts, state
from pages.parts.errors import plain
from planner.diagnose import Diagnosis, Fix, Observed, observed, paste
from planner.diagnose.observed import COMPLAINTS, OOM
from planner.diagnose.parts import parts as parts_of
from planner.messages import render
from planner.scenario import Scenario
from planner.units import count, seconds

SEEN = ("ttft_s", "itl_s", "tokens_per_s", "sequences", "prompt", "output")
MEMORY = ("waiting", "queue_s", "kv_usage", "preemptions")
OTHER = ("other_sequences", "other_prompt", "other_ttft_s", "other_itl_s")
IN_MS, IN_PERCENT = ("ttft_s", "itl_s", "queue_s", "other_ttft_s", "other_itl_s"), ("kv_usage",)
WHOLE = ("sequences", "prompt", "output", "waiting", "preemptions", "other_sequences", "other_prompt")
MAX_PASTE = 1_000_000


def ask() -> Observed:
    """What was entered, over what was pasted. Raises PlannerError."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="diagnose_seen"):
        for name in SEEN:
            _number(name)
    with st.container(horizontal=True, vertical_alignment="bottom", key="diagnose_memory"):
        for name in MEMORY:
            _number(name)
        for name, options in (("oom", OOM), ("complaint", COMPLAINTS)):
            st.selectbox(render(f"page.diagnose.{name}"), options, key=f"diagnose_{name}", format_func=lambda o, n=name: render(f"page.diagnose.{n}.{o}"),
                         help=render(f"page.diagnose.{name}.help"), width=190, persist_state="session")  # fmt: skip
    with st.expander(render("page.diagnose.other"), key="diagnose_other"):
        st.caption(render("page.diagnose.other.about"))
        with st.container(horizontal=True, vertical_alignment="bottom", key="diagnose_second"):
            for name in OTHER:
                _number(name)
    with st.expander(render("page.diagnose.paste"), key="diagnose_pasted"):
        text = st.text_area(render("page.diagnose.paste.label"), key="diagnose_paste", height=140, max_chars=MAX_PASTE, persist_state="session",
                            help=render("page.diagnose.paste.help"))  # fmt: skip
    entered = observed({name: _value(name) for name in (*SEEN, *MEMORY, *OTHER, "oom", "complaint")})
    if not text or not text.strip():
        return entered
    found = paste.read(text)
    typed = [n for n in found.taken if getattr(entered, n) != getattr(Observed(), n)]  # what stands in a field counts
    for code, names in ((f"pasted.{found.kind}", [n for n in found.taken if n not in typed]), ("typed", typed)):
        if names:
            st.caption(render(f"page.diagnose.{code}", {"figures": ", ".join(render(f"page.diagnose.{n}") for n in names)}))
    return entered.over(found.seen)


def _number(name: str) -> None:
    limits: dict[str, Any] = {"min_value": 0, "step": 1} if name in WHOLE else {"min_value": 0.0, "step": None if name == "tokens_per_s" else 1.0}
    if name in IN_PERCENT:
        limits["max_value"] = 100.0
    st.number_input(render(f"page.diagnose.{name}"), value=None, key=f"diagnose_{name}", help=render(f"page.diagnose.{name}.help"), width=165,
                    persist_state="session", **{k: v for k, v in limits.items() if v is not None})  # fmt: skip


def _value(name: str) -> Any:
    value = st.session_state[f"diagnose_{name}"]
    if value is None or isinstance(value, str):
        return value
    return value / 1e3 if name in IN_MS else value / 100 if name in IN_PERCENT else value


def told(seen: Observed) -> dict[str, str]:
    """The figures of an example, as words."""
    return {"itl": seconds(seen.itl_s or 0), "ttft": seconds(seen.ttft_s or 0), "sequences": count(seen.sequences or 0), "prompt": count(seen.prompt or 0),
            "output": count(seen.output or 0)}  # fmt: skip


def answer(d: Diagnosis) -> None:
    """The bottleneck in one sentence, where the time is expected to go, then the evidence, then what would decide."""
    (st.success if d.decided else st.warning)(render(f"diagnose.verdict.{d.verdict}"))
    _predicted(d)
    if d.evidence:
        st.subheader(render("page.diagnose.evidence"), anchor=False)
        st.markdown("\n".join(f"- {plain(e.text)}" for e in d.evidence))
    if d.asks:
        st.subheader(render("page.diagnose.asks"), anchor=False)
        st.markdown("\n".join(f"- {plain(a.text)}" for a in d.asks))


def remedies(d: Diagnosis, now: Scenario) -> None:
    """Before, and after each remedy: times as seen and as they would change, sequences that fit, GPUs, and what it costs beside."""
    if d.before is None or not d.decided:
        return
    st.subheader(render("page.diagnose.remedies"), anchor=False)
    if not d.fixes:
        st.info(render("page.diagnose.none"))
        return
    st.caption(render("page.diagnose.before", {"itl": _time(d.seen.itl_s, d.before.itl_s), "ttft": _time(d.seen.ttft_s, d.before.ttft_s),
                                               "most": count(d.before.best), "gpus": d.before.gpus}))  # fmt: skip
    for i, fix in enumerate(d.fixes):
        with st.container(horizontal=True, vertical_alignment="center", border=True):
            st.markdown(render("page.diagnose.remedy", _words(d, fix)), width="stretch")
            if fix.turned.changes:
                st.button(render("page.take"), key=f"diagnose_take_{i}_{fix.turned.code}", on_click=state.take, args=(_changes(fix, now),))


def _words(d: Diagnosis, fix: Fix) -> dict[str, str]:
    assert d.before
    after, before = fix.turned.after, d.before
    times = {"itl_before": d.seen.itl_s or before.itl_s, "itl_after": fix.itl_s or after.itl_s, "ttft_before": d.seen.ttft_s or before.ttft_s,
             "ttft_after": fix.ttft_s or after.ttft_s}  # fmt: skip
    return {"text": plain(fix.turned.text), "cost": plain(fix.turned.cost), "most_before": count(before.best), "most_after": count(after.best),
            **{k: plain(seconds(v)) for k, v in times.items()}}  # fmt: skip


def _changes(fix: Fix, now: Scenario) -> dict[str, Any]:
    """All that differs from what is chosen, the load that was seen included."""
    after = fix.turned.plan.scenario
    kept = {name: getattr(after, name) for name in ("prompt", "output", "tokens")}
    return kept | {name: value for name, value in after.to_json().items() if value != getattr(now, name) and name != "model"}


def _time(seen: float | None, otherwise: float) -> str:
    return seconds(seen) if seen else render("page.diagnose.as_predicted", {"time": seconds(otherwise)})


def _predicted(d: Diagnosis) -> None:
    """Where the planner thinks the time of a token goes, as a bar each."""
    if d.predicted is None:
        return
    parts = parts_of(d.predicted)
    title = diagnose_charts.title(d.predicted, parts)
    st.markdown(render("page.chart.title", {"title": plain(title)}))
    st.plotly_chart(diagnose_charts.figure(parts), key="diagnose_chart", config={"displayModeBar": False},
                    alt=f"{title}: {', '.join(part.text for part in parts)}")  # fmt: skip

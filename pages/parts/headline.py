"""The answer in one line: the word, the bytes, how many, how long."""

from __future__ import annotations

import streamlit as st

from pages.parts.look import COLOURS
from planner.capacity import CapacityPlan
from planner.messages import render
from planner.report.content import state_of
from planner.units import count, gib

WIDTH, WIDE = 172, 250


def headline(p: CapacityPlan) -> None:
    """Five cards; the exact bytes are in the help of each."""
    foot, s = p.footprint, p.scenario
    state, tokens = state_of(p), count(s.tokens)
    limit = count(min(p.model.max_context_tokens or p.setting.max_model_len, p.setting.max_model_len))
    delta = f"no_{p.limited_by}" if p.limited_by in ("model", "slots") else state
    with st.container(horizontal=True, gap="small", key="headline"):
        _card(
            "state",
            render(f"page.state.{state}"),
            render(f"page.state.delta.{delta}", {"free": gib(p.free_bytes), "short": gib(p.shortfall_bytes), "limit": limit}),
            render("page.state.help", {"pool": count(p.kv_pool_bytes), "load": count(foot.per_rank_bytes[p.binding_rank])}),
            COLOURS[state],
        )
        _metric(
            "kv_load",
            gib(p.load_bytes),
            {"each": count(foot.bytes_per_token_unbounded)},
            {"architecture": count(foot.architecture_bytes), "engine": s.engine, "held": count(foot.engine_bytes)},
        )
        _metric("kv_sequence", gib(p.sequence_bytes), {"tokens": tokens}, {"bytes": count(p.sequence_bytes), "engine": s.engine, "tokens": tokens})
        _metric("max_sequences", count(p.total_max_sequences), {"tokens": tokens}, {"replicas": p.replicas})
        _metric(
            "longest",
            count(p.longest_context_tokens()),
            {"by": render(f"longest.by.{p.longest_context_by}")},
            {"limit": count(p.model.max_context_tokens) if p.model.max_context_tokens else "-"},
        )


def _metric(code: str, value: str, delta: dict[str, object], help_: dict[str, object]) -> None:
    _card(code, value, render(f"page.metric.{code}.delta", delta), render(f"page.metric.{code}.help", help_), "gray")


def _card(code: str, value: str, delta: str, help_: str, colour: str) -> None:
    label = render("page.state") if code == "state" else render(f"page.metric.{code}")
    st.metric(label, value, delta, delta_color=colour, delta_arrow="off", help=help_, border=True, width=WIDE if code == "state" else WIDTH, height="stretch")  # type: ignore[arg-type]

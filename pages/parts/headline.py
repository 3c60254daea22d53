"""The answer in one line: the word, the bytes, how many, how long."""

from __future__ import annotations

import streamlit as st

from pages.parts.look import COLOURS
from planner.capacity import CapacityPlan
from planner.messages import render
from planner.report.content import state_of
from planner.units import count, gib

APART = 1.01  # the engine holds so many times what the model asks for: the card then says both

WIDTH, WIDE = 172, 250


def headline(p: CapacityPlan) -> None:
    """Five cards; the exact bytes are in the help of each."""
    foot, s = p.footprint, p.scenario
    state, tokens = state_of(p), count(s.tokens)
    limit = count(min(p.model.max_context_tokens or p.setting.max_model_len, p.setting.max_model_len))
    with st.container(horizontal=True, gap="small", key="headline"):
        _card(
            "state",
            render(f"page.state.{state}"),
            render(f"page.state.delta.{_delta(p, state)}", {"free": gib(p.free_bytes), "short": gib(p.shortfall_bytes), "limit": limit}),
            state_help(p),
            COLOURS[state],
        )
        each = count(foot.bytes_per_token_unbounded)
        _card(
            "kv_load",
            gib(p.load_bytes),
            render(load_delta(p), {"each": each, "architecture": gib(foot.architecture_bytes * p.replicas)}),
            render("page.metric.kv_load.help",
                   {"architecture": count(foot.architecture_bytes), "engine": s.engine, "held": count(foot.engine_bytes), "each": each}),
            "gray",
        )  # fmt: skip
        _metric("kv_sequence", gib(p.sequence_bytes), {"tokens": tokens}, {"bytes": count(p.sequence_bytes), "engine": s.engine, "tokens": tokens})
        _metric("max_sequences", count(p.total_max_sequences), {"tokens": tokens}, {"replicas": p.replicas})
        _metric(
            "longest",
            count(p.longest_context_tokens()),
            {"by": render(f"longest.by.{p.longest_context_by}")},
            {"limit": count(p.model.max_context_tokens) if p.model.max_context_tokens else "-"},
        )


def _delta(p: CapacityPlan, state: str) -> str:
    if p.limited_by in ("model", "slots"):
        return f"no_{p.limited_by}"
    if p.limited_by == "pool" and p.sizes is not None and len(p.pools) > 1:
        return "no_part"
    return f"{state}.rank" if len(p.ledgers) > 1 or p.replicas > 1 else state


def state_help(p: CapacityPlan) -> str:
    """Exact bytes of the pool and of the load; a load that does not fit holds nothing, it needs."""
    load = count(p.footprint.per_rank_bytes[p.binding_rank])
    if p.fits:
        return render("page.state.help", {"pool": count(p.kv_pool_bytes), "load": load})
    if p.kv_pool_bytes <= 0:
        return render("page.state.help.no_weights", {"over": count(-p.kv_pool_bytes), "load": load})
    code = "page.state.help.no_part" if _delta(p, "no") == "no_part" else "page.state.help.no"
    return render(code, {"pool": count(p.kv_pool_bytes), "load": load, "short": count(p.shortfall_bytes)})


def load_delta(p: CapacityPlan) -> str:
    """What stands under the bytes of the load: what the model asks for where the engine holds clearly more, else what each token adds."""
    foot = p.footprint
    if foot.engine_bytes > APART * foot.architecture_bytes:
        return "page.metric.kv_load.delta.more"
    return "page.metric.kv_load.delta" if foot.bytes_per_token_unbounded else "page.metric.kv_load.delta.bounded"


def _metric(code: str, value: str, delta: dict[str, object], help_: dict[str, object]) -> None:
    _card(code, value, render(f"page.metric.{code}.delta", delta), render(f"page.metric.{code}.help", help_), "gray")


def _card(code: str, value: str, delta: str, help_: str, colour: str) -> None:
    label = render("page.state") if code == "state" else render(f"page.metric.{code}")
    st.metric(label, value, delta, delta_color=colour, delta_arrow="off", help=help_, border=True, width=WIDE if code == "state" else WIDTH, height="stretch")  # type: ignore[arg-type]

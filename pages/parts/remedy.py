"""A plan that does not fit: on request, changes that were each re-planned, to take over with one click."""

from __future__ import annotations

import streamlit as st

from pages.parts import state
from pages.parts.errors import plain
from pages.parts.headline import state_help
from planner.backwards import smallest
from planner.capacity import CapacityPlan
from planner.messages import render
from planner.remedies import remedies
from planner.units import count, gib


def smallest_memory(p: CapacityPlan) -> None:
    """On request: the least memory for this very load, to take over with one click."""
    s = st.session_state
    wanted = (p.model.name, p.scenario)

    def ask() -> None:
        s["_smallest_for"] = wanted

    st.button(render("page.smallest"), on_click=ask, key="smallest", help=render("page.smallest.help"))
    if s.get("_smallest_for") != wanted:
        return
    found = smallest(p)
    rows = []
    if found.memory_fraction is not None:
        rows.append((render("page.smallest.fraction", {"fraction": found.memory_fraction}), {"memory_fraction": found.memory_fraction, "kv_memory": None}))
    if found.kv_memory is not None:
        rows.append((render("page.smallest.pool", {"pool": gib(found.kv_memory), "bytes": count(found.kv_memory)}), {"kv_memory": found.kv_memory}))
    if not rows:
        st.info(render("page.smallest.none"))
    for i, (text, changes) in enumerate(rows):
        with st.container(horizontal=True, vertical_alignment="center", border=True):
            st.markdown(plain(text), width="stretch")
            st.button(render("page.take"), key=f"take_smallest_{i}", on_click=state.take, args=(changes,))
    if found.flags:
        st.caption(plain(render("page.smallest.flags", {"flags": "; ".join(found.flags)})))


def offer(p: CapacityPlan) -> None:
    """The button, and below it what it found for this very plan; another plan starts over."""
    s = st.session_state
    wanted = (p.model.name, p.scenario)

    def ask() -> None:
        s["_remedies_for"] = wanted

    st.button(render("page.remedies"), on_click=ask, type="primary", key="remedies", help=render("page.remedies.help"))
    if s.get("_remedies_for") != wanted:
        return
    found = remedies(p)
    if not found:
        st.info(render("page.remedies.none"))
    for i, r in enumerate(found):
        after = r.after
        with st.container(horizontal=True, vertical_alignment="center", border=True):
            outcome = (
                render("page.remedy.fits", {"free": gib(after.free_bytes)})
                if after.fits
                else render("page.remedy.short", {"short": gib(after.shortfall_bytes)})
            )
            code = "page.remedy.detail" if after.kv_pool_bytes > 0 else "page.remedy.detail.none"
            detail = render(code, {"most": count(after.total_max_sequences), "pool": gib(after.kv_pool_bytes)})
            st.markdown(
                render(
                    "page.remedy.row",
                    {"text": plain(r.text), "colour": "green" if after.fits else "orange", "outcome": plain(outcome), "detail": plain(detail)},
                ),
                width="stretch",
                help=state_help(after),
            )
            st.button(render("page.take"), key=f"take_{i}_{r.code}", on_click=state.take, args=(dict(r.changes),))

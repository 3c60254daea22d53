"""Where a user begins: examples that set every choice in one click, and the way back to the first plan."""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, source, state
from planner.messages import render
from planner.owngpu import shown_name
from planner.presets import presets
from planner.scenario import Scenario
from planner.units import count


def draw() -> None:
    """One row of buttons; on a phone it scrolls sideways within itself."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="presets"):
        st.caption(render("page.presets"), width="content")
        for code, s in presets().items():
            args = {"model": s.model, "gpus": s.gpus, "gpu": shown_name(s.gpu), "engine": s.engine, "sequences": s.sequences, "tokens": count(s.tokens)}
            st.button(render(f"preset.{code}"), key=f"preset_{code}", type="tertiary", help=errors.plain(render("preset.help", args)), width="content",
                      on_click=choose, args=(s,))  # fmt: skip
        st.button(render("page.reset"), key="reset", type="tertiary", icon=":material/restart_alt:", help=render("page.reset.help"), width="content",
                  on_click=choose, args=(state.DEFAULTS,))  # fmt: skip


def choose(s: Scenario) -> None:
    """A callback: every choice as in this scenario, whose model is a name."""
    changes = s.to_json()
    st.session_state["model"] = changes.pop("model")
    source.leave_own()
    state.take(changes)

"""The choices of one session: widget values, bound to the address. Nothing at module level.

Every field of a Scenario that has a widget is bound to the query parameter of the same name, so the address is the permalink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from pages.parts.errors import plain
from planner.errors import PlannerError
from planner.messages import render
from planner.mix import from_text
from planner.scenario import OPTIONS, Scenario, from_options

AUTO = "auto"
TEXTS = ("kv_memory", "weight_bytes", "engine_version")
CARRIED = ("prompt", "output")
MAIN = ("model", "gpu", "gpus", "engine", "tokens", "sequences", "lengths", *CARRIED)
DEFAULTS = Scenario()


def begin() -> None:
    """Once a session: what the address asks for and cannot be is said, and takes its default."""
    s = st.session_state
    if "_begun" in s:
        return
    s["_begun"], s["_own"], s["_uploads"], s["_link_faults"], s["_carried"] = True, None, {}, [], {}
    s["_mix"] = s["_mix_fault"] = None
    asked = {k: v for k, v in st.query_params.to_dict().items() if k in OPTIONS}
    for name, value in asked.items():
        try:
            from_options({name: value})
        except PlannerError as e:
            s["_link_faults"].append(e.message)
    if any(name in asked for name in CARRIED) and "tokens" not in asked and not s["_link_faults"]:
        chosen = from_options({k: v for k, v in asked.items() if k in CARRIED})
        s["_carried"] = {name: getattr(chosen, name) for name in CARRIED}
        s["tokens"] = chosen.tokens


def link_faults() -> None:
    for fault in st.session_state["_link_faults"]:
        st.warning(render("page.link.bad", {"detail": plain(fault)}))


def tokens_changed() -> None:
    st.session_state["_carried"] = {}
    st.session_state["_link_faults"] = []


def take(changes: Mapping[str, Any]) -> None:
    """Sets widgets to these values of a Scenario; a callback, so that it runs before they are drawn.

    A widget that was drawn before writes the address itself; for the advanced ones that were not, it is written here, and they are drawn."""
    if not st.session_state.get("_advanced"):
        chosen = {name: value for name, value in changes.items() if name not in MAIN and value != getattr(DEFAULTS, name)}
        st.session_state["_advanced"] = bool(chosen)
        query = replace(DEFAULTS, **chosen).to_query()
        for name in query:
            st.query_params[name] = query[name]
    for name, value in changes.items():
        if name in CARRIED:
            continue
        if name == "lengths":
            st.session_state["lengths"], st.session_state["_mix"] = value or "", None
            continue
        if value is None:
            value = "" if name in TEXTS else AUTO if OPTIONS[name].kind == "choice" else None
        st.session_state[name] = str(value) if name in TEXTS else value
    st.session_state["_carried"] = {name: changes[name] for name in CARRIED if changes.get(name)}


def scenario(model_name: str) -> Scenario:
    """The widgets' values, checked again here: limits in a browser are a courtesy."""
    s = st.session_state
    values = {name: s[name] for name in OPTIONS if name in s and s[name] not in (None, "", AUTO) and name not in ("model", "lengths")}
    return from_options({**values, **s["_carried"], "lengths": lengths(), "model": model_name})


def lengths_text() -> str:
    """What stands in the field of lengths, which the Plan page draws below its answer: its value, or the address's."""
    s = st.session_state
    if "lengths" in s:
        s["_lengths"] = s["lengths"]
    return str(s.get("_lengths", st.query_params.get("lengths")) or "").strip()


def lengths() -> str | None:
    """The text of a mix of lengths; None where there is none or it cannot be read, which the Plan page then says."""
    text = lengths_text()
    try:
        return text if text and from_text(text) else None
    except PlannerError:
        return None


def permalink(chosen: Scenario) -> str:
    base = (st.context.url or "").split("?")[0]
    query = urlencode(chosen.to_query())
    return f"{base}?{query}" if query else base

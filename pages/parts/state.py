"""The choices of one session: widget values, bound to the address. Nothing at module level.

Every field of a Scenario is a query parameter of the same name, on every page, so the address is the permalink. A widget that all
pages draw is bound to its parameter, and the browser writes it; the other fields are written by `keep_in_address`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from pages.parts import language
from pages.parts.errors import plain
from planner.errors import PlannerError
from planner.messages import render
from planner.mix import from_text
from planner.scenario import OPTIONS, Scenario, from_options

AUTO = "auto"
TEXTS = ("kv_memory", "weight_bytes", "engine_version", "kv_offload", "draft", "used_memory_bytes")
TARGETS = ("target_ttft", "target_itl")
LOAD = ("request_rate", "prefix_hit_rate", "acceptance_rate", "price_per_gpu_hour")
SERVED = (*TARGETS, "prefill_policy", "calibration", *LOAD)
CARRIED = ("prompt", "output", *SERVED)
UNBOUND = ("lengths", *CARRIED)
MAIN = ("model", "gpu", "gpus", "engine", "tokens", "sequences", "lengths", *CARRIED)
DEFAULTS = Scenario()
HEAT = "heat"


def begin() -> None:
    """Before the navigation is drawn. Once a session: what the address asks for and cannot be is said, and takes its default."""
    s = st.session_state
    if "_begun" in s:
        _ask_again()
        return
    s["_begun"], s["_own"], s["_uploads"], s["_link_faults"], s["_carried"] = True, None, {}, [], {}
    s["_mix"] = s["_mix_fault"] = None
    spoken = language.asked()
    s["_asked"] = {language.KEY: spoken} if spoken else {}
    asked = {k: v for k, v in st.query_params.to_dict().items() if k in OPTIONS}
    bad = set()
    for name, value in asked.items():
        try:
            found = getattr(from_options({name: value}), name)
        except PlannerError as e:
            bad.add(name)
            s["_link_faults"].append(e.message)
        else:
            if name not in UNBOUND and found != getattr(DEFAULTS, name):
                s["_asked"][name] = value if name in TEXTS else found
    carried = {k: v for k, v in asked.items() if k in CARRIED and k not in bad}
    if carried:
        chosen = from_options(carried)
        s["_carried"] = {name: getattr(chosen, name) for name in CARRIED}
        if "tokens" not in asked:
            s["tokens"] = chosen.tokens
    lengths_text()


def _ask_again() -> None:
    """What the link asked for and the browser has dropped is set again, until the browser has it.

    On a change of page the browser keeps the parameters of widgets that it has drawn, and drops the others: whoever goes on before the first
    page stands would lose the link. The session still knows it, or never did, as the run may have ended early; the browser must be told."""
    s = st.session_state
    lost = {name: value for name, value in s["_asked"].items() if name not in st.query_params and s.get(name, value) == value}
    for name, value in lost.items():
        if name not in s and name not in MAIN:
            s["_advanced"], st.query_params[name] = True, str(value)
        s[name] = value
    s["_asked"] = lost and s["_asked"]


def keep_in_address() -> None:
    """Writes the fields without a bound widget: a widget that only one page draws would take its parameter along when that page is left."""
    wanted = {"lengths": lengths_text(), **{name: str(value) for name, value in st.session_state["_carried"].items() if value}}
    changed = {name: value for name in UNBOUND if (value := wanted.get(name)) and st.query_params.get(name) != value}
    if changed:
        st.query_params.update(changed)  # at once: each change is a message to the browser
    for name in UNBOUND:
        if not wanted.get(name) and name in st.query_params:
            del st.query_params[name]


def link_faults() -> None:
    for fault in st.session_state["_link_faults"]:
        st.warning(render("page.link.bad", {"detail": plain(fault)}))


def tokens_changed() -> None:
    st.session_state["_carried"] = _served()
    st.session_state["_link_faults"] = []


def _served() -> dict[str, Any]:
    """What was asked of the times; it stays when lengths change."""
    return {name: value for name, value in st.session_state["_carried"].items() if name in SERVED and value}


def take(changes: Mapping[str, Any]) -> None:
    """Sets widgets to these values of a Scenario; a callback, so that it runs before they are drawn.

    A widget that was drawn before writes the address itself; for the advanced ones that were not, it is written here, and they are drawn."""
    s = st.session_state
    chosen = {name: value for name, value in changes.items() if name not in MAIN and name not in s and value != getattr(DEFAULTS, name)}
    s["_advanced"] = bool(s.get("_advanced") or chosen)
    for name, value in replace(DEFAULTS, **chosen).to_query().items():
        st.query_params[name] = value
    for name, value in changes.items():
        if name in CARRIED:
            continue
        if name == "lengths":
            s["lengths"], s["_mix"] = value or "", None
            continue
        if value is None:
            value = "" if name in TEXTS else AUTO if OPTIONS[name].kind == "choice" else None
        s[name] = str(value) if name in TEXTS else value
    stays = _served() if "tokens" in changes else s["_carried"]  # prompt and output go with a length only
    kept = {name: value for name, value in stays.items() if name not in changes}
    s["_carried"] = {**kept, **{name: changes[name] for name in CARRIED if changes.get(name)}}


def take_cell() -> None:
    """A click on the heat map: the cell's length and number become the choices.

    Not in the page's script: Streamlit keeps the callback of each picture that a session saw, and with a script's function all that the run
    had, its plan too."""
    points = st.session_state[HEAT]["selection"]["points"]
    if points and points[0].get("customdata"):
        tokens, sequences = points[0]["customdata"]
        take({"tokens": int(tokens), "sequences": int(sequences)})


def scenario(model_name: str) -> Scenario:
    """The widgets' values, checked again here: limits in a browser are a courtesy."""
    s = st.session_state
    values = {name: s[name] for name in OPTIONS if name in s and s[name] not in (None, "", AUTO) and name not in ("model", "lengths")}
    return from_options({**values, **s["_carried"], "lengths": lengths(), "model": model_name})


def lengths_text() -> str:
    """What stands in the field of lengths, which the Plan page draws below its answer: its value, or the address's.

    The address is read once: a browser that goes on to another page drops what no widget there is bound to."""
    s = st.session_state
    if "lengths" in s:
        s["_lengths"] = s["lengths"]
    elif "_lengths" not in s:
        s["_lengths"] = st.query_params.get("lengths")
    return str(s["_lengths"] or "").strip()


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

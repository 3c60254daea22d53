"""Models of the hub by part of a name. The hub is asked only on a click, once a click; what it said stays in the session."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import errors, source
from planner.errors import PlannerError, SourceError
from planner.messages import render
from planner.sources import hub, hub_address

FOUND = "_hub_found"
MOST, SHORTEST = 10, 2


def draw() -> None:
    """The field with its button, and what was found. The button only makes the field's text known: Enter does the same."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(render("page.hub.search"), key="hub_search", max_chars=80, help=render("page.hub.search.help"), width=260, persist_state="session")
        st.button(render("page.hub.ask"), key="hub_ask", on_click=_typed)
    _results("own")


def offer(error: PlannerError) -> None:
    """After a model name that nothing knows: the same search for it, in place."""
    text = str(st.session_state.get("model") or "").strip()[:80]
    if error.code != "unknown_source" or not text:
        return
    st.button(render("page.hub.ask_for", {"text": errors.plain(text)}), key="hub_ask_for", on_click=partial(_ask, text, "offer"), type="primary")
    _results("offer")


def _typed() -> None:
    _ask(str(st.session_state["hub_search"] or "").strip(), "own")


def _ask(text: str, where: str) -> None:
    s = st.session_state
    try:
        if "/" in text and hub_address.address_of(text) is not None:  # an id or a page's address needs no search
            _model(text)
            return
        if sum(c.isalnum() for c in text) < SHORTEST:
            raise SourceError("hub_search_short", field="source")
        s[FOUND] = (where, text, hub.search(text, MOST, token=s.get("hub_token") or None), None)
    except Exception as e:
        s[FOUND] = (where, text, (), errors.caught(e).to_json())


def _results(where: str) -> None:
    asked, text, ids, error = st.session_state.get(FOUND, ("", "", (), None))
    if asked != where:
        return
    if error:
        errors.show(error)
    elif ids:
        st.pills(render("page.hub.found"), ids, key=f"hub_ids_{where}", help=render("page.hub.found.help"), on_change=partial(_take, f"hub_ids_{where}"))
    elif text:
        st.info(render("page.hub.none", {"text": errors.plain(text)}))


def _take(key: str) -> None:
    s = st.session_state
    if s[key]:
        _model(s[key])


def _model(name: str) -> None:
    st.session_state["model"] = name
    st.session_state.pop(FOUND, None)
    source.leave_own()

"""The language of one session: chosen at the top of every page, kept in the address, at first the browser's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from planner import messages
from planner.messages import ENGLISH, render

KEY = "lang"
P, T = ParamSpec("P"), TypeVar("T")


def of_reader() -> str | None:
    """What this session chose, asks for in its address or has its browser set to; None outside a session."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return None
    wanted = st.session_state.get(KEY) or st.query_params.get(KEY) or _of_browser()
    return wanted if wanted in messages.languages() else None


def _of_browser() -> str:
    return (st.context.locale or "").split("-")[0].lower()


def asked() -> str | None:
    """Once a session: the language of its address, where that is another than the browser's own."""
    st.session_state[KEY] = now = of_reader() or ENGLISH
    return now if now != _of_browser() and KEY in st.query_params else None


def begin() -> None:
    """Once a run: to ask the session for every text is dear."""
    messages.choose(None)
    messages.choose(messages.language())


def draw() -> None:
    """The list of languages, each by its own name. One that is not the browser's own stays in the address on every page."""
    names, own = messages.languages(), _of_browser()
    st.session_state.setdefault(KEY, of_reader() or ENGLISH)
    st.selectbox(render("page.language"), list(names), format_func=lambda code: names[code], key=KEY, on_change=_to_address,
                 label_visibility="collapsed", width=120)  # fmt: skip
    if KEY not in st.query_params and st.session_state[KEY] != (own if own in names else ENGLISH):
        _to_address()


def _to_address() -> None:
    """Not bound: the browser would write the name that is shown, not the code."""
    st.query_params[KEY] = st.session_state[KEY]


def kept(work: Callable[P, T]) -> Callable[P, T]:
    """`work`, done later outside the script (a download, a thread), still says its texts in the language of now."""
    spoken = messages.language()

    @wraps(work)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with messages.speaking(spoken):
            return work(*args, **kwargs)

    return told


messages.listen(of_reader)

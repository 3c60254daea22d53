"""Reconcile: does my engine agree? A pasted start-up log, line by line, beside itself and beside the plan."""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, log_view, source
from planner.messages import render

current: source.Current = st.session_state["_current"]

st.caption(render("page.reconcile.about"))
log_view.ask()
with errors.shown(stop=False):
    own = log_view.result(current)
    found = own or log_view.example_result(current)
    if found is None:
        st.info(render("page.log.empty"))
    else:
        if own is None:
            log_view.say_example(current)
        log_view.answer(found)
        log_view.causes(found)
        log_view.refusals(found)
        log_view.lines(found)
        if own is not None:
            log_view.take(found)
            log_view.details(found)

"""Diagnose: it is slow, or it dies: why?"""

from __future__ import annotations

import streamlit as st

from pages.parts import diagnose_view, errors, source, tables
from planner.diagnose import diagnose, example
from planner.messages import render

current: source.Current = st.session_state["_current"]

st.caption(render("page.diagnose.about"))
with errors.shown():
    seen = diagnose_view.ask()
    plan = current.plan()
    if seen.empty:
        made = example(plan)
        st.info(render("page.diagnose.empty" if made is None else "page.diagnose.example", made and diagnose_view.told(made)))
        if made is None:
            st.stop()
        seen = made
    found = diagnose(plan, seen)
    diagnose_view.answer(found)
    diagnose_view.remedies(found, current.scenario)
    tables.notes(found.predicted.notes if found.predicted else ())

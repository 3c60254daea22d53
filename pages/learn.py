"""Learn: how does a KV cache work, in the figures of the user's own model and of this host's measurements."""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, jobs, learn_view, source
from planner.errors import PlannerError
from planner.learn import figures, lessons
from planner.messages import render
from planner.units import count

current: source.Current = st.session_state["_current"]

with errors.shown():
    s, model = current.scenario, current.model
    st.caption(render("page.learn.about", {"model": errors.plain(model.name), "sequences": count(s.sequences), "tokens": count(s.tokens)}))
    try:
        plan = current.plan()
    except PlannerError as e:
        plan = None
        st.info(render("page.learn.no_engine", {"engine": s.engine, "detail": errors.plain(e.message)}))
    result = jobs.result()
    if result is None:
        st.caption(render("page.learn.measured.none"))
    elif result.model.get("name") != model.name:
        st.caption(render("page.learn.measured.other", {"model": errors.plain(str(result.model.get("name", "-")))}))
        result = None
    items = learn_view.items()
    for lesson in lessons(figures(model, s, plan, result.to_json() if result is not None else None)):
        learn_view.draw(lesson, items)

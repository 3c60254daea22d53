"""Sweep: which configuration meets the targets for the least money?"""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, source, sweep_charts, sweep_view
from planner.messages import render
from planner.sweep.files import answer

current: source.Current = st.session_state["_current"]

with errors.shown():
    wanted = sweep_view.inputs(current)
    sweep_view.controls(wanted, current)
    table = sweep_view.found(wanted)
    if table is None:
        st.stop()
    length = sweep_view.length(table)
    st.markdown(errors.plain(answer(table, length)))
    sweep_view.cards(table)
    st.subheader(render("page.sweep.best"), anchor=False)
    sweep_view.best(table, length)
    x, y = sweep_view.axes(table)
    st.markdown(render("page.chart.title", {"title": errors.plain(sweep_charts.title(table, length, x, y))}))
    st.plotly_chart(sweep_charts.pareto(table, length, x, y), key="sweep_pareto", config={"displayModeBar": False}, alt=render("page.sweep.alt"))
    st.caption(render("page.sweep.chart.about"))
    sweep_view.refused(table)
    sweep_view.download(table)
    sweep_view.how(table)

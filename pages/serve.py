"""Serve: how fast, and which batch?"""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, knob_view, load_view, serve_charts, serve_view, source, tables
from planner.latency import latency, served
from planner.messages import render
from planner.notes import Note
from planner.throughput import batch_limit, by_prompt, over_parallelism

current: source.Current = st.session_state["_current"]

with errors.shown():
    serve_view.inputs(current.scenario)
    p = current.plan()
    own = served(p)
    limit = batch_limit(p)
    if isinstance(own, Note) or isinstance(limit, Note):
        st.info(errors.plain(own.text if isinstance(own, Note) else render("page.serve.none")))
        st.stop()
    now = latency(own)
    if not p.fits:
        st.warning(errors.plain(render("note.latency_as_if")))
    serve_view.cards(p, now, limit)
    degrees = over_parallelism(p)
    st.markdown(render("page.chart.title", {"title": errors.plain(serve_charts.frontier_title(limit))}))
    st.plotly_chart(serve_charts.frontier(limit, degrees, p, now), key="frontier", config={"displayModeBar": False}, alt=render("page.serve.frontier.alt"))
    st.caption(render("page.serve.frontier.about"))
    st.subheader(render("page.serve.limits"), anchor=False)
    tables.text(serve_view.limit_rows(limit))
    prompts = by_prompt(own, min(p.model.max_context_tokens or p.setting.max_model_len, p.setting.max_model_len))
    st.markdown(render("page.chart.title", {"title": errors.plain(serve_charts.prompt_title(now))}))
    st.plotly_chart(serve_charts.prompt(prompts), key="ttft", config={"displayModeBar": False}, alt=render("page.serve.ttft.alt"))
    st.subheader(render("page.serve.time"), anchor=False)
    tables.text(serve_view.part_rows(now))
    if limit.chunks:
        st.subheader(render("page.serve.chunks"), anchor=False)
        st.caption(render("page.serve.chunks.about"))
        tables.text(serve_view.chunk_rows(limit))
    if len(degrees) > 1:
        st.subheader(render("page.serve.degrees"), anchor=False)
        tables.text(serve_view.degree_rows(degrees))
        if not serve_view.plain_parallelism(p):
            st.caption(render("page.serve.degrees.plain"))
    knob_view.knobs(p)
    knob_view.calibration(p)
    said = load_view.section(p, own, limit)
    serve_view.how(p, now, limit)
    tables.notes((*current.loaded.notes, *p.notes, *now.notes, *said))

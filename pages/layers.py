"""Layers: where are the bytes, and why does the planner think so?"""

from __future__ import annotations

import streamlit as st

from pages.parts import editor, errors, layer_charts, source, tables
from planner.describe import config_of, rows_of
from planner.errors import PlannerError
from planner.footprint import drafting
from planner.layermap import cells, groups
from planner.messages import render
from planner.report.content import gap_line, reserved_line
from planner.units import count
from planner.whatif import variants

current: source.Current = st.session_state["_current"]

with errors.shown():
    s = current.scenario
    model = drafting(current.model, s)
    p, refusal = None, ""
    try:
        p = current.plan()
        foot = p.footprint
    except PlannerError as e:
        foot, refusal = current.by_architecture(), errors.plain(e.message)  # the map stands also where the chosen engine cannot run the model
    setting = foot.setting
    found = cells(model, setting.kv, setting.model_dtype, s.tokens, setting.encoder_tokens)
    equal = groups(model, setting.kv, setting.model_dtype, s.tokens, setting.encoder_tokens)
    st.markdown(render("page.chart.title", {"title": errors.plain(layer_charts.layer_title(equal, found, s.tokens))}))
    st.plotly_chart(layer_charts.layer_map(found), key="layer_map", config={"displayModeBar": False}, alt=render("page.layers.map.alt"))
    st.html(layer_charts.kind_legend(found))

    st.subheader(render("page.layers.groups"), anchor=False)
    tables.text(tables.kind_rows(equal))
    notes = (*current.loaded.notes, *(p.notes if p is not None else model.notes))
    with st.container(border=True):
        st.text("\n".join(line.text for line in foot.formula))
        if p is not None:
            st.text(gap_line(p))
            tables.one_replica(p)
        else:
            st.info(refusal)
    reserved = reserved_line(p) if p is not None else None
    if p is not None and reserved:
        st.subheader(render("page.reserved", {"engine": p.setting.engine}), anchor=False)
        st.caption(errors.plain(reserved))
        tables.text(tables.pool_rows(p))

    st.subheader(render("page.layers.why"), anchor=False)
    tables.text(tables.why_rows(equal, current.deciding_keys()))
    if rows := tables.note_rows(notes):
        tables.worded(rows, render("page.notes"))

    st.subheader(render("page.layers.whatif"), anchor=False)
    try:
        spread = (p.setting.parallel, p.replicas) if p is not None else (None, 1)
        forms = variants(model, setting.kv, s.tokens, s.sequences, *spread)
        q_heads = max(layer.attention.q_heads for layer in model.layers if layer.attention)
        layers = sum(layer.attention is not None for layer in model.layers)
        st.caption(render("page.layers.whatif.about", {"layers": count(layers), "q_heads": count(q_heads)}))
        tables.text(tables.variant_rows(forms))
        st.caption("\n".join(render("page.layers.caution", {"name": errors.plain(v.name), "caution": errors.plain(v.caution)}) for v in forms))
    except PlannerError as e:
        st.info(errors.plain(e.message))

    st.subheader(render("page.layers.edit"), anchor=False)
    try:
        editor.draw(current.model, rows_of(current.model), config_of)
    except PlannerError as e:
        st.info(errors.plain(e.message))

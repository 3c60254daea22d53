"""Plan: does it fit, how many, how long?"""

from __future__ import annotations

import streamlit as st

from pages.parts import charts, errors, look, mix_view, plan_file, remedy, source, state, tables
from pages.parts.headline import headline
from planner.claims import claims
from planner.heatmap import heat_map
from planner.messages import render
from planner.report import MIME, file_name
from planner.report.content import distinct_ranks, gap_line, reserved_line
from planner.report.summary import summary
from planner.units import count, gib

MOST_RANKS = 6  # kinds of ranks side by side; more stand below each other

current: source.Current = st.session_state["_current"]


with errors.shown():
    p = current.plan()
    headline(p)
    look.answer_first()
    if not p.fits:
        remedy.offer(p)
    st.markdown(render("page.chart.title", {"title": errors.plain(charts.bar_title(p))}))
    st.plotly_chart(charts.bars(p), key="bars", config={"displayModeBar": False}, alt=render("page.bar.alt"))
    st.html(charts.legend(p))
    st.markdown(render("page.chart.title", {"title": errors.plain(charts.heat_title(p))}))
    st.plotly_chart(
        charts.heat(p, heat_map(p)),
        key=state.HEAT,
        on_select=state.take_cell,
        selection_mode="points",
        config={"displayModeBar": False},
        alt=render("page.heat.alt"),
    )
    st.caption(render("page.heat.click"))

    mix_view.draw(p)

    st.subheader(render("page.formula"), anchor=False)
    with st.container(border=True):
        st.text("\n".join([*(line.text for line in p.footprint.formula), gap_line(p)]))
        tables.one_replica(p)
        for claim in claims(p):
            st.caption(errors.plain(claim.text))
        if p.footprint.prefix_tokens:
            saved = p.footprint.prefix_bytes_saved
            st.caption(render("page.prefix", {"tokens": count(p.scenario.shared_prefix), "saved": gib(saved), "bytes": count(saved)}))
    gap = tables.gap_rows(p)
    if gap.rows:
        st.markdown(render("page.gap"))
        tables.text(gap)
    reserved = reserved_line(p)
    if reserved:
        st.subheader(render("page.reserved", {"engine": p.setting.engine}), anchor=False)
        st.caption(errors.plain(reserved))
        tables.text(tables.pool_rows(p))
    remedy.smallest_memory(p)

    st.subheader(render("page.ledger"), anchor=False)
    if 1 < len(distinct_ranks(p)) <= MOST_RANKS:
        tables.worded(tables.ledger_by_rank(p), render("page.ledger"))
    else:
        tables.text(tables.ledger_rows(p))
    st.subheader(render("page.groups"), anchor=False)
    tables.text(tables.group_rows(p.model))
    tables.notes((*current.loaded.notes, *p.notes))

    if st.session_state["_own"] is None:
        st.caption(render("page.permalink"), help=render("page.permalink.help"))
        st.code(state.permalink(current.scenario), language=None, wrap_lines=True)
    with st.expander(render("page.summary"), key="summary", on_change="rerun") as box:
        if box.open:
            st.code(summary(p, state.permalink(current.scenario) if st.session_state["_own"] is None else ""), language=None, wrap_lines=True)
    st.download_button(
        render("page.download_plan"),
        data=plan_file.maker(current, p),
        file_name=file_name(p, "json"),
        mime=MIME["json"],
        on_click="ignore",
        key="download_plan",
        icon=":material/download:",
    )
    plan_file.save_box(current, p)

"""Compare: which of these? Up to six plans side by side, what differs, and where each number comes from."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import column_file, columns, compare_charts, compare_view, errors, language, source
from planner import compare
from planner.compare.files import bars, finding, to_csv
from planner.compare.lines import lines
from planner.messages import render

current: source.Current = st.session_state["_current"]

columns.begin()
with errors.shown():
    copies, found = columns.found(current)
    columns.keep_in_address()
    columns.faults()
    names = compare.NAMES[: len(found)]
    st.caption(render("page.compare.about", {"most": compare.MOST, "first": compare.NAMES[0]}))
    compare_view.cards(found, current)
    st.markdown(render("page.chart.title", {"title": errors.plain(finding(found))}))
    drawn = bars(found)
    if drawn:
        st.plotly_chart(compare_charts.figure(drawn), key="compare_bars", config={"displayModeBar": False}, alt=render("page.compare.alt"))
        st.html(compare_charts.legend(drawn))
    compare_view.form(found, current)

    rows = lines(found)
    only = st.checkbox(render("page.compare.only"), key="column_only", help=render("page.compare.only.help"))
    compare_view.table([line for line in rows if line.differs or not only], names)
    st.caption(render("page.compare.legend", {"first": compare.NAMES[0]}))
    columns.session_only(copies)
    with st.container(horizontal=True):
        for kind, mime, make in (("csv", "text/csv", to_csv), ("json", "application/json", partial(column_file.made, columns.sources(copies, current)))):
            st.download_button(render(f"page.compare.{kind}"), data=language.kept(partial(make, found)), file_name=f"kv-compare.{kind}", mime=mime,
                               on_click="ignore", key=f"compare_{kind}", icon=":material/download:")  # fmt: skip
        st.button(render("page.compare.start"), key="column_start", on_click=columns.start_over, help=render("page.compare.start.help"))
    st.file_uploader(render("page.compare.open"), type="json", key="column_file", max_upload_size=32, on_change=column_file.opened,
                     help=render("page.compare.open.help"), width=420)  # fmt: skip
    with st.expander(render("page.compare.sources"), key="compare_sources", on_change="rerun") as box:
        if box.open:
            compare_view.sources(rows, names)

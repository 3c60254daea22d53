"""Report: one plan as a file, to show it to someone."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.parts import errors, jobs, mix_view, source
from planner.messages import render
from planner.report import FORMATS, MIME, file_name
from planner.report import render as report

current: source.Current = st.session_state["_current"]

st.caption(render("page.report.about"))
with errors.shown():
    plan, loaded, result, mix = current.plan(), current.loaded, jobs.result(), mix_view.chosen()
    with_probe = result is not None and st.checkbox(render("page.report.with_probe"), True, key="with_probe", help=render("page.report.with_probe.help"))
    probe = result.to_json() if with_probe and result is not None else None

    def maker(fmt: str) -> Callable[[], bytes]:
        """Runs on the click, outside the script: it holds values, and reads no session."""
        return lambda: report(plan, fmt, loaded.provenance, probe, config=loaded.raw, notes=loaded.notes, mix=mix)

    with st.container(horizontal=True):
        for fmt in FORMATS:
            label, help_ = render(f"page.report.{fmt}"), render(f"page.report.{fmt}.help")
            st.download_button(label, data=maker(fmt), file_name=file_name(plan, fmt), mime=MIME[fmt], on_click="ignore", key=f"report_{fmt}",
                               icon=":material/download:", help=help_)  # fmt: skip
    st.subheader(render("page.report.preview"), anchor=False)
    with st.container(border=True, key="preview"):
        st.markdown(maker("md")().decode())

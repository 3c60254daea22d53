"""Report: one plan as a file, to show it to someone."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.parts import errors, jobs, mix_view, source
from planner import report
from planner.messages import render

current: source.Current = st.session_state["_current"]

st.caption(render("page.report.about"))
with errors.shown():
    plan, loaded, result, mix = current.plan(), current.loaded, jobs.result(), mix_view.chosen()
    with_probe = result is not None and st.checkbox(render("page.report.with_probe"), True, key="with_probe", help=render("page.report.with_probe.help"))
    probe = result.to_json() if with_probe and result is not None else None
    with_suite = jobs.suite() is not None and st.checkbox(render("page.report.with_suite"), True, key="with_suite", help=render("page.report.with_suite.help"))
    suite = jobs.suite() if with_suite else None

    asked = report.request(plan, loaded.provenance, probe, suite=suite, config=loaded.raw, notes=loaded.notes, harmless=current.harmless, mix=mix)

    def maker(fmt: str) -> Callable[[], bytes]:
        """Runs on the click, outside the script: it holds values, and reads no session."""
        return lambda: report.laid_out(asked, fmt)

    with st.container(horizontal=True):
        for fmt in report.FORMATS:
            label, help_ = render(f"page.report.{fmt}"), render(f"page.report.{fmt}.help")
            st.download_button(label, data=maker(fmt), file_name=report.file_name(plan, fmt), mime=report.MIME[fmt], on_click="ignore", key=f"report_{fmt}",
                               icon=":material/download:", help=help_)  # fmt: skip
    st.caption(render("page.report.inside", {"sections": ", ".join(report.sections(asked))}))
    st.subheader(render("page.report.preview"), anchor=False)
    with st.container(border=True, key="preview"):
        st.markdown(maker("md")().decode())

"""Report: one plan as a file, to show it to someone."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.parts import errors, jobs, language, log_view, mix_view, source
from planner import report
from planner.messages import render

current: source.Current = st.session_state["_current"]

st.caption(render("page.report.about"))
with errors.shown():
    plan, loaded, probe, log = current.plan(), current.loaded, jobs.result(), None
    with errors.shown(stop=False):
        log = log_view.result(current)
    results = {"probe": probe and probe.to_json(), "suite": jobs.suite(), "reconciliation": log and log.to_json()}
    wanted = {
        name: found
        for name, found in results.items()
        if found and st.checkbox(render(f"page.report.with_{name}"), True, key=f"with_{name}", help=render(f"page.report.with_{name}.help"))
    }
    asked = report.request(
        plan, loaded.provenance, config=loaded.raw, notes=loaded.notes, harmless=current.harmless, mix=mix_view.chosen(), **wanted
    )  # fmt: skip

    def maker(fmt: str) -> Callable[[], bytes]:
        """Runs on the click, outside the script: it holds values, and reads no session."""
        return language.kept(lambda: report.laid_out(asked, fmt))

    with st.container(horizontal=True):
        for fmt in report.FORMATS:
            label, help_ = render(f"page.report.{fmt}"), render(f"page.report.{fmt}.help")
            st.download_button(label, data=maker(fmt), file_name=report.file_name(plan, fmt), mime=report.MIME[fmt], on_click="ignore", key=f"report_{fmt}",
                               icon=":material/download:", help=help_)  # fmt: skip
    st.caption(render("page.report.inside", {"sections": ", ".join(report.sections(asked))}))
    st.subheader(render("page.report.preview"), anchor=False)
    with st.container(border=True, key="preview"):
        st.markdown(maker("md")().decode())

"""The script that the app runs: navigation, then the question, the shared inputs and the page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.parts import editor, errors, inputs, language, source
from planner.errors import PlannerError
from planner.messages import render

HERE = Path(__file__).resolve().parent
ICONS = {
    "plan": ":material/memory:",
    "layers": ":material/layers:",
    "compare": ":material/compare:",
    "serve": ":material/speed:",
    "sweep": ":material/grid_on:",
    "diagnose": ":material/troubleshoot:",
    "validate": ":material/fact_check:",
    "reconcile": ":material/plagiarism:",
    "report": ":material/description:",
    "learn": ":material/school:",
}

# An emoji: an icon of Streamlit's own set would be fetched from outside.
st.set_page_config(page_title=render("app.title"), page_icon="\N{BAR CHART}", layout="wide")
# Less air on top; tables of text are dense, and on a phone they scroll within themselves.
STYLE = """
[data-testid='stMainBlockContainer'] {padding-top: 3.6rem; padding-bottom: 3rem}
[data-testid='stMarkdownContainer']:has(> table) {overflow-x: auto}
[data-testid='stMarkdownContainer'] :is(td, th) {padding: 0.25rem 0.6rem; font-size: 0.85rem}
"""
st.html(f"<style>{STYLE}</style>")
pages = {
    name: st.Page(HERE / f"{name}.py", title=render(f"page.{name}"), icon=icon, url_path=None if name == "plan" else name, default=name == "plan")
    for name, icon in ICONS.items()
}
page = st.navigation(list(pages.values()), position="top")
name = next(n for n, p in pages.items() if p.url_path == page.url_path)
with st.container(horizontal=True, vertical_alignment="center"):
    st.header(render(f"page.{name}.question"), anchor=False, width="stretch")
    language.draw()
try:
    st.session_state["_current"] = inputs.draw()
except PlannerError as e:
    errors.show(e)
    if e.field == "source" and st.session_state["_own"] is None:
        st.button(render("page.again"), on_click=source.ask_again, key="ask_again")
    if raw := source.refused():
        with st.expander(render("page.layers.finish"), key="finish"):
            editor.start(raw)
    st.stop()
except Exception as e:
    errors.show(errors.caught(e))
    st.stop()
page.run()

"""The script that the app runs: navigation, then the question, the shared inputs and the page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.parts import editor, errors, hub_search, inputs, language, login, look, source, state
from planner import hardware
from planner.errors import PlannerError
from planner.messages import render
from planner.sources import catalog

HERE = Path(__file__).resolve().parent
HOME = "home"
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
    "history": ":material/history:",
    "learn": ":material/school:",
}

language.begin()
# An emoji: an icon of Streamlit's own set would be fetched from outside.
st.set_page_config(page_title=render("app.title"), page_icon="\N{BAR CHART}", layout="wide")
st.html(look.STYLE)
pages = {
    name: st.Page(HERE / f"{name}.py", title=render(f"page.{name}"), icon=icon, url_path=HOME if name == "plan" else name, default=name == "plan")
    for name, icon in ICONS.items()
}
# The default page's address is the root alone: /plan is the same page once more, which the navigation does not list.
again = st.Page(HERE / "plan.py", title=render("page.plan"), url_path="plan", visibility="hidden")
state.begin()
page = st.navigation([*pages.values(), again], position="top")
name = next((n for n, p in pages.items() if p.url_path == page.url_path), "plan")
with st.container(horizontal=True, vertical_alignment="center", key="page_head"):
    st.header(render(f"page.{name}.question"), anchor=False, width="stretch")
    login.draw()
    language.draw()
login.told()
try:
    st.session_state["_current"] = inputs.draw()
except PlannerError as e:
    errors.show(e)
    hub_search.offer(e)
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
st.caption(render("page.data", {"models": catalog.as_of(), "devices": hardware.as_of()}), help=render("page.data.help"))

"""Validate: does this machine agree? Predicted bytes first, then a real run beside them."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from gpu_probe.result import KV_DTYPES, LIMITS, ProbeRequest
from pages.parts import errors, jobs, probe_view, source
from planner.messages import render

current: source.Current = st.session_state["_current"]
DEFAULTS = {"batch": 2, "prompt": 64, "output": 8, "block_size": 16}


def number(name: str, low: int, high: int, value: int, width: int = 120) -> int:
    label, help_ = render(f"page.probe.{name}"), render(f"page.probe.{name}.help")
    return int(st.number_input(label, low, high, value, key=f"probe_{name}", help=help_, width=width, persist_state="session"))


def choice(name: str, options: tuple[str, ...]) -> str:
    label, help_ = render(f"page.probe.{name}"), render(f"page.probe.{name}.help")
    return str(st.selectbox(label, options, key=f"probe_{name}", help=help_, width=115, persist_state="session"))


st.caption(render("page.validate.about"))
whole = len(current.model.layers)
with st.container(horizontal=True, vertical_alignment="bottom"):
    chosen: dict[str, Any] = {name: number(name, *LIMITS[name], value) for name, value in DEFAULTS.items()}
    chosen["layers"] = min(whole, number("layers", 1, 1000, 2))
    chosen["kv_dtype"] = choice("kv_dtype", KV_DTYPES)
    chosen["device"] = choice("device", ("auto", "cpu", "cuda"))
    chosen["time_limit_s"] = float(number("time_limit", 1, 600, 120))

with errors.shown():
    request = ProbeRequest(**chosen, memory_cap_bytes=jobs.MEMORY_CAP_BYTES).checked()
    probe_view.prediction(jobs.predict(current.model, request), request, whole)
    running = jobs.job().run is not None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            render("page.probe.start"), key="probe_start", type="primary", disabled=running, on_click=jobs.begin, args=(current, request, source.harmless())
        )
        st.button(render("page.probe.cancel"), key="probe_cancel", disabled=not running, on_click=jobs.cancel)
    if running:
        jobs.watch()

if said := st.session_state.get(jobs.SAID):
    st.info(render(said))
if error := st.session_state.get(jobs.ERROR):
    errors.show(error)
result = jobs.result()
if result is None:
    st.info(render("page.probe.none"))
else:
    with errors.shown(stop=False):
        probe_view.outcome(result, current.model.name)
        body = json.dumps(result.to_json(), indent=1)
        st.download_button(
            render("page.probe.download"), data=body, file_name="probe-result.json", mime="application/json", on_click="ignore", key="probe_download"
        )
st.file_uploader(render("page.probe.upload"), key="probe_upload", max_upload_size=4, on_change=jobs.uploaded, help=render("page.probe.upload.help"))
if suite := jobs.suite():
    with errors.shown(stop=False):
        probe_view.suite(suite)

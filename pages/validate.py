"""Validate: does this machine agree? Predicted bytes first, then a real run beside them, then what the articles claim, measured."""

from __future__ import annotations

from typing import Any

import streamlit as st

from gpu_probe.client import BACKENDS, DEVICES, RUNNERS, allowed, memory_cap
from gpu_probe.result import KV_DTYPES, LIMITS, ProbeRequest
from pages.parts import errors, jobs, probe_view, source, suite_view
from planner.messages import render

current: source.Current = st.session_state["_current"]
DEFAULTS = {"batch": 2, "prompt": 64, "output": 8, "shared_prefix": 0, "block_size": 16}
BOUNDS = {**LIMITS, "shared_prefix": (0, LIMITS["prompt"][1])}
CHOICES = {"kv_dtype": KV_DTYPES, "runner": RUNNERS, "backend": BACKENDS, "device": DEVICES}


def number(name: str, low: int, high: int, value: int, width: int = 120) -> int:
    label, help_ = render(f"page.probe.{name}"), render(f"page.probe.{name}.help")
    return int(st.number_input(label, low, high, value, key=f"probe_{name}", help=help_, width=width, persist_state="session"))


def choice(name: str) -> str:
    label, help_ = render(f"page.probe.{name}"), render(f"page.probe.{name}.help")
    return str(st.selectbox(label, CHOICES[name], key=f"probe_{name}", help=help_, width=140, persist_state="session"))


st.caption(render("page.validate.about"))
probe_view.gpu_note()
whole = len(current.model.layers)
with st.container(horizontal=True, vertical_alignment="bottom", key="probe_inputs"):
    chosen: dict[str, Any] = {name: number(name, *BOUNDS[name], value) for name, value in DEFAULTS.items()}
    chosen["layers"] = min(whole, number("layers", 1, 1000, 2))
    chosen |= {name: choice(name) for name in CHOICES}
    runner = chosen.pop("runner")
    chosen["time_limit_s"] = float(number("time_limit", 1, 600, 120))

predicted = False
with errors.shown(stop=False):
    request = ProbeRequest(**chosen, memory_cap_bytes=memory_cap()).checked()
    probe_view.prediction(jobs.predict(current.model, request), request, whole)
    predicted = True
    if allowed():
        running = jobs.job().run is not None
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.button(
                render("page.probe.start"), key="probe_start", type="primary", disabled=running, on_click=jobs.begin,
                args=(current, request, runner, source.harmless()),
            )  # fmt: skip
            st.button(render("page.probe.cancel"), key="probe_cancel", disabled=not jobs.probing(), on_click=jobs.cancel)
    else:
        st.info(render("page.probe.off"))
    if jobs.probing():
        jobs.watch()

if said := st.session_state.get(jobs.SAID):
    st.info(render(said))
if error := st.session_state.get(jobs.ERROR):
    errors.show(error)
if jobs.results():
    with errors.shown(stop=False):
        probe_view.results(current.model.name)
elif predicted and not jobs.probing():
    st.info(render("page.probe.none"))
st.file_uploader(render("page.probe.upload"), key="probe_upload", max_upload_size=4, on_change=jobs.uploaded, help=render("page.probe.upload.help"))
suite_view.draw()

"""Probes and suites as child processes of this session: started, watched, ended with it; their results kept. No torch: the child has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from gpu_probe import claims
from gpu_probe.client import ProbeRun, SuiteRun, partial, start, start_suite
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.uploads import read_result, sane
from pages.parts.errors import caught
from pages.parts.source import Current
from planner.dtypes import KvLayout, kv_layout
from planner.engines.probe import allocate, chosen_layers, predicted_kv_bytes
from planner.errors import PlannerError
from planner.messages import phase_word, render
from planner.model import ModelSpec
from planner.sources import text

RESULTS, ERROR, SAID = "_probe_results", "_probe_error", "_probe_said"
SUITE, SUITE_ERROR, SUITE_SAID = "_suite", "_suite_error", "_suite_said"
SHOWN, NEWEST = "probe_shown", "_probe_newest"
MOST_RESULTS = 8
FLOATS = ("fp32", "bf16", "fp16")


@dataclass(slots=True)
class Job:
    """At most one child a session: a second would measure the first."""

    run: ProbeRun | SuiteRun | None = None

    def end(self) -> None:
        if self.run is not None:
            self.run.cancel()


@st.cache_resource(scope="session", on_release=Job.end, show_spinner=False)
def job() -> Job:
    """One a session: released, and its child ended, when the session goes."""
    return Job()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a run will hold, before it: `whole_bytes` with every layer of the model."""

    bytes: int
    whole_bytes: int
    layers: int


def predict(model: ModelSpec, r: ProbeRequest) -> Prediction:
    """By the planner's own code. Raises PlannerError for what the probe cannot run."""
    kv = _kv(model, r)
    layers = chosen_layers(model, r.layers)

    def held(which: tuple[int, ...] | None) -> int:
        return predicted_kv_bytes(allocate(model, kv=kv, block_size=r.block_size, layers=which), r.batch, r.tokens(), r.shared_tokens())

    return Prediction(bytes=held(layers), whole_bytes=held(None), layers=len(layers))


def _kv(model: ModelSpec, r: ProbeRequest) -> KvLayout:
    """`auto`: the model's own type; one that no cache is stored in becomes bf16, as in the run."""
    own = model.dtype.name if model.dtype.name in FLOATS else "bf16"
    return kv_layout(own if r.kv_dtype == "auto" else r.kv_dtype)


def begin(current: Current, r: ProbeRequest, runner: str, harmless: tuple[str, ...] = ()) -> None:
    """A callback."""
    _begin(ERROR, SAID, lambda: start(current.loaded.raw, r, name=current.model.name, harmless=harmless, runner=runner))


def begin_suite(only: tuple[str, ...], device: str, time_limit_s: float) -> None:
    """A callback."""
    _begin(SUITE_ERROR, SUITE_SAID, lambda: start_suite(only=only, device=device, time_limit_s=time_limit_s))


def _begin(error: str, said: str, make: Callable[[], ProbeRun | SuiteRun]) -> None:
    """What is refused before a process exists is kept as an error like any other."""
    s = st.session_state
    s[error], s[said] = None, None
    try:
        job().end()
        job().run = make()
    except Exception as e:
        s[error] = caught(e).to_json()


def probing() -> bool:
    run = job().run
    return run is not None and not isinstance(run, SuiteRun)


def cancel() -> None:
    job().end()


@st.fragment(run_every=0.5)
def watch() -> None:
    """Drawn only while a probe runs: the phase, then one whole rerun at its end."""
    run = job().run
    if run is None or isinstance(run, SuiteRun):
        return
    status = run.poll()
    code = {"start": "page.probe.starting", "wait": "page.suite.wait"}.get(status.phase, "page.probe.running")
    st.progress(min(1.0, max(0.0, status.fraction)), text=render(code, {"phase": phase_word(status.phase), "done": status.done, "total": status.total}))
    if status.running:
        return
    s = st.session_state
    job().run = None
    if status.result is not None:
        keep(status.result)
    s[ERROR] = status.error
    s[SAID] = "page.probe.cancelled" if status.cancelled else None
    st.rerun()


def finish_suite(run: SuiteRun) -> None:
    """Called once the suite's child is gone: keeps its result, or what was finished of it, and reruns the page."""
    status, s = run.poll(), st.session_state
    job().run = None
    found = status.result or partial(status)
    if found is not None:
        s[SUITE] = found
    s[SUITE_ERROR] = status.error
    s[SUITE_SAID] = None if not status.cancelled else "page.suite.cancelled" if found else "page.suite.nothing"
    st.rerun()


def uploaded() -> None:
    """A callback: a result from elsewhere, checked before it is taken."""
    file = st.session_state["probe_upload"]
    if file is None:
        return
    _taken(lambda: parsed(file.getvalue(), file.name))


def take_parts(parts: Mapping[str, Mapping[str, Any]]) -> None:
    """The probe's and the suite's results that a saved plan brings along, checked as uploads are. A reconciled log comes back by its text only."""
    for name in ("probe", "suite"):
        if name in parts:
            _taken(lambda name=name: dict(parts[name]))


def _taken(read: Callable[[], dict[str, Any]]) -> None:
    """Into the session, or the fault that the Validate page shows."""
    s = st.session_state
    try:
        raw = read()
        if raw.get("form") == claims.FORM:
            sane(raw)
            claims.read(raw)
            s[SUITE], s[SUITE_ERROR], s[SUITE_SAID] = raw, None, None
        else:
            keep(read_result(raw))
        s[ERROR] = s[SAID] = None
    except Exception as e:
        s[ERROR] = caught(e).to_json()


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """One JSON object: a file as it is, or the last line after its events. Raises PlannerError."""
    try:
        raw, _ = text.parse(data, name, config=False)
    except PlannerError as e:
        if e.code != "has_trailing_text":
            raise
        raw, _ = text.parse(data.strip().splitlines()[-1], name, config=False)
    return raw


def keep(found: ProbeResult) -> None:
    """The newest first; one that is there already moves to the front."""
    s = st.session_state
    s[RESULTS] = [found, *(r for r in s.get(RESULTS, ()) if r != found)][:MOST_RESULTS]
    s[NEWEST] = True


def results() -> list[ProbeResult]:
    """Those of this session, the newest first."""
    return list(st.session_state.get(RESULTS, ()))


def result() -> ProbeResult | None:
    """The one that is shown, and goes into a report."""
    found, s = results(), st.session_state
    chosen = 0 if s.get(NEWEST) else s.get(SHOWN) or 0
    return found[chosen] if isinstance(chosen, int) and 0 <= chosen < len(found) else found[0] if found else None


def forget() -> None:
    """A callback: all results of this session."""
    for name in (RESULTS, ERROR, SAID, SUITE, SUITE_ERROR, SUITE_SAID):
        st.session_state[name] = None if name != RESULTS else []
    st.session_state[NEWEST] = True


def suite() -> Mapping[str, Any] | None:
    """A suite's result, of this host or from elsewhere, checked."""
    found: Any = st.session_state.get(SUITE)
    return found if isinstance(found, Mapping) else None

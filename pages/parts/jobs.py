"""The probe as a child process of this session: started, watched, ended with it. No torch here: the child has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from gpu_probe import claims
from gpu_probe.client import ProbeRun, start
from gpu_probe.result import ProbeRequest, ProbeResult
from pages.parts.errors import caught
from pages.parts.source import Current
from planner.dtypes import KvLayout, kv_layout
from planner.engines.probe import allocate, chosen_layers, predicted_kv_bytes
from planner.errors import NotAConfig, PlannerError
from planner.messages import render
from planner.model import ModelSpec
from planner.report.content import probe_rows
from planner.sources import text
from planner.units import parse_bytes

RESULT, ERROR, SAID, SUITE = "_probe_result", "_probe_error", "_probe_said", "_probe_suite"
FLOATS = ("fp32", "bf16", "fp16")
MEMORY_CAP_BYTES = parse_bytes("4GiB", "memory_cap")


@dataclass(slots=True)
class Job:
    run: ProbeRun | None = None

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
        return predicted_kv_bytes(allocate(model, kv=kv, block_size=r.block_size, layers=which), r.batch, r.tokens())

    return Prediction(bytes=held(layers), whole_bytes=held(None), layers=len(layers))


def _kv(model: ModelSpec, r: ProbeRequest) -> KvLayout:
    """`auto`: the model's own type; one that no cache is stored in becomes bf16, as in the run."""
    own = model.dtype.name if model.dtype.name in FLOATS else "bf16"
    return kv_layout(own if r.kv_dtype == "auto" else r.kv_dtype)


def begin(current: Current, r: ProbeRequest, harmless: tuple[str, ...] = ()) -> None:
    """A callback. What is refused before a process exists is kept as an error like any other."""
    s = st.session_state
    s[ERROR], s[SAID] = None, None
    try:
        job().end()
        job().run = start(current.loaded.raw, r, name=current.model.name, harmless=harmless)
    except Exception as e:
        s[ERROR] = caught(e).to_json()


def cancel() -> None:
    job().end()


@st.fragment(run_every=0.5)
def watch() -> None:
    """Drawn only while a child runs: the phase, then one whole rerun at its end."""
    run = job().run
    if run is None:
        return
    status = run.poll()
    text_ = (
        render("page.probe.starting")
        if status.phase == "start"
        else render("page.probe.running", {"phase": status.phase, "done": status.done, "total": status.total})
    )
    st.progress(min(1.0, max(0.0, status.fraction)), text=text_)
    if status.running:
        return
    s = st.session_state
    job().run = None
    if status.result is not None:
        s[RESULT] = status.result
    s[ERROR] = status.error
    s[SAID] = "page.probe.cancelled" if status.cancelled else None
    st.rerun()


def uploaded() -> None:
    """A callback: a result from elsewhere, checked before it is taken."""
    s = st.session_state
    file = s["probe_upload"]
    if file is None:
        return
    try:
        raw = parsed(file.getvalue(), file.name)
        if raw.get("form") == claims.FORM:
            claims.read(raw)
            s[SUITE], s[ERROR] = raw, None
        else:
            s[RESULT], s[ERROR] = read_result(raw), None
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


def read_result(raw: dict[str, Any]) -> ProbeResult:
    """A result as `gpu_probe run --json` printed it. Raises PlannerError."""
    try:
        result = ProbeResult.from_json(raw)
        _check(result)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise NotAConfig("result_unreadable", field=str(e).strip("'")[:80]) from e
    return result


def _check(result: ProbeResult) -> None:
    """Everything that the pages format is a number where it should be one."""
    probe_rows(result.to_json())
    for name in (
        "predicted_kv_bytes",
        "measured_kv_bytes",
        "ttft_s",
        "tokens_per_s",
        "prefill_tokens_per_s",
        "decode_tokens_per_s",
        "layers_run",
        "layers_total",
    ):
        value = getattr(result, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(name)
    for part in (result.versions, result.model, *result.notes):
        if not isinstance(part, Mapping):
            raise TypeError("notes")


def result() -> ProbeResult | None:
    found: Any = st.session_state.get(RESULT)
    return found if isinstance(found, ProbeResult) else None


def suite() -> Mapping[str, Any] | None:
    """A suite's result from elsewhere, checked."""
    found: Any = st.session_state.get(SUITE)
    return found if isinstance(found, Mapping) else None

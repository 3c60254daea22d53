"""The parent's side of a probe and of the suite. No torch.

probe = start(config, ProbeRequest(batch=2), name="a model")      # or start_suite()
while (status := probe.poll()).running: show(status.phase, status.fraction)
status.result or status.error
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakSet

from gpu_probe.child import PROJECT, ChildRun, Status
from gpu_probe.claims import FORM
from gpu_probe.claims.catalog import chosen
from gpu_probe.errors import installed
from gpu_probe.result import ProbeRequest, ProbeResult
from planner import environment
from planner.errors import InvalidInput, UnsupportedValue
from planner.messages import VARIABLE, language

PROGRAM = (sys.executable, "-m", "gpu_probe")
PHASES = {"start": 0.0, "wait": 0.0, "plan": 0.05, "weights": 0.1, "warm-up": 0.35, "prefill": 0.4, "decode": 0.5, "proof": 0.8, "done": 1.0}
"""Where each phase begins on a bar from 0 to 1: a guess for the eye, the child says `done` of `total` within each."""
SUITE_LIMITS = {"time_limit": (10, 3600)}
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "KVLEDGER_DATABASE")
"""Of the environment, what a child has no use for."""
RUNNERS = ("auto", "lean", "injected")
BACKENDS = ("auto", "native-cpu", "torch-chunked", "torch-gather", "triton")
DEVICES = ("auto", "cpu", "cuda", "mps")
_CHILDREN: WeakSet[ChildRun[Any]] = WeakSet()  # of all sessions of this process: only whether they live is asked
_LOCK = threading.Lock()
ProbeStatus = Status[ProbeResult]
SuiteStatus = Status[dict[str, Any]]


class ProbeRun(ChildRun[ProbeResult]):
    """A run of one model."""

    def __init__(self, command: list[str], job: str, request: ProbeRequest, environment: dict[str, str]) -> None:
        self.request = request
        super().__init__(command, job, request.time_limit_s, environment)

    def taken(self, last: dict[str, Any], code: int) -> ProbeResult | None:
        return ProbeResult.from_json(last) if code == 0 and "predicted_kv_bytes" in last else None

    def fraction(self, phase: str, done: int, total: int) -> float:
        begins = PHASES.get(phase, 0.0)
        ends = min((v for v in PHASES.values() if v > begins), default=1.0)
        return begins + (ends - begins) * done / max(total, 1)


def partial(status: Status[dict[str, Any]]) -> dict[str, Any] | None:
    """Of a suite that was cancelled or failed: a result of what was finished, marked `partial`; None where nothing was."""
    if not status.items:
        return None
    return {**(status.head or {}), "form": FORM, "items": list(status.items), "partial": True, "wall_s": status.elapsed_s}


class SuiteRun(ChildRun[dict[str, Any]]):
    """A run of the suite. Its phases are the entries, and its exit code is 1 where a size differs from its prediction: a result all the same."""

    def __init__(self, command: list[str], entries: tuple[str, ...], limit_s: float, environment: dict[str, str]) -> None:
        self.entries = entries
        super().__init__(command, "", limit_s, environment)

    def taken(self, last: dict[str, Any], code: int) -> dict[str, Any] | None:
        return last if last.get("form") == FORM and last.get("items") else None

    def fraction(self, phase: str, done: int, total: int) -> float:
        return done / max(total, 1)


def start(
    config: dict[str, Any], request: ProbeRequest, *, name: str = "", harmless: Collection[str] = (), threads: int | None = None, runner: str = "auto"
) -> ProbeRun:
    """Starts a run of the model that `config` (a raw config.json) describes. Raises InvalidInput or UnsupportedValue for a request that
    is out of range, and where torch is missing, before any process exists. The config travels through the child's standard input: no path is trusted.

    `harmless`: keys that the user declared free of influence on the cache, as for the reader. `threads`: how many the child computes
    with; None leaves it to torch. `runner`: one of `RUNNERS`.
    """
    request = _within_caps(request.checked())
    _known(runner, RUNNERS, "runner")
    _torch()
    declared = [f"--harmless={key}" for key in harmless]
    command = [*PROGRAM, "run", "-", "--json", f"--parent={os.getpid()}", f"--runner={runner}", f"--name={name[:200]}", *declared, *request.to_args()]
    return _counted(lambda: ProbeRun(command, json.dumps(config), request, _environment(threads)))


def start_suite(*, only: Collection[str] = (), device: str = "auto", time_limit_s: float = 600.0, threads: int | None = None) -> SuiteRun:
    """Starts the suite, all of it or the entries named. Raises InvalidInput for what is out of range, before any process exists."""
    entries = chosen(only)
    _allowed()
    low, high = SUITE_LIMITS["time_limit"]
    high = min(high, environment.value("KVLEDGER_PROBE_SECONDS"))
    if isinstance(time_limit_s, bool) or not low <= time_limit_s <= high:
        raise InvalidInput("out_of_range", field="time_limit", value=time_limit_s, low=low, high=high)
    _torch()
    asked = (f"--device={device[:40]}", f"--only={','.join(entries)}", f"--time-limit={time_limit_s:g}", f"--memory-cap={memory_cap()}")
    command = [*PROGRAM, "suite", "--json", f"--parent={os.getpid()}", *asked]
    return _counted(lambda: SuiteRun(command, entries, time_limit_s, _environment(threads)))


def allowed() -> bool:
    """Whether whoever runs this server lets runs be started on it (KVLEDGER_PROBE)."""
    return bool(environment.value("KVLEDGER_PROBE"))


def memory_cap() -> int:
    """The most bytes that a probe or an entry of the suite may take here."""
    return int(environment.value("KVLEDGER_PROBE_MEMORY"))


def _allowed() -> None:
    if not allowed():
        raise InvalidInput("probe_off", field="device")


def _within_caps(r: ProbeRequest) -> ProbeRequest:
    """What is not asked for takes the host's cap; more is refused. Raises InvalidInput."""
    _allowed()
    longest, most = environment.value("KVLEDGER_PROBE_SECONDS"), memory_cap()
    if r.time_limit_s > longest:
        raise InvalidInput("out_of_range", field="time_limit", value=r.time_limit_s, low=1, high=longest)
    if r.memory_cap_bytes is not None and r.memory_cap_bytes > most:
        raise InvalidInput("out_of_range", field="memory_cap", value=r.memory_cap_bytes, low=1, high=most)
    return r if r.memory_cap_bytes is not None else replace(r, memory_cap_bytes=most)


Started = TypeVar("Started", ProbeRun, SuiteRun)


def _counted(make: Callable[[], Started]) -> Started:
    """A child, if there is room for one beside those that run or wait. Raises InvalidInput."""
    most = environment.value("KVLEDGER_PROBE_CHILDREN")
    with _LOCK:
        running = sum(run.alive() for run in _CHILDREN)
        if running >= most:
            raise InvalidInput("probe_children", field="device", count=running)
        made = make()
        _CHILDREN.add(made)
        return made


def _known(value: str, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise InvalidInput("not_a_choice", field=name, value=value[:40], choices=", ".join(known))


def _torch() -> None:
    if not installed("torch"):  # looked for, not imported
        raise UnsupportedValue("probe_no_torch", field="device")


def _environment(threads: int | None) -> dict[str, str]:
    """This process's own without its token for the hub, with the project found from anywhere."""
    found = {
        **{name: value for name, value in os.environ.items() if name not in SECRETS},
        VARIABLE: language(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")])),
    }
    return found if threads is None else {**found, "OMP_NUM_THREADS": str(threads)}

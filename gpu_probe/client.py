"""The parent's side of a run: start the child, read its events, stop it. No torch, and nothing here can be hurt by the child's death.

probe = start(config, ProbeRequest(batch=2), name="a model")
while (status := probe.poll()).running: show(status.phase, status.fraction)
status.result or status.error
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_probe.errors import ProbeFault, ProbeTimeLimit
from gpu_probe.result import ProbeRequest, ProbeResult

PROJECT = Path(__file__).resolve().parents[1]
PHASES = {"start": 0.0, "wait": 0.0, "plan": 0.05, "weights": 0.1, "warm-up": 0.35, "prefill": 0.4, "decode": 0.5, "proof": 0.8, "done": 1.0}
"""Where each phase begins on a bar from 0 to 1: a guess for the eye, the child says `done` of `total` within each."""
GRACE_S = 1.0
PARENT_SLACK_S = 5.0
LOG_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStatus:
    """A picture of the run at one moment. At the end exactly one of `result`, `error` and `cancelled` is set. `error`: type, message,
    field, hint. `plan`: what the child said it would run. `log`: the last lines that were no events."""

    phase: str
    done: int
    total: int
    fraction: float
    running: bool
    cancelled: bool
    elapsed_s: float
    result: ProbeResult | None = None
    error: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    hello: dict[str, Any] | None = None
    sample: dict[str, Any] | None = None
    exit_code: int | None = None
    log: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seen:
    """What the reading threads have gathered; guarded by the run's lock."""

    phase: str = "start"
    done: int = 0
    total: int = 1
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))


class ProbeRun:
    """One child. `poll` never blocks; `cancel` and the time limit end the whole process group, politely and a second later for good."""

    def __init__(self, command: list[str], job: str, request: ProbeRequest, environment: dict[str, str]) -> None:
        self.request = request
        self._lock = threading.Lock()
        self._seen = _Seen()
        self._cancelled = self._timed_out = False
        self._started = time.monotonic()
        self._ended: float | None = None
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
            start_new_session=True, env=environment, cwd=PROJECT,
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for work, args in ((self._feed, (job,)), (self._read, (self._child.stdout, True)), (self._read, (self._child.stderr, False)))
        ]
        for thread in self._threads:
            thread.start()
        # The child watches its own limit; this one is for a child that hangs in the kernel or lost its watchdog.
        self._timer = threading.Timer(request.time_limit_s + PARENT_SLACK_S, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    def poll(self) -> ProbeStatus:
        code = self._child.poll()
        if code is not None:
            for thread in self._threads[1:]:  # what the child wrote before it ended is still in the pipe
                thread.join(timeout=GRACE_S)
            if self._ended is None:
                self._ended = time.monotonic()
                self._timer.cancel()
        with self._lock:
            seen, last, log = self._seen, self._seen.last, tuple(self._seen.log)
            events, phase, done, total = dict(seen.events), seen.phase, seen.done, seen.total
        result = error = None
        if code is not None and not self._cancelled:
            result, error = self._outcome(code, last, phase)
        return ProbeStatus(
            phase="done" if result else phase,
            done=done,
            total=total,
            fraction=1.0 if result else _fraction(phase, done, total),
            running=code is None,
            cancelled=self._cancelled and code is not None,
            elapsed_s=(self._ended or time.monotonic()) - self._started,
            result=result,
            error=error,
            plan=events.get("plan"),
            hello=events.get("hello"),
            sample=events.get("sample"),
            exit_code=code,
            log=log,
        )

    def wait(self, timeout_s: float | None = None) -> ProbeStatus:
        """Blocks until the child ended, or `timeout_s` passed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return self.poll()

    def cancel(self) -> None:
        """Asks the child to end. Returns at once; `poll` shows `cancelled` as soon as it is gone. A finished run stays as it is."""
        if self._child.poll() is None:
            self._cancelled = True
            self._stop()

    def _stop(self) -> None:
        self._signal(signal.SIGTERM)
        later = threading.Timer(GRACE_S, self._signal, (signal.SIGKILL,))
        later.daemon = True
        later.start()

    def _signal(self, number: int) -> None:
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def _time_out(self) -> None:
        if self._child.poll() is None:
            self._timed_out = True
            self._stop()

    def _feed(self, job: str) -> None:
        assert self._child.stdin is not None
        # The child may have refused its options already: then writing fails, and closing once more.
        with contextlib.suppress(OSError), contextlib.closing(self._child.stdin) as stream:
            stream.write(job)

    def _read(self, stream: Any, is_stdout: bool) -> None:
        with stream:
            for line in stream:
                event = _json_object(line) if is_stdout else None
                with self._lock:
                    self._note(line, event)

    def _note(self, line: str, event: dict[str, Any] | None) -> None:
        if event is None:
            self._seen.log.append(line.rstrip()[:500])
        elif event.get("ev") == "phase":
            self._seen.phase, self._seen.done, self._seen.total = str(event["name"]), int(event["done"]), int(event["total"])
        elif "ev" in event:
            self._seen.events[str(event["ev"])] = event
        else:
            self._seen.last = event

    def _outcome(self, code: int, last: dict[str, Any] | None, phase: str) -> tuple[ProbeResult | None, dict[str, Any] | None]:
        if last is not None and "error" in last:
            return None, last["error"]
        if code == 0 and last is not None and "predicted_kv_bytes" in last:
            return ProbeResult.from_json(last), None
        if self._timed_out:
            limit = f"{self.request.time_limit_s:g}"
            return None, ProbeTimeLimit("probe_time", field="time_limit", limit=limit, where=phase).to_json()
        return None, ProbeFault("probe_died", reason=_reason(code), where=phase).to_json()


def start(config: dict[str, Any], request: ProbeRequest, *, name: str = "", harmless: Collection[str] = (), threads: int | None = None) -> ProbeRun:
    """Starts a run of the model that `config` (a raw config.json) describes. Raises InvalidInput or UnsupportedValue for a request that
    is out of range, before any process exists. The config travels through the child's standard input: no path is trusted.

    `harmless`: keys that the user declared free of influence on the cache, as for the reader. `threads`: how many the child computes
    with; None leaves it to torch.
    """
    request = request.checked()
    declared = [f"--harmless={key}" for key in harmless]
    command = [sys.executable, "-m", "gpu_probe", "run", "-", "--json", f"--name={name[:200]}", *declared, *request.to_args()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")]))}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    return ProbeRun(command, json.dumps(config), request, environment)


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _fraction(phase: str, done: int, total: int) -> float:
    begins = PHASES.get(phase, 0.0)
    ends = min((v for v in PHASES.values() if v > begins), default=1.0)
    return begins + (ends - begins) * done / max(total, 1)


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

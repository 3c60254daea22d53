"""A child process that measures: started, read line by line, stopped with everything it started. No torch, and nothing here can be hurt by
the child's death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpu_probe.errors import ProbeFault, ProbeTimeLimit
from planner.messages import phase_word

PROJECT = Path(__file__).resolve().parents[1]
GRACE_S = 1.0
PARENT_SLACK_S = 5.0
LOG_LINES = 200
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)  # no slots: a frozen generic class with slots cannot be called by its alias (Python 3.11)
class Status(Generic[R]):
    """A picture of the run at one moment. At the end exactly one of `result`, `error` and `cancelled` is set. `error`: type, message,
    field, hint. `plan`: what the child said it would run. `items`: of a suite, those that are finished; `head`: where they ran. `log`: the
    last lines that were no events."""

    phase: str
    done: int
    total: int
    fraction: float
    running: bool
    cancelled: bool
    elapsed_s: float
    result: R | None = None
    error: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    hello: dict[str, Any] | None = None
    sample: dict[str, Any] | None = None
    exit_code: int | None = None
    head: dict[str, Any] | None = None
    items: tuple[dict[str, Any], ...] = ()
    log: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seen:
    """What the reading threads have gathered; guarded by the run's lock."""

    phase: str = "start"
    done: int = 0
    total: int = 1
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, Any] | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))


class ChildRun(ABC, Generic[R]):
    """One child. `poll` never blocks; `cancel` and the time limit end the whole process group, politely and a second later for good."""

    def __init__(self, command: list[str], job: str, limit_s: float, environment: dict[str, str]) -> None:
        self.limit_s = limit_s
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
        self._timer = threading.Timer(limit_s + PARENT_SLACK_S, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    @abstractmethod
    def taken(self, last: dict[str, Any], code: int) -> R | None:
        """The result, if the child's last line is one."""

    @abstractmethod
    def fraction(self, phase: str, done: int, total: int) -> float:
        """How far the run is, from 0 to 1."""

    def poll(self) -> Status[R]:
        code = self._child.poll()
        if code is not None:
            for thread in self._threads[1:]:  # what the child wrote before it ended is still in the pipe
                thread.join(timeout=GRACE_S)
            if self._ended is None:
                self._ended = time.monotonic()
                self._timer.cancel()
        with self._lock:
            seen, last, log = self._seen, self._seen.last, tuple(self._seen.log)
            events, phase, done, total, items = dict(seen.events), seen.phase, seen.done, seen.total, tuple(seen.items)
        result = error = None
        if code is not None and not self._cancelled:
            result, error = self._outcome(code, last, phase)
        return Status(
            phase="done" if result else phase,
            done=done,
            total=total,
            fraction=1.0 if result else self.fraction(phase, done, total),
            running=code is None,
            cancelled=self._cancelled and code is not None,
            elapsed_s=(self._ended or time.monotonic()) - self._started,
            result=result,
            error=error,
            plan=events.get("plan"),
            hello=events.get("hello"),
            sample=events.get("sample"),
            exit_code=code,
            head=events.get("head"),
            items=items,
            log=log,
        )

    def alive(self) -> bool:
        return self._child.poll() is None

    def wait(self, timeout_s: float | None = None) -> Status[R]:
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
        elif event.get("ev") == "items" and isinstance(event.get("items"), list):
            self._seen.items += event["items"]
            self._seen.events["head"] = event.get("head") or {}
        elif "ev" in event:
            self._seen.events[str(event["ev"])] = event
        else:
            self._seen.last = event

    def _outcome(self, code: int, last: dict[str, Any] | None, phase: str) -> tuple[R | None, dict[str, Any] | None]:
        if last is not None and "error" in last:
            return None, last["error"]
        if last is not None and (result := self.taken(last, code)) is not None:
            return result, None
        if self._timed_out:
            return None, ProbeTimeLimit("probe_time", field="time_limit", limit=f"{self.limit_s:g}", where=phase_word(phase)).to_json()
        return None, ProbeFault("probe_died", reason=_reason(code), where=phase_word(phase)).to_json()


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

"""A sweep in a thread of its own, with its progress and its end: what a page starts, watches and cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.sweep import Step
from planner.sweep.table import Table


@dataclass(slots=True)
class Run:
    """One sweep. `table` or `error` is set once it has ended."""

    done: int = 0
    total: int = 0
    table: Table | None = None
    error: Exception | None = None
    thread: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, work: Callable[[Step], Table]) -> None:
        try:
            self.table = work(self.step)
        except Exception as e:  # kept for whoever watches
            self.error = e

    def step(self, done: int, total: int) -> bool:
        self.done, self.total = done, total
        return not self.stop.is_set()


@dataclass(slots=True)
class Job:
    """At most one sweep that counts: a second start cancels the first, which ends at its next step with nobody waiting for it."""

    now: Run = field(default_factory=Run)

    def start(self, work: Callable[[Step], Table]) -> None:
        """`work` runs the sweep and passes the step on."""
        self.cancel()
        self.now = Run()
        self.now.thread = threading.Thread(target=self.now.work, args=(work,), name="sweep", daemon=True)
        self.now.thread.start()

    @property
    def running(self) -> bool:
        return self.now.thread is not None and self.now.thread.is_alive()

    @property
    def fraction(self) -> float:
        return self.now.done / self.now.total if self.now.total else 0.0

    def cancel(self) -> None:
        self.now.stop.set()

    def wait(self, seconds: float | None) -> None:
        """Until it ends, or so long."""
        if self.now.thread is not None:
            self.now.thread.join(seconds)

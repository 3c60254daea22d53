"""The host's own figures, taken in the same run: ceilings before and after the decode, and what a step costs beside its bytes."""

from __future__ import annotations

from typing import Any

from gpu_probe import device as devices
from gpu_probe.figures.ceilings import FEW_ROUNDS, READ_BYTES, Host, around, ceilings
from gpu_probe.figures.overhead import step_overhead
from gpu_probe.figures.timing import Timing, Work, roofline
from gpu_probe.setup import Setup
from planner.notes import Note, note
from planner.units import MIB

SHARE_OF_MEMORY = 8
"""The buffer that is read takes at most this part of the memory that the run may use."""
BEYOND_CACHE = 2
"""It must be so many times the last-level cache, or reading it says nothing of memory; twice that is as good as any larger one."""
OVERHEAD_ROUNDS = 5


class Pace:
    """Made before the batch runs, closed right after it: both ceilings meet the same machine as the batch."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self._host = setup, Host(device=setup.device, seed=setup.request.seed)
        self._cache = devices.cache_bytes(setup.device)
        usual = min(READ_BYTES.get(setup.device.type, READ_BYTES["cpu"]), 2 * BEYOND_CACHE * self._cache or READ_BYTES["cuda"])
        self._size = max(MIB, min(usual, setup.memory // SHARE_OF_MEMORY))
        self.overhead: dict[str, Any] = step_overhead(self._host, OVERHEAD_ROUNDS)
        self._before = self._taken()
        self.ceilings: dict[str, Any] = {}
        self.roofline: dict[str, Any] = {}

    def close(self, work: Work, timing: Timing) -> None:
        self.ceilings = {**around(self._before, self._taken(), self._setup.compute), "read_bytes": self._size}
        beyond = self._size >= BEYOND_CACHE * self._cache
        self.roofline = roofline(work, timing.itl_s["p50"], self.ceilings, refused="" if beyond else "small")

    def notes(self) -> list[Note]:
        """Why there is no share of the roofline, where there is none."""
        if self.roofline["reason"] == "unsteady":
            moved = max(max(a, b) / min(a, b) for a, b in ((self.ceilings["before"][n], self.ceilings["after"][n]) for n in self._before))
            return [note("warning", "probe_unsteady", factor=f"{moved:.2f}")]
        return []

    def _taken(self) -> dict[str, float]:
        return ceilings(self._host, dtype=self._setup.compute, size=self._size, rounds=FEW_ROUNDS)

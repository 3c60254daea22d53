"""How far times may be off: the range of a TTFT from its two parts, and what a measurement leaves of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Bounds = tuple[float, float]
"""(down, up): a time t lies between t / down and t * up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRange:
    """Of a TTFT. `alone`: of the part that a request takes by itself; `wait`: of the part that others add, which hangs on how an engine
    was set up and how much comes at once. `short_alone`, `short_wait`: the same for requests below `short_tokens`, prompt and output."""

    alone: Bounds
    wait: Bounds
    short_alone: Bounds = (1.0, 1.0)
    short_wait: Bounds = (1.0, 1.0)
    short_tokens: int = 0

    def of(self, alone_s: Any, wait_s: Any, tokens: Any) -> tuple[Any, Any]:
        """(low, high) in seconds of requests of `tokens` tokens. Numbers or arrays that broadcast."""
        short = np.asarray(tokens) < self.short_tokens
        down, up = (np.where(short, a, b) for a, b in zip(self.short_alone, self.alone, strict=True))
        wait_down, wait_up = (np.where(short, a, b) for a, b in zip(self.short_wait, self.wait, strict=True))
        return alone_s / down + wait_s / wait_down, alone_s * up + wait_s * wait_up

    def changed(self, by: Callable[[Bounds], Bounds]) -> FirstRange:
        return FirstRange(alone=by(self.alone), wait=by(self.wait), short_alone=by(self.short_alone), short_wait=by(self.short_wait),
                          short_tokens=self.short_tokens)  # fmt: skip


def first_range(ranges: dict[str, Any], engine: str, *, measured: bool) -> FirstRange:
    """Of an engine, out of [range] of efficiency.toml. On a device where it was not measured, nowhere narrower than `first_elsewhere`."""
    anywhere: Bounds = tuple(ranges["first_elsewhere"])
    own = ranges["first"].get(engine)
    if own is None:
        return FirstRange(alone=anywhere, wait=anywhere)
    alone, wait = tuple(own["alone"]), tuple(own["wait"])
    found = FirstRange(alone=alone, wait=wait, short_alone=tuple(own.get("short_alone", alone)), short_wait=tuple(own.get("short_wait", wait)),
                       short_tokens=own.get("short_tokens", 0))  # fmt: skip
    return found if measured else found.changed(lambda b: (max(b[0], anywhere[0]), max(b[1], anywhere[1])))

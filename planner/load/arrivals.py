"""Open arrivals: requests come whether or not others are done. How many are then in service, and how long a new one waits.

Little's law: sequences in service ``B = rate x (TTFT(B) + output x ITL(B))``, a fixed point since both times rise with B. No solution up to
the batch limit is an overload: the queue then grows without end, and nothing beyond that is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.cache import last
from planner.latency import Served
from planner.latency.load import Times, times
from planner.notes import Note, note
from planner.units import rate as rate_text

HEADROOM = 0.8
"""A rule of thumb: above this share of the capacity waiting grows fast (as ``rho / (1 - rho)``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """One replica at `rate` requests a second. `capacity`: requests a second at the batch limit, the replica always full; `load`: rate /
    capacity. `sequences`: in service on average, None where overloaded, as are the times: `ttft_s` with `wait_s` (for a slot) in it."""

    rate: float
    capacity: float
    load: float
    best: int
    overloaded: bool
    tight: bool
    sequences: float | None
    ttft_s: float | None
    itl_s: float | None
    wait_s: float | None
    ttft_range_s: tuple[float, float] | None
    itl_range_s: tuple[float, float] | None
    output_tokens_per_s: float | None
    output_per_request: float
    notes: tuple[Note, ...] = ()

    @property
    def headroom(self) -> float:
        """The part of the capacity that is free; negative where overloaded."""
        return 1 - self.load

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "notes"} | {"headroom": self.headroom}


def arrivals(own: Served, best: int, rate: float, *, variation: float = 0.0) -> Arrivals:
    """Of a replica that runs at most `best` sequences. `variation`: squared variation of the service times."""
    full = _at(own, best)
    capacity = full_rate(own, full, best)
    load = rate / capacity
    known: dict[str, Any] = {"rate": rate, "capacity": capacity, "load": load, "best": best, "output_per_request": float(own.load.output) * own.load.fan}
    if load >= 1:
        word = note("warning", "load_overload", field="request_rate", rate=rate_text(rate), capacity=rate_text(capacity), best=best)
        return Arrivals(**known, overloaded=True, tight=True, sequences=None, ttft_s=None, itl_s=None, wait_s=None, ttft_range_s=None, itl_range_s=None,
                        output_tokens_per_s=None, notes=(word,))  # fmt: skip

    def held(n: int) -> float:
        return rate * life_s(own, _at(own, max(n, 1)), rate)

    # `held(n) > n`: so many are not enough. The last n for which it is so lies just below the fixed point.
    below = last(best - 1, lambda n: held(n) > n)
    low, high = held(below), held(below + 1)
    part = min(1.0, max(0.0, (low - below) / max(1e-12, 1 - (high - low))))  # where n meets the line between both
    sequences = below + part
    t = _at(own, max(1, round(sequences)))
    wait = slot_wait_s(rate, best, life_s(own, t, rate), variation)
    tight = load > HEADROOM
    notes = (note("warning", "load_tight", field="request_rate", load=round(100 * load), share=round(100 * HEADROOM)),) if tight else ()
    ttft, itl = first_s(own, t, rate) + wait, float(t.itl_s)
    alone = _alone_s(own, t)
    bounds = own.speeds.range_ttft.of(alone, ttft - alone, own.load.prompt + own.load.output)
    return Arrivals(
        **known, overloaded=False, tight=tight, sequences=sequences, ttft_s=ttft, itl_s=itl, wait_s=wait, ttft_range_s=(float(bounds[0]), float(bounds[1])),
        itl_range_s=_between(itl, own.speeds.range_itl), output_tokens_per_s=rate * known["output_per_request"], notes=notes,
    )  # fmt: skip


def _between(value: float, by: tuple[float, float]) -> tuple[float, float]:
    return value / by[0], value * by[1]


def _at(own: Served, sequences: int) -> Times:
    return times(own.stages, own.speeds, own.at(sequences))


def full_rate(own: Served, t: Times, sequences: int) -> float:
    """Requests a second of a replica that always runs `sequences`: the closed loop."""
    return sequences / (float(t.ttft_s) + float(own.load.output) * float(t.itl_s))


def first_s(own: Served, t: Times, rate: float) -> float:
    """TTFT without waiting for a slot: the way to the engine, the prompt's own prefill, and the steps in its way.

    A prompt waits for the end of the step in which it comes, and shares the next one with the prompts that came in it too. With k of them a
    step takes ``C = step + k x beside``; arrivals at random (Poisson) give, rho = rate x beside: ``E[C] = step / (1 - rho)`` and
    ``E[C^2] / E[C] = E[C] + beside x rho / (1 - rho^2)``, of which half is waited for the end and the share rho for the others.
    The closed loop's own wait (Speeds.wait_share) is that of requests sent together; it does not count here.
    """
    streams = own.stages[0].attention_data * len(own.stages)
    beside, step = float(t.beside_s), float(t.step_s)
    rho = min(rate * own.load.prompts / streams * beside, 0.99)
    met = step / (1 - rho) + beside * rho / (1 - rho**2)
    return _alone_s(own, t) + own.speeds.ttft_factor * (0.5 + rho) * met


def _alone_s(own: Served, t: Times) -> float:
    """The part of a TTFT that nobody else adds to."""
    return own.speeds.ttft_factor * (own.speeds.serve_s + float(t.prefill_s))


def life_s(own: Served, t: Times, rate: float) -> float:
    """From arrival to the last token, without waiting for a slot."""
    return first_s(own, t, rate) + float(own.load.output) * float(t.itl_s)


def slot_wait_s(rate: float, slots: int, service_s: float, variation: float) -> float:
    """Mean wait of M/G/c: Sakasegawa 1977 (Annals of the Institute of Statistical Mathematics 29), ``(1 + cs2) / 2 x
    rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho)) x service``."""
    rho = rate * service_s / slots
    if rho >= 1:
        return float("inf")
    return float((1 + variation) / 2 * rho ** (np.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - rho)) * service_s)

"""How many replicas a request rate needs, with headroom and with one lost, and what a day of them costs. The price is the user's."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from planner.load.arrivals import HEADROOM, Arrivals

DAY_H = 24
MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """`least`: replicas that just carry the rate; `with_headroom`: at 80 % of their capacity; `one_lost`: with headroom, and still within the
    capacity when one is gone. Prices are in the unit of the price per GPU hour, None without one, for `one_lost` replicas."""

    rate: float
    capacity: float
    replicas: int
    gpus_each: int
    least: int
    with_headroom: int
    one_lost: int
    enough: bool
    price_per_gpu_hour: float | None
    cost_a_day: float | None
    cost_per_million_output_tokens: float | None

    @property
    def carries(self) -> str:
        """What the plan's own replicas are enough for: one lost, the headroom alone ("spare"), the bare rate, or not even that ("short")."""
        needs = (("lost", self.one_lost), ("spare", self.with_headroom), ("bare", self.least))
        return next((word for word, needed in needs if self.replicas >= needed), "short")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def fleet(one: Arrivals, rate: float, replicas: int, gpus_each: int, price: float | None) -> Fleet:
    """`one`: any load of one such replica; `rate`: requests a second of all; `replicas`: those of the plan."""
    least = _at_least(rate / one.capacity)
    spare = _at_least(rate / (HEADROOM * one.capacity))
    lost = max(spare, least + 1)
    cost = None if price is None else lost * gpus_each * price * DAY_H
    tokens = rate * (one.output_per_request or 0.0) * DAY_H * 3600
    return Fleet(rate=rate, capacity=one.capacity, replicas=replicas, gpus_each=gpus_each, least=least, with_headroom=spare, one_lost=lost,
                 enough=replicas >= lost, price_per_gpu_hour=price, cost_a_day=cost,
                 cost_per_million_output_tokens=None if cost is None or not tokens else cost / tokens * MILLION)  # fmt: skip


def _at_least(value: float) -> int:
    """Whole replicas; a rate that is a capacity exactly needs no further one for a rounding error."""
    return max(1, ceil(value - 1e-9))

"""How many sequences of a mix of lengths a plan holds: at their full lengths (guaranteed), and each somewhere in its decode (typical).

Both run through the plan's own terms: block rounding, windows, fixed states and a shared prefix count as they do for equal lengths.
A mix of one point is the plan of that length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.cache import Pool
from planner.capacity import CapacityPlan, replan
from planner.errors import InvalidInput
from planner.mix import Mix
from planner.notes import Note
from planner.sums import covered, shared_between, sum_of_fractions, units_through


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin:
    """Requests of at most `tokens` tokens (and more than the bin before): their share of all requests and of all bytes."""

    tokens: int
    requests: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixCapacity:
    """Sequences are per replica, as in a plan; bytes are those of the guaranteed load on the fullest rank. `plan`: of the longest length.

    `point_bytes`: what one sequence of each point holds at its full length, alone. `mean_bytes`: what one sequence holds beside the shared
    prefix, on average over the requests and over the moments of their decode.
    """

    mix: Mix
    plan: CapacityPlan
    sequences_guaranteed: int
    sequences_typical: int
    point_bytes: tuple[int, ...]
    mean_bytes: int
    tokens_held: int
    held_bytes: int
    waste_bytes: int
    window_saved_bytes: int
    state_bytes: int
    prefix_saved_bytes: int
    bins: tuple[LengthBin, ...]

    @property
    def limited_by(self) -> str | None:
        """What keeps the longest request out, however few there are: model | weights | start | free."""
        return self.plan.limited_by if self.plan.limited_by in ("model", "weights", "start", "free") else None

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.mix.notes

    @property
    def total_guaranteed(self) -> int:
        """Of all replicas together."""
        return self.sequences_guaranteed * self.plan.replicas

    @property
    def total_typical(self) -> int:
        return self.sequences_typical * self.plan.replicas

    def beyond_median(self) -> tuple[int, float, float]:
        """(median length, share of the requests that are longer, share of all bytes that those hold)."""
        middle = self.mix.quantile_tokens(50)
        sizes = [(p.tokens > middle, p.weight, p.weight * size) for p, size in zip(self.mix.points, self.point_bytes, strict=True)]
        whole = max(1, sum(size for _, _, size in sizes))
        return middle, sum(w for longer, w, _ in sizes if longer) / self.mix.weight, sum(size for longer, _, size in sizes if longer) / whole

    def to_json(self) -> dict[str, Any]:
        m = self.mix
        return {
            "points": len(m.points),
            "rows": m.rows,
            "lengths": m.text(),
            "sequences_guaranteed": self.sequences_guaranteed,
            "sequences_typical": self.sequences_typical,
            "limited_by": self.limited_by,
            "mean_tokens": m.mean_tokens,
            "p50_tokens": m.quantile_tokens(50),
            "p99_tokens": m.quantile_tokens(99),
            "longest_tokens": m.longest,
            "kv_pool_bytes": self.plan.kv_pool_bytes,
            "mean_bytes": self.mean_bytes,
            "tokens_held": self.tokens_held,
            "held_bytes": self.held_bytes,
            "waste_bytes": self.waste_bytes,
            "window_saved_bytes": self.window_saved_bytes,
            "state_bytes": self.state_bytes,
            "shared_prefix_bytes_saved": self.prefix_saved_bytes,
            "by_length": [{"tokens": b.tokens, "requests": b.requests, "bytes": b.bytes} for b in self.bins],
        }


def mix_capacity(p: CapacityPlan, m: Mix) -> MixCapacity:
    """The capacity of `m` on the device and with the choices of `p`. Each request shares as much of the prefix as its prompt holds."""
    base = replan(
        p,
        tokens=m.longest,
        prompt=None if p.scenario.cache_implementation == "dynamic" else p.scenario.prompt,
        output=None,
        lengths=None,
        shared_prefix=min(p.scenario.shared_prefix, m.longest),
    )
    if any(pool.slots for pool in base.pools):
        raise InvalidInput("lengths_equal_slots", field="lengths")
    for name, there in (("samples", base.pools[0].samples > 1), ("cache_implementation", any(g.resident.offset_tokens for q in base.pools for g in q.groups))):
        if there:
            raise InvalidInput("lengths_alone", field=name if p.scenario.beams == 1 or name != "samples" else "beams")
    loads = Loads(base.pools, m, base.footprint.prefix_tokens)
    each, once = loads.full()
    mean, parts, _ = loads.typical()
    most, typical = (min(n) for n in zip(*(_counts(Loads(pools, m, base.footprint.prefix_tokens), size) for pools, size in base.parts), strict=True))
    counts = apportion(most, loads.weights, each)
    groups = base.setting.parallel.attention_data
    whole = loads.whole()
    return MixCapacity(
        mix=m,
        plan=base,
        sequences_guaranteed=most * groups,
        sequences_typical=typical * groups,
        point_bytes=tuple(whole.tolist()),
        mean_bytes=-(-mean // parts),
        tokens_held=_dot(counts, loads.tokens) * groups,
        held_bytes=_dot(counts, each) + once if most else loads.fixed,
        waste_bytes=loads.waste(counts),
        window_saved_bytes=_dot(counts, loads.window_savings()),
        state_bytes=_dot(counts, loads.states()),
        prefix_saved_bytes=_dot(counts, whole - each) - (once - loads.fixed) if most else 0,
        bins=_bins(m, whole.tolist()),
    )


def _counts(loads: Loads, budget: int) -> tuple[int, int]:
    """(guaranteed, typical) sequences within `budget` bytes."""
    mean, parts, once = loads.typical()
    return _most(loads.weights, *loads.full(), budget), max(0, (budget - once) * parts // mean) if mean > 0 else 0


class Loads:
    """The points of a mix in the pools of one rank, as arrays with one entry a point. Bytes are Python's integers: sums over long outputs
    leave 64 bits."""

    def __init__(self, pools: tuple[Pool, ...], m: Mix, prefix: int) -> None:
        self.prompts = np.array([p.prompt for p in m.points], dtype=np.int64)
        self.outputs = np.array([p.output for p in m.points], dtype=np.int64)
        self.tokens = self.prompts + self.outputs
        self.weights = [p.weight for p in m.points]
        self.members = [(pool, g, pool.price(g)) for pool in pools for g in pool.groups]
        self.fixed = sum(pool.block_bytes * pool.null_blocks for pool in pools)
        # Outputs are a request's own, and the last token of a prompt is computed anew (planner/prefix.py).
        self.prefix = np.minimum(prefix, self.prompts - 1).clip(min=0)

    def full(self) -> tuple[Any, int]:
        """(bytes that each point adds at its full length, bytes that lie there once)."""
        each = self._zero()
        for pool, g, price in self.members:
            each += price * _wide(g.resident.units(self.tokens) - g.shared_units(self.tokens, pool.aligned(self.prefix)))
        return each, self._once(self.tokens)

    def whole(self) -> Any:
        """Bytes of each point at its full length, alone."""
        return sum((price * _wide(g.resident.units(self.tokens)) for _, g, price in self.members), self._zero())

    def typical(self) -> tuple[int, int, int]:
        """(a, b, bytes that lie there once): one sequence adds a / b bytes on average, over the requests and over the tokens of their
        outputs. A request without output is at its prompt's length."""
        moments = np.maximum(self.outputs, 1)
        start, end = np.where(self.outputs > 0, self.prompts, self.prompts - 1), np.where(self.outputs > 0, self.tokens, self.prompts)
        each = self._zero()
        for pool, g, price in self.members:
            own = units_through(g.resident, end) - units_through(g.resident, start) - shared_between(g, pool.aligned(self.prefix), start, end)
            each += price * _wide(own)
        by_output: dict[int, int] = {}
        for w, b, o in zip(self.weights, each.tolist(), moments.tolist(), strict=True):
            by_output[o] = by_output.get(o, 0) + w * b
        mean, parts = sum_of_fractions([(b, o) for o, b in by_output.items()])
        return mean, parts * sum(self.weights), self._once(start + 1)

    def _once(self, tokens: Any) -> int:
        """Null blocks, and the prefix blocks that any point needs at `tokens`: each lies there once."""
        held = self.fixed
        for pool, g, price in self.members:
            shared = g.shared_units(tokens, pool.aligned(self.prefix))
            first = g.first_unit(tokens)
            held += price * covered(zip(first.tolist(), (first + shared).tolist(), strict=True))
        return held

    def waste(self, counts: list[int]) -> int:
        """Bytes of tokens that blocks could still take."""
        total = 0
        for _, g, price in self.members:
            t = g.resident
            if t.unit_tokens and t.rounding == "ceil":
                inside = self.tokens if t.cap_tokens is None else self.tokens.clip(max=t.cap_tokens)
                total += price * _dot(counts, (t.units(self.tokens) - t.extra_units) * t.unit_tokens - inside) // t.unit_tokens
        return total

    def window_savings(self) -> Any:
        """Bytes that each point would hold more if nothing had a window or a chunk."""
        capped = [(g.resident, price) for _, g, price in self.members if g.resident.cap_tokens is not None and g.kind != "state"]
        return sum((price * _wide(replace(t, cap_tokens=None).units(self.tokens) - t.units(self.tokens)) for t, price in capped), self._zero())

    def states(self) -> Any:
        return sum((price * _wide(g.resident.units(self.tokens)) for _, g, price in self.members if g.kind == "state"), self._zero())

    def _zero(self) -> Any:
        return np.zeros(len(self.tokens), dtype=np.int64).astype(object)


def apportion(n: int, weights: list[int], cost: Any) -> list[int]:
    """`n` sequences over the points, as close to their weights as whole numbers come: in order of cost, the first k points together get
    their share rounded to the nearest number (a half goes to the dearer ones). For two points that is the largest remainder.

    Unlike largest remainders over many points, one sequence more never needs less memory, and a few sequences of many points are spread
    over all lengths.
    """
    return _apportion(n, weights, _order(cost))


def _order(cost: Any) -> list[int]:
    return sorted(range(len(cost)), key=cost.tolist().__getitem__)


def _apportion(n: int, weights: list[int], order: list[int]) -> list[int]:
    out, before, reached, whole = [0] * len(weights), 0, 0, sum(weights)
    for i in order:
        reached += weights[i]
        upto = (2 * n * reached + whole - 1) // (2 * whole)
        out[i], before = upto - before, upto
    return out


def _most(weights: list[int], each: Any, once: int, budget: int) -> int:
    """The largest n whose apportioned sequences fit: a bisection around the mean, for the bytes rise with n."""
    order, mean = _order(each), _dot(weights, each)
    if mean <= 0:
        return 0  # as max_sequences: what costs nothing has no most

    def fit(n: int) -> bool:
        return n <= 0 or _dot(_apportion(n, weights, order), each) + once <= budget

    low = high = max(0, (budget - once) * sum(weights) // mean)
    step = 1
    while not fit(low):
        low, high, step = max(0, low - step), low, 2 * step
    while low == high or fit(high):
        low, high, step = high, high + step, 2 * step
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    return low


def _wide(values: Any) -> Any:
    return values.astype(object)


def _dot(counts: Iterable[int], values: Any) -> int:
    return sum(c * v for c, v in zip(counts, values.tolist(), strict=True))


def _bins(m: Mix, each: list[int]) -> tuple[LengthBin, ...]:
    """Powers of two of the length."""
    requests: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for p, size in zip(m.points, each, strict=True):
        upper = 1 << (p.tokens - 1).bit_length()
        requests[upper] = requests.get(upper, 0) + p.weight
        sizes[upper] = sizes.get(upper, 0) + p.weight * size
    whole, held = sum(requests.values()), max(1, sum(sizes.values()))
    return tuple(LengthBin(tokens=t, requests=requests[t] / whole, bytes=sizes[t] / held) for t in sorted(requests))

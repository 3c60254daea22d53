"""The points of a sweep: rows, the cheapest that meet the targets, the Pareto front.

Points are compared at one length only: a token of a short request is cheaper than one of a long request, whatever the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.hardware import find
from planner.latency import lengths
from planner.messages import render
from planner.scenario import Scenario
from planner.sweep.memory import LIMITS
from planner.sweep.points import NO_TOKENS, TIMES, Block

X_AXES, Y_AXES = ("cost", "gpus"), ("itl_s", "tokens_per_s")


@dataclass(frozen=True, slots=True)
class Point:
    """One point: its block, the index of its length and that of its sequences."""

    block: int
    length: int
    sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`lengths`: scenarios whose tokens, prompt and output count. `complete`: False where it was cancelled: only finished blocks are here."""

    axes: tuple[str, ...]
    lengths: tuple[Scenario, ...]
    sequences: tuple[int, ...]
    blocks: tuple[Block, ...]
    complete: bool

    @property
    def points(self) -> int:
        return sum(b.points for b in self.blocks)

    def count(self, what: str) -> int:
        """Points that are `refused`, that `fits`, or that `meets` the targets."""
        if what == "refused":
            return sum(b.points if b.error else len(b.errors) for b in self.blocks)
        return sum(int(np.count_nonzero(b.fits if what == "fits" else b.columns["meets"])) for b in self.blocks if not b.error)

    def row(self, at: Point) -> dict[str, Any]:
        """One point in plain values, None where nothing is known."""
        b = self.blocks[at.block]
        value = {name: c[at.length, at.sequences].item() if c.dtype != object else c[at.length, at.sequences] for name, c in b.columns.items()}
        return self._row(b, self._head(b, at.length), at, value)

    def rows(self) -> Iterator[dict[str, Any]]:
        """All points, in the order of the grid."""
        for i, b in enumerate(self.blocks):
            for j in range(b.shape[0]):
                head, line = self._head(b, j), [c[j].tolist() for c in b.columns.values()]
                for k in range(b.shape[1]):
                    yield self._row(b, head, Point(i, j, k), {name: v[k] for name, v in zip(b.columns, line, strict=True)})

    def _head(self, b: Block, length: int) -> dict[str, Any]:
        out: dict[str, Any] = {"model": b.scenario.model, "gpu": b.scenario.gpu, "engine": b.scenario.engine}
        out |= {name: value for name, value in b.choices if name not in out}
        return out | self.length(length) | {"sequences": 0, "gpus_used": b.gpus}

    def _row(self, b: Block, head: dict[str, Any], at: Point, value: dict[str, Any]) -> dict[str, Any]:
        row = dict(head)
        row["sequences"] = self.sequences[at.sequences]
        error = b.error or b.errors.get((at.length, at.sequences))
        if error:
            row["state"], row["limited_by"], row["reason"] = "refused", None, error.message
            return row | dict.fromkeys(FIGURES)
        by = LIMITS[value["limited"]]
        row["state"], row["limited_by"] = "no" if by else "fits", by or None
        row["reason"] = render(f"sweep.limited.{by}") if by else b.note.text if b.note else ""
        row["kv_bytes"], row["max_sequences"] = value["kv_bytes"], value["max_sequences"]
        row["kv_tokens"] = None if value["kv_tokens"] == NO_TOKENS else value["kv_tokens"]
        for name in TIMES[:-1]:
            v = value[name]
            row[name] = v if v == v else None  # NaN: unknown
        row["usd_per_gpu_hour"], cost = b.price, value["cost"]
        row["usd_per_million_tokens"] = cost if cost == cost else None
        row["meets_targets"], row["times_measured"] = value["meets"], b.measured
        return row

    def cheapest(self, length: int, most: int = 20) -> list[Point]:
        """At one length, of each combination the batch that meets the targets at the least cost; the cheapest first. Those without a price
        come last, by GPUs and then by tokens a second of one GPU."""
        found = []
        for i, b in enumerate(self.blocks):
            if b.error:
                continue
            at = np.flatnonzero(b.columns["meets"][length])
            if not len(at):
                continue
            rate, cost = b.columns["tokens_per_s"][length][at], b.columns["cost"][length][at]
            best = int(np.argmax(np.nan_to_num(rate, nan=-1.0)))  # of one combination the fastest batch costs the least
            found.append(((bool(np.isnan(cost[best])), float(np.nan_to_num(cost[best])), b.gpus, -float(np.nan_to_num(rate[best])) / b.gpus), i, int(at[best])))
        return [Point(i, length, k) for _, i, k in sorted(found)[:most]]

    def fitting(self, length: int, x: str, y: str) -> tuple[list[Point], Any, Any]:
        """(points that fit at one length and have both figures, their x, their y): x is cost or gpus, y is itl_s or tokens_per_s."""
        points: list[Point] = []
        xs, ys = [], []
        for i, b in enumerate(self.blocks):
            if b.error:
                continue
            along = b.columns["cost"][length] if x == "cost" else np.full(b.shape[1], float(b.gpus))
            up = b.columns[y][length]
            at = np.flatnonzero(b.fits[length] & ~np.isnan(along) & ~np.isnan(up))
            points += [Point(i, length, int(k)) for k in at]
            xs.append(along[at])
            ys.append(up[at])
        return points, np.concatenate([np.zeros(0), *xs]), np.concatenate([np.zeros(0), *ys])

    def pareto(self, length: int, x: str = "cost", y: str = "itl_s") -> list[Point]:
        """Points at one length that no other beats in both: less of x, and less ITL or more tokens a second; by rising x."""
        points, xs, ys = self.fitting(length, x, y)
        return [points[i] for i in front(xs, -ys if y == "tokens_per_s" else ys)]

    def spread(self, length: int, x: str, y: str, most: int = 2000) -> list[Point]:
        """Points that fit at one length, evenly thinned to `most`: what a chart can draw."""
        points, _, _ = self.fitting(length, x, y)
        return points[:: max(1, -(-len(points) // most))]

    def length(self, index: int) -> dict[str, int]:
        """Tokens, prompt and output of one length."""
        prompt, output, _ = lengths(self.lengths[index])
        return {"tokens": self.lengths[index].tokens, "prompt": prompt, "output": output}

    def price_rows(self) -> list[list[str]]:
        """(GPU, USD an hour, where that is from) of each GPU."""
        out = {}
        for b in self.blocks:
            h = find(b.scenario.gpu)
            source = render("sweep.price.none") if b.price is None else h.price_source if b.price == h.price_usd_per_hour else render("sweep.price.user")
            out[h.name] = [h.name, "-" if b.price is None else f"{b.price:g}", source]
        return list(out.values())

    def has_prices(self) -> bool:
        return any(b.price is not None for b in self.blocks if not b.error)


FIGURES = (
    "kv_bytes",
    "max_sequences",
    "kv_tokens",
    *(name for name in TIMES if name != "cost"),
    "usd_per_gpu_hour",
    "usd_per_million_tokens",
    "meets_targets",
    "times_measured",
)


def front(xs: Any, ys: Any) -> list[int]:
    """Indices of the points that no other beats when less of both is better, by rising x; of equal points the first.

    >>> front(np.array([1.0, 2.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0, 3.0]))
    [0, 2]
    """
    order = np.lexsort((ys, xs))
    lowest = np.minimum.accumulate(ys[order]) if len(order) else ys
    return [int(i) for n, i in enumerate(order) if n == 0 or ys[i] < lowest[n - 1]]

"""TTFT constants of the engines fitted anew without one family, or without one device, and held against what was left out.

The form and the ranges stay. Least mean of |log(predicted / measured)|, by a pattern search from the constants in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.latency.load import times
from planner.latency.speeds import Speeds
from tests.latency_rows import Row

# What was fitted, by engine; the rest of its constants is shared or was set.
FREE = {"vllm": ("serve_s", "request_s"), "trtllm": ("serve_s", "request_s"), "sglang": ("first_layer_s", "wait_share", "request_s")}
STEPS = (2.0, 1.4, 1.2, 1.1, 1.05, 1.02)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row with what its TTFT is a sum of: `rest_s`, and so much of each constant. `waits`: requests before it, by the mean."""

    row: Row
    rest_s: float
    layers: float
    waits: float
    gpu_s: float

    def parts(self, c: dict[str, float]) -> tuple[float, float]:
        """(alone, wait) in seconds under these constants."""
        return self.rest_s + c["serve_s"] + c["first_layer_s"] * self.layers, self.waits * (c["wait_share"] * self.gpu_s + c["request_s"])


def constants(v: Speeds) -> dict[str, float]:
    return {name: getattr(v, name) for name in ("serve_s", "first_layer_s", "wait_share", "request_s")}


def case(r: Row) -> Case:
    v, load = r.own.speeds, r.own.at(r.sequences)
    t = times(r.own.stages, v, load)
    waits = float(r.sequences / r.own.stages[0].attention_data - 1)
    layers = sum(w.layers for w in r.own.stages) * float(load.chunks)
    gpu_s = (float(t.wait_s) / waits - v.request_s) / v.wait_share if waits else 0.0
    return Case(row=r, rest_s=float(t.ttft_s - t.wait_s) - v.serve_s - v.first_layer_s * layers, layers=layers, waits=waits, gpu_s=gpu_s)


def fitted(cases: Sequence[Case], engine: str) -> dict[str, float]:
    true = np.array([c.row.ttft_s for c in cases])
    rest, layers, waits, gpu = (np.array([getattr(c, name) for c in cases]) for name in ("rest_s", "layers", "waits", "gpu_s"))

    def loss(c: dict[str, float]) -> float:
        got = rest + c["serve_s"] + c["first_layer_s"] * layers + waits * (c["wait_share"] * gpu + c["request_s"])
        return float(np.abs(np.log(got / true)).mean())

    best = constants(cases[0].row.own.speeds)
    least = loss(best)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for name in FREE[engine]:
                for by in (step, 1 / step):
                    tried = best | {name: best[name] * by}
                    if (now := loss(tried)) < least - 1e-9:
                        best, least, moved = tried, now, True
    return best


def inside(cases: Sequence[Case], c: dict[str, float]) -> int:
    found = 0
    for x in cases:
        alone, wait = x.parts(c)
        low, high = x.row.own.speeds.range_ttft.of(alone, wait, x.row.prompt + x.row.output)
        found += bool(low <= (x.row.ttft_s or 0.0) <= high)
    return found


def left_out(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[tuple[str, str], tuple[int, int]]:
    """(what was left out, engine) -> (rows inside the range, rows), where the engine has other rows to be fitted on."""
    cases = [case(r) for r in rows if r.ttft_s]
    out: dict[tuple[str, str], tuple[int, int]] = {}
    for name in sorted({key(r) for r in rows}):
        for engine in FREE:
            mine = [c for c in cases if c.row.engine == engine]
            out_of, rest = [c for c in mine if key(c.row) == name], [c for c in mine if key(c.row) != name]
            if out_of and rest:
                out[name, engine] = inside(out_of, fitted(rest, engine)), len(out_of)
    return out

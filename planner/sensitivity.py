"""Which one knob buys the most concurrency, and what that costs in ITL: a ranked table and the bars of a tornado chart. Every row is a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.capacity import CapacityPlan
from planner.knobs import KNOBS, Outcome, Turned, outcome, turned
from planner.notes import Note

PAIRS = {
    "fp8_cache": "cache", "fp8_weights": "weights", "int4_weights": "weights", "half_context": "context", "double_context": "context",
    "double_tp": "tp", "half_tp": "tp", "double_replicas": "replicas", "higher_fraction": "fraction", "lower_fraction": "fraction",
    "double_slots": "slots", "half_slots": "slots", "double_chunk": "chunk", "half_chunk": "chunk", "shared_prefix": "prefix", "graphs_on": "graphs",
    "graphs_off": "graphs",
}  # fmt: skip
"""Knob -> the bar of the chart that both of its ends belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One knob turned. `gained`: sequences at once, of all replicas, within memory, targets and engine; `gained_memory`: by memory alone;
    `itl_s`, `itl_added_s`: at the plan's own load; `best_itl_s`: at the most sequences."""

    turned: Turned
    gained: int
    gained_memory: int
    itl_added_s: float

    def to_json(self) -> dict[str, Any]:
        t = self.turned
        return {"knob": PAIRS[t.code], "code": t.code, "text": t.text, "cost": t.cost, "changes": dict(t.changes), "gained": self.gained,
                "gained_memory": self.gained_memory, "itl_added_s": self.itl_added_s, **t.after.to_json()}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Of the tornado chart: sequences gained and lost by the two ends of one knob (0 where it has no such end)."""

    knob: str
    low: int
    high: int
    low_text: str
    high_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """`rows`: most sequences gained first, then the fewest GPUs, then the most by memory, then the least time added."""

    before: Outcome
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]

    @property
    def best(self) -> Row | None:
        """The knob that buys the most; None where none buys anything."""
        return self.rows[0] if self.rows and self.rows[0].gained > 0 else None

    @property
    def by_memory(self) -> bool:
        """Whether the bars are of what memory alone would allow: no knob changes what targets and engine allow."""
        return not any(r.gained for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {"before": self.before.to_json(), "rows": [r.to_json() for r in self.rows]}


def sensitivity(p: CapacityPlan) -> Sensitivity | Note:
    """Of a plan. A note where no times can be given."""
    before = outcome(p)
    if isinstance(before, Note):
        return before
    rows = tuple(
        Row(turned=t, gained=t.after.best - before.best, gained_memory=t.after.memory - before.memory, itl_added_s=t.after.itl_s - before.itl_s)
        for t in turned(p, (code for code, _, _ in KNOBS))
    )
    ranked = tuple(sorted(rows, key=lambda r: (-r.gained, r.turned.after.gpus, -r.gained_memory, r.itl_added_s)))
    return Sensitivity(before=before, rows=ranked, bars=_bars(rows))


def _bars(rows: tuple[Row, ...]) -> tuple[Bar, ...]:
    """Longest first, each with its own two ends: by what the engine and targets allow, else nothing would be seen, by memory."""
    by_memory = not any(r.gained for r in rows)
    found = []
    for knob in dict.fromkeys(PAIRS[r.turned.code] for r in rows):
        ends = [(r.gained_memory if by_memory else r.gained, r.turned.text) for r in rows if PAIRS[r.turned.code] == knob]
        low, high = min(ends), max(ends)
        found.append(Bar(knob=knob, low=min(0, low[0]), high=max(0, high[0]), low_text=low[1] if low[0] < 0 else "", high_text=high[1] if high[0] > 0 else ""))
    return tuple(sorted(found, key=lambda b: b.low - b.high))

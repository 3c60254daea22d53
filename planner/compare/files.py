"""Columns -> the chart's numbers, its title, and the exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.compare import NAMES, Column
from planner.compare.lines import lines
from planner.compare.saved import FORMAT, VERSION, source_json
from planner.messages import render
from planner.report.csv import sheet
from planner.sources import Loaded
from planner.units import count

PARTS = ("weights", "other", "kv_used", "kv_free", "outside")
_PART = {"weights": "weights", "weights_given": "weights", "weights_beside": "weights", "kv_rows": "kv_used", "kv_rows_once": "kv_used",
         "kv_scales": "kv_used", "kv_blocks": "kv_used", "kv_free": "kv_free", "outside_budget": "outside", "driver_gap": "outside"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The deciding rank of one column. `parts`: bytes by PARTS, nothing negative; `limit_bytes`: of the device, or of the pool alone."""

    index: int
    parts: dict[str, int]
    limit_bytes: int


def bars(columns: Sequence[Column]) -> tuple[Bar, ...]:
    out = []
    for i, c in enumerate(columns):
        if c.plan is not None:
            held, sums = c.plan.ledgers[c.plan.binding_rank], dict.fromkeys(PARTS, 0)
            for line in held:
                sums[_PART.get(line.code, "other")] += line.bytes
            out.append(Bar(index=i, parts={k: max(0, v) for k, v in sums.items()}, limit_bytes=sum(line.bytes for line in held)))
    return tuple(out)


def finding(columns: Sequence[Column]) -> str:
    """What the comparison comes to, in one line."""
    most = {i: c.plan.total_max_sequences for i, c in enumerate(columns) if c.plan is not None}
    if not most:
        return render("compare.title.none")
    best, worst = max(most, key=lambda i: most[i]), min(most, key=lambda i: most[i])
    args = {"best": NAMES[best], "most": count(most[best]), "other": NAMES[worst], "least": count(most[worst])}
    return render("compare.title.same" if most[best] == most[worst] else "compare.title", args)


def to_json(columns: Sequence[Column], sources: Sequence[tuple[Loaded, tuple[str, ...]] | None] = ()) -> dict[str, Any]:
    """One object: the scenarios, an error in its place, and every line with values, texts and sources. `sources`: of each column its config and
    the keys declared harmless; with them the file can be opened again (planner/compare/saved.py)."""
    held = [*sources, *(None for _ in columns[len(sources) :])]
    heads = [{"name": NAMES[i], "model": c.plan.model.name if c.plan else c.scenario.model, "scenario": c.scenario.to_json(), "state": c.state,
              "error": c.error.to_json() if c.error else None, **source_json(held[i])} for i, c in enumerate(columns)]  # fmt: skip
    rows = [
        {
            "section": line.section, "code": line.code, "label": line.label, "differs": line.differs,
            "values": [c.value if c else None for c in line.cells], "texts": [str(c.text) if c else None for c in line.cells],
            "sources": [c.source if c else None for c in line.cells],
        }
        for line in lines(columns)
    ]  # fmt: skip
    return {"format": FORMAT, "version": VERSION, "columns": heads, "lines": rows}


def to_csv(columns: Sequence[Column]) -> bytes:
    """A row a figure: the columns' values as plain numbers, whether they differ, and the sources. With a byte order mark, for spreadsheets."""
    names = NAMES[: len(columns)]
    rows: list[list[str]] = [["section", "code", "label", *names, "differs", *(f"source {n}" for n in names)]]
    for i, c in enumerate(columns):
        if c.error is not None:
            rows.append(["refused", NAMES[i], c.error.message, c.error.hint])
    for line in lines(columns):
        values = ["" if c is None or c.value is None else str(c.value) for c in line.cells]
        sources = ["" if c is None else c.source for c in line.cells]
        rows.append([line.section, line.code, line.label, *values, str(line.differs).lower(), *sources])
    return sheet(rows)

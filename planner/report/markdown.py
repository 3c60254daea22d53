"""The report as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from planner.messages import render
from planner.report.content import build
from planner.report.table import Table
from planner.units import gib

if TYPE_CHECKING:
    from planner.heatmap import HeatMap
    from planner.report import Request


def write(r: Request) -> bytes:
    c = build(r)
    parts = [
        f"# {_plain(c.title)}",
        render("report.created", {"date": c.created, "program": c.made_by}) if c.created else "",
        f"**{_plain(c.verdict)}**",
        _rows(tuple(render(f"report.column.{x}") for x in ("line", "value", "exact")), c.facts, {1, 2}),
        f"## {render('report.section.formula')}",
        "\n".join(["```", *c.formula, c.gap, "```"]),
        f"## {render('report.table.heat')}",
        _heat(c.heat),
    ]
    for table in c.all_tables:
        parts += [f"## {table.title}", _table(table)]
    return ("\n\n".join(p for p in parts if p) + "\n").encode()


def _table(t: Table) -> str:
    return _rows(t.columns, t.rows, t.numeric) if t.rows else render("report.none")


def _rows(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], numeric: frozenset[int] | set[int]) -> str:
    lines = [_line(columns), "|" + "|".join("---:" if i in numeric else "---" for i in range(len(columns))) + "|"]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_plain(c) for c in cells) + " |"


def _heat(h: HeatMap) -> str:
    """GiB a rank; cells that do not fit stand in brackets."""
    head = (render("report.heat.corner"), *(f"{t:,}" for t in h.tokens))
    rows = tuple(
        (f"{n:,}", *(gib(b) if fits else f"({gib(b)})" for b, fits in zip(line, ok, strict=True)))
        for n, line, ok in zip(h.sequences, h.rank_bytes, h.fits, strict=True)
    )
    return render("report.heat.legend") + "\n\n" + _rows(head, rows, set(range(1, len(head))))


def _plain(text: str) -> str:
    """Text from files and users must not become markup: no tables, links, images or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>|#!$~])", r"\\\1", " ".join(text.split()))

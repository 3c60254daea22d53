"""The report as CSV: one section a table, each row starting with its section's name."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from planner.report.content import build

if TYPE_CHECKING:
    from planner.report import Request

SECTIONS = ("ledger", "groups", "gap", "mix", "scenario")


def write(r: Request) -> bytes:
    c = build(r)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")

    def row(*cells: str) -> None:
        writer.writerow([_safe(x) for x in cells])

    row("plan", c.title, c.verdict, c.created)
    for line in c.formula:
        row("formula", line)
    for label, value, exact in c.facts:
        row("fact", label, value, exact)
    for table in (*(t for t in c.tables if t.key in SECTIONS), c.notes, c.provenance):
        row(table.key, *table.columns)
        for cells in table.rows:
            row(table.key, *(cell.replace(",", "") if i in table.numeric else cell for i, cell in enumerate(cells)))
    for n, sizes in zip(c.heat.sequences, c.heat.rank_bytes, strict=True):
        for t, size in zip(c.heat.tokens, sizes, strict=True):
            row("heat_map", str(t), str(n), str(size))
    return ("\ufeff" + out.getvalue()).encode()


def _safe(cell: str) -> str:
    """A cell that a spreadsheet would run as a formula gets an apostrophe; a plain negative number is none."""
    if cell.startswith(("=", "+", "@", "\t", "\r")) or (cell[:1] == "-" and len(cell) > 1 and not cell[1:].replace(".", "", 1).replace(" GiB", "").isdigit()):
        return "'" + cell
    return cell

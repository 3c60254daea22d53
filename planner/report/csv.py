"""The report as CSV: one section a table, each row starting with its section's name."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from planner.messages import render
from planner.report.content import build
from planner.report.table import Figure

if TYPE_CHECKING:
    from planner.report import Request


_NEGATIVE = re.compile(r"-\d+(\.\d+)?(e[+-]\d+)?( [A-Za-z]+)?", re.ASCII)


def write(r: Request) -> bytes:
    c = build(r)
    rows: list[tuple[str, ...]] = []

    def row(*cells: str) -> None:
        rows.append(cells)

    row("plan", c.title, c.verdict, c.created, c.made_by)
    for line in c.formula:
        row("formula", line)
    row("formula", c.gap)
    row("facts", *(render(f"report.column.{x}") for x in ("line", "value", "unit", "exact")))
    for label, value, all_digits in c.facts:
        row("facts", label, *(_number(value), value.unit) if isinstance(value, Figure) else (value, ""), _number(all_digits))
    for t in c.all_tables:
        row(t.key, *t.columns)
        for cells in t.rows:
            row(t.key, *(_cell(cell, t.columns[i]) for i, cell in enumerate(cells)))
    row("heat_map", *(render(f"report.column.{x}") for x in ("heat_tokens", "heat_sequences", "bytes")))
    for n, sizes in zip(c.heat.sequences, c.heat.rank_bytes, strict=True):
        for length, size in zip(c.heat.tokens, sizes, strict=True):
            row("heat_map", str(length), str(n), str(size))
    return sheet(rows)


def sheet(rows: Iterable[Iterable[Any]]) -> bytes:
    """A whole CSV file for spreadsheets, with a byte order mark."""
    out = io.StringIO("\ufeff")
    out.seek(0, io.SEEK_END)
    write_rows(rows, out)
    return out.getvalue().encode()


def write_rows(rows: Iterable[Iterable[Any]], out: TextIO) -> int:
    """How many were written. Texts that a spreadsheet would run are quoted, unknown figures are empty, truths are true and false."""
    writer = csv.writer(out, lineterminator="\n")
    return sum(writer.writerow([_written(x) for x in cells]) > 0 for cells in rows)


def _written(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe(value) if isinstance(value, str) else "" if value is None else value


def _cell(cell: str, column: str) -> str:
    """A figure as a plain number, with its unit where the column's heading does not name it."""
    if not isinstance(cell, Figure):
        return cell
    return _number(cell) if cell.unit in ("", column) else f"{_number(cell)} {cell.unit}"


def _number(cell: str) -> str:
    """A number as programs read it: no separators, all digits."""
    return str(cell.value) if isinstance(cell, Figure) else cell


def safe(cell: str) -> str:
    """A text that a spreadsheet would run as a formula gets an apostrophe; a plain negative number, with its unit perhaps, is none."""
    if cell.startswith(("=", "+", "@", "\t", "\r")) or (cell[:1] == "-" and len(cell) > 1 and not _NEGATIVE.fullmatch(cell)):
        return "'" + cell
    return cell

"""What tables of a report are made of. A figure is a text that still knows its number, so every writer sets the same cell in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.messages import render
from planner.units import count, gib, gib_number

MAX_TEXT = 2_000  # characters of one cell


class Figure(str):
    """A number as it is read, ``16.00 GiB``, with `value` (16.0), `unit` (GiB) and the `digits` after the point for writers with typed cells."""

    value: int | float
    unit: str
    digits: int

    def __new__(cls, text: str, value: int | float, unit: str = "", digits: int = 0) -> Figure:
        made = super().__new__(cls, text)
        made.value, made.unit, made.digits = value, unit, digits
        return made


def whole(value: int, unit: str = "") -> Figure:
    """A count or an exact size; `unit` is printed behind it."""
    return Figure(f"{count(value)} {unit}".rstrip(), value, unit)


def in_gib(size: float) -> Figure:
    """`size` in bytes, read in GiB."""
    return Figure(gib(size), gib_number(size), "GiB", 2)


def exact(size: float) -> Figure:
    """Bytes to the byte; a share of a byte with one digit."""
    text = render("report.bytes", {"bytes": count(size) if size == int(size) else f"{size:,.1f}"})
    return Figure(text, int(size) if size == int(size) else size, text.split(" ", 1)[-1], 0 if size == int(size) else 1)


def tokens(value: int) -> Figure:
    text = render("report.tokens", {"tokens": count(value)})
    return Figure(text, value, text.split(" ", 1)[-1])


def number(value: float, digits: int, unit: str = "") -> Figure:
    return Figure(f"{value:,.{digits}f} {unit}".rstrip(), value, unit, digits)


def or_dash(value: int | None) -> str:
    return "-" if value is None else whole(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`numeric`: the columns that are set flush right."""

    key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()

    @property
    def title(self) -> str:
        return render(f"report.table.{self.key}")


def table(key: str, columns: tuple[str, ...], rows: Iterable[Iterable[str]], numeric: Iterable[int] = ()) -> Table:
    """`columns`: names of columns; every cell is made printable."""
    headings = tuple(render(f"report.column.{c}") for c in columns)
    return Table(key=key, columns=headings, rows=tuple(tuple(map(printable, row)) for row in rows), numeric=frozenset(numeric))


def printable(text: str) -> str:
    """A text that any format can hold: no control or direction characters, no halves of a character, no more than a cell needs."""
    if isinstance(text, Figure) or (text.isprintable() and len(text) <= MAX_TEXT):
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text[:MAX_TEXT])


def cleaned(value: Any) -> Any:
    """JSON-able `value` with every text made encodable: file names of Linux may hold bytes that are no character."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {cleaned(str(k)): cleaned(v) for k, v in value.items()}
    return [cleaned(v) for v in value] if isinstance(value, list | tuple) else value

"""The pictures of a report as numbers: bars of the ledger, their scale and legend, cells of the heat map. HTML and PDF draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.messages import render
from planner.report import colours
from planner.units import GIB, count, gib, gib_number

if TYPE_CHECKING:
    from planner.heatmap import HeatMap
    from planner.report.content import Report

WIDTH, ROW = 900, 46
"""The width that stands for the whole scale, and the height of a rank's row, in the unit of the other figures here."""
LABEL_WIDTH = 34  # a segment this wide has room for its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One line of a ledger in its bar. `label`: its GiB where there is room for them, to be set in the colour `ink`; `text`: all of it."""

    x: float
    y: int
    width: float
    colour: str
    text: str
    label: str
    ink: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the heat map. `dark`: it needs light text."""

    colour: str
    dark: bool
    text: str
    exact: str
    fits: bool


def scale(c: Report) -> int:
    """Bytes that the whole width stands for: the device, or more where the lines need more than it has."""
    return max([c.memory_bytes, 1, *(sum(size for _, _, size in lines if size > 0) for _, lines in c.ranks)])


def x_of(size: int, whole: int) -> float:
    return round(WIDTH * size / whole, 2)


def segments(c: Report) -> list[Segment]:
    whole, out = scale(c), []
    for row, (label, lines) in enumerate(c.ranks):
        at = 0
        for code, name, size in sorted(lines, key=lambda line: colours.place(line[0])):
            if size > 0:
                text = (
                    render("page.bar.hover", {"rank": label, "name": name, "gib": gib(size), "bytes": count(size), "kind": ""})
                    .replace("<br>", ", ")
                    .rstrip(", ")
                )
                inside = f"{gib_number(size):,.1f}" if x_of(size, whole) > LABEL_WIDTH else ""
                out.append(
                    Segment(
                        x=x_of(at, whole),
                        y=row * ROW,
                        width=x_of(size, whole),
                        colour=colours.of(code),
                        text=text,
                        label=inside,
                        ink=colours.ink_on(colours.of(code)),
                    )
                )
                at += size
    return out


def ticks(c: Report) -> list[tuple[float, str]]:
    whole = scale(c)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if whole / GIB / s <= 10)
    return [(x_of(k * step * GIB, whole), count(k * step)) for k in range(whole // (step * GIB) + 1)]


def legend(c: Report) -> list[tuple[str, str]]:
    """(colour, name), each line once, in the order of the bars."""
    names: dict[str, str] = {code: name for _, lines in c.ranks for code, name, size in lines if size > 0}
    return [(colours.of(code), names[code]) for code in sorted(names, key=colours.place)]


def heat_rows(h: HeatMap) -> list[tuple[int, list[Cell]]]:
    """Rows from many sequences to one. Shades follow the logarithm of the bytes."""
    sizes = [b for line in h.rank_bytes for b in line]
    low, span = min(sizes).bit_length(), max(1, max(sizes).bit_length() - min(sizes).bit_length())
    rows = []
    for n, line, fits in zip(h.sequences, h.rank_bytes, h.fits, strict=True):
        cells = []
        for size, ok in zip(line, fits, strict=True):
            step = min(len(colours.HEAT) - 1, (size.bit_length() - low) * len(colours.HEAT) // (span + 1))
            text = f"{gib_number(size):,.2f}" if size < 100 * GIB else f"{gib_number(size):,.0f}"
            cells.append(Cell(colour=colours.HEAT[step] if ok else colours.NO_FIT, dark=ok and step >= 3, text=text, exact=count(size), fits=ok))
        rows.append((n, cells))
    return rows[::-1]

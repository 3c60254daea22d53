"""The report as one HTML file: inline SVG and style, nothing fetched, fit for printing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from planner.messages import render
from planner.report import colours
from planner.report.content import Report, build
from planner.units import GIB, count, gib, gib_number

if TYPE_CHECKING:
    from planner.heatmap import HeatMap
    from planner.report import Request

WIDTH, ROW = 900, 46
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    x: float
    y: int
    width: float
    colour: str
    text: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    colour: str
    dark: bool
    text: str
    exact: str
    fits: bool


def write(r: Request) -> bytes:
    c = build(r)
    page = _ENVIRONMENT.get_template("template.html").render(
        r=c,
        say=render,
        segments=_segments(c),
        ticks=_ticks(c),
        legend=_legend(c),
        limit=_x(c.memory_bytes, _scale(c)),
        width=WIDTH,
        height=ROW * len(c.ranks),
        row=ROW,
        heat=_heat(c.heat),
        count=count,
    )
    return page.encode()


def _scale(c: Report) -> int:
    """Bytes that the whole width stands for: the device, or more where the lines need more than it has."""
    return max([c.memory_bytes, 1, *(sum(size for _, _, size in lines if size > 0) for _, lines in c.ranks)])


def _x(size: int, whole: int) -> float:
    return round(WIDTH * size / whole, 2)


def _segments(c: Report) -> list[Segment]:
    whole, out = _scale(c), []
    for row, (label, lines) in enumerate(c.ranks):
        at = 0
        for code, name, size in sorted(lines, key=lambda line: colours.ORDER.index(line[0]) if line[0] in colours.ORDER else 99):
            if size > 0:
                text = (
                    render("page.bar.hover", {"rank": label, "name": name, "gib": gib(size), "bytes": count(size), "kind": ""})
                    .replace("<br>", ", ")
                    .rstrip(", ")
                )
                inside = f"{gib_number(size):,.1f}" if _x(size, whole) > 34 else ""
                out.append(Segment(x=_x(at, whole), y=row * ROW, width=_x(size, whole), colour=colours.of(code), text=text, label=inside))
                at += size
    return out


def _ticks(c: Report) -> list[tuple[float, str]]:
    whole = _scale(c)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if whole / GIB / s <= 10)
    return [(_x(k * step * GIB, whole), count(k * step)) for k in range(whole // (step * GIB) + 1)]


def _legend(c: Report) -> list[tuple[str, str]]:
    """(colour, name), each line once, in the order of the bars."""
    names: dict[str, str] = {code: name for _, lines in c.ranks for code, name, size in lines if size > 0}
    return [(colours.of(code), names[code]) for code in sorted(names, key=lambda code: colours.ORDER.index(code) if code in colours.ORDER else 99)]


def _heat(h: HeatMap) -> list[tuple[int, list[Cell]]]:
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

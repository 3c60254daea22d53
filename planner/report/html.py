"""The report as one HTML file: inline SVG and style, nothing fetched, fit for printing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from planner.messages import language, render
from planner.report import pictures
from planner.report.content import build
from planner.units import count

if TYPE_CHECKING:
    from planner.report import Request

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


def write(r: Request) -> bytes:
    c = build(r)
    page = _ENVIRONMENT.get_template("template.html").render(
        r=c,
        say=render,
        language=language(),
        segments=pictures.segments(c),
        ticks=pictures.ticks(c),
        legend=pictures.legend(c),
        limit=pictures.x_of(c.memory_bytes, pictures.scale(c)),
        width=pictures.WIDTH,
        height=pictures.ROW * len(c.ranks),
        row=pictures.ROW,
        heat=pictures.heat_rows(c.heat),
        count=count,
    )
    return page.encode()

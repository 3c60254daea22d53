"""Columns -> one stacked bar each, with its limit. Every number comes from the planner."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.parts.charts import BAR_PIXELS, BARS_AROUND, LIMIT_COLOUR, MARGIN, swatches
from planner.compare import NAMES
from planner.compare.files import PARTS, Bar
from planner.messages import render
from planner.report import colours
from planner.units import count, gib, gib_number

COLOURS = {"weights": colours.of("weights"), "other": colours.of("activation"), "kv_used": colours.of("kv_rows"), "kv_free": colours.of("kv_free"),
           "outside": colours.of("outside_budget")}  # fmt: skip
THICK = 0.65


def figure(bars: Sequence[Bar]) -> go.Figure:
    """A mark at each limit: columns may have devices of different size."""
    names = [NAMES[b.index] for b in bars]
    traces: list[dict[str, object]] = [
        {
            "type": "bar", "orientation": "h", "name": render(f"compare.part.{part}"), "y": names, "x": [gib_number(b.parts[part]) for b in bars],
            "marker": {"color": COLOURS[part], "line": {"width": 0}}, "hoverinfo": "text",
            "hovertext": [_hover("hover", b, b.parts[part], part=render(f"compare.part.{part}")) for b in bars],
        }
        for part in PARTS
    ]  # fmt: skip
    traces.append({
        "type": "scatter", "mode": "markers", "y": names, "x": [gib_number(b.limit_bytes) for b in bars], "hoverinfo": "text",
        "marker": {"symbol": "line-ns", "size": BAR_PIXELS * THICK / 2, "line": {"color": LIMIT_COLOUR, "width": 2.5}},
        "hovertext": [_hover("limit.hover", b, b.limit_bytes) for b in bars],
    })  # fmt: skip
    return go.Figure({"data": traces, "layout": {
        "barmode": "stack", "height": BARS_AROUND + BAR_PIXELS * len(bars) * THICK, "margin": MARGIN, "bargap": 0.3, "showlegend": False, "dragmode": False,
        "xaxis": {"title": {"text": render("page.compare.axis")}, "showgrid": True, "zeroline": False, "automargin": True, "rangemode": "tozero",
                  "fixedrange": True},
        "yaxis": {"categoryorder": "array", "categoryarray": names[::-1], "automargin": True, "fixedrange": True},
        "hoverlabel": {"align": "left"},
    }})  # fmt: skip


def legend(bars: Sequence[Bar]) -> str:
    shown = [part for part in PARTS if any(b.parts[part] for b in bars)]
    return swatches([*((COLOURS[p], render(f"compare.part.{p}")) for p in shown), (LIMIT_COLOUR, render("page.compare.limit"))])


def _hover(code: str, b: Bar, size: int, **more: str) -> str:
    return render(f"page.compare.{code}", {"column": NAMES[b.index], "gib": gib(size), "bytes": count(size), **more})

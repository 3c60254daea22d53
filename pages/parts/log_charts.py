"""The lines of a reconciled log as one bar each: how far the log is from what is expected."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.parts.charts import MARGIN
from pages.parts.errors import plain
from planner.enginelogs.answer import shown
from planner.enginelogs.reconcile import Line
from planner.messages import render
from planner.report import colours

COLOURS = {"differs": colours.of("kv_blocks"), "open": colours.of("activation"), "agrees": colours.of("kv_rows")}
ROW_PIXELS, AROUND, MOST = 26, 70, 24
LIMIT_PERCENT = 100.0  # a bar ends there; its hover has the whole figure


def title(lines: Sequence[Line]) -> str:
    """What the picture says."""
    worst = max(lines, key=lambda line: abs(line.share_percent or 0.0))
    differ = sum(line.status == "differs" for line in lines)
    code = "page.log.chart.bad" if differ else "page.log.chart.good"
    return render(code, {"differ": differ, "count": len(lines), "label": plain(worst.label), "share": f"{worst.share_percent or 0.0:+,.2f}"})


def drawn(lines: Sequence[Line]) -> list[Line]:
    """The lines that have a share, those that differ first; one a figure and way of telling."""
    seen = {(line.name, line.how, line.status): line for line in reversed(lines) if line.share_percent is not None}
    return [line for line in lines if seen.get((line.name, line.how, line.status)) is line][:MOST]


def figure(lines: Sequence[Line]) -> go.Figure:
    names = [render("page.log.chart.row", {"label": line.label, "line": line.figure.line, "why": render(f"page.log.by.{line.how}")}) for line in lines]
    shares = [max(-LIMIT_PERCENT, min(LIMIT_PERCENT, line.share_percent or 0.0)) for line in lines]
    trace = {
        "type": "scatter", "mode": "markers", "x": shares, "y": names, "hoverinfo": "text",
        "marker": {"color": [COLOURS[line.status] for line in lines], "size": 11,
                   "symbol": ["diamond" if line.status == "differs" else "circle-open" if line.status == "open" else "circle" for line in lines]},
        "hovertext": [render("page.log.chart.hover", {"label": line.label, "reported": shown(line.name, line.figure.value),
                                                      "expected": shown(line.name, line.predicted), "share": f"{line.share_percent or 0.0:+,.2f}"})
                      for line in lines],
    }  # fmt: skip
    return go.Figure({"data": [trace], "layout": {
        "height": AROUND + ROW_PIXELS * len(lines), "margin": MARGIN, "showlegend": False, "dragmode": False,
        "xaxis": {"title": {"text": render("page.log.chart.axis")}, "zeroline": True, "showgrid": True, "fixedrange": True, "automargin": True,
                  "range": _range(shares)},
        "yaxis": {"categoryorder": "array", "categoryarray": names[::-1], "automargin": True, "fixedrange": True},
        "hoverlabel": {"align": "left"},
    }})  # fmt: skip


def _range(shares: Sequence[float]) -> list[float]:
    """Even around 0, so that its place is the same at a glance; never narrower than 1 %."""
    most = max(1.0, *(abs(s) for s in shares)) * 1.1
    return [-most, most]

"""A lesson's chart -> a Plotly figure. Every number comes from the planner."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from pages.parts.charts import MARGIN, powers_axis
from planner.heatmap import log2s, log10_ticks
from planner.learn import Chart
from planner.messages import render
from planner.report import colours
from planner.units import count, gib_number, memory

BAR, GROUP, AROUND = 20, 12, 60


def figure(c: Chart) -> go.Figure:
    return _lines(c) if c.kind == "lines" else _bars(c)


def _lines(c: Chart) -> go.Figure:
    """Both axes by powers: where two lines cross is then in the middle."""
    at = log2s(c.x)
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": name, "x": at, "y": [gib_number(v) for v in values], "hoverinfo": "text",
            "line": {"color": colours.of(colour), "width": 2.5}, "marker": {"size": 6},
            "hovertext": [_hover(name, count(x), v) for x, v in zip(c.x, values, strict=True)],
        }
        for name, colour, values in c.series
    ]  # fmt: skip
    ticks = log10_ticks([gib_number(v) for _, _, values in c.series for v in values])
    axis = {"title": {"text": render("learn.axis.gib")}, "type": "log", "tickvals": ticks, "tickformat": ",~g", "fixedrange": True, "automargin": True}
    return _figure(data, {"height": 280, "xaxis": powers_axis(c.x_title, at, c.x), "yaxis": axis})


def _bars(c: Chart) -> go.Figure:
    """Lying, with the figure at the end: labels are long and a phone is narrow."""
    labels = [str(x) for x in c.x]
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": labels, "x": [gib_number(v) for v in values], "marker": {"color": colours.of(colour)},
            "text": [memory(v) for v in values], "textposition": "auto", "hoverinfo": "text",
            "insidetextfont": {"color": colours.ink_on(colours.of(colour))},
            "hovertext": [_hover(name, x, v) for x, v in zip(labels, values, strict=True)],
        }
        for name, colour, values in c.series
    ]  # fmt: skip
    one = len(c.series) == 1
    layout = {
        "barmode": "group", "bargap": 0.25, "height": AROUND + (BAR * len(c.series) + GROUP) * len(labels), "showlegend": not one,
        "xaxis": {"title": {"text": render("learn.axis.gib")}, "zeroline": False, "fixedrange": True, "automargin": True},
        "yaxis": {"title": {"text": c.x_title}, "type": "category", "categoryorder": "array", "categoryarray": labels[::-1], "fixedrange": True,
                  "automargin": True},
    }  # fmt: skip
    return _figure(data, layout)


def _figure(data: list[dict[str, Any]], layout: dict[str, Any]) -> go.Figure:
    common = {"margin": {**MARGIN, "t": 30}, "dragmode": False, "hoverlabel": {"align": "left"},
              "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "traceorder": "normal"}}  # fmt: skip
    return go.Figure({"data": data, "layout": {**common, **layout}})


def _hover(name: str, x: str, value: float) -> str:
    return render("page.learn.hover", {"name": name, "x": x, "value": memory(value)})

"""A simulation -> a Plotly figure: who runs, who waits, how full the pool is."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from pages.parts.charts import LIMIT_COLOUR, MARGIN
from pages.parts.serve_charts import BAND_COLOUR, MAIN_COLOUR
from planner.messages import render
from planner.simulator import Simulation


def occupancy(found: Simulation) -> go.Figure:
    """Sequences on the left axis, the pool's filled part on the right one; a mark where requests were preempted."""
    x = [row["seconds"] for row in found.timeline]
    line: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 2, "shape": "hv"}}
    data = [
        {**line, "name": render("page.load.chart.used"), "y": [row["used"] for row in found.timeline], "yaxis": "y2",
         "fill": "tozeroy", "fillcolor": BAND_COLOUR,
         "line": {"width": 0, "color": MAIN_COLOUR}},
        {**line, "name": render("page.load.chart.running"), "y": [row["running"] for row in found.timeline], "line": {**line["line"], "color": MAIN_COLOUR}},
        {**line, "name": render("page.load.chart.waiting"), "y": [row["waiting"] for row in found.timeline], "line": {**line["line"], "color": LIMIT_COLOUR}},
    ]  # fmt: skip
    axis = {"automargin": True, "fixedrange": True, "zeroline": False, "rangemode": "tozero"}
    layout = {
        "height": 320, "margin": {**MARGIN, "t": 34}, "dragmode": False, "hovermode": "x unified",
        "xaxis": {**axis, "title": {"text": render("page.load.chart.x")}}, "yaxis": {**axis, "title": {"text": render("page.load.chart.y")}},
        "yaxis2": {**axis, "title": {"text": render("page.load.chart.y2")}, "overlaying": "y", "side": "right", "range": [0, 1.02], "dtick": 0.25,
                   "tickformat": ".0%",
                   "showgrid": False},
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
    }  # fmt: skip
    return go.Figure({"data": data, "layout": layout})

"""A view of the suite -> a Plotly figure. No Streamlit here, and no figure of its own: every number comes from the view."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from gpu_probe.claims.view import Series, View, times
from pages.parts.charts import LIMIT_COLOUR
from planner.report import colours

HEIGHT = 300
COLOURS = {"cache": colours.KINDS["full"], "weights": colours.KINDS["latent"], "third": colours.KINDS["state"], "other": colours.KINDS["cross"]}
PATTERNS = {"cache": "", "weights": "/", "third": ".", "other": "x"}
"""Told apart without colour too."""
SYMBOLS = {"cache": "circle", "weights": "square", "third": "diamond", "other": "diamond-open"}


def figure(v: View) -> go.Figure:
    """Bars beside or on each other, lines over a number, points on bars; a dashed line across for what a document says."""
    categories = any(isinstance(x, str) for x in v.at)
    bars = [s for s in v.series if s.form == "bar"]
    labelled = not v.stacked and len(bars) == len(v.series)
    result = go.Figure({"data": [_trace(v, s, labelled) for s in v.series]})
    named = [*(s.name for s in v.series if s.form != "trend"), *(name for name, _ in v.references)]
    result.update_layout({
        "height": HEIGHT, "margin": {"l": 6, "r": 12, "t": 44 if len(named) > 1 else 20, "b": 6}, "bargap": 0.35,
        "barmode": "relative" if v.stacked else "group",
        "xaxis": {"title": {"text": v.x}, "type": "category" if categories else "linear", "automargin": True, "fixedrange": True, "zeroline": False,
                  **({} if categories else {"tickvals": list(v.at), "ticktext": [f"{x:,.0f}" for x in v.at]})},
        "yaxis": {"title": {"text": v.y}, "automargin": True, "fixedrange": True, "rangemode": "tozero", "zeroline": True},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "font": {"size": 12}}, "showlegend": len(named) > 1,
        "dragmode": False, "hoverlabel": {"align": "left"},
    })  # fmt: skip
    for name, at in v.references:
        line = {"color": LIMIT_COLOUR, "width": 1.5, "dash": "dash"}
        result.add_hline(y=at, line=line)
        result.add_trace({"type": "scatter", "mode": "lines", "name": name, "x": [v.at[0]], "y": [at], "line": line, "hoverinfo": "skip"})  # the legend's
    return result


def _trace(v: View, s: Series, labelled: bool) -> dict[str, Any]:
    colour = COLOURS[s.role]
    common = {"name": s.name, "x": list(v.at), "y": list(s.values), "hovertemplate": "%{x}: %{y:,.4~g} " + v.y + "<extra>" + s.name + "</extra>"}
    if s.form == "bar":
        text = {"text": [times(y) for y in s.values], "textposition": "outside", "cliponaxis": False} if labelled else {}
        marker = {
            "color": colour,
            "pattern": {"shape": PATTERNS[s.role], "fillmode": "overlay", "fgcolor": "#ffffff", "size": 6, "solidity": 0.15},
            "line": {"width": 0},
        }
        return {"type": "bar", **common, **text, "marker": marker}
    if s.form == "trend":
        return {"type": "scatter", "mode": "lines", **common, "line": {"color": colour, "dash": "dot", "width": 1.5}, "showlegend": False}
    mode = "lines+markers" if s.form == "line" else "markers"
    marker = {"color": colour, "symbol": SYMBOLS[s.role], "size": 9, "line": {"width": 2, "color": colour}}
    return {"type": "scatter", "mode": mode, **common, "line": {"color": colour, "width": 2}, "marker": marker}

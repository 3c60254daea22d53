"""Where the time of a token is expected to go, as one bar a part. Every number comes from the planner."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.parts.charts import MARGIN
from planner.diagnose.parts import Part
from planner.latency import Latency
from planner.messages import render
from planner.report import colours
from planner.units import count, milliseconds, seconds

COLOURS = {"weights": "weights", "cache": "kv_rows", "compute": "activation", "prefill": "kv_blocks", "launches": "non_torch", "links": "cuda_graphs"}
ROW_PIXELS, AROUND = 26, 64


def title(found: Latency, rows: Sequence[Part]) -> str:
    """What the picture says."""
    args = {"first": rows[0].name, "time": seconds(rows[0].time_s), "share": rows[0].share, "itl": seconds(found.itl_s), "sequences": count(found.sequences)}
    return render("page.diagnose.predicted", args)


def figure(rows: Sequence[Part]) -> go.Figure:
    names, inks = [row.name for row in rows], [colours.of(COLOURS[row.code]) for row in rows]
    bar = {
        "type": "bar", "orientation": "h", "y": names, "x": [milliseconds(row.time_s) for row in rows],
        "marker": {"color": inks}, "insidetextfont": {"color": [colours.ink_on(c) for c in inks]},
        "text": [seconds(row.time_s) for row in rows], "textposition": "auto",
        "hoverinfo": "text", "hovertext": [row.text for row in rows],
    }  # fmt: skip
    return go.Figure({"data": [bar], "layout": {
        "height": AROUND + ROW_PIXELS * len(rows), "margin": MARGIN, "showlegend": False, "dragmode": False, "bargap": 0.25,
        "xaxis": {"title": {"text": render("page.diagnose.axis")}, "zeroline": False, "fixedrange": True, "automargin": True},
        "yaxis": {"categoryorder": "array", "categoryarray": names[::-1], "automargin": True, "fixedrange": True},
        "hoverlabel": {"align": "left"},
    }})  # fmt: skip

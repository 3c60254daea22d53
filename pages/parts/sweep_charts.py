"""The points of a sweep -> one Plotly figure. Every number comes from planner.sweep."""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go

from pages.parts.charts import LIMIT_COLOUR
from pages.parts.serve_charts import MAIN_COLOUR, _layout, log_axis
from planner.messages import render
from planner.sweep.files import name, usd
from planner.sweep.table import Point, Table
from planner.units import count, milliseconds, seconds

X_FIELDS = {"cost": "usd_per_million_tokens", "gpus": "gpus_used"}
POINT_COLOUR = "rgba(120, 130, 145, 0.55)"


def pareto(table: Table, length: int, x: str, y: str) -> go.Figure:
    """All that fits at one length, thinned where there is much of it, and the front as a line."""
    data: list[dict[str, Any]] = []
    for code, at in (("points", table.spread(length, x, y)), ("front", table.pareto(length, x, y))):
        rows = [table.row(p) for p in at]
        line = code == "front"
        data.append({
            "type": "scatter", "mode": "lines+markers" if line else "markers", "name": render(f"page.sweep.{code}"),
            "x": [r[X_FIELDS[x]] for r in rows], "y": [_y(r, y) for r in rows], "hoverinfo": "text",
            "hovertext": [_hover(table, p, r) for p, r in zip(at, rows, strict=True)],
            "marker": {"size": 9 if line else 6, "color": MAIN_COLOUR if line else POINT_COLOUR}, "line": {"color": MAIN_COLOUR, "width": 2.5},
        })  # fmt: skip
    layout = _layout(render(f"page.sweep.x.{x}"), render(f"page.sweep.y.{y}"), 400)
    for at in ("x", "y"):
        layout[f"{at}axis"] |= log_axis([v for trace in data for v in trace[at] if v is not None])
    figure = go.Figure({"data": data, "layout": layout})
    target = table.blocks[0].scenario.target_itl if table.blocks else None
    if target and y == "itl_s":
        figure.add_hline(y=milliseconds(target), line={"color": LIMIT_COLOUR, "width": 1.5, "dash": "dash"})
    return figure


def _hover(table: Table, at: Point, row: dict[str, Any]) -> str:
    cost = row["usd_per_million_tokens"]
    price = render("sweep.no_price") if cost is None else render("sweep.cost", {"cost": usd(cost)})
    return render("page.sweep.hover", {"what": escape(name(table, at)), "gpus": count(row["gpus_used"]), "sequences": count(row["sequences"]),
                                       "itl": seconds(row["itl_s"]), "ttft": seconds(row["ttft_s"]), "rate": count(row["tokens_per_s"]),
                                       "price": price})  # fmt: skip


def _y(row: dict[str, Any], y: str) -> float:
    value: float = row[y]
    return milliseconds(value) if y == "itl_s" else value


def title(table: Table, length: int, x: str, y: str) -> str:
    """The finding: what the front's ends are."""
    front = table.pareto(length, x, y)
    if not front:
        return render("page.sweep.title.none")
    first, last = name(table, front[0]), name(table, front[-1])
    code = "one" if len(front) == 1 or first == last else "many"
    return render(f"page.sweep.title.{code}", {"count": len(front), "first": first, "last": last, "what": render(f"page.sweep.what.{y}"),
                                               "least": render(f"page.sweep.least.{x}")})  # fmt: skip

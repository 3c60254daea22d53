"""Times and batches -> Plotly figures. Every number comes from planner.throughput and planner.latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from pages.parts.charts import HERE_COLOUR, LIMIT_COLOUR, MARGIN
from planner.capacity import CapacityPlan
from planner.heatmap import short_count
from planner.latency import Latency
from planner.messages import render
from planner.throughput import BatchLimit, Degree
from planner.units import count, milliseconds, seconds

MAIN_COLOUR, BAND_COLOUR = "#0f8a7a", "rgba(15, 138, 122, 0.18)"
MOST_DECADES = 3
OTHERS = ("#47618c", "#e09f2d", "#b07aa1", "#8b95a5", "#59626e")


def frontier(limit: BatchLimit, degrees: Sequence[Degree], p: CapacityPlan, now: Latency) -> go.Figure:
    """Output tokens a second of one GPU against the mean ITL, a curve for each tensor degree; this plan's batch and the best one marked."""
    own, ranks = p.setting.parallel.tensor, p.setting.parallel.ranks
    data = [_curve(limit.frontier, ranks, own, MAIN_COLOUR, 3.0)]
    others = [d for d in degrees if d.tp != own]
    data += [_curve(d.limit.frontier, d.gpus, d.tp, colour, 1.2) for d, colour in zip(others, OTHERS, strict=False)]
    here = [(now.itl_s, now.output_tokens_per_s)]
    best = [(limit.at_best["itl_s"], limit.at_best["output_tokens_per_s"])] if limit.at_best else []
    data += [_mark("here", now.sequences, here, ranks, "circle-open"), _mark("best", limit.best, best, ranks, "square-open")]
    layout = _layout(render("page.serve.x"), render("page.serve.y"), 380)
    points = [x for curve in data for x in curve["x"]]
    layout["xaxis"] |= log_axis(points)
    layout["yaxis"] |= {"tickformat": ",d"}
    figure = go.Figure({"data": data, "layout": layout})
    if limit.target_itl_s:
        figure.add_vline(x=milliseconds(limit.target_itl_s), line={"color": LIMIT_COLOUR, "width": 1.5, "dash": "dash"})
    return figure


def _mark(code: str, sequences: int, at: Sequence[tuple[float, float]], ranks: int, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "x": [milliseconds(itl) for itl, _ in at], "y": [rate / ranks for _, rate in at],
        "name": render(f"page.serve.{code}", {"sequences": count(sequences)}), "hoverinfo": "skip",
        "marker": {"size": 18, "symbol": symbol, "color": HERE_COLOUR, "line": {"width": 3}},
    }  # fmt: skip


def _curve(points: Iterable[Mapping[str, Any]], gpus: int, tp: int, colour: str, width: float) -> dict[str, Any]:
    rows = list(points)
    return {
        "type": "scatter", "mode": "lines+markers", "name": render("page.serve.degree", {"tp": tp}), "line": {"color": colour, "width": width},
        "x": [milliseconds(r["itl_s"]) for r in rows], "y": [r["output_tokens_per_s"] / gpus for r in rows],
        "marker": {"size": 7, "symbol": ["circle" if r["fits"] else "circle-open" for r in rows]}, "hoverinfo": "text",
        "hovertext": [render("page.serve.hover", {"tp": tp, "sequences": count(r["sequences"]), "itl": seconds(r["itl_s"]), "ttft": seconds(r["ttft_s"]),
                                                  "rate": count(r["output_tokens_per_s"]), "fits": render(f"page.heat.fits.{'yes' if r['fits'] else 'no'}")})
                      for r in rows],
    }  # fmt: skip


def prompt(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """TTFT against the prompt, both on powers of two and ten, with the range as a band."""
    x = [r["prompt"] for r in rows]
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    data = [
        {**edge, "y": [milliseconds(r["low_s"]) for r in rows]},
        {**edge, "y": [milliseconds(r["high_s"]) for r in rows], "fill": "tonexty", "fillcolor": BAND_COLOUR},
        {"type": "scatter", "mode": "lines+markers", "x": x, "y": [milliseconds(r["ttft_s"]) for r in rows], "line": {"color": MAIN_COLOUR, "width": 2.5},
         "showlegend": False, "hoverinfo": "text",
         "hovertext": [render("page.serve.ttft.hover", {"prompt": count(r["prompt"]), "ttft": seconds(r["ttft_s"]), "low": seconds(r["low_s"]),
                                                        "high": seconds(r["high_s"])}) for r in rows]},
    ]  # fmt: skip
    layout = _layout(render("page.serve.ttft.x"), render("page.serve.ttft.y"), 300)
    layout["margin"]["t"] = MARGIN["t"]  # no legend stands above
    layout["xaxis"] |= {"type": "log", "tickvals": x, "ticktext": [short_count(n) for n in x]}
    layout["yaxis"] |= log_axis([milliseconds(r[name]) for r in rows for name in ("low_s", "high_s")])
    return go.Figure({"data": data, "layout": layout})


def log_axis(values: Sequence[float]) -> dict[str, Any]:
    """An axis of powers whose ticks are whole figures with separators: 1, 2 and 5 of each power of ten, tens alone where there are many."""
    there = [v for v in values if v > 0]
    if not there:
        return {"type": "log"}
    first, last = math.floor(math.log10(min(there))), math.ceil(math.log10(max(there)))
    steps = (1, 2, 5) if last - first <= MOST_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": [f"{v:,.0f}" if v >= 1 else f"{v:g}" for v in ticks]}


def _layout(x: str, y: str, height: int) -> dict[str, Any]:
    axis = {"automargin": True, "fixedrange": True, "zeroline": False}
    return {
        "height": height, "margin": {**MARGIN, "t": 34}, "dragmode": False, "hoverlabel": {"align": "left"},
        "xaxis": {**axis, "title": {"text": x}}, "yaxis": {**axis, "title": {"text": y}},
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
    }  # fmt: skip


def frontier_title(limit: BatchLimit) -> str:
    if not limit.best or limit.at_best is None:
        return render(f"page.serve.title.none.{limit.binding}")
    best = limit.at_best
    return render("page.serve.title", {"sequences": count(limit.best), "rate": count(best["output_tokens_per_s"]), "itl": seconds(best["itl_s"]),
                                       "binding": render(f"page.serve.binds.{limit.binding}")})  # fmt: skip


def prompt_title(now: Latency) -> str:
    low, high = now.ttft_range_s
    return render("page.serve.ttft.title", {"ttft": seconds(now.ttft_s), "low": seconds(low), "high": seconds(high), "prompt": count(now.prompt_tokens),
                                            "sequences": count(now.sequences)})  # fmt: skip

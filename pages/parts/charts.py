"""Values -> Plotly figures. No Streamlit here, and no figure of its own: every number comes from the plan."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import plotly.graph_objects as go

from planner.capacity import CapacityPlan
from planner.engines.settings import LedgerLine
from planner.heatmap import HeatMap, gib_cell, log2s, short_count
from planner.messages import known_word, render
from planner.report import colours
from planner.report.content import distinct_ranks
from planner.units import count, gib, gib_number

MARGIN = {"l": 6, "r": 12, "t": 10, "b": 6}
LIMIT_COLOUR, HERE_COLOUR = "#d1495b", "#d1495b"
NO_FIT_INK, LIGHT_INK, DARK_INK = "#59626e", "#ffffff", "#10201e"
BAR_PIXELS, BARS_AROUND = 58, 66


def bars(p: CapacityPlan) -> go.Figure:
    """One stacked bar a rank that differs. Lines that are negative (a shortfall) are not drawn: the bar then runs over the device's end."""
    kinds = distinct_ranks(p)
    labels = [label for label, _ in kinds]
    by_code: dict[str, list[tuple[str, LedgerLine]]] = {}
    for label, rank in kinds:
        for line in p.ledgers[rank]:
            if line.bytes > 0:
                by_code.setdefault(line.code, []).append((label, line))
    codes = sorted(by_code, key=_place)
    traces = [_bar(code, by_code[code]) for code in codes]
    whole = sum(line.bytes for line in p.ledgers[p.binding_rank])
    figure = go.Figure(
        {
            "data": traces,
            "layout": {
                "barmode": "stack",
                "height": BARS_AROUND + BAR_PIXELS * len(labels),
                "margin": MARGIN,
                "bargap": 0.35,
                "xaxis": {"title": {"text": render("page.bar.axis")}, "showgrid": True, "zeroline": False, "automargin": True},
                "yaxis": {"categoryorder": "array", "categoryarray": labels[::-1], "automargin": True, "showticklabels": len(labels) > 1 or len(p.ledgers) > 1},
                "showlegend": False,
                "hoverlabel": {"align": "left"},
            },
        }
    )
    figure.add_vline(x=gib_number(whole), line={"color": LIMIT_COLOUR, "width": 1.5, "dash": "dash"})
    return figure


def _bar(code: str, lines: list[tuple[str, LedgerLine]]) -> dict[str, Any]:
    hover = [
        render("page.bar.hover", {"rank": label, "name": line.name, "gib": gib(line.bytes), "bytes": count(line.bytes), "kind": known_word(line.kind)})
        for label, line in lines
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": lines[0][1].name,
        "y": [label for label, _ in lines],
        "x": [gib_number(line.bytes) for _, line in lines],
        "marker": {"color": colours.of(code), "line": {"width": 0}},
        "hovertext": hover,
        "hoverinfo": "text",
    }


def heat(p: CapacityPlan, h: HeatMap) -> go.Figure:
    """Cells that fit in shades, cells that do not in grey, the line between them, and where this plan stands. Markers without ink lie on
    the cells, for Plotly selects markers and not cells."""
    x, y = log2s(h.tokens), log2s(h.sequences)
    shades = [[z if ok else None for z, ok in zip(log2s(line), fits, strict=True)] for line, fits in zip(h.rank_bytes, h.fits, strict=True)]
    greys = [[None if ok else 1 for ok in fits] for fits in h.fits]
    scale = [[i / (len(colours.HEAT) - 1), c] for i, c in enumerate(colours.HEAT)]
    common = {"type": "heatmap", "x": x, "y": y, "hoverinfo": "skip", "showscale": False, "xgap": 1, "ygap": 1}
    cells = [(i, j) for i in range(len(h.sequences)) for j in range(len(h.tokens))]
    data: list[dict[str, Any]] = [
        {**common, "z": shades, "colorscale": scale},
        {**common, "z": greys, "colorscale": [[0, colours.NO_FIT], [1, colours.NO_FIT]]},
        {
            "type": "scatter", "mode": "markers+text", "x": [x[j] for _, j in cells], "y": [y[i] for i, _ in cells], "showlegend": False,
            "marker": {"size": 26, "symbol": "square", "opacity": 0}, "selected": {"marker": {"opacity": 0}}, "unselected": {"marker": {"opacity": 0}},
            "text": [gib_cell(h.rank_bytes[i][j]) for i, j in cells], "textfont": {"size": 11, "color": _inks(shades)},
            "customdata": [[h.tokens[j], h.sequences[i]] for i, j in cells], "hoverinfo": "text",
            "hovertext": [_heat_hover(h, i, j) for i, j in cells],
        },
        {
            "type": "scatter", "mode": "lines", "x": log2s(t for t, _ in h.line), "y": log2s(n for _, n in h.line), "name": render("page.heat.line"),
            "line": {"color": LIMIT_COLOUR, "width": 2.5}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": log2s([p.scenario.tokens]), "y": log2s([p.scenario.sequences]), "name": render("page.heat.here"),
            "marker": {"size": 28, "symbol": "square-open", "color": HERE_COLOUR, "line": {"width": 3}}, "hoverinfo": "skip",
        },
    ]  # fmt: skip
    return go.Figure(
        {
            "data": data,
            "layout": {
                "height": 410,
                "margin": {**MARGIN, "t": 34},
                "xaxis": powers_axis(render("page.heat.x"), x, h.tokens),
                "yaxis": powers_axis(render("page.heat.y"), y, h.sequences),
                "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
                "clickmode": "event+select",
                "dragmode": False,
                "hoverlabel": {"align": "left"},
            },
        }
    )


def bar_title(p: CapacityPlan) -> str:
    if p.scenario.kv_memory:
        used = p.footprint.per_rank_bytes[p.binding_rank]
        return render("page.bar.title.pool", {"used": f"{gib_number(used):,.1f}", "whole": f"{gib_number(p.kv_pool_bytes):,.1f}"})
    whole = sum(line.bytes for line in p.ledgers[p.binding_rank])
    code = "one" if p.kv_pool_bytes > 0 else "over"
    return render(f"page.bar.title.{code}", {"used": f"{gib_number(whole - p.kv_pool_bytes):,.1f}", "whole": f"{gib_number(whole):,.1f}"})


def legend(p: CapacityPlan) -> str:
    names = {line.code: line.name for lines in p.ledgers for line in lines if line.bytes > 0}
    lines = [(colours.of(code), name) for code, name in sorted(names.items(), key=lambda item: _place(item[0]))]
    return swatches([*lines, (LIMIT_COLOUR, render("page.bar.end.pool" if p.scenario.kv_memory else "page.bar.end"))])


def swatches(entries: Iterable[tuple[str, str]]) -> str:
    """(colour, name) pairs as HTML that wraps on a phone."""
    swatch = "display:inline-block;width:11px;height:11px;margin-right:6px;background:"
    items = "".join(f'<span style="white-space:nowrap"><span style="{swatch}{colour}"></span>{escape(name)}</span>' for colour, name in entries)
    return f'<div style="display:flex;flex-wrap:wrap;gap:2px 18px;font-size:0.8rem">{items}</div>'


def _place(code: str) -> int:
    return colours.ORDER.index(code) if code in colours.ORDER else len(colours.ORDER)


def _inks(shades: list[list[float | None]]) -> list[str]:
    """Dark letters on light cells, light ones on dark cells, in both themes; cell by cell."""
    there = [z for line in shades for z in line if z is not None]
    middle = sum((min(there), max(there))) / 2 if there else 0
    return [NO_FIT_INK if z is None else LIGHT_INK if z > middle else DARK_INK for line in shades for z in line]


def heat_title(p: CapacityPlan) -> str:
    most, longest = p.max_sequences, p.longest_tokens_for_load()
    if not most and not longest:
        return render("page.heat.title.none")
    return render(
        "page.heat.title",
        {"tokens": count(p.scenario.tokens), "most": count(most * p.replicas), "sequences": count(p.scenario.sequences), "longest": count(longest)},
    )


def _heat_hover(h: HeatMap, i: int, j: int) -> str:
    size = h.rank_bytes[i][j]
    fits = render("page.heat.fits.yes" if h.fits[i][j] else "page.heat.fits.no")
    return render("page.heat.hover", {"sequences": count(h.sequences[i]), "tokens": count(h.tokens[j]), "gib": gib(size), "bytes": count(size), "fits": fits})


def powers_axis(title: str, at: list[float], values: tuple[int, ...]) -> dict[str, Any]:
    return {
        "title": {"text": title}, "tickmode": "array", "tickvals": at, "ticktext": [short_count(v) for v in values], "range": [at[0] - 0.5, at[-1] + 0.5],
        "showgrid": False, "zeroline": False, "fixedrange": True, "automargin": True,
    }  # fmt: skip

"""The layer map and its words. Values in, figures out."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.parts.charts import DARK_INK, LIGHT_INK, MARGIN, swatches
from planner.layermap import Cell, KindGroup
from planner.messages import kind_word, render, said
from planner.report import colours
from planner.units import count, memory

COLUMNS = 16


def layer_map(cells: Sequence[Cell]) -> go.Figure:
    """One square a layer, sixteen to a row, coloured by what it keeps."""
    traces = []
    for kind, colour in colours.KINDS.items():
        of_kind = [c for c in cells if c.kind == kind]
        if of_kind:
            traces.append({
                "type": "scatter", "mode": "markers+text", "name": render(f"page.layers.kind.{kind}"), "x": [c.index % COLUMNS for c in of_kind],
                "y": [c.index - c.index % COLUMNS for c in of_kind], "text": [str(c.index) for c in of_kind], "hoverinfo": "text",
                "hovertext": [_layer_hover(c) for c in of_kind], "textfont": {"size": 10, "color": _ink(kind)},
                "marker": {"symbol": "square", "size": 27, "color": colour, "line": {"width": 0}}, "showlegend": False,
            })  # fmt: skip
    rows = sorted({c.index - c.index % COLUMNS for c in cells})
    return go.Figure({"data": traces, "layout": {
        "height": 70 + 33 * len(rows), "margin": MARGIN,
        "xaxis": {"title": {"text": render("page.layers.axis")}, "range": [-0.7, COLUMNS - 0.3], "showgrid": False, "zeroline": False,
                  "tickvals": list(range(0, COLUMNS, 4)), "fixedrange": True},
        "yaxis": {"tickvals": rows, "autorange": "reversed", "showgrid": False, "zeroline": False, "fixedrange": True, "automargin": True},
    }})  # fmt: skip


def _ink(kind: str) -> str:
    return DARK_INK if kind in ("window", "chunk", "index", "shared", "none") else LIGHT_INK


def _layer_hover(c: Cell) -> str:
    if c.shares_with is not None:
        return render("page.layers.hover.shared", {"index": c.index, "other": c.shares_with})
    return render("page.layers.hover", {"index": c.index, "kinds": " + ".join(str(said(kind_word(k))) for k in c.kinds or (c.kind,)), "bytes": count(c.bytes)})


def layer_title(groups: Sequence[KindGroup], cells: Sequence[Cell], tokens: int) -> str:
    if not any(g.bytes for g in groups):
        return render("page.layers.map.none")
    most = max(groups, key=lambda g: g.bytes)
    total = sum(c.bytes for c in cells)
    facts = {"most": memory(most.bytes), "total": memory(total), "tokens": count(tokens), "layers": count(len(most.layers)), "kind": kind_word(most.kind.kind)}
    return render("page.layers.map.all" if most.bytes == total else "page.layers.map", facts)


def kind_legend(cells: Sequence[Cell]) -> str:
    present = [k for k in colours.KINDS if any(c.kind == k for c in cells)]
    return swatches((colours.KINDS[k], render(f"page.layers.kind.{k}")) for k in present)

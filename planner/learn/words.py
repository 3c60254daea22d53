"""How the lessons say a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.messages import render
from planner.units import count, memory

TERA, GIGA, MEGA = 10**12, 10**9, 10**6


def work(flop: float) -> str:
    """Floating-point operations in the unit that leaves a readable figure.

    >>> work(16.4e12)
    '16.40 TFLOP'
    """
    for factor, unit in ((TERA, "TFLOP"), (GIGA, "GFLOP"), (MEGA, "MFLOP")):
        if flop >= factor:
            return f"{flop / factor:,.2f} {unit}"
    return f"{flop:,.0f} FLOP"


def times(top: float, bottom: float) -> str:
    """A ratio as a factor; a dash where there is none."""
    return f"{top / bottom:,.2f}" if bottom else "-"


def exactly(size: float) -> str:
    return render("learn.exactly", {"short": memory(size), "bytes": count(size)})


def said(code: str, args: Mapping[str, Any]) -> str:
    """One paragraph; whole numbers with separators."""
    return render(f"learn.{code}", {k: count(v) if isinstance(v, int) and not isinstance(v, bool) else v for k, v in args.items()})


def columns(*codes: str) -> tuple[str, ...]:
    return tuple(render(f"learn.column.{c}") for c in codes)


def row(code: str, *cells: str) -> tuple[str, ...]:
    return (render(f"learn.row.{code}"), *cells)

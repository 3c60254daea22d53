"""What a chart of a claim shows, as plain values. No torch, no plotting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_probe.claims.numbers import Numbers
from planner.messages import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """`form`: bar, line (with its points), points, or trend (a dashed line). `role`: what it stands for, alike in all charts; a drawing gives
    each its own colour and pattern."""

    name: str
    role: str
    values: tuple[float, ...]
    form: str = "bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One chart and its table. `said`: what a document says, and the verdict on it, a pair a claim. `at`: numbers, or the names of bars.
    `references`: (name, value) lines across, what a document says. `rows`: under `columns`, as text. `stacked`: bars on each other.
    `reason`: set where there is nothing to draw, and then the rest is empty."""

    name: str
    claims: tuple[str, ...] = ()
    title: str = ""
    said: tuple[tuple[str, str], ...] = ()
    x: str = ""
    y: str = ""
    at: tuple[float, ...] | tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    references: tuple[tuple[str, float], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    how: str = ""
    reason: str = ""
    stacked: bool = False


Part = Callable[[str], Numbers]
"""The numbers of an item by its name."""


def heads(*codes: str) -> tuple[str, ...]:
    """Names of a table's columns."""
    return tuple(render(f"view.column.{code}") for code in codes)


def times(value: float) -> str:
    """A ratio in a title or a table."""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def ms(seconds: float) -> str:
    return f"{1000 * seconds:,.4g}"

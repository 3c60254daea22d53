"""Sums over lengths in closed form, exact: what `Term.units` and `Group.shared_units` add up to while a sequence grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from planner.cache import Group, Term


def units_through(t: Term, n: Any) -> Any:
    """Sum of ``t.units(s)`` over s = 1 ... n, in closed form; int or numpy integer array."""
    if t.unit_tokens is None:
        return n * t.extra_units
    inside = n if t.cap_tokens is None else np.minimum(n, t.cap_tokens)
    full, rest = inside // t.unit_tokens, inside % t.unit_tokens
    if t.rounding == "ceil":
        total = t.unit_tokens * (full * (full + 1) // 2) + rest * (full + 1)
    elif t.rounding == "floor":
        total = _floors(inside, t.unit_tokens)
    else:
        total = full * (t.unit_tokens * (t.unit_tokens - 1) // 2) + rest * (rest + 1) // 2
    total = total + n * t.extra_units
    if t.cap_tokens is not None:
        total = total + (n - inside) * (t.units(t.cap_tokens) - t.extra_units)
    return total


def shared_between(g: Group, prefix: Any, start: Any, end: Any) -> Any:
    """Sum of ``g.shared_units(s, prefix)`` over s = start + 1 ... end, for ``prefix <= start``."""
    t = g.resident
    if t.unit_tokens is None or t.rounding == "rest" or g.kind in ("state", "cross"):
        return (end - start) * 0
    whole = prefix // t.unit_tokens
    if t.cap_tokens is None:
        return whole * (end - start)
    if g.kind == "chunk":  # a chunk with blocks of the prefix began before `start`
        begin = start // t.cap_tokens * t.cap_tokens
        moments = (np.minimum(end, begin + t.cap_tokens - 1) - start).clip(min=0)
        return moments * (whole - begin // t.unit_tokens).clip(min=0)
    kept = max(0, t.cap_tokens - t.unit_tokens)

    def through(n: Any) -> Any:
        sliding = (n - kept).clip(min=0, max=(whole * t.unit_tokens - 1).clip(min=0))
        return whole * np.minimum(n, kept) + whole * sliding - _floors(sliding, t.unit_tokens or 1)

    return through(end) - through(start)


def _floors(n: Any, unit: int) -> Any:
    """Sum of ``s // unit`` over s = 1 ... n."""
    full, rest = n // unit, n % unit
    return unit * (full * (full - 1) // 2) + full * (rest + 1)


def sum_of_fractions(terms: list[tuple[int, int]]) -> tuple[int, int]:
    """Exact, by halves: thousands of different denominators make numbers of many digits, which are multiplied late and seldom."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [(a * d + c * b, b * d) for (a, b), (c, d) in pairs] + terms[len(terms) // 2 * 2 :]
    return terms[0]


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """How many whole numbers lie in at least one half-open interval."""
    total, reached = 0, 0
    for first, end in sorted(intervals):
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total

"""A suite's result -> what a chart of each claim shows: its title, series, table and how it was measured. No torch, no plotting.

Every figure comes from the result, and every result may be anybody's: one chart that cannot be read says so and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpu_probe.claims import Item, view_kinds, view_sizes, view_times
from gpu_probe.claims.catalog import ENTRIES
from gpu_probe.claims.numbers import Numbers
from gpu_probe.claims.view import Part, View
from planner.errors import NotAConfig
from planner.messages import render

MOST_TEXT = 400
MAKERS: dict[str, Callable[[Part], View]] = {**view_times.VIEWS, **view_kinds.VIEWS, **view_sizes.VIEWS}
ABOUT = {"kinds_itl": ("gqa_speed", "mqa_latency"), "llama_size": ("llama_size", "llama_weights")}
"""The items whose words and verdicts a chart carries, where it is not the one of the same name."""


def views(result: Mapping[str, Any], items: tuple[Item, ...]) -> tuple[View, ...]:
    """One view a chart whose entry was run, in the suite's order. `items`: what `gpu_probe.claims.read` said of `result`."""
    raw = {item.name: data.get("numbers") for item, data in zip(items, result["items"], strict=True)}
    by_name = {item.name: item for item in items}

    def part(name: str) -> Numbers:
        return Numbers(raw.get(name), f"items.{name}.numbers")

    out = []
    for name, entry in ENTRIES.items():
        there = [i for i in (*entry.items, name) if i in by_name]
        for chart in entry.charts if there else ():
            about = [by_name[i] for i in ABOUT.get(chart, (chart,)) if i in by_name]
            out.append(_view(chart, part, about, _reason(raw, there)))
    return tuple(out)


def _view(chart: str, part: Part, items: Sequence[Item], reason: str) -> View:
    if not reason:
        try:
            found = replace(MAKERS[chart](part), how=render(f"view.{chart}.how"))
        except NotAConfig as e:
            reason = render("view.unreadable", {"field": e.field})
    else:
        reason = render("view.skipped", {"reason": reason})
    if reason:
        found = View(name=chart, title=render(f"view.{chart}.name"), reason=reason)
    claims = tuple(dict.fromkeys(c for i in items for c in i.claims))
    return replace(found, claims=claims, said=tuple((i.says, i.verdict) for i in items))


def _reason(raw: Mapping[str, Any], there: list[str]) -> str:
    """Why an entry gave nothing: the suite keeps it in the numbers of the entry's own item."""
    return next((str(raw[name]["reason"])[:MOST_TEXT] for name in there if left_out(raw[name])), "")


def left_out(numbers: Any) -> bool:
    """Whether an item was not measured: its numbers are then the reason alone."""
    return isinstance(numbers, Mapping) and set(numbers) == {"reason"}


def absent(items: tuple[Item, ...]) -> tuple[str, ...]:
    """The entries of the suite that a result does not have: it was asked for some alone, or was ended."""
    names = {item.name for item in items}
    return tuple(name for name, entry in ENTRIES.items() if not names & {name, *entry.items})

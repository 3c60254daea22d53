"""Scenarios side by side: columns, each of which has gone through plan() alone, and how one is copied, changed and written as a text.

`lines` makes rows of figures of them, `files` the chart and the exports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from planner.capacity import CapacityPlan
from planner.errors import InvalidInput, PlannerError
from planner.latency import Latency, estimate
from planner.messages import render
from planner.report.choices import label as label
from planner.report.choices import plain
from planner.report.content import state_of
from planner.scenario import OPTIONS, Scenario, from_options

MOST = 6
NAMES = "ABCDEF"
MAX_TEXT = 4_000  # of one scenario in an address
FIRST = ("model", "gpu", "gpus", "engine", "kv_dtype", "weight_dtype", "tokens", "sequences", "tp", "pp", "dp_attention", "ep")
FIELDS = (*FIRST, *(name for name in OPTIONS if name not in FIRST))
"""What can be changed in a copy, the usual ones first."""
_TRIED: tuple[tuple[str, Any], ...] = (("kv_dtype", "fp8"), ("kv_dtype", "q8_0"), ("kv_dtype", "bf16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One scenario and what came of it: exactly one of `plan` and `error` is set. `latency` None: the device lacks a figure for it."""

    scenario: Scenario
    plan: CapacityPlan | None = None
    error: PlannerError | None = None
    latency: Latency | None = None

    @property
    def state(self) -> str:
        """fits | tight | no | refused"""
        return state_of(self.plan) if self.plan else "refused"


def column(s: Scenario, make: Callable[[Scenario], CapacityPlan]) -> Column:
    """`make` plans one scenario; its PlannerError stays in the column and spoils no other."""
    try:
        p = make(s)
        times = estimate(p)
    except PlannerError as e:
        return Column(scenario=s, error=e)
    return Column(scenario=s, plan=p, latency=times if isinstance(times, Latency) else None)


# -- scenarios ---------------------------------------------------------------------------------------------------------------


def as_text(s: Scenario) -> str:
    """A scenario as one value of an address: what differs from the defaults. `from_text` gives the same scenario back."""
    return urlencode(s.to_query())


def from_text(text: str) -> Scenario:
    """Raises InvalidInput, with the field where one is wrong."""
    if len(text) > MAX_TEXT:
        raise InvalidInput("column_text", field="column", limit=MAX_TEXT)
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=len(OPTIONS))
    except ValueError:
        raise InvalidInput("column_text", field="column", limit=MAX_TEXT) from None
    return from_options(dict(pairs))


def changed(s: Scenario, name: str, value: Any) -> Scenario:
    """A copy with one field changed; None or nothing gives the default. A new length leaves the old prompt and output behind. Raises
    InvalidInput with the field."""
    if name not in OPTIONS:
        raise InvalidInput("unknown_option", field=name[:60], known=", ".join(OPTIONS))
    if name == "tokens":
        s = replace(s, prompt=None, output=None)
    if value is None or value == "":
        return replace(s, **{name: getattr(Scenario(), name)})
    return from_options({name: value}, s)


def suggestion(s: Scenario, name: str) -> Any:
    """Another value for `name` than the scenario has, to begin with: the next choice, the other switch, twice the number."""
    value, option = getattr(s, name), OPTIONS[name]
    if option.kind == "choice":
        at = option.choices.index(value) if value in option.choices else -1
        return {"kv_dtype": "bf16" if value == "fp8" else "fp8"}.get(name, option.choices[(at + 1) % len(option.choices)])
    if option.kind == "flag":
        return not value
    if option.kind == "int":
        return int(min(option.high, 2 * value if value else max(option.low, 1)))
    return None if value is None else value


def instructive(base: Column, make: Callable[[Scenario], CapacityPlan]) -> Column:
    """A copy with one thing changed that moves the figures: the type of the cache, or else twice the sequences."""
    own = base.plan.footprint.engine_bytes if base.plan else None
    for name, value in _TRIED:
        found = column(changed(base.scenario, name, value), make)
        if found.plan is not None and found.plan.footprint.engine_bytes != own:
            return found
    return column(changed(base.scenario, "sequences", suggestion(base.scenario, "sequences")), make)


def changes(base: Scenario, other: Scenario) -> tuple[tuple[str, str, str], ...]:
    """(label, value in `base`, value in `other`) of the choices that differ."""
    pairs = ((f.name, getattr(base, f.name), getattr(other, f.name)) for f in fields(Scenario))
    return tuple((label(name), chosen(a), chosen(b)) for name, a, b in pairs if a != b)


def chosen(value: Any) -> str:
    return render("compare.auto") if value is None else plain(value)

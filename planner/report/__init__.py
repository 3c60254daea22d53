"""Capacity reports: one plan as a file. Same plan and date: same bytes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.capacity import CapacityPlan
from planner.errors import InvalidInput
from planner.mix import Mix, from_text
from planner.notes import Note

FORMATS = ("json", "md", "html", "csv")
MIME = {"json": "application/json", "md": "text/markdown", "html": "text/html", "csv": "text/csv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the writers get: the plan, where its config came from (with the config itself, so that the file reads back), the mix of
    lengths if there is one, and the date."""

    plan: CapacityPlan
    provenance: Mapping[str, Any]
    config: Mapping[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    probe: Mapping[str, Any] | None = field(default=None, repr=False)
    mix: Mix | None = None
    created: str = ""


def render(
    plan: CapacityPlan,
    fmt: str,
    provenance: Mapping[str, Any],
    probe: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    notes: Iterable[Note] = (),
    mix: Mix | None = None,
    created: str | None = None,
) -> bytes:
    """The report as bytes. `probe`: a ProbeResult as JSON. `mix`: lengths; None: those of the scenario's text. `created`: the date to
    print; None: today. Raises InvalidInput for the format."""
    request = Request(
        plan=plan,
        provenance=provenance,
        config=config,
        notes=tuple(notes),
        probe=probe,
        mix=mix or (from_text(plan.scenario.lengths) if plan.scenario.lengths else None),
        created=datetime.date.today().isoformat() if created is None else created,
    )
    return _writer(fmt)(request)


def write(source: str, options: Mapping[str, Any], fmt: str) -> bytes:
    """The report of `python -m planner report`: the same defaults as `plan`. Raises PlannerError."""
    from planner.api import planned

    _writer(fmt)
    loaded, plan, mix = planned(source, options)
    return render(plan, fmt, loaded.provenance, config=loaded.raw, notes=loaded.notes, mix=mix)


def file_name(plan: CapacityPlan, fmt: str) -> str:
    """`kv-plan_MODEL.ext`, safe on every file system."""
    name = "".join(c if c.isalnum() or c in "-." else "-" for c in plan.model.name)[:60].strip("-.") or "model"
    return f"kv-plan_{name}.{fmt}"


def _writer(fmt: str) -> Callable[[Request], bytes]:
    if fmt not in FORMATS:
        raise InvalidInput("not_a_choice", field="format", value=fmt[:40], choices=", ".join(FORMATS))
    from importlib import import_module

    write_one: Callable[[Request], bytes] = import_module(f"planner.report.{'markdown' if fmt == 'md' else fmt}").write
    return write_one

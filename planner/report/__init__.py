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

FORMATS = ("json", "md", "html", "csv", "xlsx", "pdf")
MIME = {
    "json": "application/json", "md": "text/markdown", "html": "text/html", "csv": "text/csv", "pdf": "application/pdf",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the writers get: the plan and its answer as the command line prints it, where its config came from (with the config itself and
    what was declared of it, so that the file reads back), the mix of lengths if there is one, results of other commands, and the date."""

    plan: CapacityPlan
    answer: Mapping[str, Any] = field(repr=False)
    provenance: Mapping[str, Any]
    config: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[Note, ...] = ()
    harmless: tuple[str, ...] = ()
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    mix: Mix | None = None
    created: str = ""


def request(
    plan: CapacityPlan,
    provenance: Mapping[str, Any],
    probe: Mapping[str, Any] | None = None,
    *,
    suite: Mapping[str, Any] | None = None,
    reconciliation: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    notes: Iterable[Note] = (),
    harmless: Iterable[str] = (),
    mix: Mix | None = None,
    created: str | None = None,
) -> Request:
    """`probe`, `suite`, `reconciliation`: results as their own commands print them. `harmless`: keys of the config that the user declared so.
    `mix`: lengths; None: those of the scenario's text. `created`: the date to print; None: today."""
    from planner.answers import plan_json
    from planner.report.table import cleaned

    lengths = mix or (from_text(plan.scenario.lengths) if plan.scenario.lengths else None)
    parts = {"probe": probe, "suite": suite, "reconciliation": reconciliation}
    return Request(
        plan=plan,
        answer=plan_json(plan, mix=lengths),
        provenance=cleaned(provenance),
        config=config,
        notes=tuple(notes),
        harmless=tuple(harmless),
        parts={name: part for name, part in parts.items() if part is not None},
        mix=lengths,
        created=datetime.date.today().isoformat() if created is None else created,
    )


def render(plan: CapacityPlan, fmt: str, *given: Any, **more: Any) -> bytes:
    """The report as bytes; what `request` takes goes behind the format. Raises InvalidInput for the format, NotAConfig with the part's name
    for a result that cannot be read."""
    writer = _writer(fmt)
    return writer(request(plan, *given, **more))


def laid_out(r: Request, fmt: str) -> bytes:
    """The report of a request that several formats share. Raises as `render` does."""
    return _writer(fmt)(r)


def sections(r: Request) -> tuple[str, ...]:
    """The titles of what is inside, in order. Raises as `render` does."""
    from planner.messages import render as say
    from planner.report.content import build

    titles = (say("report.section.formula"), say("report.section.bars"), say("report.table.heat"))
    return titles + tuple(t.title for t in build(r).all_tables if t.rows)


def write(source: str, options: Mapping[str, Any], fmt: str, *, results: Iterable[str] = ()) -> bytes:
    """The report of `python -m planner report`: the same defaults as `plan`. A saved plan without other choices is the same file again, with
    its own date. `results`: files of `gpu_probe run`, `gpu_probe suite` or `planner reconcile`, as printed. Raises PlannerError."""
    from planner.api import asked

    _writer(fmt)
    added: dict[str, Any] = {}
    if results:
        from planner.report.extras import read

        added = dict(map(read, results))
    a = asked(source, options)
    saved = a.saved
    return render(
        a.plan(), fmt, a.loaded.provenance, config=a.loaded.raw, notes=a.loaded.notes, harmless=a.harmless, mix=a.mix,
        created=saved.created or None if saved and not a.changed and not added else None, **{**(saved.parts if saved else {}), **added},
    )  # fmt: skip


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

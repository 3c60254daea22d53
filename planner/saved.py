"""A plan taken up again: what a report in JSON holds beside its figures, and how it is read back. Nothing in the file is trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, get_args

from planner.errors import NotAConfig, PlannerError
from planner.messages import plain
from planner.mix import Mix, from_text, mix
from planner.notes import Level, Note
from planner.scenario import MAX_TOKENS, Scenario, from_options
from planner.sources import Loaded, load

FORMAT, VERSION = "kvledger-plan", 1
PARTS = ("probe", "suite", "reconciliation")
"""Results of other commands that a report may hold, each as its own command printed it."""
MAX_NOTES, MAX_HARMLESS = 2_000, 200
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_POINT = re.compile(r"(\d{1,9})\+(\d{1,9}):(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a report in JSON holds for taking the plan up again. `parts`: those of `PARTS` that are there."""

    scenario: Scenario
    config: dict[str, Any] | None
    provenance: dict[str, Any]
    name: str
    notes: tuple[Note, ...] = ()
    harmless: tuple[str, ...] = ()
    mix: Mix | None = None
    created: str = ""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def mix_beyond_text(self) -> bool:
        """Whether the mix is more than the scenario's text of it: too long for a text, or counted from other rows."""
        text = self.scenario.lengths
        return self.mix is not None and (text is None or from_text(text).rows != self.mix.rows)

    def loaded(self) -> Loaded:
        """The config as its source gave it. A file that holds none names a model of the catalog or the hub. Raises PlannerError."""
        if self.config is None:
            return load(self.scenario.model, allow_paths=False)
        return Loaded(name=self.name, raw=self.config, provenance=self.provenance, notes=self.notes)


def is_report(raw: Mapping[str, Any]) -> bool:
    return raw.get("format") == FORMAT


def inputs_json(notes: Iterable[Note], harmless: Iterable[str], lengths: Mix | None) -> dict[str, Any]:
    """The inputs that a plan's own JSON does not hold: notes on the source, keys declared harmless, every point of a mix."""
    points = None if lengths is None else {
        "points": ",".join(f"{p.prompt}+{p.output}:{p.weight}" for p in lengths.points), "rows": lengths.rows, "notes": _notes_json(lengths.notes),
    }  # fmt: skip
    return {"source_notes": _notes_json(notes), "harmless": list(harmless), "lengths": points}


def read_back(raw: Mapping[str, Any]) -> Saved:
    """The plan in a parsed report. Raises PlannerError with the field where the file was changed into something that is no plan."""
    inputs = _part(raw, "inputs", {}) or {}
    found = _part(inputs, "lengths")
    created, name = raw.get("created"), raw.get("model")
    return Saved(
        scenario=from_options(_part(raw, "scenario") or _missing("scenario")),
        config=_part(raw, "config"),
        provenance=_part(raw, "provenance") or _missing("provenance"),
        name="".join(c if c.isprintable() else "?" for c in name[:120]) if isinstance(name, str) else "",
        notes=_notes(inputs.get("source_notes", []), "inputs.source_notes"),
        harmless=_texts(inputs.get("harmless", []), "inputs.harmless"),
        mix=None if found is None else _mix(found),
        created=created if isinstance(created, str) and _DATE.fullmatch(created) else "",
        parts={key: part for key in PARTS if (part := _part(raw, key)) is not None},
    )


def _missing(key: str) -> NoReturn:
    raise NotAConfig("report_part_missing", field=key)


def _part(raw: Mapping[str, Any], key: str, default: Any = None) -> dict[str, Any] | None:
    """An object under `key`, or None; anything else is damage."""
    value = raw.get(key, default)
    if value is not None and not isinstance(value, dict):
        _missing(key)
    return None if value is None else dict(value)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_HARMLESS or not all(isinstance(x, str) for x in value):
        _missing(where)
    return tuple(value)


def _mix(raw: Mapping[str, Any]) -> Mix:
    """Every point as it was; `mix` checks nothing of lengths that it did not make, so bounds are checked here."""
    text, rows = raw.get("points"), raw.get("rows")
    if not isinstance(text, str) or isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= 10**9:
        _missing("inputs.lengths")
    points = [_POINT.fullmatch(part) for part in str(text).split(",")]
    if not all(points):
        _missing("inputs.lengths.points")
    made = mix((int(p[1]), int(p[2]), int(p[3])) for p in points if p)
    if not 1 <= made.points[0].tokens <= made.longest <= MAX_TOKENS:
        _missing("inputs.lengths.points")
    return replace(made, rows=int(rows or 0), notes=_notes(raw.get("notes", []), "inputs.lengths.notes"))


def _notes_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    return [{"level": n.level, "code": n.code, "args": {k: plain(v) for k, v in n.args}, "field": n.field, "source": n.source} for n in notes]


def _notes(value: Any, where: str) -> tuple[Note, ...]:
    """Notes whose texts are ours: a code that is known, and the arguments that it needs."""
    if not isinstance(value, list) or len(value) > MAX_NOTES:
        _missing(where)
    out = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("args"), dict):
            _missing(where)
        args = tuple(item["args"].items())
        texts: dict[str, Any] = {k: item.get(k) for k in ("level", "code", "field", "source")}
        if not all(isinstance(x, str) for x in (*dict(args).values(), *texts.values())) or texts["level"] not in get_args(Level):
            _missing(where)
        made = Note(args=args, **texts)
        try:
            made.text  # noqa: B018 - a code that is not ours, or an argument that is not there
        except (KeyError, ValueError, IndexError, AttributeError, PlannerError):
            _missing(where)
        out.append(made)
    return tuple(out)

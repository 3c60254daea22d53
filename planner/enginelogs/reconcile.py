"""A log read, held against itself and against a plan: the one result that the command line, the page and the report show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.enginelogs.assume import engine_of, scenario_of
from planner.enginelogs.causes import EXACT, Cause, find
from planner.enginelogs.checks import Check, checks, findings
from planner.enginelogs.compare import Predicted, predictions
from planner.enginelogs.reader import Figure, LogReading, read_log
from planner.errors import InvalidInput, PlannerError
from planner.hardware import Hardware
from planner.messages import Word
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.scenario import Scenario

STATUSES = ("agrees", "differs", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One printed figure beside what it should be. `how`: "log" by the log's own figures, else the route of compare.py. `status`: agrees
    within what printing rounded | differs | open (the log alone cannot tell). `difference`: 0 where it agrees. `alike`: other figures that
    may be the wrong one instead."""

    name: str
    figure: Figure
    predicted: float | None
    how: str
    status: str
    rule: str = ""
    alike: tuple[Figure, ...] = ()
    cause: Cause | None = None
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float | None:
        if self.predicted is None:
            return None
        return 0 if self.status == "agrees" and self.how != "weights" and self.how != "device" else _tidy(self.name, self.figure.value - self.predicted)

    @property
    def share_percent(self) -> float | None:
        """The difference as a share of what is expected, in percent; None where nothing is expected, or 0."""
        if not self.predicted or self.difference is None:
            return None
        return 100.0 * self.difference / abs(self.predicted)

    @property
    def label(self) -> str:
        from planner.messages import render

        return render(f"log.figure.{self.name}")

    @property
    def why(self) -> str:
        """Where the prediction comes from, in words."""
        from planner.messages import render

        return render(f"log.rule.{self.rule}" if self.how == "log" else f"log.how.{self.how}")

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "line": self.figure.line,
            "predicted": None if self.predicted is None else _tidy(self.name, self.predicted),
            "reported": self.figure.value,
            "text": self.figure.text,
            "difference": self.difference,
            "status": self.status,
            "how": self.how,
            "why": self.why,
            "cause": self.cause.to_json(self.name) if self.cause else None,
        }
        if self.figure.rank:
            out["rank"] = self.figure.rank
        if self.low is not None and self.high is not None and self.low != self.high:
            out |= {"low": _tidy(self.name, self.low), "high": _tidy(self.name, self.high)}
        if self.alike:
            out["or"] = [{"name": f.name, "line": f.line} for f in self.alike]
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """`lines`: flagged ones first, then in the order of the log. `scenario`, `taken`: what was planned, and which options the log gave."""

    log: LogReading
    lines: tuple[Line, ...]
    scenario: Scenario | None
    taken: dict[str, Any]
    notes: tuple[Note, ...]

    @property
    def flagged(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.status == "differs")

    def to_json(self) -> dict[str, Any]:
        log = self.log
        return {
            "engine": log.engine,
            "engine_version": log.version,
            "variant": log.variant,
            "found": log.found_json(),
            "flags": {name: flag.to_json() for name, flag in log.flags.items()},
            "refusals": [r.to_json() for r in log.refusals],
            "lines": [line.to_json() for line in self.lines],
            "flagged": sorted({line.figure.line for line in self.flagged}),
            "scenario": self.scenario.to_json() if self.scenario else None,
            "taken": self.taken,
            "log_lines": log.lines,
            "notes": [n.to_json() for n in self.notes],
        }


def reconcile(
    data: bytes | str | LogReading, *, model: ModelSpec | None = None, hardware: Hardware | None = None, given: Mapping[str, Any] | None = None
) -> Reconciliation:
    """A log against itself, and with `model` against a plan of the same server; `given` are the user's own options, which win over the
    log's flags. Raises InvalidInput for a text in which no engine speaks, PlannerError for options that are none."""
    log = data if isinstance(data, LogReading) else read_log(data)
    if log.engine is None and not log.figures:
        raise InvalidInput("log_nothing", field="log")
    found = checks(log)
    notes = list(log.notes)
    lines = _own_lines(found)
    notes += [note("info", "log_open", rule=Word(c.code, f"log.rule.{c.code}")) for c in {c.code: c for c in found if c.open}.values() if model is None]
    scenario: Scenario | None = None
    taken: dict[str, Any] = {}
    if model is not None:
        scenario, taken, more = scenario_of(log, model, given or {})
        notes += more
        if engine_of(log) is None:
            scenario, taken = None, {}
            notes.append(note("warning", "log_engine_not_planned", engine=str(log.engine)))
        else:
            try:
                predicted = predictions(log, model, hardware, scenario)
                causes = find(log, model, hardware, scenario, predicted)
                lines = _settled(lines, predicted) + [_planned(p, causes.get(p.name)) for p in predicted]
            except PlannerError as e:
                notes.append(note("warning", "log_plan_refused", field=e.field, detail=e.message))
                for cause in list(find(log, model, hardware, scenario, []).values())[:1]:
                    lines += [_unplanned(p, cause) for p in cause.predicted if p.how in EXACT]
    order = {"differs": 0, "open": 1, "agrees": 2}
    lines.sort(key=lambda line: (order[line.status], line.figure.at))
    return Reconciliation(log=log, lines=tuple(lines), scenario=scenario, taken=taken, notes=tuple(notes))


def _own_lines(found: tuple[Check, ...]) -> list[Line]:
    """One line a figure: suspects where rules fail, and on other lines those that would do as well; then what a rule leaves open; then the
    first rule that holds."""
    lines: dict[tuple[str, int], Line] = {}
    bad = findings(found)
    for f in sorted(bad, key=lambda f: len(f.check.uses)):
        _suspected(lines, "differs", f.check, f.suspect, f.alike)
    blamed = {f.check.figure.at for f in bad}
    for c in found:
        if c.open:
            _suspected(lines, "open", c, c.figure, c.uses)
    for c in found:
        key = (c.figure.name, c.figure.at)
        if c.agrees and key not in lines and c.figure.at not in blamed:
            lines[key] = Line(name=c.figure.name, figure=c.figure, predicted=_finite(c.predicted.middle), how="log", status="agrees", rule=c.code)
    return list(lines.values())


def _suspected(lines: dict[tuple[str, int], Line], status: str, c: Check, first: Figure, alike: tuple[Figure, ...]) -> None:
    """The first suspect, and each on another line that may be the wrong one instead, with what the others would have it be."""
    suspects = (first, *(f for f in alike if f.line != first.line))
    for suspect in suspects:
        others = tuple(f for f in (first, *alike) if f != suspect)
        lines.setdefault((suspect.name, suspect.at), Line(name=suspect.name, figure=suspect, predicted=c.given_by_others(suspect), how="log", status=status,
                                                          rule=c.code, alike=others))  # fmt: skip


def _settled(lines: list[Line], predicted: list[Predicted]) -> list[Line]:
    """Without the suspects that a plan clears: of two figures that do not fit together, the one that the printed pool gives is right."""
    exact = [p for p in predicted if p.how in EXACT]
    right = {(p.name, p.figure.at) for p in exact if p.agrees}
    wrong = {(p.name, p.figure.at) for p in exact if not p.agrees}
    clear = right and (wrong or all(line.status == "open" for line in lines if line.status != "agrees"))
    return [line for line in lines if not (clear and line.status != "agrees" and (line.name, line.figure.at) in right)]


def _planned(p: Predicted, cause: Cause | None) -> Line:
    return Line(name=p.name, figure=p.figure, predicted=p.value, how=p.how, status="agrees" if p.agrees else "differs",
                cause=None if p.agrees else cause, low=p.low, high=p.high)  # fmt: skip


def _unplanned(p: Predicted, cause: Cause) -> Line:
    """A figure that only a changed scenario speaks of: the log's own could not be planned."""
    return Line(name=p.name, figure=p.figure, predicted=None, how=p.how, status="differs", cause=cause)


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _tidy(name: str, value: float) -> float | int:
    """Bytes and counts are whole; ratios keep four digits."""
    ratio = name.endswith(("ratio", "fraction", "percent", "concurrency")) or name.startswith("fraction")
    return round(value, 4) if ratio else round(value)

"""A log against itself: figures that follow from others of the same log must come out within what printing rounded.

Each rule is a row: the figure that it gives, the figures it needs, and the arithmetic of the engine's own code (sources in RULES). A rule
that does not come out makes its figures suspects; the one that breaks most rules and keeps fewest is flagged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite
from typing import Any

from planner.enginelogs.intervals import Interval
from planner.enginelogs.reader import Figure, LogReading
from planner.enginelogs.rules import RULES, START, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule on one figure. `predicted`: what the others give (the nearest of what is possible); `agrees`: within rounding. `open`: the
    rule fails, but the log alone cannot tell whether it must hold (several layer groups, another block size)."""

    code: str
    figure: Figure
    uses: tuple[Figure, ...]
    predicted: Interval
    agrees: bool
    open: bool = False
    rule: Rule
    around: Around

    def given_by_others(self, figure: Figure) -> float | None:
        """What `figure`, one of those of this rule, would have to be for the rule to come out; None where that has no one answer."""
        if figure == self.figure:
            return self.predicted.middle if isfinite(self.predicted.middle) else None
        values = {name: interval(f) for name, f in zip(self.rule.needs, self.uses, strict=True)}
        name = next((n for n, f in zip(self.rule.needs, self.uses, strict=True) if f == figure), None)
        if name is None or not isfinite(self.predicted.middle):
            return None

        def off(x: float) -> float:
            results = self.rule.predict({**values, name: Interval(x, x)}, self.around)
            return results[0].middle - float(self.figure.value) if results else float("nan")

        return _root(off, float(figure.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A figure that cannot stand beside the others. `suspect`: the figure flagged; `alike`: others that would do as well."""

    check: Check
    suspect: Figure
    alike: tuple[Figure, ...]

    @property
    def predicted(self) -> float | None:
        """What the other figures of the rule give for the suspect."""
        return self.check.given_by_others(self.suspect)


def _root(off: Callable[[float], float], start: float) -> float | None:
    """Where `off` is 0, by the secant rule from `start`: the rules are linear or a quotient in each of their figures."""
    x, y = start, start * 1.01 + 1e-6
    fx, fy = off(x), off(y)
    for _ in range(40):
        if not (isfinite(fx) and isfinite(fy)) or fx == fy:
            return None
        x, fx, y = y, fy, y - fy * (y - x) / (fy - fx)
        fy = off(y)
        if abs(fy) <= 1e-9 * max(1.0, abs(start)):
            return next((whole for whole in (float(floor(y)), float(ceil(y))) if off(whole) == 0), y)  # counts are whole where that does it
    return None


def interval(figure: Figure) -> Interval:
    return Interval(figure.value - figure.off, figure.value + figure.off)


def checks(log: LogReading) -> tuple[Check, ...]:
    """All rules of the log's engine on all of its figures, start by start."""
    out: dict[tuple[str, Figure, tuple[Figure, ...]], Check] = {}
    for start in _starts(log.figures):
        for rule in RULES:
            if rule.engine in (log.engine, None):
                out |= {(c.code, c.figure, c.uses): c for c in _applied(rule, start, log)}
    return tuple(out.values())


def findings(found: Sequence[Check]) -> tuple[Finding, ...]:
    """The checks that fail for certain, each with the figure to blame: most failures first, then fewest agreements, then printed last."""
    bad = [c for c in found if not c.agrees and not c.open]
    wrong: Counter[Figure] = Counter(f for c in bad for f in (c.figure, *c.uses))
    right: Counter[Figure] = Counter(f for c in found if c.agrees for f in (c.figure, *c.uses))
    out = []
    for c in bad:
        involved = sorted((c.figure, *c.uses), key=lambda f: (right[f] - wrong[f], f != c.figure, -f.at))
        score = right[involved[0]] - wrong[involved[0]]
        alike = tuple(f for f in involved[1:] if right[f] - wrong[f] == score)
        out.append(Finding(check=c, suspect=involved[0], alike=alike))
    return tuple(out)


def _starts(figures: tuple[Figure, ...]) -> Iterator[tuple[Figure, ...]]:
    """The figures of each start of the engine: a sentence of its beginning, said again by the same rank, begins the next one."""
    current: list[Figure] = []
    begun: set[tuple[str, str, str]] = set()
    settled = False
    for f in figures:
        key = (f.said, f.name, f.rank)
        if f.said in START and settled and key in begun:
            yield tuple(current)
            current, begun, settled = [], set(), False
        if f.said in START:
            begun.add(key)
        settled |= f.name in ("kv_tokens", "num_blocks", "kv_pool_bytes")
        current.append(f)
    yield tuple(current)


def _applied(rule: Rule, figures: tuple[Figure, ...], log: LogReading) -> Iterator[Check]:
    for scope in _scopes(rule, figures):
        for target in scope.get(rule.target, ()):
            used = _needs(rule, scope, target)
            if used is None:
                continue
            values = {name: interval(f) for name, f in used.items()}
            results = rule.predict(values, Around(log, scope, target))
            if not results:
                continue
            seen = interval(target)
            near = min(results, key=lambda r: max(r.low - seen.high, seen.low - r.high)) if rule.nearest else results[0]
            fitting = [r for r in results if r.widened(rule.slack).meets(seen)]
            agrees, near = bool(fitting), fitting[0] if fitting else near
            uncertain = not agrees and rule.uncertain is not None and rule.uncertain(values, seen, Around(log, scope, target))
            yield Check(code=rule.code, figure=target, uses=tuple(used.values()), predicted=near, agrees=agrees, open=uncertain,
                        rule=rule, around=Around(log, scope, target))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Around:
    """What a rule may look at beside the figures that it needs."""

    log: LogReading
    scope: dict[str, list[Figure]]
    target: Figure

    def text(self, name: str) -> str | None:
        found = self.scope.get(name)
        return str(found[-1].value) if found else None

    def has(self, name: str) -> bool:
        return name in self.scope or self.log.one(name) is not None

    def count(self, name: str) -> int | None:
        """The one printed nearest to the target."""
        found = self.scope.get(name)
        value = min(found, key=lambda f: abs(f.at - self.target.at)).value if found else self.log.value(name)
        return value if isinstance(value, int) else None

    def flag(self, name: str) -> Any:
        return self.log.flag(name)

    def before(self, name: str, since: str) -> list[Figure]:
        """The figures called `name` between the last `since` before the target and the target."""
        last = max((f.at for f in self.scope.get(since, ()) if f.at < self.target.at), default=-1)
        return [f for f in self.scope.get(name, ()) if last < f.at < self.target.at]


def _scopes(rule: Rule, figures: tuple[Figure, ...]) -> Iterator[dict[str, list[Figure]]]:
    """Figures by name, of one line, one rank or the whole start. Figures without a rank belong to every rank."""
    by: dict[Any, dict[str, list[Figure]]] = {}
    keys: Callable[[Figure], Any] = (lambda f: f.line) if rule.scope == "line" else (lambda f: f.rank) if rule.scope == "rank" else (lambda f: "")
    for f in figures:
        by.setdefault(keys(f), {}).setdefault(f.name, []).append(f)
    if rule.scope == "rank" and "" in by and len(by) > 1:
        for rank, scope in by.items():
            if rank:
                for name, shared in by[""].items():
                    scope.setdefault(name, shared)
    yield from by.values()


def _needs(rule: Rule, scope: dict[str, list[Figure]], target: Figure) -> dict[str, Figure] | None:
    """Of each figure that the rule needs, the one printed nearest to the target; None where one is missing."""
    used = {}
    for name in rule.needs:
        found = [f for f in scope.get(name, ()) if f.at != target.at and (not rule.earlier or f.at < target.at)]
        if name == rule.target:  # said twice in one sentence's words: of another rank, or of another start
            found = [f for f in found if f.said != target.said]
        if not found:
            return None
        used[name] = min(found, key=lambda f: (f.line != target.line, abs(f.at - target.at)))
    return used

"""Columns -> rows of figures: what was chosen, what is in use, the answer, the ledger, times. Each cell with its source; what differs is marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.capacity import CapacityPlan
from planner.compare import Column, chosen, label
from planner.engines.settings import LedgerLine
from planner.latency import Latency
from planner.messages import known_word, render, said
from planner.report import colours
from planner.report.choices import ALWAYS, plain, resolved
from planner.report.content import gap_line, state_of, verdict
from planner.report.table import exact, in_gib, tokens, whole
from planner.scenario import Scenario
from planner.units import GIB, count, memory, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`value`: as JSON holds it (bytes, tokens, seconds); `source`: where it comes from, in words. `differs`: from the base column."""

    text: str
    value: Any
    source: str
    differs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure over all columns; None where a column has none. `section`: choices | answer | speed | ledger | resolved."""

    section: str
    code: str
    label: str
    cells: tuple[Cell | None, ...]

    @property
    def differs(self) -> bool:
        return any(c is not None and c.differs for c in self.cells)


def lines(columns: Sequence[Column]) -> tuple[Line, ...]:
    """Choices, the answer, times where they can be told, the ledger of the deciding rank, what the choices resolved to. A cell differs where its
    value is not that of the first column that has one."""
    found = (*_choices(columns), *_answers(columns), *_speed(columns), *_ledger(columns), *_resolved(columns))
    return tuple(_marked(line) for line in found if any(line.cells))


def _marked(line: Line) -> Line:
    base = next(c for c in line.cells if c is not None)
    return replace(line, cells=tuple(c if c is None or c.value == base.value else _differing(c, base) for c in line.cells))


def _differing(c: Cell, base: Cell) -> Cell:
    """With all its digits where it reads like the base."""
    alike = c.text == base.text and isinstance(c.value, int)
    return replace(c, differs=True, text=exact(c.value) if alike else c.text)


def _each(columns: Iterable[Column], of: Callable[[CapacityPlan], Cell | None]) -> tuple[Cell | None, ...]:
    return tuple(of(c.plan) if c.plan is not None else None for c in columns)


def _choices(columns: Sequence[Column]) -> Iterator[Line]:
    usual = Scenario().to_json()
    for name, default in usual.items():
        values = [getattr(c.scenario, name) for c in columns]
        if name in ALWAYS or any(v != default for v in values):
            cells = tuple(Cell(text=chosen(v), value=v, source=render(f"compare.source.{'default' if v == default else 'chosen'}")) for v in values)
            yield Line(section="choices", code=name, label=label(name), cells=cells)


def _resolved(columns: Sequence[Column]) -> Iterator[Line]:
    """The engine's own values: chosen, or by its rules."""
    codes = dict.fromkeys(name for c in columns if c.plan for name, _ in resolved(c.plan))
    for code in codes:

        def of(p: CapacityPlan, code: str = code) -> Cell | None:
            value = dict(resolved(p)).get(code)
            if value is None:
                return None
            return Cell(text=plain(value), value=value, source=render("compare.source.engine", {"engine": p.setting.engine, "version": p.setting.version}))

        yield Line(section="resolved", code=code, label=render(f"report.resolved.{code}"), cells=_each(columns, of))


def _answers(columns: Sequence[Column]) -> Iterator[Line]:
    for code, of in _ANSWERS.items():
        yield Line(section="answer", code=code, label=render(f"compare.answer.{code}"), cells=_each(columns, of))


def _size(value: float, source: str) -> Cell:
    small = 0 < abs(value) < GIB // 10
    return Cell(text=memory(value) if small else in_gib(value), value=value, source=source)


def _share(p: CapacityPlan) -> Cell:
    args = {"pool": exact(p.kv_pool_bytes), "load": exact(p.footprint.per_rank_bytes[p.binding_rank])}
    return Cell(text=whole(p.total_max_sequences), value=p.total_max_sequences, source=render("compare.source.most", args))


def _longest(p: CapacityPlan) -> Cell:
    value, limit = p.longest_context_tokens(), p.model.max_context_tokens
    code = "compare.source.limit" if limit and value >= limit else "compare.source.pool"
    return Cell(text=tokens(value), value=value, source=render(code, {"pool": exact(p.kv_pool_bytes)}))


def _printed(p: CapacityPlan) -> Cell | None:
    if p.kv_tokens is None:
        return None
    return Cell(text=tokens(p.kv_tokens), value=p.kv_tokens, source=render("compare.source.engine", {"engine": p.setting.engine, "version": p.setting.version}))


_ANSWERS: dict[str, Callable[[CapacityPlan], Cell | None]] = {
    "state": lambda p: Cell(text=render(f"page.state.{state_of(p)}"), value=state_of(p), source=verdict(p)),
    "free": lambda p: _size(-p.shortfall_bytes if p.shortfall_bytes else p.free_bytes, render("compare.source.free")),
    "kv_load": lambda p: _size(p.load_bytes, gap_line(p)),
    "kv_architecture": lambda p: _size(p.footprint.architecture_bytes * p.replicas, "; ".join(line.text for line in p.footprint.formula)),
    "kv_sequence": lambda p: _size(p.sequence_bytes, render("compare.source.sequence", {"sequences": p.sequences_per_replica})),
    "kv_token": lambda p: Cell(text=exact(p.footprint.bytes_per_token_unbounded), value=p.footprint.bytes_per_token_unbounded,
                               source=render("compare.source.token", {"kv_dtype": p.setting.kv.name})),
    "kv_pool": lambda p: _size(p.kv_pool_bytes, render("compare.source.kv_memory" if p.scenario.kv_memory is not None else "compare.source.ledger")),
    "max_sequences": _share,
    "longest_context": _longest,
    "kv_tokens": _printed,
}  # fmt: skip


def _ledger(columns: Sequence[Column]) -> Iterator[Line]:
    """Of the rank that decides. A line that a column does not have is nothing there."""
    held = [{line.code: line for line in c.plan.ledgers[c.plan.binding_rank]} if c.plan else None for c in columns]
    names: dict[str, LedgerLine] = {}
    for of in held:
        names = {**(of or {}), **names}
    for code in sorted(names, key=colours.place):
        yield Line(section="ledger", code=code, label=names[code].name, cells=tuple(None if of is None else _line(of.get(code)) for of in held))


def _line(line: LedgerLine | None) -> Cell:
    if line is None:
        return Cell(text="-", value=0, source="")
    return _size(
        line.bytes, render("compare.source.line", {"kind": known_word(line.kind), "source": line.source}) if line.source else str(said(known_word(line.kind)))
    )


def _speed(columns: Sequence[Column]) -> Iterator[Line]:
    for code, of in _SPEED.items():
        yield Line(section="speed", code=code, label=render(f"compare.speed.{code}"), cells=tuple(of(c.latency) if c.latency else None for c in columns))


def _time(value: float, source: str, band: tuple[float, float]) -> Cell:
    args = {"low": seconds(band[0]), "high": seconds(band[1]), "source": source}
    return Cell(text=seconds(value), value=value, source=render("compare.source.time", args))


_SPEED: dict[str, Callable[[Latency], Cell]] = {
    "ttft": lambda t: _time(t.ttft_s, t.source, t.ttft_range_s),
    "itl": lambda t: _time(t.itl_s, t.source, t.itl_range_s),
    "rate": lambda t: Cell(text=count(t.output_tokens_per_s), value=t.output_tokens_per_s, source=render("compare.source.rate")),
    "bound": lambda t: Cell(text=render(f"page.serve.part.{t.bound}"), value=t.bound, source=render("compare.source.bound")),
}

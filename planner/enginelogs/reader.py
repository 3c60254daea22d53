"""A log -> which engine and release, its figures line by line and rank by rank, its flags and what it refused.

The patterns are a table (planner/data/enginelogs.toml). Each key is found by a plain search over the whole text; only around a key does a
pattern run, on a few hundred characters. So noise costs next to nothing, whatever is in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from planner.enginelogs.flags import FlagFound, read_flags
from planner.enginelogs.masks import masked
from planner.enginelogs.numbers import half_step, real, sized, whole
from planner.enginelogs.table import UNITS, Row, table
from planner.enginelogs.text import LogText, log_text
from planner.notes import Note, note

BEFORE, AFTER = 160, 420  # characters around a key in which its pattern must match
NEAR = 24
MAX_HITS = 400  # of one sentence: a log that says a thing more often is cut there
MAX_PLACES, MAX_TRIES = 20_000, 60_000  # where a key stands, and all in all: most of them in noise that is no such sentence
MAX_FIGURES = 4000

_RANK = re.compile(r"(?<![A-Za-z0-9])((?:(?:DP|TP|PP|EP|CP|DCP)\d{1,4}[ _]?){1,6})|\[RANK (\d{1,4})\]|\[rank(\d{1,4})\]|(?<![A-Za-z])rank[ =:]{1,2}(\d{1,4})")
_WORKER = re.compile(r"\((?:VllmWorkerProcess|RayWorkerWrapper|RayWorkerVllm|RayWorker)\W{1,6}pid=(\d{1,9})")
# Figures of which the poorest, the richest or the sum over ranks counts; all others: the last one printed.
LEAST = frozenset("available_kv_bytes kv_tokens num_blocks free_memory_bytes max_concurrency estimated_max_len".split())
MOST = frozenset("weights_bytes activation_bytes non_torch_bytes cuda_graphs_bytes cuda_graphs_estimated_bytes consumed_bytes non_kv_bytes peak_torch_bytes "
                 "avail_before_weights_bytes".split())  # fmt: skip
SUMS = frozenset("kv_buffer_bytes state_buffer_bytes compute_buffer_bytes output_buffer_bytes model_buffer_bytes".split())


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure as the log prints it. `value`: bytes and counts as int, ratios as float, names as text. `off`: how far printing may have
    rounded it, in the same unit. `at`: its place in the text, which tells figures of one line apart."""

    name: str
    value: Any
    off: float
    text: str
    line: int
    rank: str
    device: str
    at: int
    said: str = ""  # the key of its pattern: which sentence of the engine it comes from

    def to_json(self) -> dict[str, Any]:
        out = {"value": self.value, "text": self.text, "line": self.line}
        return out | ({"rank": self.rank} if self.rank else {}) | ({"device": self.device} if self.device else {})


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an engine refused, by code, where, and its own words (masked)."""

    code: str
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        from planner.messages import render

        return {"code": self.code, "meaning": render(f"log.refusal.{self.code}"), "line": self.line, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What a log says. `figures` in the order of the text; `lines`: of the whole log."""

    engine: str | None
    version: str | None
    variant: str | None
    figures: tuple[Figure, ...]
    flags: dict[str, FlagFound]
    refusals: tuple[Refusal, ...]
    notes: tuple[Note, ...]
    lines: int

    def all(self, name: str) -> tuple[Figure, ...]:
        return tuple(f for f in self.figures if f.name == name)

    def one(self, name: str) -> Figure | None:
        """The figure that counts for the whole server: of several ranks the poorest or the richest, else the last."""
        found = self.all(name)
        if not found:
            return None
        latest = _latest(found)
        if name in LEAST:
            return min(latest, key=lambda f: (f.value, f.at))
        return max(latest, key=lambda f: (f.value, f.at)) if name in MOST else found[-1]

    def value(self, name: str) -> Any:
        figure = self.one(name)
        return figure.value if figure else None

    @property
    def release(self) -> str | None:
        """The release that the log prints, else the newest one whose source file had this sentence no further down (planner/data)."""
        if self.version and not self.version.startswith("0.1.dev"):
            return self.version
        line = self.value("source_line")
        eras = table().eras
        if line is None or not eras or line > eras[-1][0] + 1:
            return None
        return next((release for first, release in reversed(eras) if line >= first), None)

    def flag(self, name: str) -> Any:
        found = self.flags.get(name)
        return found.value if found else None

    def found_json(self) -> dict[str, Any]:
        """name -> the figure that counts, and all of its occurrences where there are several."""
        out: dict[str, Any] = {}
        for name in dict.fromkeys(f.name for f in self.figures):
            figure, every = self.one(name), self.all(name)
            assert figure is not None
            out[name] = figure.to_json() | ({"all": [f.to_json() for f in every[:64]]} if len(every) > 1 else {})
            if name in SUMS and len(every) > 1:
                out[name]["sum"] = sum(f.value for f in every)
        return out


def _latest(found: tuple[Figure, ...]) -> list[Figure]:
    """Of each rank and device the last one, so that a log of two starts counts the second."""
    return list({(f.rank, f.device): f for f in found}.values())


def read_log(data: bytes | str) -> LogReading:
    """Everything that is known in a log. Bytes or text of any size (planner/enginelogs/text.py bounds it); raises nothing on bad input."""
    log = log_text(data)
    votes: Counter[str] = Counter()
    variants: Counter[str] = Counter()
    figures: dict[tuple[str, int], Figure] = {}
    refusals: dict[tuple[str, int], Refusal] = {}
    cut = False
    places: dict[str, list[int]] = {}
    left = MAX_TRIES
    for row in table().rows:
        if row.key not in places:
            places[row.key] = list(islice(_places(log.flat, row.key), MAX_PLACES))
        hits = 0
        for at in places[row.key]:
            if row.near and log.flat.find(row.near, at, at + len(row.key) + NEAR) < 0:
                continue
            left -= 1
            if left < 0 or hits >= MAX_HITS or len(figures) >= MAX_FIGURES:
                cut = True
                break
            for match in row.regex.finditer(log.flat, max(0, at - BEFORE), at + len(row.key) + AFTER):
                if match.end() <= at or match.start() >= at + len(row.key):
                    continue
                fresh = _figures(log, row, match)
                figures |= {(f.name, f.at): f for f in fresh}
                hits += bool(fresh or row.refusal)
                if fresh or row.refusal:
                    votes[row.engine] += 2
                if row.variant:
                    variants[row.variant] += 1
                if row.refusal:
                    line = log.line_at(match.start())
                    refusals.setdefault((row.refusal, line), Refusal(row.refusal, line, masked(log.flat[match.start() : match.end()])[:300]))
    engine, variant = _engine(log, votes, variants)
    kept = sorted((f for f in figures.values() if f.name != "_"), key=lambda f: f.at)
    return LogReading(
        engine=engine,
        version=_version(log.flat, engine),
        variant=variant,
        figures=tuple(kept),
        flags=read_flags(log),
        refusals=tuple(sorted(refusals.values(), key=lambda r: r.line))[:100],
        notes=log.notes + ((note("warning", "log_many_hits", most=MAX_HITS),) if cut else ()),
        lines=len(log.starts),
    )


def _places(text: str, key: str) -> Iterator[int]:
    at = text.find(key)
    while at >= 0:
        yield at
        at = text.find(key, at + len(key))


def _figures(log: LogText, row: Row, match: re.Match[str]) -> list[Figure]:
    groups = [g for g in range(1, row.regex.groups + 1) if g != row.regex.groupindex.get("dev")]
    device = match["dev"] or "" if "dev" in row.regex.groupindex else ""
    out = []
    for (name, unit), group in zip(row.figures, groups, strict=True):
        text = match[group]
        if text is None or name == "_":
            continue
        if unit == "size":
            text, unit = sized(text)
        line = log.line_at(match.start(group))
        rank = _rank(log.line(log.line_at(match.start()))) or _rank(log.line(line))
        value, off = _value(text, unit)
        if value is not None:
            out.append(Figure(name, value, off, masked(text)[:60], line, rank, masked(device)[:40], match.start(group), row.key))
    return out


def _value(text: str, unit: str) -> tuple[Any, float]:
    """(value in bytes, a count, a ratio or a text; half of the last printed place in the same unit)."""
    if unit == "text":
        return masked(text)[:80], 0.0
    if unit in ("count", "bytes"):
        return whole(text), 0.0
    read = real(text)
    if read is None or abs(read[0]) > 1e12:
        return None, 0.0
    number, digits = read
    if unit == "exact":
        return number, 0.0
    if unit == "ratio":
        return number, half_step(digits)
    return round(number * UNITS[unit]), half_step(digits) * UNITS[unit] + 1


def _rank(line: str) -> str:
    head = line[:160]
    if m := _RANK.search(head):
        return m[1].strip(" _").replace("_", " ") if m[1] else f"RANK{m[2] or m[3] or m[4]}"
    worker = _WORKER.search(head)
    return f"worker {worker[1]}" if worker else ""


def _engine(log: LogText, votes: Counter[str], variants: Counter[str]) -> tuple[str | None, str | None]:
    """The engine that most of the log speaks for; PyTorch's own lines count only where no engine speaks."""
    for mark in table().marks:
        seen = sum(key in log.flat or key in log.around for key in mark.keys)
        votes[mark.engine] += seen
        if mark.variant and seen:
            variants[mark.variant] += seen
    torch = votes.pop("torch", 0)
    best = max(votes, key=lambda name: votes[name], default=None)
    if best is None or not votes[best]:
        return ("torch" if torch else None), None
    of_best = [m.variant for m in table().marks if m.engine == best and m.variant] + [r.variant for r in table().rows if r.engine == best and r.variant]
    variant = max((v for v in variants if v in of_best), key=lambda v: variants[v], default=None)
    return best, variant


def _version(text: str, engine: str | None) -> str | None:
    for row in table().versions:
        if row.engine != engine:
            continue
        for tried, at in enumerate(_places(text, row.key)):
            if tried >= 50:
                break
            if m := row.regex.search(text, max(0, at - 40), at + 200):
                return m[1].rstrip(".,")[:60]
    return None

"""A mix of lengths: how many requests have which prompt and output. From a CSV, or from a text short enough for an address.

A point is (prompt, output, weight); equal rows are one point. Weights are whole numbers without a common divisor, so that two mixes
with the same shares are equal, and the text of a mix reads back to it: ``512+128:7,8192+1024:3``.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InvalidInput
from planner.messages import Word
from planner.notes import Note, note
from planner.scenario import MAX_LENGTHS_TEXT, MAX_TOKENS

MAX_BYTES, MAX_ROWS, MAX_POINTS, BIN_TOKENS = 5_000_000, 1_000_000, 20_000, 64
MAX_COLUMNS, MAX_KNOWN = 1_000, 100_000
DECIMALS = 9
# Column names after lower case and underscores. The names of public traces and load generators are among them.
COLUMNS: dict[str, frozenset[str]] = {
    "prompt": frozenset(
        "prompt prompt_tokens prompt_length prompt_len num_prompt_tokens prefill_tokens input input_tokens input_length input_len num_input_tokens isl "
        "context_tokens contexttokens request_tokens".split()
    ),
    "output": frozenset(
        "output output_tokens output_length output_len num_output_tokens osl generated_tokens generatedtokens completion_tokens response_tokens "
        "decode_tokens num_decode_tokens".split()
    ),
    "weight": frozenset("weight weights count n requests share frequency".split()),
}
_POINT = re.compile(r"\s*(\d{1,9})\s*\+\s*(\d{1,9})\s*(?::\s*(\d{1,9}(?:\.\d{1,9})?))?\s*", re.ASCII)
_TOKENS = re.compile(r"\s*(\d{1,9})(?:\.0{1,9})?\s*", re.ASCII)
_WEIGHT = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """`weight`: this point's part of the requests, out of the sum of all weights."""

    prompt: int
    output: int
    weight: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Mix:
    """Different points, shortest first. `rows`: how many requests or parts of a text they were counted from."""

    points: tuple[Point, ...]
    rows: int = field(default=0, compare=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @property
    def longest(self) -> int:
        return self.points[-1].tokens

    @property
    def weight(self) -> int:
        return sum(p.weight for p in self.points)

    @property
    def mean_tokens(self) -> float:
        return sum(p.weight * p.tokens for p in self.points) / self.weight

    @property
    def mean_prompt_tokens(self) -> float:
        return sum(p.weight * p.prompt for p in self.points) / self.weight

    @property
    def longest_output(self) -> int:
        return max(p.output for p in self.points)

    def quantile_tokens(self, percent: int) -> int:
        """The shortest length that at least `percent` % of the requests do not exceed."""
        reached, whole = 0, self.weight
        for p in self.points:
            reached += p.weight
            if 100 * reached >= percent * whole:
                return p.tokens
        return self.longest

    def text(self) -> str | None:
        """The mix as a short text, or None where that would be longer than an address should carry."""
        text = ",".join(f"{p.prompt}+{p.output}" + (f":{p.weight}" if len(self.points) > 1 else "") for p in self.points[:MAX_LENGTHS_TEXT])
        readable = len(text) <= MAX_LENGTHS_TEXT and all(p.weight < 10**DECIMALS for p in self.points)
        return text if readable else None


def mix(points: Iterable[tuple[int, int, int]]) -> Mix:
    """A Mix of (prompt, output, weight); weights in any unit. Raises InvalidInput where nothing has weight.

    Over 20,000 different points, lengths are rounded *up* to multiples of 64 tokens, with a note: a mix then never looks smaller than it is.
    """
    counted: dict[int, int] = {}  # prompt and output in one number: a million pairs would take three times the memory
    rows = 0
    for prompt, output, weight in points:
        rows += 1
        if weight:
            key = prompt << 32 | output
            counted[key] = counted.get(key, 0) + weight
    if not counted:
        raise InvalidInput("lengths_empty", field="lengths")
    notes: tuple[Note, ...] = ()
    step, exact = 1, len(counted)
    while len(counted) > MAX_POINTS:
        step = max(BIN_TOKENS, 2 * step)
        rounded: dict[int, int] = {}
        for key, weight in counted.items():
            key = -(-(key >> 32) // step) * step << 32 | -(-(key & 0xFFFFFFFF) // step) * step
            rounded[key] = rounded.get(key, 0) + weight
        counted = rounded
        notes = (note("assumed", "lengths_binned", field="lengths", points=exact, step=step, left=len(counted)),)
    unit = math.gcd(*counted.values())
    found = sorted((Point(k >> 32, k & 0xFFFFFFFF, w // unit) for k, w in counted.items()), key=lambda x: (x.tokens, x.prompt))
    return Mix(points=tuple(found), rows=rows, notes=notes)


def from_text(text: str) -> Mix:
    """``512+128:0.7,8192+1024:0.3``: prompt + output : weight; without a weight it is 1. Raises InvalidInput naming the part."""
    if len(text) > MAX_LENGTHS_TEXT:
        raise InvalidInput("lengths_text_long", field="lengths", limit=MAX_LENGTHS_TEXT)
    found = []
    for part in text.split(","):
        match = _POINT.fullmatch(part)
        if not match:
            raise InvalidInput("lengths_text", field="lengths", value=part.strip()[:40])
        prompt, output = int(match[1]), int(match[2])
        if not 1 <= prompt + output <= MAX_TOKENS:
            raise InvalidInput("lengths_total", field="lengths", where=part.strip()[:40], tokens=prompt + output, limit=MAX_TOKENS)
        found.append((prompt, output, _weight(match[3] or "1")))
    return mix(found)


def looks_like_text(value: str) -> bool:
    """Whether `value` means points and not the name of a file."""
    return _POINT.fullmatch(value.split(",", 1)[0]) is not None


def from_csv(data: bytes) -> Mix:
    """Columns for prompt and output, and if there is one for the count (or weight); other columns are passed over. Raises InvalidInput
    with the row and the column."""
    if len(data) > MAX_BYTES:
        raise InvalidInput("lengths_bytes", field="lengths", limit=MAX_BYTES)
    return mix(_requests(data.decode("utf-8-sig", "replace")))


def _requests(text: str) -> Iterator[tuple[int, int, int]]:
    """(prompt, output, weight) of each row; rows without any text are passed over."""
    rows = _rows(text)
    where = _columns(next(rows, []))
    places: list[tuple[str, int, dict[str, int]]] = [(role, where[role], {}) for role in ("prompt", "output", "weight") if role in where]
    for line, row in enumerate(rows, start=2):
        if line > MAX_ROWS + 1:
            raise InvalidInput("lengths_rows", field="lengths", limit=MAX_ROWS)
        if not any(row) or not any(cell.strip() for cell in row):
            continue
        numbers = [_number(row[i] if i < len(row) else "", role, line, known) for role, i, known in places]
        prompt, output = numbers[0], numbers[1]
        if not 1 <= prompt + output <= MAX_TOKENS:
            raise InvalidInput("lengths_total", field="lengths", where=Word(str(line), "word.row", row=line), tokens=prompt + output, limit=MAX_TOKENS)
        yield prompt, output, numbers[2] if len(numbers) > 2 else _weight("1")


def trace_rows(data: bytes, times: frozenset[str], most: int) -> list[tuple[int, int, int, str | None]]:
    """(row, prompt, output, cell of the first column that is named in `times`; None without one) of at most `most` requests, in the file's
    order. Columns and cells are read as for a mix. Raises InvalidInput with the row and the column."""
    if len(data) > MAX_BYTES:
        raise InvalidInput("lengths_bytes", field="trace", limit=MAX_BYTES)
    rows = _rows(data.decode("utf-8-sig", "replace"), "trace")
    head = next(rows, [])
    where = _columns(head, "trace")
    stamp = next((i for i, name in enumerate(head) if name.strip().lower() in times), None)
    out: list[tuple[int, int, int, str | None]] = []
    for line, row in enumerate(rows, start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(out) >= most:
            break
        prompt, output = (_number(row[where[role]] if where[role] < len(row) else "", role, line, {}, "trace") for role in ("prompt", "output"))
        if not 1 <= prompt + output <= MAX_TOKENS:
            raise InvalidInput("lengths_total", field="trace", where=Word(str(line), "word.row", row=line), tokens=prompt + output, limit=MAX_TOKENS)
        out.append((line, prompt, output, None if stamp is None else row[stamp] if stamp < len(row) else ""))
    return out


def _number(cell: str, role: str, line: int, known: dict[str, int], field: str = "lengths") -> int:
    """A cell as a number. `known`: what cells of this column were found to be; traces repeat themselves."""
    number = known.get(cell)
    if number is None:
        match = (_WEIGHT if role == "weight" else _TOKENS).fullmatch(cell)
        if not match:
            raise InvalidInput("lengths_cell", field=field, row=line, column=role, value=repr(cell[:40]))
        number = _weight(match[1]) if role == "weight" else int(match[1])
        if len(known) < MAX_KNOWN:
            known[cell] = number
    return number


def read(value: str, *, allow_paths: bool) -> Mix:
    """The mix that an option names: a text, or (`allow_paths`) a CSV file. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput("lengths_text", field="lengths", value=repr(value)[:40])
    if looks_like_text(value) or not allow_paths:
        return from_text(value)
    return from_csv(read_bytes(value, "lengths"))


def read_bytes(value: str, field: str) -> bytes:
    """A CSV file's bytes, one more than the limit at most. Raises InvalidInput naming the option `field`."""
    path = Path(value)
    try:
        if not path.is_file():
            raise InvalidInput("lengths_neither", field=field, value=value[:200])
        with path.open("rb") as f:
            return f.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise InvalidInput("file_unreadable", field=field, value=value[:200], detail=getattr(e, "strerror", None) or "") from None


def _rows(text: str, field: str = "lengths") -> Iterator[list[str]]:
    """Rows of cells; the separator is the one that the first line holds most of."""
    first = text.split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        for row in reader:
            if len(row) > MAX_COLUMNS:
                raise InvalidInput("lengths_unreadable", field=field, row=reader.line_num)
            yield row
    except csv.Error:
        raise InvalidInput("lengths_unreadable", field=field, row=reader.line_num) from None


def _columns(head: list[str], field: str = "lengths") -> dict[str, int]:
    """Role -> position, by the names of the first row."""
    where: dict[str, int] = {}
    for i, name in enumerate(head):
        plain = re.sub(r"[\s\-.]+", "_", name.strip().lower())
        role = next((r for r, names in COLUMNS.items() if plain in names), None)
        if role in where:
            raise InvalidInput("lengths_column_twice", field=field, column=role)
        if role:
            where[role] = i
    for role in ("prompt", "output"):
        if role not in where:
            raise InvalidInput("lengths_column_missing", field=field, column=role, found=", ".join(c.strip()[:20] for c in head[:8]))
    return where


def _weight(text: str) -> int:
    """Decimals as whole numbers: every weight is given in units of 10^-9."""
    whole, _, part = text.partition(".")
    return int(whole + part.ljust(DECIMALS, "0"))

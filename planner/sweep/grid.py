"""A grid of scenarios: which options take which values, from a text, a TOML or a JSON file. Bounded before anything is computed.

    gpu=H100 SXM,H200 SXM; tp=1,2,4,8; tokens=1024..65536*2; sequences=1..64

A range is ``first..last`` (by one), ``first..last:step`` or ``first..last*factor``. `auto` is the engine's own choice. An option with one
value is the same in all points.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.hardware import find
from planner.scenario import OPTIONS, Scenario, from_options
from planner.sources import text as sources_text

MAX_POINTS = 2_000_000
MAX_COMBINATIONS = 5_000
MAX_VALUES = 10_000
MAX_TEXT = 1_000_000
LENGTHS = ("tokens", "prompt", "output")
LOAD = (*LENGTHS, "sequences")
"""What a block of points is vectorised over; all other options make combinations."""
ONE_VALUE = ("target_ttft", "target_itl")
ALIASES = {"batch": "sequences", "concurrency": "sequences", "models": "model", "used_memory": "used_memory_bytes"}
MAX_PRICE = 100_000.0
_RANGE = re.compile(r"\s*(\d{1,12})\s*\.\.\s*(\d{1,12})\s*(?:([:*])\s*(\d{1,12}))?\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """`axes`: options and their values in the order given, each value once. `prices`: USD an hour of one GPU, by its name in the table."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    prices: tuple[tuple[str, float], ...] = ()

    def values(self, name: str) -> tuple[Any, ...]:
        return dict(self.axes).get(name, ())

    def over(self, other: Grid) -> Grid:
        """Both grids; where both have an option, this one's values."""
        return Grid(axes=tuple((dict(other.axes) | dict(self.axes)).items()), prices=tuple((dict(other.prices) | dict(self.prices)).items()))

    @property
    def points(self) -> int:
        return math.prod(len(values) for _, values in self.axes)

    @property
    def combination_axes(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        return tuple((name, values) for name, values in self.axes if name not in LOAD)

    def combinations(self) -> Iterator[dict[str, Any]]:
        axes = self.combination_axes
        for chosen in product(*(values for _, values in axes)):
            yield dict(zip((name for name, _ in axes), chosen, strict=True))

    def loads(self, base: Scenario) -> tuple[tuple[Scenario, ...], tuple[int, ...]]:
        """(`base` at each of the grid's lengths, numbers of sequences). A prompt or an output without `tokens` adds up to it; with `tokens`
        alone an output of `base` stays, and the prompt takes the rest."""
        given = [(name, self.values(name)) for name in LENGTHS if self.values(name)]
        names = [name for name, _ in given]
        if names == ["tokens"] and base.prompt and base.output:
            base = replace(base, prompt=None)
        lengths = []
        for chosen in product(*(values for _, values in given)):
            s = replace(base, **dict(zip(names, chosen, strict=True)))
            if names and "tokens" not in names:
                s = replace(s, tokens=_sum(s))
            lengths.append(s)
        return tuple(lengths), self.values("sequences") or (base.sequences,)

    def checked(self, most: int = MAX_POINTS) -> Grid:
        """Raises InvalidInput, with the option that has the most values, for more points than `most`, or too many combinations."""
        longest = max(self.axes, key=lambda axis: len(axis[1]), default=("grid", ()))[0]
        if self.points > most:
            raise InvalidInput("sweep_points", field=longest, points=self.points, limit=most)
        count = math.prod(len(values) for _, values in self.combination_axes)
        if count > MAX_COMBINATIONS:
            longest = max(self.combination_axes, key=lambda axis: len(axis[1]))[0]
            raise InvalidInput("sweep_combinations", field=longest, count=count, limit=MAX_COMBINATIONS)
        return self


def _sum(s: Scenario) -> int:
    return min((s.prompt or 0) + (s.output or 0), int(OPTIONS["tokens"].high)) or s.tokens


def read(given: str, *, allow_paths: bool = True) -> Grid:
    """A grid of a text ``option=values; ...``, or of a TOML or JSON file by its path. Raises InvalidInput."""
    if allow_paths and (Path(given).suffix.lower() in (".toml", ".json") or "=" not in given):
        return from_file(Path(given))
    if len(given) > MAX_TEXT:
        raise InvalidInput("sweep_text", field="grid", limit=MAX_TEXT)
    axes: dict[str, Any] = {}
    for part in re.split(r"[;\n]", given):
        if not part.strip():
            continue
        name, equals, values = part.partition("=")
        if not equals or not name.strip() or name.strip() in axes:
            raise InvalidInput("sweep_part", field="grid", value=part.strip()[:60])
        axes[name.strip()] = [v.strip() for v in values.split(",") if v.strip()]
    return from_mapping(axes)


def from_fields(fields: Mapping[str, Any], more: str, price: str) -> Grid:
    """Of a form: a text or a list of values an option, empty ones left out; `more` is a text of further options, which win. Lengths that it
    names stand for `tokens`. Raises InvalidInput or UnknownName."""
    further = read(more, allow_paths=False)
    split = bool(further.values("prompt") or further.values("output"))
    chosen = {name: v.split(",") if isinstance(v, str) else list(v) for name, v in fields.items() if v and not (split and name == "tokens")}
    return replace(further.over(from_mapping({name: [x for x in v if str(x).strip()] for name, v in chosen.items()})), prices=prices(price or None))


def from_file(path: Path) -> Grid:
    """Of a TOML or JSON file: options with a value or a list of values, and a table `price`. Raises InvalidInput."""
    try:
        with path.open("rb") as f:
            data = f.read(MAX_TEXT + 1)
    except (OSError, ValueError) as e:
        raise InvalidInput("file_unreadable", field="grid", value=str(path)[:200], detail=getattr(e, "strerror", None) or "") from None
    if len(data) > MAX_TEXT:
        raise InvalidInput("sweep_text", field="grid", limit=MAX_TEXT)
    if path.suffix.lower() == ".json":
        return from_mapping(sources_text.parse(data, path.name, config=False)[0])
    try:
        return from_mapping(tomllib.loads(data.decode("utf-8-sig")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InvalidInput("sweep_toml", field="grid", detail=str(e)[:120]) from None


def from_mapping(raw: Mapping[str, Any]) -> Grid:
    """Of ``{option: value or list of values, "price": {gpu: USD an hour}}``. Raises InvalidInput with the option."""
    axes: dict[str, tuple[Any, ...]] = {}
    for key, given in raw.items():
        name = str(key).strip().replace("-", "_")
        name = ALIASES.get(name, name)
        if name == "price":
            continue
        if name not in OPTIONS or name == "lengths":
            raise InvalidInput("sweep_option", field=str(key)[:60], known=", ".join(n for n in OPTIONS if n != "lengths"))
        if name in axes:
            raise InvalidInput("sweep_part", field=name, value=str(key)[:60])
        axes[name] = _values(name, given if isinstance(given, list) else [given])
    return Grid(axes=tuple(axes.items()), prices=prices(raw.get("price")))


def _values(name: str, given: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for v in given:
        span = _RANGE.fullmatch(v) if isinstance(v, str) and OPTIONS[name].kind == "int" else None
        found += _span(name, span) if span else [_value(name, v)]
        if len(found) > MAX_VALUES:
            raise InvalidInput("sweep_values", field=name, limit=MAX_VALUES)
    if not found:
        raise InvalidInput("sweep_no_values", field=name)
    out = tuple(dict.fromkeys(found))
    if name in ONE_VALUE and len(out) > 1:
        raise InvalidInput("sweep_one_value", field=name)
    return out


def _value(name: str, given: Any) -> Any:
    if given is None or isinstance(given, (list, dict)):
        raise InvalidInput("not_a_text", field=name, value=repr(given)[:60])
    if str(given).strip().lower() == "auto" and getattr(Scenario(), name) is None:
        return None
    value = getattr(from_options({name: given}), name)
    return find(value).key if name == "gpu" else value


def _span(name: str, span: re.Match[str]) -> list[int]:
    """The whole numbers of a range; its ends are checked as any value, its length before it is written out."""
    first, last = (_value(name, span[i]) for i in (1, 2))
    step = int(span[4] or 1)
    if last < first or step < (2 if span[3] == "*" else 1):
        raise InvalidInput("sweep_range", field=name, value=span[0].strip()[:60])
    if span[3] == "*":
        out = [first]
        while out[-1] * step <= last:
            out.append(out[-1] * step)
        return out
    if (last - first) // step >= MAX_VALUES:
        raise InvalidInput("sweep_values", field=name, limit=MAX_VALUES)
    return list(range(first, last + 1, step))


def prices(raw: Any) -> tuple[tuple[str, float], ...]:
    """USD an hour of one GPU, from ``{gpu: number}`` or ``"gpu=number; ..."``. Raises InvalidInput (field "price") or UnknownName."""
    if raw is None:
        return ()
    if isinstance(raw, str):
        parts = [p.rpartition("=") for p in re.split(r"[;\n]", raw) if p.strip()]
        raw = {name: number for name, _, number in parts}
    if not isinstance(raw, Mapping):
        raise InvalidInput("sweep_price", field="price", value=repr(raw)[:60])
    out = {}
    for name, given in raw.items():
        try:
            number = float(given) if not isinstance(given, bool) else math.nan
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number <= MAX_PRICE:
            raise InvalidInput("sweep_price", field="price", value=f"{name}={given}"[:60])
        out[find(str(name)).name] = number
    return tuple(out.items())

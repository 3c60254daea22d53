"""Results that anybody may have written: checked before a page formats them. No torch.

A result is checked against the types that `ProbeResult` declares, so a new field is checked without a word here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpu_probe.result import ProbeResult, ProbeRow
from planner.errors import NotAConfig

LARGEST = 1e18
MOST_ENTRIES, MOST_TEXT = 100_000, 4_000
"""The first: a time for each of the 100,000 tokens that a run may decode."""
MOST_ROWS = 2_000
QUANTILES = ("p50", "p90", "p99")


def read_result(raw: Mapping[str, Any]) -> ProbeResult:
    """A result as `gpu_probe run --json` printed it; keys of a newer version are kept in `extra`.

    Raises NotAConfig with the place of what is missing, of another type, not finite or too large.
    """
    sane(raw)
    for f in fields(ProbeResult):
        if f.name not in raw and f.default is MISSING and f.default_factory is MISSING:
            raise _wrong(f.name)
    _typed({name: value for name, value in raw.items() if name != "rows"}, ProbeResult, "")
    rows = raw["rows"]
    if not isinstance(rows, list):
        raise _wrong("rows")
    if len(rows) > MOST_ROWS:
        raise _wrong("rows")
    for j, row in enumerate(rows):
        _typed(row, ProbeRow, f"rows[{j}]")
    try:
        result = ProbeResult.from_json(dict(raw))
    except (KeyError, TypeError, ValueError, AttributeError) as e:  # a row has a field too few or too many, say
        raise _wrong("rows") from e
    for name in QUANTILES:
        if name not in result.itl_s:
            raise _wrong(f"itl_s.{name}")
    return result


def sane(raw: Mapping[str, Any]) -> None:
    """Raises NotAConfig with the place of a number that is not finite or beyond 1e18, or of a text or list beyond any use."""
    if (found := _fault(raw)) is not None:
        raise _wrong("".join(found).lstrip("."))


def _fault(value: Any) -> tuple[str, ...] | None:
    """The way to the first value that cannot be shown; None where all can. A way is only put together once something is wrong: a file may
    have a million numbers."""
    if isinstance(value, str):
        return () if len(value) > MOST_TEXT else None
    if isinstance(value, (int, float)):  # a boolean is at most 1
        return None if abs(value) <= LARGEST and isfinite(value) else ()
    if isinstance(value, (Mapping, list, tuple)):
        if len(value) > MOST_ENTRIES:
            return ()
        if isinstance(value, Mapping):
            for key, part in value.items():
                if len(key) > MOST_TEXT:
                    return ()
                if (found := _fault(part)) is not None:
                    return (f".{key[:40]}", *found)
        else:
            for j, part in enumerate(value):
                if (found := _fault(part)) is not None:
                    return (f"[{j}]", *found)
    return None


def _typed(value: Any, cls: type, where: str) -> None:
    """Every declared field that is there has its declared type."""
    if not isinstance(value, Mapping):
        raise _wrong(where)
    for name, hint in get_type_hints(cls).items():
        if name in value and not _is(value[name], hint):
            raise _wrong(f"{where}.{name}" if where else name)


def _is(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is(value, a) for a in args)
    if origin is dict:
        return isinstance(value, Mapping) and all(_is(k, args[0]) and _is(v, args[1]) for k, v in value.items())
    if origin is tuple:
        return isinstance(value, (list, tuple)) and all(_is(v, args[0]) for v in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return value is None if hint is NoneType else isinstance(value, hint)


def _wrong(where: str) -> NotAConfig:
    return NotAConfig("result_unreadable", field=where[:80])

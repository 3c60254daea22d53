"""Reading numbers out of a suite's JSON that anybody may have written. No torch.

Every reader names the place that is wrong: ``items.cache.contexts``. Nothing is converted from text, and NaN is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from planner.errors import NotAConfig

MOST = 64
"""Entries of a list that a chart can show."""
LARGEST = 1e18
TEXT = 40


@dataclass(frozen=True, slots=True)
class Numbers:
    """The `numbers` of an item, or a part of them. `where`: its dotted place, for errors."""

    data: Any
    where: str

    def number(self, name: str, *, positive: bool = False) -> float:
        """Raises NotAConfig where it is none, is not finite, or is not above 0 where it must be."""
        return self._number(self._get(name), name, positive)

    def numbers(self, name: str, *, positive: bool = False, length: int | None = None) -> list[float]:
        """A list of `length` numbers, or of 1 to 64."""
        return [self._number(v, f"{name}[{i}]", positive) for i, v in enumerate(self._list(name, length))]

    def parts(self, name: str) -> list[Numbers]:
        """A list of 1 to 64 objects."""
        return [Numbers(v, f"{self.where}.{name}[{i}]") for i, v in enumerate(self._list(name, None))]

    def part(self, name: str) -> Numbers:
        return Numbers(self._get(name), f"{self.where}.{name}")

    def names(self) -> list[str]:
        """Of an object's entries, 1 to 64 of them, each at most 40 characters long."""
        if not isinstance(self.data, Mapping) or not 0 < len(self.data) <= MOST or not all(isinstance(k, str) and len(k) <= TEXT for k in self.data):
            raise self._wrong("")
        return list(self.data)

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str) or len(value) > TEXT:
            raise self._wrong(name)
        return value

    def _get(self, name: str) -> Any:
        if not isinstance(self.data, Mapping) or name not in self.data:
            raise self._wrong(name)
        return self.data[name]

    def _list(self, name: str, length: int | None) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list) or not 0 < len(value) <= MOST or (length is not None and len(value) != length):
            raise self._wrong(name)
        return value

    def _number(self, value: Any, name: str, positive: bool) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST or not isfinite(value) or (positive and value <= 0):
            raise self._wrong(name)
        return value

    def _wrong(self, name: str) -> NotAConfig:
        return NotAConfig("result_unreadable", field=".".join(filter(None, (self.where, name)))[:80])

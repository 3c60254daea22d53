"""Typed access to a raw config: aliases, bounds, clear refusals, and a memory of which keys were read.

Rules: null is absent; an int that is a bool, a fraction, NaN or a string is refused with its key; every integer has a bound.
"""

from __future__ import annotations

from typing import Any

from planner.errors import MissingField, UnsupportedValue
from planner.messages import type_word

MAX_LAYERS = 4_096
MAX_WIDTH = 10_000_000
MAX_TOKENS = 1_000_000_000


class Fields:
    """A view of one JSON object. `path` is the dotted place of the object in the file, for messages."""

    def __init__(self, raw: dict[str, Any], path: str = "", parent: Fields | None = None) -> None:
        self.raw = raw
        self.path = path
        self.parent = parent
        self.seen: set[str] = set()
        self.absent: dict[str, None] = {}  # keys that a reader asked for and the file leaves out, in order

    def variant(self, raw: dict[str, Any]) -> Fields:
        """The same place in the file with other values, for a dialect that is read as another: what it reads counts as read here."""
        other = Fields(raw, self.path, self.parent)
        other.seen, other.absent = self.seen, self.absent
        return other

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        return self.value(key)[1] is not None

    def value(self, *keys: str) -> tuple[str, Any]:
        """The first key that is present and not null, with its value; ("", None) where there is none."""
        self.seen.update(keys)
        for key in keys:
            if self.raw.get(key) is not None:
                return key, self.raw[key]
        self.absent |= dict.fromkeys(keys[:1])
        return "", None

    def ignore(self, *keys: str) -> None:
        """Keys that this family's code does not use for its cache: read on purpose, and left alone."""
        self.seen.update(keys)

    # -- integers ------------------------------------------------------------------------------------------------------
    def _int(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= high:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnsupportedValue("not_an_integer", field=self.name(key), value=repr(value)[:60])
        if not low <= value <= high:
            raise UnsupportedValue("out_of_range", field=self.name(key), value=_short(value), low=low, high=high)
        return value

    def optional_int(self, *keys: str, low: int = 1, high: int = MAX_WIDTH) -> int | None:
        key, value = self.value(*keys)
        return None if value is None else self._int(key, value, low, high)

    def need_int(self, *keys: str, low: int = 1, high: int = MAX_WIDTH) -> int:
        found = self.optional_int(*keys, low=low, high=high)
        if found is None:
            raise MissingField("missing_field", field=self.name(keys[0]), tried=", ".join(keys))
        return found

    def int_or(self, default: int, *keys: str, low: int = 1, high: int = MAX_WIDTH) -> int:
        found = self.optional_int(*keys, low=low, high=high)
        return default if found is None else found

    def size(self, *keys: str) -> int | None:
        """A head size: published files write null or 0 for "not set"."""
        return self.optional_int(*keys, low=0) or None

    def layers(self, *keys: str) -> int:
        return self.need_int(*keys, low=1, high=MAX_LAYERS)

    # -- other types ---------------------------------------------------------------------------------------------------
    def flag(self, key: str, default: bool = False) -> bool:
        _, value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise UnsupportedValue("not_a_boolean", field=self.name(key), value=repr(value)[:60])
        return value

    def text(self, *keys: str) -> str | None:
        key, value = self.value(*keys)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > 200:
            raise UnsupportedValue("not_a_text", field=self.name(key), value=repr(value)[:60])
        return value

    def list_of(self, key: str, kind: type, length: int | None = None) -> list[Any] | None:
        """A list whose entries are all `kind`; with `length` it must have exactly that many."""
        _, value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, kind) and (kind is bool or not isinstance(v, bool)) for v in value):
            raise UnsupportedValue("not_a_list", field=self.name(key), value=repr(value)[:60], kind=type_word(kind.__name__))
        if length is not None and len(value) != length:
            raise UnsupportedValue("list_length", field=self.name(key), got=len(value), want=length)
        return value

    def section(self, key: str) -> Fields | None:
        """A nested object, as Fields of its own."""
        _, value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UnsupportedValue("section_not_an_object", field=self.name(key), value=repr(value)[:60])
        return Fields(value, self.name(key), self)

    def unread(self) -> dict[str, Any]:
        return {k: v for k, v in self.raw.items() if k not in self.seen}


def _short(value: int) -> str:
    return str(value) if abs(value) < 10**30 else f"10^{len(str(abs(value))) - 1}"

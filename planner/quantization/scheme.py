"""What a `quantization_config` says, as a value: rules in order, what stays, and whether the file says it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.quantization.patterns import Patterns
from planner.stored import Stored

SKIP_KEYS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules", "skip_modules",
             "linear_weights_not_to_quantize", "exclude", "exclude_layers")  # fmt: skip
MAX_BITS, MAX_GROUP = 16, 1_000_000


class NotKnown(ValueError):
    """The file does not say how many bytes its matrices take, or says it in a way that is not known. `key`: what stopped us."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`stored`: how the matrices that `only` names (None: all) are stored; None: not quantized. `roles`: weights of these alone."""

    stored: Stored | None
    only: Patterns | None = None
    roles: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """The first rule that names a matrix holds; `skip` goes before them all. `head`: the output head is a matrix like the others.
    `listed`: the file itself says what stays unquantized; without it the library's own rule is taken, and the result is assumed.
    `simple` False: the layout of the method is not known to the byte."""

    rules: tuple[Rule, ...]
    skip: Patterns = field(default_factory=lambda: Patterns(()))
    head: bool = False
    listed: bool = False
    simple: bool = True


class Section:
    """Typed access to one object of the file. A value of the wrong kind is NotKnown: the plan goes on, with a note."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def integer(self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_GROUP) -> int:
        for key in keys:
            value = self.raw.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise NotKnown(key)
            return value
        if default is None:
            raise NotKnown(keys[0])
        return default

    def bits(self, *keys: str, default: int | None = None) -> int:
        return self.integer(*keys, default=default, high=MAX_BITS)

    def group(self, *keys: str, default: int | None = None) -> int:
        """Columns a group; -1 and 0 say one group a row, which is 0 here."""
        return max(0, self.integer(*keys, default=default, low=-1))

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise NotKnown(key)
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 200:
            raise NotKnown(key)
        return value

    def part(self, key: str) -> Section | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise NotKnown(key)
        return Section(value)

    def names(self, key: str) -> list[Any] | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise NotKnown(key)
        return value

    def skipped(self) -> list[Any] | None:
        """What the file lists as not quantized, by all the keys that libraries use; None where it has no such list."""
        lists = [found for key in SKIP_KEYS if (found := self.names(key)) is not None]
        return [entry for one in lists for entry in one] if lists else None


def scheme(s: Section, *rules: Rule, head: bool = False, simple: bool = True, more_skip: tuple[str, ...] = (), complete: bool = False) -> Scheme:
    """The usual case: rules and the file's list. `complete`: without a list the method is known to reach every matrix of the blocks."""
    listed = s.skipped()
    return Scheme(rules=rules, skip=Patterns([*(listed or ()), *more_skip]), head=head, listed=listed is not None or complete, simple=simple)

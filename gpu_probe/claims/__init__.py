"""What two articles on the cost of inference say, and what this host says to it: the values. No torch.

An item's bytes are counted and must be equal to the prediction; its times are medians of interleaved rounds and decide nothing but its
own verdict. A verdict is about this host and these small shapes, never about the claim in general.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import Any

from planner.errors import NotAConfig
from planner.messages import render

FORM = "kvledger-suite-1"
"""In every result of the suite, so that one is told from a probe's."""
MAX_ITEMS = 100
HOLDS, NOT, UNDECIDED = "holds", "does_not_hold", "undecided"
VERDICTS = (HOLDS, NOT, UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One claim. `claims`: its numbers in the list of claims. `numbers`: everything measured, by name; times in seconds, sizes in bytes.
    `bytes_right`: whether every counted size equals its prediction; None: the item counts none."""

    name: str
    claims: tuple[str, ...]
    verdict: str
    says: str
    measured: str
    numbers: dict[str, Any] = field(default_factory=dict)
    bytes_right: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "claims": list(self.claims), "verdict_text": render(f"suite.verdict.{self.verdict}")}


def read(result: Mapping[str, Any]) -> tuple[Item, ...]:
    """The items of a suite's result after a trip through JSON, without their numbers. Raises NotAConfig with the field that is wrong."""
    items = result.get("items")
    if result.get("form") != FORM or not isinstance(items, list) or not 0 < len(items) <= MAX_ITEMS:
        raise NotAConfig("result_unreadable", field="items")
    out = []
    for j, i in enumerate(items):
        claims = i.get("claims") if isinstance(i, Mapping) else None
        texts = {k: i[k] for k in ("name", "verdict", "says", "measured") if isinstance(i.get(k), str)} if isinstance(i, Mapping) else {}
        if len(texts) < 4 or texts["verdict"] not in VERDICTS or not isinstance(claims, list) or not all(isinstance(c, str) for c in claims):
            raise NotAConfig("result_unreadable", field=f"items[{j}]")
        right = i.get("bytes_right")
        out.append(Item(**texts, claims=tuple(claims), bytes_right=right if isinstance(right, bool) else None))
    return tuple(out)


def item(name: str, claims: str, verdict: str, numbers: dict[str, Any], *, bytes_right: bool | None = None, **said: Any) -> Item:
    """`claims`: numbers with spaces between. `said`: what the sentence `suite.<name>.measured` needs."""
    return Item(
        name=name, claims=tuple(claims.split()), verdict=verdict, numbers=numbers, bytes_right=bytes_right,
        says=render(f"suite.{name}.says"), measured=render(f"suite.{name}.measured", said),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """Lower quartile, median and upper quartile of samples."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else (samples[0],) * 3
        return cls(low, median(samples), high)

    @classmethod
    def ratio(cls, top: Sequence[float], bottom: Sequence[float]) -> Spread:
        """Of the ratios round by round: what slows a whole round down cancels."""
        return cls.of([a / b for a, b in zip(top, bottom, strict=True)])

    def at_least(self, limit: float) -> str:
        """Verdict on "it is `limit` or more": only where the middle half of the rounds agrees."""
        return HOLDS if self.low >= limit else NOT if self.high < limit else UNDECIDED

    def below(self, limit: float) -> str:
        return HOLDS if self.high < limit else NOT if self.low >= limit else UNDECIDED

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def both(*verdicts: str) -> str:
    """A claim of several parts holds where all do, and does not where one does not."""
    return NOT if NOT in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS

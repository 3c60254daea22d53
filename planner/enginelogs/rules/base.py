"""What a rule is: one figure of a log that follows from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.enginelogs.intervals import Interval
from planner.units import GIB

Values = dict[str, Interval]
Predict = Callable[[Values, Any], list[Interval]]
ROUND = 0.002 * GIB  # several rounded figures in one sum, beyond their own half steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`predict(values, around)`: what `target` may be, one interval a possible reading; none: the rule does not apply. `scope`: the figures
    must stand on one line, belong to one rank, or to one start. `earlier`: needs printed before the target only. `slack`: beyond rounding.
    `nearest`: of several readings the nearest one is what is expected, not the first.
    `uncertain(values, seen, around)`: whether a failure may have a reason that the log does not show."""

    code: str
    engine: str | None
    target: str
    needs: tuple[str, ...]
    predict: Predict
    source: str
    scope: str = "rank"
    slack: float = 0.0
    earlier: bool = False
    nearest: bool = False
    uncertain: Callable[[Values, Interval, Any], bool] | None = None

"""Arithmetic with figures that were rounded when they were printed: an interval holds what the figure may have been."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both ends included."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def __add__(self, other: Interval | float) -> Interval:
        o = _of(other)
        return Interval(self.low + o.low, self.high + o.high)

    def __sub__(self, other: Interval | float) -> Interval:
        o = _of(other)
        return Interval(self.low - o.high, self.high - o.low)

    def __mul__(self, other: Interval | float) -> Interval:
        o = _of(other)
        ends = (self.low * o.low, self.low * o.high, self.high * o.low, self.high * o.high)
        return Interval(min(ends), max(ends))

    def __truediv__(self, other: Interval | float) -> Interval:
        """`other` must not hold 0; where it does, the quotient is unbounded."""
        o = _of(other)
        if o.low <= 0 <= o.high:
            return Interval(-float("inf"), float("inf"))
        return self * Interval(1 / o.high, 1 / o.low)

    def widened(self, by: float) -> Interval:
        return Interval(self.low - by, self.high + by)

    def meets(self, other: Interval) -> bool:
        """Whether both can stand for the same true value."""
        return self.low <= other.high and other.low <= self.high


def _of(value: Interval | float) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)

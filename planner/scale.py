"""A measured scale of times: one factor with its residual, and what it was measured on. A scenario keeps it as a short text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from planner.errors import InvalidInput

OF = ("points", "probe")
LOW, HIGH = 0.2, 5.0
"""Times that are off by more than this belong to another model, device or set of flags."""
MOST_RESIDUAL = 1.0
MAX_TEXT = 330
PARTS, FIRST_PARTS = 7, 3
"""Of a kept text: those of the scale, and after them those of the TTFT where it was measured."""
FIRST_MIN_WIDTH = 0.3
"""MIN_WIDTH of a TTFT: who waits for whom differs from run to run (docs/latency.md has what it holds)."""
MIN_WIDTH, PER_RESIDUAL = 0.12, 1.5
"""Half-width of the range: at least the spread of repeats (performance of one configuration on two dates), else so many residuals."""
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The same of the time to the first token alone. `usable`: whether one factor describes it; else it is kept and said, not applied."""

    factor: float
    residual: float
    points: int

    @property
    def usable(self) -> bool:
        return LOW <= self.factor <= HIGH and 0 <= self.residual <= MOST_RESIDUAL

    def narrowed(self, bounds: tuple[float, float]) -> tuple[float, float]:
        """A range (t / down, t * up) with what is left of it after the measurement, the same both ways since the factor centres it; never
        wider than it was."""
        width = 1 + max(FIRST_MIN_WIDTH, PER_RESIDUAL * self.residual)
        return (width, width) if width * width < bounds[0] * bounds[1] else bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Measured times are `factor` times the predicted ones; single points were off by up to `residual` (0.1: 10 %) after it. `first`: of the
    TTFT, where it was measured."""

    factor: float
    residual: float
    points: int
    of: str
    gpu: str
    engine: str
    model: str
    first: First | None = None

    def text(self) -> str:
        """As a scenario keeps it; `from_text` reads it back."""
        where = (_word(w) for w in (self.gpu, self.engine, self.model))
        first = () if self.first is None else (f"{self.first.factor:.4f}", f"{self.first.residual:.4f}", str(self.first.points))
        return ";".join((f"{self.factor:.4f}", f"{self.residual:.4f}", str(self.points), self.of, *where, *first))

    def belongs(self, gpu: str, engine: str, model: str) -> bool:
        """Whether it was measured on this device, engine and model: a factor of another deployment says nothing."""
        return (self.gpu, self.engine, self.model) == (_word(gpu), _word(engine), _word(model))

    def narrowed(self, bounds: tuple[float, float]) -> tuple[float, float]:
        """A range (t / down, t * up) with what is left of it after the measurement; never wider than it was."""
        width = 1 + max(MIN_WIDTH, PER_RESIDUAL * self.residual)
        return min(bounds[0], width), min(bounds[1], width)


def _word(text: str) -> str:
    return re.sub(r"[;\s]+", " ", text).strip()[:80].strip()


def is_text(value: object) -> bool:
    """Whether it looks like a kept scale, and not like the name of a file."""
    return isinstance(value, str) and value.count(";") + 1 in (PARTS, PARTS + FIRST_PARTS)


def from_text(value: object) -> Scale:
    """Raises InvalidInput (field "calibration") for anything that `Scale.text` did not write."""
    parts = value.strip().split(";") if isinstance(value, str) and len(value) <= MAX_TEXT else []
    first = parts[PARTS:]
    numbers = (parts[:3], first) if first else (parts[:3],)
    if len(parts) not in (PARTS, PARTS + FIRST_PARTS) or not all(map(_numbers, numbers)) or parts[3] not in OF or not all(parts[4:PARTS]):
        raise InvalidInput("calibration_text", field="calibration", value=repr(value)[:60])
    gpu, engine, model = parts[4:PARTS]
    return checked(Scale(factor=float(parts[0]), residual=float(parts[1]), points=int(parts[2]), of=parts[3], gpu=gpu, engine=engine, model=model,
                         first=First(factor=float(first[0]), residual=float(first[1]), points=int(first[2])) if first else None))  # fmt: skip


def _numbers(parts: list[str]) -> bool:
    """Whether they are a factor, a residual and a number of points."""
    return all(_NUMBER.fullmatch(p) for p in parts) and parts[2].isdigit()


def checked(s: Scale) -> Scale:
    """The scale, if it is one that can be used. Raises InvalidInput where the factor or the residual is beyond the bounds above."""
    if not math.isfinite(s.factor) or not LOW <= s.factor <= HIGH:
        raise InvalidInput("calibration_far", field="calibration", factor=f"{s.factor:.3g}", low=LOW, high=HIGH)
    if not math.isfinite(s.residual) or not 0 <= s.residual <= MOST_RESIDUAL:
        raise InvalidInput("calibration_spread", field="calibration", residual=f"{100 * s.residual:.0f} %")
    return s

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
MAX_TEXT = 300
MIN_WIDTH, PER_RESIDUAL = 0.12, 1.5
"""Half-width of the range: at least the spread of repeats (performance of one configuration on two dates), else so many residuals."""
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Measured times are `factor` times the predicted ones; single points were off by up to `residual` (0.1: 10 %) after it."""

    factor: float
    residual: float
    points: int
    of: str
    gpu: str
    engine: str
    model: str

    def text(self) -> str:
        """As a scenario keeps it; `from_text` reads it back."""
        where = (_word(w) for w in (self.gpu, self.engine, self.model))
        return ";".join((f"{self.factor:.4f}", f"{self.residual:.4f}", str(self.points), self.of, *where))

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
    return isinstance(value, str) and value.count(";") == 6


def from_text(value: object) -> Scale:
    """Raises InvalidInput (field "calibration") for anything that `Scale.text` did not write."""
    parts = value.strip().split(";") if isinstance(value, str) and len(value) <= MAX_TEXT else []
    if len(parts) != 7 or not all(_NUMBER.fullmatch(p) for p in parts[:3]) or not parts[2].isdigit() or parts[3] not in OF or not all(parts[4:]):
        raise InvalidInput("calibration_text", field="calibration", value=repr(value)[:60])
    gpu, engine, model = parts[4:]
    return checked(Scale(factor=float(parts[0]), residual=float(parts[1]), points=int(parts[2]), of=parts[3], gpu=gpu, engine=engine, model=model))


def checked(s: Scale) -> Scale:
    """The scale, if it is one that can be used. Raises InvalidInput where the factor or the residual is beyond the bounds above."""
    if not math.isfinite(s.factor) or not LOW <= s.factor <= HIGH:
        raise InvalidInput("calibration_far", field="calibration", factor=f"{s.factor:.3g}", low=LOW, high=HIGH)
    if not math.isfinite(s.residual) or not 0 <= s.residual <= MOST_RESIDUAL:
        raise InvalidInput("calibration_spread", field="calibration", residual=f"{100 * s.residual:.0f} %")
    return s

"""What a user sees of one server: times, load, memory. Every figure may be missing; what is missing is asked for, not guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from planner.errors import InvalidInput

COMPLAINTS = ("auto", "ttft", "itl", "throughput")
OOM = ("none", "start", "run")
TIMES = ("ttft_s", "itl_s", "queue_s", "other_ttft_s", "other_itl_s")
COUNTS = ("sequences", "waiting", "prompt", "output", "preemptions", "other_sequences", "other_prompt")
LIMITS = {"sequences": (1, 1e6), "waiting": (0, 1e9), "prompt": (1, 1e8), "output": (1, 1e8), "preemptions": (0, 1e15), "other_sequences": (1, 1e6),
          "other_prompt": (1, 1e8), "tokens_per_s": (1e-6, 1e12), "kv_usage": (0, 1)}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Of one server (one replica). Times in seconds: `ttft_s` and `itl_s` means, `queue_s` mean wait before a request is scheduled.

    `sequences`: running at once; `waiting`: requests in the queue; `tokens_per_s`: output tokens of all requests; `kv_usage`: share of the
    pool in use. `other_*`: a second measurement at another load. `complaint`: what is found too slow.
    """

    ttft_s: float | None = None
    itl_s: float | None = None
    queue_s: float | None = None
    tokens_per_s: float | None = None
    sequences: int | None = None
    waiting: int | None = None
    prompt: int | None = None
    output: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None
    oom: str = "none"
    other_sequences: int | None = None
    other_prompt: int | None = None
    other_ttft_s: float | None = None
    other_itl_s: float | None = None
    complaint: str = "auto"

    @property
    def empty(self) -> bool:
        """Whether nothing was seen that could be explained."""
        seen = (self.ttft_s, self.itl_s, self.queue_s, self.tokens_per_s, self.waiting, self.preemptions, self.kv_usage)
        return self.oom == "none" and all(v is None for v in seen)

    def over(self, more: Observed) -> Observed:
        """These figures, and where there is none those of `more`."""
        defaults = Observed()
        return Observed(**{f.name: mine if (mine := getattr(self, f.name)) != getattr(defaults, f.name) else getattr(more, f.name) for f in fields(self)})


def observed(values: Mapping[str, Any]) -> Observed:
    """Checked: numbers within their bounds, known words. Raises InvalidInput with the field."""
    known = {f.name for f in fields(Observed)}
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise InvalidInput("unknown_option", field=str(name)[:60], known=", ".join(sorted(known)))
        if value is None or value == "":
            continue
        if name in ("oom", "complaint"):
            choices = OOM if name == "oom" else COMPLAINTS
            if value not in choices:
                raise InvalidInput("not_a_choice", field=name, value=str(value)[:40], choices=", ".join(choices))
            out[name] = value
            continue
        low, high = (1e-6, 86_400) if name in TIMES else LIMITS[name]
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 else float("nan")
        if not isfinite(number) or not low <= number <= high:
            raise InvalidInput("out_of_range", field=name, value=str(value)[:40], low=low, high=high)
        out[name] = round(number) if name in COUNTS else number
    return Observed(**out)

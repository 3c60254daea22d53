"""What a run's clock says: waiting times, rates, and how near a decode step is to what this host can do. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_probe.result import ProbeRequest

PERCENTILES = (("p50", 50), ("p90", 90), ("p99", 99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds, and tokens a second of the whole batch. `tokens_per_s`: prefill included, the step of no asked token left out."""

    ttft_s: float
    itl_s: dict[str, float]
    step_s: tuple[float, ...]
    tokens_per_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


def timing(prefill_s: float, step_s: Sequence[float], request: ProbeRequest) -> Timing:
    waited = prefill_s + sum(step_s[: request.output - 1])
    prefilled = request.batch * request.prompt - (request.batch - 1) * request.shared_tokens()
    return Timing(
        ttft_s=prefill_s,
        itl_s={name: float(np.percentile(step_s, q)) for name, q in PERCENTILES},
        step_s=tuple(step_s),
        tokens_per_s=request.batch * request.output / waited,
        prefill_tokens_per_s=prefilled / prefill_s,
        decode_tokens_per_s=request.batch * len(step_s) / sum(step_s),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one decode step has to do: bytes of weights and of the cache to read, FLOP. None: not known, with the reason's code."""

    kv_bytes: int
    weight_bytes: int | None
    flop: int | None
    unknown: str = ""


def roofline(work: Work, step_s: float, ceilings: Mapping[str, Any], *, refused: str = "") -> dict[str, Any]:
    """``{"kv_bytes", "weight_bytes", "flop", "step_s", "bytes_per_s", "share", "bound", "reason"}`` of a decode step of `step_s` seconds.

    `share`: of the least time in which the step can be done, the longer of bytes by the read ceiling and FLOP by the product ceiling
    (Williams et al., Roofline, 2009); `bound` says which. None with a `reason` where the work is not known (its code), where the
    ceilings are none (`refused`: why) or where they moved by over a quarter during the run ("unsteady"): a share would be of nothing.
    """
    found: dict[str, Any] = {"kv_bytes": work.kv_bytes, "weight_bytes": work.weight_bytes, "flop": work.flop, "step_s": step_s,
                             "bytes_per_s": None, "share": None, "bound": None, "reason": work.unknown}  # fmt: skip
    if work.weight_bytes is None or work.flop is None:
        return found
    found["bytes_per_s"] = (work.kv_bytes + work.weight_bytes) / step_s
    if refused or not ceilings["steady"]:
        return {**found, "reason": refused or "unsteady"}
    best = {name: max(ceilings[when][name] for when in ("before", "after")) for name in ("read_bytes_per_s", "flop_per_s")}
    least = {"read": (work.kv_bytes + work.weight_bytes) / best["read_bytes_per_s"], "product": work.flop / best["flop_per_s"]}
    bound = max(least, key=least.__getitem__)
    return {**found, "share": least[bound] / step_s, "bound": bound}

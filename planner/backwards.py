"""The question turned round: how little memory does this load need? Found by planning again, so that every engine's own rules hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cache import last
from planner.capacity import CapacityPlan, replan
from planner.engines import engine

STEPS = 10_000  # a memory fraction is told to four digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """`memory_fraction`: the smallest one at which the load fits and the engine starts (None: none does, or the engine has no such share).
    `kv_memory`: the same for a pool given in bytes a rank."""

    memory_fraction: float | None
    kv_memory: int | None

    def to_json(self) -> dict[str, Any]:
        return {"smallest_memory_fraction": self.memory_fraction, "smallest_kv_memory": self.kv_memory}


def smallest(p: CapacityPlan) -> Smallest:
    """Both answers for the load of `p`; its other choices stay. A load beyond the model's limit has none."""
    if p.limited_by == "model":
        return Smallest(memory_fraction=None, kv_memory=None)
    fraction = None
    if engine(p.setting.engine).reserves and p.hardware is not None:
        at = 1 + last(STEPS, lambda n: n > 0 and not replan(p, memory_fraction=n / STEPS, kv_memory=None).fits)
        fraction = at / STEPS if at <= STEPS else None
    return Smallest(memory_fraction=fraction, kv_memory=_smallest_pool(p))


def _smallest_pool(p: CapacityPlan) -> int | None:
    """A pool must hold the load of the fullest rank, and one request of the largest length where the engine checks that; where pools are
    split by the engine's own rule, the bytes are searched for."""
    if p.setting.context is not None:  # llama.cpp allocates what its context needs, however large the pool
        return None
    high = 4 * max(1, *p.footprint.per_rank_bytes, sum(q.bytes(1, p.setting.max_model_len, "admission") for q in p.pools))
    if not replan(p, kv_memory=high).fits:
        return None
    return 1 + last(high - 1, lambda n: n > 0 and not replan(p, kv_memory=n).fits)

"""The question turned round: how little memory does this load need? Found by planning again, so that every engine's own rules hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cache import last
from planner.capacity import CapacityPlan, replan
from planner.engines import engine
from planner.errors import PlannerError

MOST_BYTES = 2**46
STEPS = 10_000  # a memory fraction is told to four digits


# vllm 0.33.0 engine/arg_utils.py, sglang 0.5.23 srt/arg_groups/fields, tensorrt_llm/commands/serve.py.
FRACTION_FLAGS = {"vllm": ("--gpu-memory-utilization",), "sglang": ("--mem-fraction-static",), "trtllm": ("--kv_cache_free_gpu_memory_fraction",)}
POOL_FLAGS = {"vllm": ("--kv-cache-memory-bytes",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """`memory_fraction`: the smallest one at which the load fits and the engine starts (None: none does, or the engine has no such share).
    `kv_memory`: the same for a pool given in bytes a rank."""

    memory_fraction: float | None
    kv_memory: int | None
    engine: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The engine's own flags for the two answers, where it has them: of the fraction, and of the pool's bytes a rank."""
        named = (*((name, self.memory_fraction) for name in FRACTION_FLAGS.get(self.engine, ())),
                 *((name, self.kv_memory) for name in POOL_FLAGS.get(self.engine, ())))  # fmt: skip
        return tuple(f"{name} {value}" for name, value in named if value is not None)

    def to_json(self) -> dict[str, Any]:
        return {"smallest_memory_fraction": self.memory_fraction, "smallest_kv_memory": self.kv_memory, "flags": list(self.flags)}


def smallest(p: CapacityPlan) -> Smallest:
    """Both answers for the load of `p`; its other choices stay. A load beyond the model's limit has none."""
    if p.limited_by == "model":
        return Smallest(memory_fraction=None, kv_memory=None, engine=p.setting.engine)
    fraction = None
    if engine(p.setting.engine).reserves and p.hardware is not None:
        at = 1 + last(STEPS, lambda n: n > 0 and not _fits(p, or_unfree=True, memory_fraction=n / STEPS, kv_memory=None))
        fraction = at / STEPS if at <= STEPS and _fits(p, memory_fraction=at / STEPS, kv_memory=None) else None
    return Smallest(memory_fraction=fraction, kv_memory=_smallest_pool(p), engine=p.setting.engine)


def _fits(p: CapacityPlan, or_unfree: bool = False, **changes: Any) -> bool:
    """A share that the engine refuses (TensorRT-LLM: all that is free) does not fit either. `or_unfree`: large enough, though not free beside
    what others hold, counts too: a larger share never helps that, so the search stays one of a rising answer."""
    try:
        after = replan(p, **changes)
        return after.fits or (or_unfree and after.limited_by == "free")
    except PlannerError:
        return False


def _smallest_pool(p: CapacityPlan) -> int | None:
    """A pool must hold the load of the fullest rank, and one request of the largest length where the engine checks that; where pools are
    split by the engine's own rule, the bytes are searched for."""
    if p.setting.context is not None:  # llama.cpp allocates what its context needs, however large the pool
        return None
    high = 4 * max(1, *p.footprint.per_rank_bytes, sum(q.bytes(1, p.setting.max_model_len, "admission") for q in p.pools))
    while not replan(p, kv_memory=high).fits:  # state slots for more sequences than the load has
        if high > MOST_BYTES:
            return None
        high *= 4
    return 1 + last(high - 1, lambda n: n > 0 and not replan(p, kv_memory=n).fits)

"""What would make a plan that does not fit fit: each remedy is a real plan of its own, never a rule of thumb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.capacity import CapacityPlan, replan
from planner.errors import PlannerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """`changes`: the options to take over; `after`: the plan that they give."""

    code: str
    changes: tuple[tuple[str, Any], ...]
    after: CapacityPlan

    @property
    def text(self) -> str:
        from planner.messages import render

        return render(f"remedy.{self.code}", dict(self.changes))

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "text": self.text,
            "changes": dict(self.changes),
            "fits": self.after.fits,
            "shortfall_bytes": self.after.shortfall_bytes,
            "max_sequences": self.after.max_sequences,
            "kv_pool_bytes": self.after.kv_pool_bytes,
        }


def remedies(p: CapacityPlan) -> list[Remedy]:
    """Changes that make `p` fit, or failing that lower its shortfall; fitting ones first, the smallest change before the larger.
    A plan that fits gets none."""
    if p.fits:
        return []
    found = []
    for code, changes in _candidates(p):
        try:
            after = replan(p, **changes)
        except PlannerError:
            continue  # this engine or model does not allow the change: no remedy
        if after.fits or 0 < after.shortfall_bytes < p.shortfall_bytes:
            found.append(Remedy(code=code, changes=tuple(changes.items()), after=after))
    return sorted(found, key=lambda r: not r.after.fits)


def _candidates(p: CapacityPlan) -> Iterator[tuple[str, dict[str, Any]]]:
    s, limit = p.scenario, p.model.max_context_tokens
    if limit and s.tokens > limit:
        yield "shorter", {"tokens": limit}
        return
    if p.limited_by == "start" and s.tokens < p.setting.max_model_len:
        yield "cap_length", {"max_model_len": s.tokens}
    if 0 < p.max_sequences < s.sequences:
        yield "fewer_sequences", {"sequences": p.max_sequences * p.replicas, "max_model_len": _length(p)}
    shorter = p.longest_tokens_for_load()
    if 0 < shorter < s.tokens:
        yield "shorter", {"tokens": shorter, "max_model_len": shorter}
    if p.setting.kv.element.block_bytes >= 2 * p.setting.kv.element.block_elements:
        yield "fp8_cache", {"kv_dtype": "fp8", "max_model_len": _length(p)}
    if s.kv_memory is not None:
        need = p.kv_pool_bytes + p.shortfall_bytes
        yield "larger_pool", {"kv_memory": need}
        return
    if s.weight_dtype is None and p.model.quantization is None and p.setting.model_dtype.block_bytes == 2:
        yield "fp8_weights", {"weight_dtype": "fp8", "max_model_len": _length(p)}
    if p.setting.engine == "vllm" and p.setting.memory_fraction < 0.95:
        yield "higher_fraction", {"memory_fraction": 0.95, "max_model_len": _length(p)}
    for factor in (2, 4, 8):
        ranks = p.setting.parallel.tensor * factor
        if ranks <= 16 and p.setting.engine == "vllm":
            yield "more_gpus", {"tp": ranks, "gpus": ranks * s.pp * p.replicas, "max_model_len": _length(p)}


def _length(p: CapacityPlan) -> int | None:
    """The largest length to start the engine with: the load's own where the model's whole context would stop the start."""
    return p.scenario.tokens if p.limited_by in ("start", "pool", "weights") and p.scenario.max_model_len is None else p.scenario.max_model_len

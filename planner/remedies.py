"""What would make a plan that does not fit fit: each remedy is a real plan of its own, never a rule of thumb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.cache import Rows, last
from planner.capacity import CapacityPlan, replan
from planner.engines import engine
from planner.errors import PlannerError
from planner.images import for_asked

SMALL_BATCH = 2048  # vLLM's own default on small devices (engine/arg_utils.py)
HIGH_FRACTION = 0.95  # beyond it the graphs that are captured after profiling were seen to run out of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """`changes`: the options to take over; `after`: the plan that they give."""

    code: str
    changes: tuple[tuple[str, Any], ...]
    after: CapacityPlan

    @property
    def text(self) -> str:
        """What to change, the companions of the main change named too."""
        from planner.messages import render

        said = render(f"remedy.{self.code}", dict(self.changes))
        rest = ", ".join(
            f"{name} {value}" for name, value in self.changes if name in ("max_model_len", "tokens") and self.code not in ("shorter", "cap_length")
        )
        return render("remedy.with", {"text": said, "rest": rest}) if rest else said

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
    """Changes that make `p` fit, or failing that lower its shortfall; fitting ones first, then by what is still missing.
    A plan that fits gets none."""
    if p.fits:
        return []
    found = []
    for code, changes in _candidates(p):
        changes = {k: v for k, v in changes.items() if v != getattr(p.scenario, k)}
        try:
            after = replan(p, **changes)
            if after.limited_by == "start" and p.limited_by != "start":  # the load now fits: do not let the largest length stop the start
                changes["max_model_len"] = after.scenario.tokens
                after = replan(p, **changes)
        except PlannerError:
            continue  # this engine or model does not allow the change: no remedy
        if after.fits or (after.limited_by != "model" and after.shortfall_bytes < p.shortfall_bytes):
            found.append(Remedy(code=code, changes=tuple(for_asked(p.asked, p.scenario, changes).items()), after=after))
    return sorted(found, key=lambda r: r.after.shortfall_bytes)  # those that fit miss nothing; the sort keeps their order


def _candidates(p: CapacityPlan) -> Iterator[tuple[str, dict[str, Any]]]:
    """(code, changes). A load beyond the model's limit is cut to it first, which is all that helps where the rest then fits."""
    s, e = p.scenario, engine(p.setting.engine)
    limit = min(s.tokens, p.model.max_context_tokens or s.tokens)
    cut: dict[str, Any] = {"tokens": limit, "max_model_len": limit if e.reserves else s.max_model_len, "shared_prefix": min(s.shared_prefix, limit)}
    if p.limited_by in ("model", "start"):
        yield "shorter" if limit < s.tokens else "cap_length", cut
    if p.limited_by != "model":
        cut = {}
    inside = replan(p, **cut)
    if inside.fits:
        return
    if 0 < inside.max_sequences < inside.sequences_per_replica:
        yield "fewer_sequences", cut | {"sequences": inside.total_max_sequences}
    shorter = inside.longest_tokens_for_load()
    if 0 < shorter < limit:
        yield "shorter", {"tokens": shorter, "max_model_len": shorter if e.reserves else None}
    slots = {g.kind for q in p.pools for g in q.groups} & {"state"} and s.engine == "trtllm"
    if slots and p.rank_sequences < p.setting.max_num_seqs:  # it takes states for its largest batch
        yield "fewer_slots", cut | {"max_num_seqs": p.rank_sequences}
    if s.engine == "trtllm" and not s.window_pools and any(k.limit_tokens for k, _ in p.model.cache_groups() if isinstance(k, Rows)):
        yield "window_pools", cut | {"window_pools": True}
    if s.engine == "transformers" and s.cache_implementation == "dynamic":
        yield "quantized_cache", cut | {"cache_implementation": "quantized"}
    if p.setting.kv.element.block_bytes >= 2 * p.setting.kv.element.block_elements:
        yield "fp8_cache", cut | {"kv_dtype": "fp8"}
    if p.setting.context is not None:
        yield from _llamacpp(p, cut)
        return
    if s.kv_memory is not None:
        yield "larger_pool", cut | {"kv_memory": p.kv_pool_bytes + inside.shortfall_bytes}
        return
    if s.weight_dtype is None and p.model.quantization is None and p.setting.model_dtype.block_bytes == 2:
        yield "fp8_weights", cut | {"weight_dtype": "fp8"}
        yield "fp8_both", cut | {"weight_dtype": "fp8", "kv_dtype": "fp8"}
        yield "int4_weights", cut | {"weight_dtype": "int4"}
    yield from _knobs(p, cut)
    if not e.many_ranks:
        return
    if p.setting.memory_fraction < HIGH_FRACTION:
        yield "higher_fraction", cut | {"memory_fraction": HIGH_FRACTION}
    for factor in (2, 4, 8):
        ranks = p.setting.parallel.tensor * factor
        if ranks <= 16:
            yield "more_gpus", cut | {"tp": ranks, "gpus": ranks * s.pp * p.replicas}


def _knobs(p: CapacityPlan, cut: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """vLLM's own: the batch that its start-up profile runs is charged before the pool, whatever the load is."""
    s, setting = p.scenario, p.setting
    if s.engine != "vllm":
        return
    if p.limited_by == "free" and p.hardware is not None:
        most = last(100, lambda n: n == 0 or replan(p, **cut, memory_fraction=n / 100).limited_by != "free")
        if most:
            yield "lower_fraction", cut | {"memory_fraction": most / 100}
        return
    if p.rank_sequences < setting.max_num_seqs:
        yield "fewer_profiled", cut | {"max_num_seqs": p.rank_sequences}
    if setting.max_num_batched_tokens > SMALL_BATCH:
        yield "smaller_batch", cut | {"max_num_batched_tokens": SMALL_BATCH}
        if p.rank_sequences < setting.max_num_seqs:
            yield "smaller_profile", cut | {"max_num_batched_tokens": SMALL_BATCH, "max_num_seqs": p.rank_sequences}


def _llamacpp(p: CapacityPlan, cut: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A quantized cache, and the most layers that the device can take."""
    if p.setting.kv.element.block_elements == 1:
        yield "q8_cache", cut | {"kv_dtype": "q8_0", "cache_type_k": None, "cache_type_v": None}
    if p.limited_by in ("pool", "weights"):
        most = last(len(p.model.layers), lambda n: replan(p, n_gpu_layers=n).fits)
        if most:
            yield "fewer_gpu_layers", cut | {"n_gpu_layers": most}
    if p.scenario.kv_memory is not None:
        yield "larger_pool", cut | {"kv_memory": p.kv_pool_bytes + p.shortfall_bytes}
    elif p.scenario.weight_dtype is None and p.model.quantization is None and p.setting.model_dtype.block_bytes == 2:
        yield "int4_weights", cut | {"weight_dtype": "int4"}

"""A start-up log made from a plan: what the Reconcile page shows before a log is there."""

from __future__ import annotations

from planner.capacity import CapacityPlan, replan
from planner.errors import PlannerError
from planner.messages import render
from planner.units import count, gib


def example(p: CapacityPlan) -> str | None:
    """What vLLM would print of this plan with another KV dtype (fp8, or bf16 where the plan has fp8), without a line that names the dtype:
    the figures of a re-planned plan, in the sentences of vLLM's V1 engine. None where the engine, or this plan, prints no such lines."""
    if p.setting.engine != "vllm":
        return None
    try:
        other = replan(p, kv_dtype="bf16" if p.setting.kv.name == "fp8" else "fp8")
    except PlannerError:
        other = p
    if not other.kv_tokens or not other.kv_pool_bytes or other.max_concurrency is None:
        return None
    s = other.setting
    args = {
        "version": s.version,
        "length": s.max_model_len,
        "lengths": count(s.max_model_len),
        "tp": s.parallel.tensor,
        "pp": s.parallel.pipeline,
        "weights": gib(other.weights_bytes_per_rank[other.binding_rank]),
        "pool": gib(other.kv_pool_bytes),
        "tokens": count(other.kv_tokens),
        "many": f"{other.max_concurrency:.2f}",
    }
    return render("log.example", args)

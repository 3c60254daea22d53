"""A start-up log made from a plan: what the Reconcile page shows before a log is there."""

from __future__ import annotations

from planner.capacity import CapacityPlan, replan
from planner.errors import PlannerError
from planner.units import count, gib

# What vLLM's V1 engine prints (0.11 to 0.33; its words, not ours), in this order.
LINES = (
    "INFO [core.py] Initializing a V1 LLM engine (v{version}) with config: max_seq_len={length}, tensor_parallel_size={tp}, pipeline_parallel_size={pp}\n"
    "INFO [gpu_model_runner.py] Model loading took {weights} memory and 10.0 seconds\n"
    "INFO [gpu_worker.py] Available KV cache memory: {pool}\n"
    "INFO [kv_cache_utils.py] GPU KV cache size: {tokens} tokens\n"
    "INFO [kv_cache_utils.py] Maximum concurrency for {lengths} tokens per request: {many}x\n"
)


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
        "length": count(s.max_model_len),
        "lengths": count(s.max_model_len),
        "tp": s.parallel.tensor,
        "pp": s.parallel.pipeline,
        "weights": gib(other.weights_bytes_per_rank[other.binding_rank]),
        "pool": gib(other.kv_pool_bytes),
        "tokens": count(other.kv_tokens),
        "many": f"{other.max_concurrency:.2f}",
    }
    return LINES.format(**args)

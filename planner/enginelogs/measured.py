"""What a log measured, as choices of a plan: the same server planned with its own figures instead of fitted constants."""

from __future__ import annotations

from typing import Any

from planner.enginelogs.compare import pool_figure
from planner.enginelogs.reader import LogReading
from planner.scenario import OPTIONS

# figure -> option that takes its bytes, for each rank; only those that a Scenario has are taken.
_PER_RANK = {"activation_bytes": "activation_bytes", "non_torch_bytes": "non_torch_bytes", "cuda_graphs_bytes": "cuda_graphs_bytes"}


def measured_options(log: LogReading) -> dict[str, Any]:
    """Option -> value: the pool that the log prints, the weights of all ranks, and what a Scenario takes of the rest. Empty where the log
    measured nothing that a plan can use."""
    out: dict[str, Any] = {}
    pool = pool_figure(log)
    if pool is not None and pool.value > 0 and log.engine != "llamacpp":
        out["kv_memory"] = pool.value
    weights = log.value("weights_bytes")
    if weights and weights > 0:
        ranks = (log.flag("tp") or 1) * (log.flag("pp") or 1)
        out["weight_bytes"] = weights * ranks if log.engine != "llamacpp" else weights
    free, total = log.value("free_memory_bytes"), log.value("total_memory_bytes")
    if free is not None and total is not None and 0 < free < total:
        out["used_memory_bytes"] = total - free
    for figure, option in _PER_RANK.items():
        value = log.value(figure)
        if value and value > 0:
            out[option] = value
    return {name: value for name, value in out.items() if name in OPTIONS}

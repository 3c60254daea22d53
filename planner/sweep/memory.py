"""What plan() says of memory, for whole arrays of lengths and batches of one combination: the same terms, pools and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.cache import Pool
from planner.capacity import CapacityPlan
from planner.engines import engine

LIMITS = ("", "model", "free", "slots", "weights", "pool", "start")
"""`limited_by` by number, in the order in which plan() asks; 0: it fits."""
WIDE = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`limited`: an index of LIMITS. `kv_bytes`: of the whole load over all replicas. `max_sequences`: over all replicas."""

    limited: Any
    kv_bytes: Any
    max_sequences: Any


def memory(p: CapacityPlan, tokens: Any, sequences: Any) -> Memory:
    """At `tokens` (a column) and `sequences` (a row) of a combination whose plan at any of its loads is `p`, where neither the setting nor
    the pools hang on the load. Arrays that broadcast to (lengths, sequences)."""
    par, pool_bytes, prefix = p.setting.parallel, p.kv_pool_bytes, p.footprint.prefix_tokens
    if total_bytes(p, int(tokens.max()), -(-int(sequences.max()) // p.replicas)) >= WIDE:
        tokens, sequences = tokens.astype(object), sequences.astype(object)
    per_replica = -(-sequences // p.replicas)
    rank = -(-per_replica // par.attention_data)
    parts = p.parts if p.sizes and pool_bytes > 0 else ((p.pools, pool_bytes),)
    over = False
    for pools, size in parts:
        over = over | (sum(pool.bytes(rank, tokens, prefix=prefix) for pool in pools) > size)
    beyond = _beyond(p, tokens)
    rules = (beyond, _unfree(p) > 0, False, pool_bytes <= 0, over, _start(p))
    limited = np.zeros(np.broadcast_shapes(tokens.shape, sequences.shape), dtype=np.int8)
    for code in range(len(rules), 0, -1):
        limited = np.where(rules[code - 1], np.int8(code), limited)
    by_part = [_most(pools, tokens, max(0, size), prefix) for pools, size in parts]
    most: Any = by_part[0]
    for other in by_part[1:]:
        most = np.minimum(most, other)
    return Memory(limited=limited, kv_bytes=total_bytes(p, tokens, per_replica) * p.replicas, max_sequences=most * par.attention_data * p.replicas)


def total_bytes(p: CapacityPlan, tokens: Any, per_replica: Any) -> Any:
    """Bytes of one replica's sequences over all its ranks (`Footprint.engine_bytes`): attention groups take sequences in turn."""
    par, prefix = p.setting.parallel, p.footprint.prefix_tokens
    each, rest = per_replica // par.attention_data, per_replica % par.attention_data
    total: Any = 0
    for pools in p.footprint.allocation.stages:
        held = sum(pool.bytes(each, tokens, prefix=prefix) for pool in pools) * (par.attention_data - rest)
        if par.attention_data > 1:
            held = held + sum(pool.bytes(each + 1, tokens, prefix=prefix) for pool in pools) * rest
        total = total + held * par.attention_ranks
    return total


def _beyond(p: CapacityPlan, tokens: Any) -> Any:
    longest, limit = p.setting.max_model_len, p.setting.longest_possible or p.model.max_context_tokens
    out = tokens > longest
    if limit is not None:
        out = out | (tokens > limit) | (engine(p.setting.engine).reserves and longest > limit)
    return out


def _unfree(p: CapacityPlan) -> int:
    check = engine(p.setting.engine).start_check
    if check is None or p.hardware is None or p.scenario.kv_memory is not None:
        return 0
    return check(p.model, p.hardware, p.scenario, p.setting)[0]


def _start(p: CapacityPlan) -> bool:
    """Whether the engine refuses to start because one request of its largest length does not fit."""
    e = engine(p.setting.engine)
    if not e.reserves or e.sizes is not None:
        return False
    return bool(sum(pool.alone().bytes(1, p.setting.max_model_len, "admission") for pool in p.pools) > p.kv_pool_bytes)


def _most(pools: tuple[Pool, ...], tokens: Any, budget_bytes: int, prefix: int) -> Any:
    """As `planner.cache.max_sequences`, for an array of lengths."""
    none, one, two = (sum(p.bytes(n, tokens, prefix=prefix) for p in pools) + tokens * 0 for n in (0, 1, 2))
    each = two - one
    room = budget_bytes - (one - each)
    found = np.maximum(room // np.where(each > 0, each, 1), 0)
    return np.where((each > 0) & (none <= budget_bytes), found, 0)

"""The ledger of one rank with the load in it: what comes off before the pool, the load's rows, what blocks add, what is free."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from planner.budget import Budget
from planner.cache import Pool
from planner.engines.architecture import ideal_pools
from planner.engines.settings import LedgerLine, Sizes
from planner.fan import like
from planner.footprint import Footprint
from planner.model import ModelSpec


def ledger(
    model: ModelSpec,
    foot: Footprint,
    b: Budget | None,
    pools: tuple[Pool, ...],
    pool_bytes: int,
    load: int,
    sequences: int,
    tokens: int,
    stage: int,
    sizes: Sizes | None = None,
) -> tuple[LedgerLine, ...]:
    """Lines of one rank: before the pool, the load's own rows (those of a shared prefix once), what blocks and groups add, what is free,
    the rest below a block. Their sum is the device's memory (with `kv_memory`: the pool) to the byte."""
    setting, prefix = foot.setting, foot.prefix_tokens
    layers = foot.allocation.device_layers or setting.parallel.stage_layers(len(model.layers), model.drafts)[stage]
    held = partial(ideal_pools, parallel=setting.parallel, layers=layers, encoder_tokens=setting.encoder_tokens)
    fan = partial(like, samples=pools[0].samples, prompt=pools[0].prompt)
    rows = sum(fan(p).bytes(sequences, tokens, prefix=prefix) for p in held(model, setting.kv, setting.model_dtype))
    scales, only = 0, setting.kv.scales()
    if only:
        row_pools = (replace(p, groups=tuple(g for g in p.groups if g.kind != "state")) for p in held(model, only, setting.model_dtype))
        scales = sum(fan(p).bytes(sequences, tokens, prefix=prefix) for p in row_pools)
    remainder = pool_bytes % pools[0].block_bytes if pools[0].priced == "pooled" and pools[0].block_bytes and pool_bytes > 0 else 0
    if sizes is not None:
        remainder = max(0, pool_bytes) - sum(sizes.shares)
    lines = [
        LedgerLine(code="kv_rows_once" if prefix else "kv_rows", bytes=rows - scales, kind="derived"),
        LedgerLine(code="kv_scales", bytes=scales, kind="derived", args=(("kv_dtype", setting.kv.name),)),
        LedgerLine(code="kv_blocks", bytes=load - rows, kind="derived"),
        LedgerLine(code="kv_free", bytes=pool_bytes - load - remainder, kind="derived"),
        LedgerLine(code="kv_remainder", bytes=remainder, kind="derived"),
    ]
    return (*(b.before if b else ()), *(line for line in lines if line.bytes or line.code not in ("kv_remainder", "kv_scales")))

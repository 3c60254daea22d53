"""How many sequences a pool holds: as the planner's inverse says, and as sequences find that are added until blocks run out. No torch.

The pool is one of block tables without pages: who gets a block does not depend on what lies in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_probe.pool import BlockPool, PoolExhausted
from planner.cache import Pool
from planner.engines.probe import largest_batch

MOST_BLOCKS, AT_LEAST = 5_000, 4
"""Of one pool: what a moment of plain Python can hand out; but so many sequences, however long they are."""


def capacity(pools: Sequence[Pool], *, tokens: int, block_size: int, budget_bytes: int, seed: int = 0) -> dict[str, Any]:
    """The largest batch of sequences of `tokens` tokens, nothing shared, in at most `budget_bytes`: predicted and found.

    ``{"tokens", "pool_bytes", "pool_blocks", "predicted", "found", "left_bytes", "unused_fraction"}``. `left_bytes`: of free blocks at
    the end, too few for one more sequence; `unused_fraction`: of the whole pool, with the empty slots of last blocks.
    """
    blocks = _blocks(pools, tokens, budget_bytes)
    tables = [BlockPool.of(pool.groups[0], n, block_size, seed=seed + j) for j, (pool, n) in enumerate(zip(pools, blocks, strict=True))]
    found = _fill(tables, tokens)
    units = [pool.groups[0].bytes_per_unit() for pool in pools]
    size = sum(n * unit for n, unit in zip(blocks, units, strict=True))
    left = sum(table.free() * unit for table, unit in zip(tables, units, strict=True))
    return {
        "tokens": tokens, "pool_bytes": size, "pool_blocks": blocks, "predicted": largest_batch(pools, blocks, tokens), "found": found,
        "left_bytes": left, "unused_fraction": (left + found * sum(_empty(pool, tokens) for pool in pools)) / size,
    }  # fmt: skip


def _blocks(pools: Sequence[Pool], tokens: int, budget_bytes: int) -> list[int]:
    """The budget over the groups, by what a sequence of `tokens` tokens holds in each; at least one block each."""
    need = [pool.bytes(1, tokens) for pool in pools]
    shares = [budget_bytes * n / sum(need) / pool.groups[0].bytes_per_unit() for n, pool in zip(need, pools, strict=True)]
    most = max(MOST_BLOCKS, *(AT_LEAST * int(pool.groups[0].resident.units(tokens)) for pool in pools))
    shrink = min(1.0, most / max(shares))
    return [max(1, int(share * shrink)) for share in shares]


def _empty(pool: Pool, tokens: int) -> int:
    """Bytes of a sequence's blocks that no row of it lies in."""
    (group,) = pool.groups
    if not pool.block_size:
        return 0
    return group.bytes_per_unit() // pool.block_size * (-tokens % pool.block_size)


def _fill(tables: Sequence[BlockPool], tokens: int) -> int:
    """Adds sequences, each in all pools, as they arrive in pieces; returns how many had room to the end."""
    sequence = 0
    while True:
        try:
            for table in tables:
                table.add(sequence)
                table.extend(sequence, tokens)
        except PoolExhausted:
            for table in tables:
                if sequence in table.tables:
                    table.release(sequence)
            return sequence
        sequence += 1

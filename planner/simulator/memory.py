"""The pool as a scheduler sees it: what a sequence of so many tokens takes, in whole blocks, of each part of the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cache import Pool
from planner.capacity import CapacityPlan

RESERVED = frozenset(("trtllm", "transformers", "llamacpp"))
"""Engines that admit a request only when its whole length is free (TensorRT-LLM's default policy, guaranteed_no_evict; caches that are
made at start, or that nothing can be taken out of): they never preempt. Others take blocks as sequences grow, and preempt."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One stream's share of a rank's pools. `parts`: (pools, free bytes once shared blocks and null blocks are taken). `slots`: the most
    sequences where the memory was cut into slots at start, else None. `blocks`: of the pool, None where it has none."""

    parts: tuple[tuple[tuple[Pool, ...], int], ...]
    prefix: int
    slots: int | None
    blocks: int | None
    reserve: bool

    def need(self, tokens: np.ndarray) -> np.ndarray:
        """Bytes of sequences of `tokens` tokens each, an array of (parts, sequences): what each adds to those that are there."""
        out = np.zeros((len(self.parts), len(tokens)), dtype=np.int64)
        if self.slots is not None:
            return out
        for i, (pools, _) in enumerate(self.parts):
            for p in pools:
                out[i] += p.bytes(2, tokens, prefix=self.prefix) - p.bytes(1, tokens, prefix=self.prefix)
        return out

    def left(self, held: np.ndarray) -> np.ndarray:
        """Free bytes of each part when `held` (parts, sequences) is taken; negative: too much."""
        sizes = np.array([size for _, size in self.parts], dtype=np.int64)
        return np.asarray(sizes - held.sum(axis=1))

    def used(self, held: np.ndarray) -> float:
        """The fullest part's share that is taken."""
        return max((float(h) / size if size > 0 else 1.0 for h, (_, size) in zip(held.sum(axis=1), self.parts, strict=True)), default=0.0)


def memory_of(p: CapacityPlan, pipes: int) -> Memory | None:
    """Of the plan's binding rank; None where nothing is left for a pool. Micro-batches of a pipeline share the pool evenly."""
    prefix = p.footprint.prefix_tokens
    slotted = any(q.slots for q in p.pools)
    parts = []
    for pools, size in p.parts:
        first = max(prefix + 1, 1)
        once = 0 if slotted else sum(2 * q.bytes(1, first, prefix=prefix) - q.bytes(2, first, prefix=prefix) for q in pools)
        free = (size - once) // pipes
        if free <= 0:
            return None
        parts.append((pools, free))
    blocks = p.num_blocks // pipes if p.num_blocks is not None else None
    return Memory(parts=tuple(parts), prefix=prefix, slots=max(0, p.max_sequences) if slotted else None, blocks=blocks,
                  reserve=p.setting.engine in RESERVED)  # fmt: skip

"""What a backend of paged decode attention is asked, and what it is given. One query token a sequence.

Letters: B batch, H query heads, K kv heads, G = H / K, D head_dim of a key row, N blocks, P block_size, M columns of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class BackendFailed(Exception):
    """A backend could not be made ready on this machine (no compiler, a build that failed): caught, and told as a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The attention of one layer. `latent`: one row serves as key and value, whose first `v_dim` numbers are the value (absorbed MLA,
    kv_heads 1). `storage`: dtype of the pages; `compute`: dtype of the queries and of the answer. `limited`: a window or a chunk."""

    q_heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    block_size: int
    storage: torch.dtype
    compute: torch.dtype
    latent: bool = False
    limited: bool = False
    softcap: bool = False
    sinks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Which tokens each sequence reads: begins[b] <= t < ends[b], counted from the first block of its row in `table` [B, M] (physical
    block ids, any integer dtype, padded by 0). Windows and chunks are in `begins`; begins == ends is a sequence without tokens, whose
    answer is zeros. `scale` multiplies the scores; then softcap * tanh(score / softcap); `sinks` [K, G]: one more logit a head in the
    softmax's sum, without a value (gpt-oss)."""

    table: Tensor
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None


class Backend(Protocol):
    """`decode` may keep scratch: an instance belongs to one process and one thread."""

    name: str

    def supports(self, job: Job, device: torch.device) -> str | None:
        """None, or why not, in a few words. Raises BackendFailed where finding out needs a build and the build failed."""
        ...

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        """q [B, K, G, D], keys [N, P, K, D], values [N, P, K, v_dim] or None -> [B, K, G, v_dim] in q's dtype."""
        ...


def reference(q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
    """The same in float64 on the host, token rows picked by their block and slot: it shares no code with any backend."""
    q, keys, table = q.cpu().double(), keys.cpu().to(torch.float32).double(), reads.table.cpu().tolist()
    values = keys[..., :v_dim] if values is None else values.cpu().to(torch.float32).double()
    out = torch.zeros(*q.shape[:3], v_dim, dtype=torch.float64)
    size = keys.shape[1]
    for b, (lo, hi) in enumerate(zip(reads.begins, reads.ends, strict=True)):
        if lo >= hi:
            continue
        blocks, slots = [table[b][t // size] for t in range(lo, hi)], [t % size for t in range(lo, hi)]
        k, v = keys[blocks, slots], values[blocks, slots]
        scores = torch.einsum("kgd,skd->kgs", q[b], k) * reads.scale
        if reads.softcap:
            scores = reads.softcap * torch.tanh(scores / reads.softcap)
        if reads.sinks is not None:
            scores = torch.cat([scores, reads.sinks.cpu().double()[..., None]], -1)
        out[b] = torch.einsum("kgs,skd->kgd", torch.softmax(scores, -1)[..., : hi - lo], v)
    return out

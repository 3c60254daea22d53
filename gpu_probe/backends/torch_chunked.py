"""Chunked gather in torch: a few hundred tokens at a time into scratch that is kept, parts merged by their log-sum-exp.

Gathering the whole cache makes a fresh allocation of its size at each step; a chunk stays in the processor's cache. The G query heads
of a KV head are handed over as G query rows, `[1, K, G, D]`: SDPA's enable_gqa is several times slower on a CPU for one token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_probe.backends.base import Job, Reads
from gpu_probe.cache import bits

CHUNK_TOKENS = 256
FLASH_ARGUMENTS = ("query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")


def flash_op() -> object | None:
    """torch's CPU flash op that returns the log-sum-exp too. It is private, so it is taken only with the signature known here."""
    packet = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    try:
        schema = packet.default._schema  # type: ignore[union-attr]
    except AttributeError:
        return None
    names, answers = tuple(a.name for a in schema.arguments), len(schema.returns)
    return packet if names == FLASH_ARGUMENTS and answers == 2 else None


class TorchChunked:
    """`use_flash` False: two products a chunk, the only way with a softcap, and for latent rows (key and value differ in width)."""

    name = "torch-chunked"

    def __init__(self, *, use_flash: bool = True, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self._flash = flash_op() if use_flash else None
        self._chunk_tokens = chunk_tokens
        self._scratch: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}

    def supports(self, job: Job, device: torch.device) -> str | None:
        return None if device.type == "cpu" else "host only"

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        """See `base.Backend`."""
        out = torch.zeros(*q.shape[:3], v_dim, dtype=q.dtype)
        size = keys.shape[1]
        table = reads.table.to(torch.int64)
        step = max(1, self._chunk_tokens // size)
        flash = self._flash if not reads.softcap and values is not None and values.shape[-1] == keys.shape[-1] else None
        for b, (lo, hi) in enumerate(zip(reads.begins, reads.ends, strict=True)):
            outs, weights = [], []
            for c in range(lo // size, -(-hi // size) if hi > lo else 0, step):
                blocks = table[b, c : min(c + step, -(-hi // size))]
                span = slice(max(lo - c * size, 0), min(hi - c * size, len(blocks) * size))
                k = self._gathered("k", keys, blocks, step, q.dtype)[span].transpose(0, 1)
                v = k[..., :v_dim] if values is None else self._gathered("v", values, blocks, step, q.dtype)[span].transpose(0, 1)
                o, lse = self._flashed(flash, q[b], k, v, reads.scale) if flash is not None else _products(q[b], k, v, reads)
                outs.append(o)
                weights.append(lse)
            if outs:
                out[b] = _merged(outs, weights, reads.sinks).to(q.dtype)
        return out

    def _flashed(self, flash: object, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        o, lse = flash(q[None], k[None], v[None], scale=scale)  # type: ignore[operator]
        return o[0], lse.reshape(q.shape[0], q.shape[1]).float()

    def _gathered(self, which: str, pages: Tensor, blocks: Tensor, most: int, dtype: torch.dtype) -> Tensor:
        """pages [N, P, K, D], blocks [m] -> [m * P, K, D] in `dtype`, valid until the next call for the same `which`."""
        raw = bits(pages)
        key = (which, raw.dtype, pages.dtype, dtype, most, *pages.shape[1:])
        if key not in self._scratch:
            stored = torch.empty(most, *pages.shape[1:], dtype=raw.dtype)
            self._scratch[key] = (stored, stored if pages.dtype == dtype else torch.empty(most, *pages.shape[1:], dtype=dtype))
        stored, wide = self._scratch[key]
        m = len(blocks)
        torch.index_select(raw, 0, blocks, out=stored[:m])
        if wide is not stored:
            wide[:m].copy_(stored[:m].view(pages.dtype))
        return wide[:m].flatten(0, 1)


def _products(q: Tensor, k: Tensor, v: Tensor, reads: Reads) -> tuple[Tensor, Tensor]:
    """q [K, G, D], k and v [K, S, ...] -> the chunk's own softmax average [K, G, v_dim] and its log-sum-exp [K, G]."""
    scores = (q @ k.mT).float() * reads.scale
    if reads.softcap:
        scores = reads.softcap * torch.tanh(scores / reads.softcap)
    lse = torch.logsumexp(scores, -1)
    return torch.exp(scores - lse[..., None]).to(q.dtype) @ v, lse


def _merged(outs: list[Tensor], lse: list[Tensor], sinks: Tensor | None) -> Tensor:
    """Chunks' averages [K, G, v_dim], weighted by the softmax of their log-sum-exps [K, G]; a sink takes its share and adds nothing."""
    if len(outs) == 1 and sinks is None:
        return outs[0]
    shares = torch.softmax(torch.stack([*lse, *([] if sinks is None else [sinks.float()])]), 0)[: len(outs)]
    return (torch.stack(outs).float() * shares[..., None]).sum(0)

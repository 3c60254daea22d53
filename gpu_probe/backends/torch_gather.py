"""The reference that runs everywhere: all rows of a sequence are gathered, then one plain softmax in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_probe.backends.base import Job, Reads
from gpu_probe.cache import gather


class TorchGather:
    """One sequence at a time; working memory grows with its length."""

    name = "torch-gather"

    def supports(self, job: Job, device: torch.device) -> str | None:
        return None

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        """See `base.Backend`."""
        out = torch.zeros(*q.shape[:3], v_dim, dtype=q.dtype, device=q.device)
        size = keys.shape[1]
        for b, (lo, hi) in enumerate(zip(reads.begins, reads.ends, strict=True)):
            if lo >= hi:
                continue
            first = lo // size
            blocks = reads.table[b : b + 1, first : -(-hi // size)].to(torch.int64)
            span = slice(lo - first * size, hi - first * size)
            k = gather(keys, blocks, q.dtype)[0, span].transpose(0, 1)
            v = k[..., :v_dim] if values is None else gather(values, blocks, q.dtype)[0, span].transpose(0, 1)
            scores = (q[b].float() @ k.float().mT) * reads.scale
            if reads.softcap:
                scores = reads.softcap * torch.tanh(scores / reads.softcap)
            if reads.sinks is not None:
                scores = torch.cat([scores, reads.sinks.float()[..., None]], -1)
            weights = torch.softmax(scores, -1)[..., : hi - lo]
            out[b] = (weights @ v.float()).to(q.dtype)
        return out

"""The proof: logits of the paged run against full recomputation, and absorbed MLA against expanded, over the same live cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_probe import reference
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import gather
from gpu_probe.model import Decoder
from gpu_probe.session import Trace
from planner.notes import Note, note

TOLERANCE = 1e-4
WORST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """`error`: of the logits. `absorbed`: of MLA absorbed against expanded; None without such a layer. `accuracy`: of a narrow cache
    against bf16, of `accuracy.against_bf16`; None for a wide one. `facts`: on what run it was proved."""

    error: float
    absorbed: float | None
    accuracy: dict[str, Any] | None
    facts: dict[str, Any]
    how: tuple[Note, ...]

    @property
    def notes(self) -> list[Note]:
        """How it was proved, and what is not as it must be."""
        found = list(self.how)
        if not self.error <= TOLERANCE or (self.absorbed is not None and not self.absorbed <= TOLERANCE):
            found.append(note("warning", "probe_proof_failed", error=f"{max(self.error, self.absorbed or 0.0):.1e}", tolerance=f"{TOLERANCE:.0e}"))
        a = self.accuracy
        if a is not None and not a["error"] <= a["tolerance"]:
            found.append(note("warning", "probe_accuracy_failed", kv=a["kv_dtype"], error=f"{a['error']:.2g}", tolerance=a["tolerance"]))
        return found


@torch.no_grad()
def logits_error(decoder: Decoder, trace: Trace) -> float:
    """Largest difference, divided by the largest logit, over the prefill's last token and every decode step.

    The reference sees the whole sequence at once and nothing of the cache.
    """
    steps = len(trace.logits)
    expected = reference.full_logits(decoder.shape, decoder.weights, trace.tokens)[:, -steps:]
    return relative_error(torch.stack(trace.logits, 1), expected)


@torch.no_grad()
def absorption_error(decoder: Decoder, attention: PagedAttention, tokens: int, *, seed: int) -> float | None:
    """For each MLA layer: a random query at the last position of sequence 0 against the rows in the cache, once absorbed by the paged
    path and once with keys and values expanded for every head. None: no such layer."""
    generator = torch.Generator(device=decoder.device).manual_seed(seed)
    cache, worst = attention.cache, None
    attention.begin([0], [tokens - 1], 1)
    for layer, w in zip(decoder.shape.layers, decoder.weights.layers, strict=True):
        a = layer.attention
        if a is None or a.kv_rank is None or layer.rows is None:
            continue
        group = cache.group_of[layer.index]
        table = group.pool.tables[0]
        first = table.first * cache.block_size
        rows = gather(group.layers[layer.index].keys, torch.tensor([table.blocks], device=decoder.device), torch.float32)[0, : tokens - first, 0]
        limit = layer.rows.limit_tokens
        rows = rows if limit is None else rows[-limit:]
        q = torch.empty(1, 1, a.q_heads, a.qk_dim, device=decoder.device).normal_(generator=generator) * 2
        k, v = reference.expand(rows[:, : a.kv_rank], rows[:, None, a.kv_rank :], w["kv_b"].float(), a.q_heads, a.nope_dim)
        expanded = reference.softmax_attention(q[0], k, v, None, None, first_query=rows.shape[0] - 1)
        kv_b = w["kv_b"].view(a.q_heads, a.nope_dim + a.v_dim, a.kv_rank)
        absorbed = attention.read_latent(layer, q[..., : a.nope_dim], q[..., a.nope_dim :], kv_b)[0]
        worst = max(worst or 0.0, relative_error(absorbed, expanded))
    return worst


def relative_error(got: Tensor, expected: Tensor) -> float:
    """max |got - expected| / max |expected|; a NaN or an infinity counts as `WORST`, which JSON can carry."""
    error = ((got - expected).abs().max() / expected.abs().max()).item()
    return min(error, WORST) if error == error else WORST

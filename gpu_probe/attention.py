"""Attention over pages: write the new rows, then read block by block through the table and merge by the log-sum-exp.

Nothing is gathered whole: a few hundred tokens at a time, so working memory does not grow with the context. MLA never expands its
rows: the query is multiplied into the latent space instead (absorption), where all heads share one row.
Letters: B batch, T query tokens, S tokens of a chunk, H query heads, K kv heads, G = H / K, D head_dim, R latent rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gpu_probe.cache import CacheGroup, PagedCache, Pages, View, gather, write
from gpu_probe.fit import CHUNK_TOKENS, SCRATCH_BYTES
from gpu_probe.shapes import LayerShape
from planner.cache import Rows

BACKEND = "torch-chunked"


class PagedAttention:
    """The `Attend` that runs over a `PagedCache`. `begin` before each forward; one forward is one step for all `sequences`."""

    def __init__(self, cache: PagedCache) -> None:
        self.cache = cache
        self.bytes_gathered = 0
        self._views: dict[int, View] = {}

    def begin(self, sequences: Sequence[int], starts: Sequence[int], count: int, *, prefill: bool = False) -> None:
        self._views = self.cache.views(sequences, starts, count, prefill=prefill)
        self.bytes_gathered = 0

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        """MHA, GQA and MQA; see `model.Attend`."""
        group, pages, view = self._of(layer)
        if k is not None and v is not None and pages.values is not None:
            write(pages.keys, view.slots, k)
            write(pages.values, view.slots, v)
        b, t, h, d = q.shape
        grouped = q.view(b, t, group.rows.heads, h // group.rows.heads, d)
        parts = [self._attend(grouped[:, i:j], group.rows, pages, view, i, d**-0.5) for i, j in pieces(b, t, h)]
        return torch.cat(parts, 1).reshape(b, t, h, group.rows.v_dim).to(q.dtype)

    def latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, row: Tensor, kv_b: Tensor) -> Tensor:
        """MLA; see `model.Attend`."""
        _, pages, view = self._of(layer)
        write(pages.keys, view.slots, row.unsqueeze(2))
        return self.read_latent(layer, q_nope, q_rope, kv_b)

    def read_latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, kv_b: Tensor) -> Tensor:
        """The reading half of `latent`, both halves of kv_b absorbed: keys into the query, values into the output."""
        group, pages, view = self._of(layer)
        b, t, h, nope = q_nope.shape
        rank, scale = kv_b.shape[-1], (nope + q_rope.shape[-1]) ** -0.5
        up_k, up_v = kv_b[:, :nope], kv_b[:, nope:]
        parts = []
        for i, j in pieces(b, t, h):
            q = torch.cat([torch.einsum("bthn,hnr->bthr", q_nope[:, i:j], up_k), q_rope[:, i:j]], -1).unsqueeze(2)
            mixed = self._attend(q, group.rows, pages, view, i, scale, v_dim=rank).squeeze(2).to(q_nope.dtype)
            parts.append(torch.einsum("bthr,hvr->bthv", mixed, up_v))
        return torch.cat(parts, 1)

    def _of(self, layer: LayerShape) -> tuple[CacheGroup, Pages, View]:
        assert layer.reads is not None
        group = self.cache.group_of[layer.reads]
        return group, group.layers[layer.reads], self._views[self.cache.groups.index(group)]

    def _attend(self, q: Tensor, rows: Rows, pages: Pages, view: View, offset: int, scale: float, v_dim: int | None = None) -> Tensor:
        """q [B, T, K, G, D], its first token at view.starts[b] + offset -> float32 [B, T, K, G, v_dim]."""
        b, t, k_heads, g, d = q.shape
        size = self.cache.block_size
        stacked = q.permute(0, 2, 3, 1, 4).reshape(b, k_heads, g * t, d)  # a head's G * T queries read its rows together
        q_positions = torch.tensor(view.starts, device=q.device)[:, None] + offset + torch.arange(t, device=q.device)
        top = torch.full((b, k_heads, g * t, 1), -torch.inf, device=q.device)
        total, out = torch.zeros_like(top), torch.zeros(b, k_heads, g * t, v_dim or rows.v_dim, device=q.device)
        for lo, hi in self._chunks(rows, view, offset, t):
            blocks = view.table[:, lo:hi]
            keys = gather(pages.keys, blocks, q.dtype)
            values = keys[..., :v_dim] if pages.values is None else gather(pages.values, blocks, q.dtype)
            self.bytes_gathered += (keys.numel() + (0 if pages.values is None else values.numel())) * pages.keys.dtype.itemsize
            positions = (view.first_tensor[:, None] + lo) * size + torch.arange((hi - lo) * size, device=q.device)
            hidden = ~visible(rows, q_positions, positions)
            scores = (stacked @ keys.permute(0, 2, 3, 1)).float() * scale
            scores = scores.view(b, k_heads, g, t, -1).masked_fill_(hidden[:, None, None], -torch.inf).view(b, k_heads, g * t, -1)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            base = new_top.masked_fill(new_top == -torch.inf, 0.0)  # a chunk of which a query sees nothing yet must not give a NaN
            kept, weights = torch.exp(top - base), torch.exp(scores - base)
            total = total * kept + weights.sum(-1, keepdim=True)
            out = out * kept + (weights.to(q.dtype) @ values.transpose(1, 2)).float()
            top = new_top
        return (out / total).view(b, k_heads, g, t, -1).permute(0, 3, 1, 2, 4)

    def _chunks(self, rows: Rows, view: View, offset: int, t: int) -> Iterator[tuple[int, int]]:
        """Ranges of table columns that some query of this piece may see. Rows may differ in length: the widest range counts."""
        size = self.cache.block_size
        low = min(max(0, first_visible(rows, s + offset) // size - f) for s, f in zip(view.starts, view.first, strict=True))
        high = max((s + offset + t - 1) // size - f for s, f in zip(view.starts, view.first, strict=True)) + 1
        step = max(1, CHUNK_TOKENS // size)
        for lo in range(low, high, step):
            yield lo, min(lo + step, high)


def first_visible(rows: Rows, position: int) -> int:
    """The oldest position that a query at `position` sees."""
    if rows.window is not None:
        return max(0, position - rows.window + 1)
    return position // rows.chunk * rows.chunk if rows.chunk is not None else 0


def visible(rows: Rows, q_positions: Tensor, positions: Tensor) -> Tensor:
    """q_positions [B, T], positions [B, S] -> bool [B, T, S]: causal, and within the window or the chunk."""
    q, s = q_positions[:, :, None], positions[:, None, :]
    seen = s <= q
    if rows.window is not None:
        seen &= s > q - rows.window
    if rows.chunk is not None:
        seen &= s >= q.div(rows.chunk, rounding_mode="floor") * rows.chunk
    return seen


def pieces(b: int, t: int, h: int) -> Iterator[tuple[int, int]]:
    """Cuts T queries so that the float32 scores [B, H, piece, chunk] of one piece stay within the scratch."""
    step = max(1, SCRATCH_BYTES // (4 * b * h * CHUNK_TOKENS))
    for i in range(0, t, step):
        yield i, min(i + step, t)

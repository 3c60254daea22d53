"""Attention over pages: write the new rows, then read block by block through the table and merge by the log-sum-exp.

Nothing is gathered whole: a few hundred tokens at a time, so working memory does not grow with the context. MLA never expands its
rows: the query is multiplied into the latent space instead (absorption), where all heads share one row.
Letters: B batch, T query tokens, S tokens of a chunk, H query heads, K kv heads, G = H / K, D head_dim, R latent rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gpu_probe import backends
from gpu_probe.backends.base import Job, Reads
from gpu_probe.cache import CacheGroup, PagedCache, Pages, View
from gpu_probe.fit import CHUNK_TOKENS, SCRATCH_BYTES
from gpu_probe.recurrent import mix
from gpu_probe.shapes import LayerShape
from planner.cache import Rows

BACKEND = "torch-chunked"
"""What the loop in this module is: every prefill runs through it, and decode steps over pages with scales."""


class PagedAttention:
    """The `Attend` that runs over a `PagedCache`. `begin` before each forward; one forward is one step for all `sequences`.

    A step of one token a sequence runs on the backend that `backends.select` chooses for the layer; `forced`: on this one, or an error.
    """

    def __init__(self, cache: PagedCache, *, forced: str | None = None) -> None:
        self.cache, self.forced = cache, forced
        self.choices: dict[Job, backends.Choice] = {}
        self._reads: dict[tuple[object, ...], Reads] = {}
        self.bytes_gathered = 0
        self._views: dict[int, View] = {}

    def begin(self, sequences: Sequence[int], starts: Sequence[int], count: int, *, prefill: bool = False) -> None:
        self._views = self.cache.views(sequences, starts, count, prefill=prefill)
        self._reads.clear()
        self.bytes_gathered = 0

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        """MHA, GQA and MQA; see `model.Attend`."""
        group, pages, view = self._of(layer)
        if k is not None and v is not None and pages.values is not None:
            pages.write(view.slots, k, v)
        b, t, h, d = q.shape
        grouped = q.view(b, t, group.rows.heads, h // group.rows.heads, d)
        parts = [self._attend(grouped[:, i:j], group.rows, pages, view, i, d**-0.5) for i, j in pieces(b, t, h)]
        return torch.cat(parts, 1).reshape(b, t, h, group.rows.v_dim).to(q.dtype)

    def latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, row: Tensor, kv_b: Tensor) -> Tensor:
        """MLA; see `model.Attend`."""
        _, pages, view = self._of(layer)
        pages.write(view.slots, row.unsqueeze(2))
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

    def state(self, layer: LayerShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
        """A recurrent layer; see `model.Attend`. Each sequence's state is read, stepped over the new tokens and written back."""
        assert layer.state is not None
        group = self.cache.state_of[layer.index]
        pages, blocks = group.layers[layer.index], self._views[self.cache.groups.index(group)].slots
        held, gathered = pages.read(blocks)
        self.bytes_gathered += gathered
        out, held = mix(layer.state, w, x, held)
        pages.write(blocks, held)
        return out

    @property
    def backend(self) -> str:
        """The backends that ran the decode steps so far."""
        return ", ".join(sorted({choice.name for choice in self.choices.values()})) or BACKEND

    @property
    def backends_refused(self) -> tuple[dict[str, str], ...]:
        """Who was asked first and did not run: ``{"name", "reason"}``, each pair once."""
        found = {(r["name"], r["reason"]): r for choice in self.choices.values() for r in choice.refused}
        if not self.choices:
            order = backends.ORDER.get(self.cache.device.type, backends.ANYWHERE)
            return tuple({"name": name, "reason": "scales"} for name in order[: order.index(BACKEND) if BACKEND in order else len(order)])
        return tuple(found.values())

    def _decode(
        self, q: Tensor, rows: Rows, pages: Pages, view: View, at: Sequence[int], scale: float, v_dim: int, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """q [B, K, G, D], one token a sequence at the positions `at` -> [B, K, G, v_dim], by a backend."""
        _, k_heads, g, d = q.shape
        size = self.cache.block_size
        job = Job(
            q_heads=k_heads * g, kv_heads=k_heads, k_dim=d, v_dim=v_dim, block_size=size, storage=pages.keys.dtype, compute=q.dtype,
            latent=pages.values is None, limited=rows.limit_tokens is not None, softcap=bool(softcap), sinks=sinks is not None,
        )  # fmt: skip
        if job not in self.choices:
            self.choices[job] = backends.select(q.device, job, self.forced)
        key = (id(view), *at, rows.limit_tokens, rows.chunk, scale, softcap, id(sinks))
        if key not in self._reads:  # one for all layers of a step: a backend may keep what it made of it
            begins = tuple(max(0, first_visible(rows, p) - f * size) for p, f in zip(at, view.first, strict=True))
            ends = tuple(p + 1 - f * size for p, f in zip(at, view.first, strict=True))
            grouped = None if sinks is None else sinks.view(k_heads, g)
            self._reads[key] = Reads(table=view.table, begins=begins, ends=ends, scale=scale, softcap=softcap, sinks=grouped)
        reads = self._reads[key]
        blocks = sum(-(-hi // size) - lo // size for lo, hi in zip(reads.begins, reads.ends, strict=True))
        self.bytes_gathered += blocks * sum(t[0].numel() * t.dtype.itemsize for t in pages.tensors())
        return self.choices[job].backend.decode(q, pages.keys, pages.values, reads, v_dim)

    def _of(self, layer: LayerShape) -> tuple[CacheGroup, Pages, View]:
        assert layer.reads is not None
        group = self.cache.group_of[layer.reads]
        return group, group.layers[layer.reads], self._views[self.cache.groups.index(group)]

    def _attend(
        self, q: Tensor, rows: Rows, pages: Pages, view: View, offset: int, scale: float, v_dim: int | None = None,
        *, softcap: float | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """q [B, T, K, G, D], its first token at view.starts[b] + offset -> float32 [B, T, K, G, v_dim]. `softcap`: scores become
        softcap * tanh(score / softcap); `sinks` [K * G]: a score a head that takes its share of the softmax and gives no value."""
        b, t, k_heads, g, d = q.shape
        size = self.cache.block_size
        if t == 1 and not pages.scales():
            at = [start + offset for start in view.starts]
            return self._decode(q[:, 0], rows, pages, view, at, scale, v_dim or rows.v_dim, softcap, sinks)[:, None].float()
        stacked = q.permute(0, 2, 3, 1, 4).reshape(b, k_heads, g * t, d)  # a head's G * T queries read its rows together
        q_positions = torch.tensor(view.starts, device=q.device)[:, None] + offset + torch.arange(t, device=q.device)
        top = torch.full((b, k_heads, g * t, 1), -torch.inf, device=q.device)
        total, out = torch.zeros_like(top), torch.zeros(b, k_heads, g * t, v_dim or rows.v_dim, device=q.device)
        for lo, hi in self._chunks(rows, view, offset, t):
            blocks = view.table[:, lo:hi]
            keys, values, gathered = pages.read(blocks, q.dtype)
            values = keys[..., :v_dim] if values is None else values
            self.bytes_gathered += gathered
            positions = (view.first_tensor[:, None] + lo) * size + torch.arange((hi - lo) * size, device=q.device)
            hidden = ~visible(rows, q_positions, positions)
            scores = (stacked @ keys.permute(0, 2, 3, 1)).float() * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            scores = scores.view(b, k_heads, g, t, -1).masked_fill_(hidden[:, None, None], -torch.inf).view(b, k_heads, g * t, -1)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            base = new_top.masked_fill(new_top == -torch.inf, 0.0)  # a chunk of which a query sees nothing yet must not give a NaN
            kept, weights = torch.exp(top - base), torch.exp(scores - base)
            total = total * kept + weights.sum(-1, keepdim=True)
            out = out * kept + (weights.to(q.dtype) @ values.transpose(1, 2)).float()
            top = new_top
        if sinks is not None:
            sink = sinks.float().view(1, k_heads, g, 1).repeat_interleave(t, 2)
            new_top = torch.maximum(top, sink)
            kept = torch.exp(top - new_top)
            total, out = total * kept + torch.exp(sink - new_top), out * kept
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

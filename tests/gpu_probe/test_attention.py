"""Paged attention beside a dense computation in float64 that knows no blocks: odd sizes, block edges, window edges, ragged rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpu_probe import attention as module
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import CacheGroup, PagedCache, Pages
from gpu_probe.pool import BlockPool
from gpu_probe.shapes import LayerShape
from planner.cache import Rows
from planner.engines.probe import steady_blocks

CPU = torch.device("cpu")


def dense(q: Tensor, k: Tensor, v: Tensor, first: int, rows: Rows, scale: float) -> Tensor:
    """q [T, H, D] at positions first..., k [S, K, D], v [S, K, v_dim] -> [T, H, v_dim], number by number in float64."""
    t, h, _ = q.shape
    out = torch.zeros(t, h, v.shape[-1], dtype=torch.float64)
    for i in range(t):
        at = first + i
        low = 0
        if rows.window is not None:
            low = max(0, at - rows.window + 1)
        if rows.chunk is not None:
            low = at - at % rows.chunk
        for j in range(h):
            head = j * k.shape[1] // h
            scores = k[low : at + 1, head].double() @ q[i, j].double() * scale
            weights = torch.exp(scores - scores.max())
            out[i, j] = (weights / weights.sum()) @ v[low : at + 1, head].double()
    return out


def paged(rows: Rows, layer: LayerShape, block_size: int, blocks: int = 64) -> PagedAttention:
    keep = None if rows.limit_tokens is None else steady_blocks(rows.limit_tokens, block_size)
    pages = Pages(
        torch.full((blocks, block_size, rows.heads, rows.k_dim), 1e4),
        torch.full((blocks, block_size, rows.heads, rows.v_dim), 1e4) if rows.v_dim else None,
    )
    return PagedAttention(PagedCache([CacheGroup(rows, BlockPool(blocks, block_size, seed=5, keep_blocks=keep), {0: pages})], block_size, CPU))


def shape(rows: Rows) -> LayerShape:
    return LayerShape(index=0, hidden=8, rows=rows, reads=0, read_rows=rows, attention=None, mlp_width=0, gated=True)


@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize("lengths", [(1, 1), (16, 15), (17, 3), (33, 64)])
@pytest.mark.parametrize("limit", [{}, {"window": 1}, {"window": 16}, {"window": 17}, {"chunk": 12}])
def test_heads(monkeypatch: pytest.MonkeyPatch, block_size: int, lengths: tuple[int, int], limit: dict[str, int]) -> None:
    """Two rows of different length: each is prefilled alone, then both take two steps together."""
    monkeypatch.setattr(module, "CHUNK_TOKENS", 8)
    monkeypatch.setattr(module, "SCRATCH_BYTES", 4 * 6 * 8 * 5)  # pieces of five queries
    rows = Rows(heads=2, k_dim=8, v_dim=6, **limit)
    layer, g = shape(rows), torch.Generator().manual_seed(sum(lengths))
    attention = paged(rows, layer, block_size, blocks=200)
    attention.cache.add([0, 1])
    q, k, v = ([torch.randn(n + 2, h, d, generator=g) * 2 for n in lengths] for h, d in ((6, 8), (2, 8), (2, 6)))
    for b, n in enumerate(lengths):
        attention.begin([b], [0], n, prefill=True)
        got = attention.heads(layer, q[b][None, :n], k[b][None, :n], v[b][None, :n])[0]
        assert torch.allclose(got.double(), dense(q[b][:n], k[b][:n], v[b][:n], 0, rows, 8**-0.5), atol=2e-5)
    attention.cache.trim([0, 1])
    attention.cache.relocate()
    for step in range(2):
        at = [n + step for n in lengths]
        attention.begin([0, 1], at, 1)
        got = attention.heads(layer, *(torch.stack([x[b][at[b] : at[b] + 1] for b in (0, 1)]) for x in (q, k, v)))
        for b in (0, 1):
            want = dense(q[b][at[b] : at[b] + 1], k[b][: at[b] + 1], v[b][: at[b] + 1], at[b], rows, 8**-0.5)
            assert torch.allclose(got[b].double(), want, atol=2e-5)
    assert all(len(t.blocks) <= (attention.cache.groups[0].pool.keep_blocks or 999) for t in attention.cache.groups[0].pool.tables.values())


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40])
def test_latent_absorbed_equals_expanded_in_float64(n: int) -> None:
    rank, rope, nope, v_dim, h = 12, 4, 6, 5, 3
    rows = Rows(heads=1, k_dim=rank + rope, v_dim=0, shard="copy")
    layer, g = shape(rows), torch.Generator().manual_seed(n)
    attention = paged(rows, layer, 16)
    attention.cache.add([0])
    q_nope, q_rope = torch.randn(1, n + 1, h, nope, generator=g), torch.randn(1, n + 1, h, rope, generator=g)
    row, kv_b = torch.randn(1, n + 1, rank + rope, generator=g), torch.randn(h, nope + v_dim, rank, generator=g)
    wide = torch.einsum("sr,hdr->shd", row[0, :, :rank].double(), kv_b.double())
    k = torch.cat([wide[..., :nope], row[0, :, None, rank:].double().expand(-1, h, -1)], -1)
    q = torch.cat([q_nope, q_rope], -1)[0]
    want = dense(q, k, wide[..., nope:], 0, Rows(heads=h, k_dim=nope + rope, v_dim=v_dim), 1 / math.sqrt(nope + rope))
    attention.begin([0], [0], n, prefill=True)
    first = attention.latent(layer, q_nope[:, :n], q_rope[:, :n], row[:, :n], kv_b)[0]
    attention.cache.relocate()
    attention.begin([0], [n], 1)
    last = attention.latent(layer, q_nope[:, n:], q_rope[:, n:], row[:, n:], kv_b)[0]
    assert torch.allclose(torch.cat([first, last]).double(), want, atol=1e-5)


def test_fp8_beyond_its_range_becomes_its_largest_number() -> None:
    rows = Rows(heads=1, k_dim=4, v_dim=0, shard="copy")
    pages = torch.zeros(2, 2, 1, 4, dtype=torch.float8_e4m3fn)
    from gpu_probe.cache import gather, write

    write(pages, torch.tensor([3]), torch.tensor([[[[1.0, -1e6, 1e6, 0.5]]]]))
    assert gather(pages, torch.tensor([[1]]), torch.float32)[0, 1, 0].tolist() == [1.0, -448.0, 448.0, 0.5]
    assert rows.kind == "latent"

"""Full recomputation without any cache: what the paged run must agree with.

Written apart on purpose. It shares the weights and nothing else: its own norm, its own rotary positions (as complex numbers), one
plain softmax over all tokens of a sequence, MLA with keys and values expanded for every head.
Letters: S tokens, H query heads, D head_dim, R latent rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_probe.reference_states import full_state_layer
from gpu_probe.shapes import LayerShape, Shape
from gpu_probe.weights import Weights


def full_logits(shape: Shape, weights: Weights, ids: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """ids [B, S] -> logits [B, S, vocab], every sequence on its own, computed in `dtype`."""
    return torch.stack([_sequence(shape, weights, row, dtype) for row in ids])


def _sequence(shape: Shape, weights: Weights, ids: Tensor, dtype: torch.dtype) -> Tensor:
    x = weights.shared["embedding"].to(dtype)[ids]
    remembered: dict[int, tuple[Tensor, Tensor]] = {}
    for layer, stored in zip(shape.layers, weights.layers, strict=True):
        w = {name: tensor.to(dtype) for name, tensor in stored.items()}
        if layer.attention is not None:
            x = x + _attention(layer, w, _rms(x, w["attn_norm"]), remembered)
        if layer.state is not None:
            x = x + full_state_layer(layer.state, w, _rms(x, w["s_norm"]))
        if layer.mlp_width:
            y = _rms(x, w["mlp_norm"])
            inner = y @ w["up"].T
            gate = y @ w["gate"].T if layer.gated else inner
            x = x + ((gate * torch.sigmoid(gate)) * (inner if layer.gated else 1.0)) @ w["down"].T
    return _rms(x, weights.shared["final_norm"].to(dtype)) @ weights.shared["lm_head"].to(dtype).T


def _attention(layer: LayerShape, w: dict[str, Tensor], x: Tensor, remembered: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
    a = layer.attention
    assert a is not None
    assert layer.read_rows is not None
    assert layer.reads is not None
    s = x.shape[0]
    compressed = _rms(x @ w["q_a"].T, w["q_a_norm"]) if a.q_rank else x
    q = (compressed @ w["q"].T + w["q_bias"]).reshape(s, a.q_heads, a.qk_dim)
    if a.kv_rank is not None:
        both = x @ w["kv_a"].T
        latent = _rms(both[:, : a.kv_rank], w["kv_a_norm"])
        k, v = expand(latent, _rope(both[:, None, a.kv_rank :]), w["kv_b"], a.q_heads, a.nope_dim)
        q = torch.cat([q[..., : a.nope_dim], _rope(q[..., a.nope_dim :])], -1)
    else:
        q = _rope(q)
        if layer.rows is not None:
            k = _rope((x @ w["k"].T + w["k_bias"]).reshape(s, a.kv_heads, a.qk_dim))
            v = (x @ w["v"].T + w["v_bias"]).reshape(s, a.kv_heads, a.v_dim)
            remembered[layer.index] = (k, v)
        k, v = remembered[layer.reads]
        k, v = k.repeat_interleave(a.q_heads // a.kv_heads, 1), v.repeat_interleave(a.q_heads // a.kv_heads, 1)
    return softmax_attention(q, k, v, layer.read_rows.window, layer.read_rows.chunk).flatten(1) @ w["o"].T


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None, chunk: int | None, *, first_query: int = 0) -> Tensor:
    """q [T, H, D] at positions first_query..., k [S, H, D], v [S, H, v_dim] -> [T, H, v_dim]. One head at a time: [T, S] scores."""
    at_q = torch.arange(first_query, first_query + q.shape[0], device=q.device).unsqueeze(1)
    at_k = torch.arange(k.shape[0], device=q.device).unsqueeze(0)
    distance = at_q - at_k
    banned = distance < 0
    if window is not None:
        banned = banned | (distance >= window)
    if chunk is not None:
        banned = banned | (at_q // chunk != at_k // chunk)
    heads = []
    for h in range(q.shape[1]):
        scores = (q[:, h] @ k[:, h].T / q.shape[-1] ** 0.5).masked_fill(banned, float("-inf"))
        heads.append(torch.softmax(scores, -1) @ v[:, h])
    return torch.stack(heads, 1)


def expand(latent: Tensor, key_rope: Tensor, kv_b: Tensor, heads: int, nope: int) -> tuple[Tensor, Tensor]:
    """latent [S, R], key_rope [S, 1, rope], kv_b [H * (nope + v_dim), R] -> k [S, H, nope + rope], v [S, H, v_dim]."""
    wide = (latent @ kv_b.T).reshape(latent.shape[0], heads, -1)
    return torch.cat([wide[..., :nope], key_rope.expand(-1, heads, -1)], -1), wide[..., nope:]


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-5) * weight


def _rope(x: Tensor) -> Tensor:
    """[S, heads, D], token i at position i: number j and number j + D // 2 are one complex number, turned by i / 10000^(j / (D // 2))."""
    half = x.shape[-1] // 2
    if half == 0:
        return x
    # Angles in float64 on the host (an accelerator may lack it); a complex product there is two real ones anyway.
    turns = torch.arange(x.shape[0], dtype=torch.float64).unsqueeze(1) / 10000.0 ** (torch.arange(half, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones_like(turns), turns).to(torch.complex128 if x.dtype == torch.float64 else torch.complex64).to(x.device)
    turned = torch.complex(x[..., :half].contiguous(), x[..., half : 2 * half].contiguous()) * turn.unsqueeze(1)
    return torch.cat([turned.real, turned.imag, x[..., 2 * half :]], -1)

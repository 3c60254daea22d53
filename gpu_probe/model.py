"""A pre-norm decoder with RMSNorm and rotary positions. It knows nothing of pages: attention is handed in.

Letters: B batch, T query tokens, H query heads, K kv heads, D head_dim, R latent rank.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe.shapes import LayerShape, Shape
from gpu_probe.weights import Weights

ROPE_BASE = 10_000.0
EPSILON = 1e-5


class Attend(Protocol):
    """Writes the new tokens' rows, reads all rows that each query may see, and returns [B, T, H, v_dim]."""

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        """q [B, T, H, D], k [B, T, K, D], v [B, T, K, v_dim]; k and v None: the rows are another layer's."""
        ...

    def latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, row: Tensor, kv_b: Tensor) -> Tensor:
        """q_nope [B, T, H, nope], q_rope [B, T, H, rope], row [B, T, R + rope], kv_b [H, nope + v_dim, R]."""
        ...

    def state(self, layer: LayerShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
        """x [B, T, hidden], normed: steps the layer's recurrent state over it and returns [B, T, hidden]."""
        ...


class Decoder:
    """`forward` turns token ids into logits; all state is in the weights and in what `attend` keeps."""

    def __init__(self, shape: Shape, weights: Weights, max_tokens: int) -> None:
        self.shape, self.weights = shape, weights
        self.device = weights.shared["embedding"].device
        self.dtype = weights.shared["embedding"].dtype
        self._max_tokens = max_tokens
        self._rope: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend, *, last_only: bool = True) -> Tensor:
        """ids and positions [B, T] -> float32 logits [B, vocab] of the last token, or [B, T, vocab]."""
        x = self.weights.shared["embedding"][ids]
        for layer, w in zip(self.shape.layers, self.weights.layers, strict=True):
            if layer.attention is not None:
                x = x + self._attention(layer, w, norm(x, w["attn_norm"]), positions, attend)
            if layer.state is not None:
                x = x + attend.state(layer, w, norm(x, w["s_norm"]))
            if layer.mlp_width:
                x = x + _mlp(w, norm(x, w["mlp_norm"]))
        if last_only:
            x = x[:, -1]
        return nn.linear(norm(x, self.weights.shared["final_norm"]), self.weights.shared["lm_head"]).float()

    def _attention(self, layer: LayerShape, w: dict[str, Tensor], x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        a = layer.attention
        assert a is not None
        b, t, _ = x.shape
        q = nn.linear(norm(nn.linear(x, w["q_a"]), w["q_a_norm"]) if "q_a" in w else x, w["q"], w["q_bias"]).view(b, t, a.q_heads, a.qk_dim)
        if a.kv_rank is not None:
            row = nn.linear(x, w["kv_a"])
            latent, key_rope = norm(row[..., : a.kv_rank], w["kv_a_norm"]), row[..., a.kv_rank :]
            key_rope = self.rotate(key_rope.unsqueeze(2), positions).squeeze(2)
            q_rope = self.rotate(q[..., a.nope_dim :], positions)
            kv_b = w["kv_b"].view(a.q_heads, a.nope_dim + a.v_dim, a.kv_rank)
            out = attend.latent(layer, q[..., : a.nope_dim], q_rope, torch.cat([latent, key_rope], -1), kv_b)
        else:
            k = v = None
            if layer.rows is not None:
                k = self.rotate(nn.linear(x, w["k"], w["k_bias"]).view(b, t, a.kv_heads, a.qk_dim), positions)
                v = nn.linear(x, w["v"], w["v_bias"]).view(b, t, a.kv_heads, a.v_dim)
            out = attend.heads(layer, self.rotate(q, positions), k, v)
        return nn.linear(out.reshape(b, t, a.q_heads * a.v_dim), w["o"])

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary positions on [B, T, heads, D], halves paired; an odd last number stays as it is."""
        half = x.shape[-1] // 2
        if half == 0:
            return x
        cos, sin = (table[positions].unsqueeze(2).to(x.dtype) for table in self._tables(half))
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def _tables(self, half: int) -> tuple[Tensor, Tensor]:
        """cos and sin [max_tokens, half]. Angles in float64 on the host: in float32 they are off by 1e-4 from a few thousand tokens on."""
        if half not in self._rope:
            angles = torch.outer(torch.arange(self._max_tokens, dtype=torch.float64), ROPE_BASE ** (-torch.arange(half, dtype=torch.float64) / half))
            self._rope[half] = (angles.cos().float().to(self.device), angles.sin().float().to(self.device))
        return self._rope[half]


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm over the last axis, in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON) * weight.float()).to(x.dtype)


def _mlp(w: dict[str, Tensor], x: Tensor) -> Tensor:
    up = nn.linear(x, w["up"])
    return nn.linear(nn.silu(nn.linear(x, w["gate"])) * up if "gate" in w else nn.silu(up), w["down"])

"""Recurrent layers without a recurrence: every output from all tokens before it at once. What stepping must agree with.

Written apart from `recurrent`: a state is a sum over earlier tokens, each decayed by the product of the decays since, so an output is a
masked product like attention's. The delta rule's corrections are the solution of one triangular system. Float64 inside: cumulative
decays of a long sequence lose digits otherwise. Letters: S tokens, H heads, N key dim, P value dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_probe.states import StateShape


def full_state_layer(s: StateShape, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """x [S, hidden], normed -> [S, hidden]."""
    w = {name: t.double() for name, t in weights.items()}
    wide = x.double()
    return {"gated_delta_net": _delta, "mamba2": _mamba2, "mamba1": _mamba1}[s.mechanism](s, w, wide).to(x.dtype)


def _delta(s: StateShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
    projected = x @ w["s_in"].T
    inner, n = s.heads * s.value_dim, s.groups * s.key_dim
    qkv = _filtered(projected[:, : s.channels], w["s_conv"])
    gate = projected[:, s.channels : s.channels + inner]
    strength = 1 / (1 + torch.exp(-projected[:, s.channels + inner : s.channels + inner + s.heads]))
    log_decay = -torch.exp(w["s_a"]) * _softplus(projected[:, -s.heads :] + w["s_dt_bias"])
    out = []
    for h in range(s.heads):
        g = h * s.groups // s.heads
        q, k = (qkv[:, o + g * s.key_dim : o + (g + 1) * s.key_dim] for o in (0, n))
        q, k = q / q.norm(dim=1, keepdim=True).clamp(min=1e-12), k / k.norm(dim=1, keepdim=True).clamp(min=1e-12)
        v = qkv[:, 2 * n + h * s.value_dim : 2 * n + (h + 1) * s.value_dim]
        kept = _kept(log_decay[:, h])
        system = torch.eye(len(x), dtype=x.dtype, device=x.device) + torch.tril(strength[:, h, None] * kept * (k @ k.T), -1)
        corrected = torch.linalg.solve_triangular(system, strength[:, h, None] * v, upper=False)
        y = (kept * (q @ k.T)) @ corrected / s.key_dim**0.5
        out.append(y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-5) * w["s_gate_norm"])
    return (torch.cat(out, 1) * _silu(gate)) @ w["s_out"].T


def _mamba2(s: StateShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
    projected = x @ w["s_in"].T
    inner, n = s.heads * s.value_dim, s.groups * s.key_dim
    gate, mixed = projected[:, :inner], _filtered(projected[:, inner : 2 * inner + 2 * n], w["s_conv"])
    step = _softplus(projected[:, -s.heads :] + w["s_dt_bias"])
    out = []
    for h in range(s.heads):
        g = h * s.groups // s.heads
        b, c = (mixed[:, o + g * s.key_dim : o + (g + 1) * s.key_dim] for o in (inner, inner + n))
        v = mixed[:, h * s.value_dim : (h + 1) * s.value_dim]
        out.append((_kept(-torch.exp(w["s_a"][h]) * step[:, h]) * (c @ b.T)) @ (step[:, h, None] * v) + w["s_d"][h] * v)
    y = torch.cat(out, 1) * _silu(gate)
    return (y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-5) * w["s_gate_norm"]) @ w["s_out"].T


def _mamba1(s: StateShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
    projected = x @ w["s_in"].T
    mixed, gate = _filtered(projected[:, : s.inner], w["s_conv"]), projected[:, s.inner :]
    small = mixed @ w["s_x"].T
    step = _softplus(small[:, : s.dt_rank] @ w["s_dt"].T + w["s_dt_bias"])
    b, c = small[:, s.dt_rank : s.dt_rank + s.key_dim], small[:, s.dt_rank + s.key_dim :]
    total = torch.cumsum(step, 0)
    out = []
    for t in range(len(x)):  # a decay of its own for every channel and key: one query at a time, or [S, S, inner, N] at once
        since = torch.exp(-(total[t] - total[: t + 1]).unsqueeze(-1) * torch.exp(w["s_a"]))
        out.append(torch.einsum("sin,si,sn,n->i", since, step[: t + 1] * mixed[: t + 1], b[: t + 1], c[t]))
    return ((torch.stack(out) + w["s_d"] * mixed) * _silu(gate)) @ w["s_out"].T


def _kept(log_decay: Tensor) -> Tensor:
    """[S] -> [S, S]: what is left at t of what came in at s: the product of the decays after s; 0 for s > t."""
    total = torch.cumsum(log_decay, 0)
    return torch.tril(torch.exp(torch.clamp(total[:, None] - total[None, :], max=0.0)))


def _filtered(x: Tensor, weight: Tensor) -> Tensor:
    """x [S, C], weight [C, W]: the last column meets the present token."""
    out, width = torch.zeros_like(x), weight.shape[1]
    for j in range(width):
        back = width - 1 - j
        out[back:] += x[: len(x) - back] * weight[:, j] if back < len(x) else 0.0
    return _silu(out)


def _silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))

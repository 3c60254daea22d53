"""Recurrent layers, one token after the other: a prefill is the same steps as a decode, so both leave the same state.

Papers: Gated DeltaNet (arXiv:2412.06464), Mamba-2 (arXiv:2405.21060), Mamba (arXiv:2312.00752). All in float32; the state goes back to
the dtype in which the pool keeps it. Letters: B batch, T tokens, C channels, W width, H heads, G groups, P value dim, N key dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe.states import StateShape

Held = dict[str, Tensor]
EPSILON = 1e-5


def mix(s: StateShape, w: dict[str, Tensor], x: Tensor, held: Held) -> tuple[Tensor, Held]:
    """x [B, T, hidden] and the state before it -> [B, T, hidden] and the state after it. `held`: conv [B, C, W], recurrent."""
    return {"gated_delta_net": _delta, "mamba2": _mamba2, "mamba1": _mamba1}[s.mechanism](s, w, x, held)


def _delta(s: StateShape, w: dict[str, Tensor], x: Tensor, held: Held) -> tuple[Tensor, Held]:
    mixed, gate, b, a = nn.linear(x, w["s_in"]).float().split([s.channels, s.inner, s.heads, s.heads], -1)
    mixed, conv = _convolve(mixed, w["s_conv"], held["conv"])
    n = s.groups * s.key_dim
    q, k, v = mixed.split([n, n, s.inner], -1)
    q, k = (nn.normalize(t.unflatten(-1, (s.groups, s.key_dim)), dim=-1).repeat_interleave(s.heads // s.groups, 2) for t in (q, k))
    v, beta = v.unflatten(-1, (s.heads, s.value_dim)), b.sigmoid()
    decay = (-w["s_a"].float().exp() * nn.softplus(a + w["s_dt_bias"].float())).exp()
    state, out = held["recurrent"], []
    for t in range(x.shape[1]):
        state = state * decay[:, t, :, None, None]
        change = (v[:, t] - torch.einsum("bhnp,bhn->bhp", state, k[:, t])) * beta[:, t, :, None]
        state = state + torch.einsum("bhn,bhp->bhnp", k[:, t], change)
        out.append(torch.einsum("bhnp,bhn->bhp", state, q[:, t]) * s.key_dim**-0.5)
    y = _rms(torch.stack(out, 1), w["s_gate_norm"]).flatten(2) * nn.silu(gate)
    return nn.linear(y.to(x.dtype), w["s_out"]), {"conv": conv, "recurrent": state}


def _mamba2(s: StateShape, w: dict[str, Tensor], x: Tensor, held: Held) -> tuple[Tensor, Held]:
    n = s.groups * s.key_dim
    gate, mixed, dt = nn.linear(x, w["s_in"]).float().split([s.inner, s.inner + 2 * n, s.heads], -1)
    mixed, conv = _convolve(mixed, w["s_conv"], held["conv"])
    v, b, c = mixed.split([s.inner, n, n], -1)
    v, dt = v.unflatten(-1, (s.heads, s.value_dim)), nn.softplus(dt + w["s_dt_bias"].float())
    b, c = (t.unflatten(-1, (s.groups, s.key_dim)).repeat_interleave(s.heads // s.groups, 2) for t in (b, c))
    decay, state, out = (dt * -w["s_a"].float().exp()).exp(), held["recurrent"], []
    for t in range(x.shape[1]):
        state = state * decay[:, t, :, None, None] + torch.einsum("bhp,bhn->bhpn", v[:, t] * dt[:, t, :, None], b[:, t])
        out.append(torch.einsum("bhpn,bhn->bhp", state, c[:, t]) + v[:, t] * w["s_d"].float()[:, None])
    y = _rms(torch.stack(out, 1).flatten(2) * nn.silu(gate), w["s_gate_norm"])
    return nn.linear(y.to(x.dtype), w["s_out"]), {"conv": conv, "recurrent": state}


def _mamba1(s: StateShape, w: dict[str, Tensor], x: Tensor, held: Held) -> tuple[Tensor, Held]:
    mixed, gate = nn.linear(x, w["s_in"]).float().split([s.inner, s.inner], -1)
    mixed, conv = _convolve(mixed, w["s_conv"], held["conv"])
    dt, b, c = nn.linear(mixed, w["s_x"].float()).split([s.dt_rank, s.key_dim, s.key_dim], -1)
    dt = nn.softplus(nn.linear(dt, w["s_dt"].float()) + w["s_dt_bias"].float())
    rate, state, out = -w["s_a"].float().exp(), held["recurrent"], []
    for t in range(x.shape[1]):
        state = state * (dt[:, t, :, None] * rate).exp() + (dt[:, t] * mixed[:, t])[..., None] * b[:, t, None]
        out.append((state * c[:, t, None]).sum(-1) + mixed[:, t] * w["s_d"].float())
    y = torch.stack(out, 1) * nn.silu(gate)
    return nn.linear(y.to(x.dtype), w["s_out"]), {"conv": conv, "recurrent": state}


def _convolve(x: Tensor, weight: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Causal, one filter a channel, then SiLU: x [B, T, C], before [B, C, W] the last W inputs -> [B, T, C] and the last W inputs now."""
    width = weight.shape[-1]
    inputs = torch.cat([before, x.transpose(1, 2)], -1)
    out = nn.conv1d(inputs[..., 1:], weight.float().unsqueeze(1), groups=weight.shape[0])
    return nn.silu(out).transpose(1, 2), inputs[..., -width:]


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight.float()

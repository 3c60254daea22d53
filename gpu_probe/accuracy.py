"""What a narrow cache costs in accuracy: the same decoder and the same tokens, once over bf16 pages and once over narrow ones.

Weights are random and products run in float32, so the only difference is how rows are stored. This bounds the storing, not a model's
answers: a trained model's outliers are another question.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.fit import Fit
from gpu_probe.model import Decoder
from gpu_probe.result import ProbeRequest
from gpu_probe.session import generate

TOLERANCE = {"fp8": 0.15, "fp8_e4m3": 0.15, "fp8_e5m2": 0.30, "fp8_per_token_head": 0.15, "int8_per_token_head": 0.05}
"""Norm of the difference of all logits by their norm. A number is off by at most 2^-4 (e4m3: 3 bits behind the point), 2^-3 (e5m2) or
1 / 254 of its row's largest (int8); softmax over few keys with scores three times the usual size makes up to twice that of it."""


@torch.no_grad()
def against_bf16(decoder: Decoder, plan: Fit, request: ProbeRequest, tokens: Tensor, *, name: str, storage: torch.dtype, scaled: bool) -> dict[str, Any]:
    """`decoder`: float32. `tokens` [B, prompt + output] are fed to both runs, whatever they decode. `name`: of the KV dtype."""

    def logits(dtype: torch.dtype, scaled: bool) -> Tensor:
        cache = PagedCache.build(decoder.shape, plan, dtype=dtype, device=decoder.device, block_size=request.block_size, seed=request.seed, scaled=scaled)
        prompt = tokens[:, : request.prompt]
        trace = generate(decoder, PagedAttention(cache), prompt, request.output, keep_logits=True, prefix=request.shared_tokens(), forced=tokens)
        return torch.stack(trace.logits, 1)

    return judged(name, logits(torch.bfloat16, False), logits(storage, scaled))


def judged(name: str, wide: Tensor, narrow: Tensor, *, routed: bool = False) -> dict[str, Any]:
    """Logits [B, T, V] over bf16 pages and over narrow ones, of the same tokens. `routed`: the model chooses experts; then the median
    over the tokens counts, because a router between two equal experts turns the least difference into a whole one."""
    difference = narrow - wide
    error = (difference.norm(dim=-1) / wide.norm(dim=-1)).median() if routed else difference.norm() / wide.norm()
    return {
        "kv_dtype": name, "against": "bf16", "error": error.item(), "max_error": (difference.abs().max() / wide.abs().max()).item(),
        "tolerance": TOLERANCE[name], "positions": wide.shape[1],
    }  # fmt: skip

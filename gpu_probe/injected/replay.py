"""A transformers model put over a paged cache, and a given text run through it: what the sweep and the proof of a run share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpu_probe.injected.bridge import NotPassedOn
from gpu_probe.injected.runner import Injected, empty_cache
from gpu_probe.result import ProbeRequest
from planner.cache import Pool
from planner.model import ModelSpec


def inject(
    model: Any, spec: ModelSpec, pools: tuple[Pool, ...], request: ProbeRequest, *, dtype: torch.dtype, device: torch.device,
    kind: type[Injected] = Injected,
) -> Injected:  # fmt: skip
    """`model` over an empty cache. Two tokens over a small one tell first whether it passes its rows on; else they are handed back."""
    trial = Injected(model, spec, empty_cache(spec, pools, replace(request, batch=1, prompt=2, output=1), device), dtype)
    trial.cache.add([0])
    trial.begin([0], [0], 2, prefill=True)
    try:
        trial.logits(torch.ones(1, 2, dtype=torch.long, device=device), torch.arange(2, device=device)[None])
    except NotPassedOn:
        return kind(model, spec, empty_cache(spec, pools, request, device), dtype, hand_back=True)
    return kind(model, spec, empty_cache(spec, pools, request, device), dtype)


@torch.no_grad()
def replay(runner: Injected, ids: Tensor, prompt: int) -> tuple[Tensor, int, int]:
    """ids [B, T]: prefill of `prompt` tokens in one pass, blocks shuffled again, then one token a step. Returns the logits [B, T, V], the
    blocks that the shuffle moved, and the blocks in use after the prefill."""
    batch, total = ids.shape
    sequences = list(range(batch))
    runner.cache.add(sequences)
    out, moved, peak = [], 0, 0
    for low, high in [(0, prompt), *((t, t + 1) for t in range(prompt, total))]:
        runner.begin(sequences, [low] * batch, high - low, prefill=low == 0)
        out.append(runner.logits(ids[:, low:high], torch.arange(low, high, device=ids.device).expand(batch, -1)))
        if low == 0:
            peak = sum(g.pool.used() for g in runner.cache.groups)
            runner.cache.trim(sequences)
            moved = runner.cache.relocate()
    return torch.cat(out, 1), moved, peak

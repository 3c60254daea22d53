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
    kind: type[Injected] = Injected, scaled: bool = False,
) -> Injected:  # fmt: skip
    """`model` over an empty cache. Two tokens over a small one tell first whether it passes its rows on; else they are handed back."""
    small = replace(request, batch=1, prompt=2, output=1, shared_prefix=0)
    trial = Injected(model, spec, empty_cache(spec, pools, small, device), dtype, scaled=scaled)
    trial.cache.add([0])
    trial.begin([0], [0], 2, prefill=True)
    try:
        trial.logits(torch.ones(1, 2, dtype=torch.long, device=device), torch.arange(2, device=device)[None])
    except NotPassedOn:
        return kind(model, spec, empty_cache(spec, pools, request, device), dtype, hand_back=True, scaled=scaled)
    return kind(model, spec, empty_cache(spec, pools, request, device), dtype, scaled=scaled)


@torch.no_grad()
def replay(runner: Injected, ids: Tensor, prompt: int, *, prefix: int = 0) -> tuple[Tensor, int, int]:
    """ids [B, T]: prefill of `prompt` tokens in one pass, blocks shuffled again, then one token a step. Returns the logits [B, T, V], the
    blocks that the shuffle moved, and the blocks in use after the prefill. `prefix`: so many first tokens are the same in all rows; they
    run in the first sequence alone, and the others start from its blocks."""
    batch, total = ids.shape
    everyone = list(range(batch))

    def part(sequences: list[int], low: int, high: int, *, prefill: bool = False) -> Tensor:
        runner.begin(sequences, [low] * len(sequences), high - low, prefill=prefill)
        return runner.logits(ids[sequences, low:high], torch.arange(low, high, device=ids.device).expand(len(sequences), -1))

    if prefix:
        runner.cache.add([0])
        shared = part([0], 0, prefix, prefill=True)
        runner.cache.fork(0, everyone[1:], prefix)
        rest = torch.cat([part([0], prefix, prompt, prefill=True), part(everyone[1:], prefix, prompt, prefill=True)])
        out = [shared.expand(batch, -1, -1), rest]
    else:
        runner.cache.add(everyone)
        out = [part(everyone, 0, prompt, prefill=True)]
    peak = sum(g.pool.used() for g in runner.cache.groups)
    runner.cache.trim(everyone)
    moved = runner.cache.relocate()
    out += [part(everyone, t, t + 1) for t in range(prompt, total)]
    return torch.cat(out, 1), moved, peak

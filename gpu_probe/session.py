"""One batch from prompt to last token over the paged cache, with a clock beside it.

Letters: B batch, T prompt tokens, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.device import Peak, synchronize
from gpu_probe.model import Decoder

Progress = Callable[[str, int, int], None]


@dataclass(slots=True, kw_only=True)
class Trace:
    """tokens [B, prompt + output]; logits: output + 1 tensors [B, V], the first of them the prefill's. Seconds by the wall clock.
    `peaks`: bytes that prefill and decode took at their worst, None where nobody tells."""

    tokens: Tensor
    logits: list[Tensor] = field(default_factory=list)
    prefill_s: float = 0.0
    step_s: list[float] = field(default_factory=list)
    blocks_moved: int = 0
    blocks_trimmed: int = 0
    prefill_blocks: tuple[int, ...] = ()
    contiguous_fraction: float = 0.0
    last_step_bytes_gathered: int = 0
    peaks: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(("prefill", "decode")))

    def facts(self) -> dict[str, Any]:
        """How far the blocks were apart, and how many went back after the prefill."""
        return {"blocks_moved": self.blocks_moved, "blocks_trimmed": self.blocks_trimmed, "contiguous_fraction": self.contiguous_fraction}


@torch.no_grad()
def generate(
    decoder: Decoder,
    attention: PagedAttention,
    prompt: Tensor,
    output: int,
    *,
    progress: Progress = lambda n, d, t: None,
    keep_logits: bool = False,
    prefix: int = 0,
    forced: Tensor | None = None,
    peak: Peak | None = None,
) -> Trace:
    """prompt [B, T] ids. Prefill in one pass, blocks shuffled again, then `output` steps: step i feeds the i-th token decoded, so the
    last one has its row in the cache too, and the logits of the last step are of no token any more.

    `prefix`: so many first tokens (whole blocks, fewer than T) are the same in all rows of `prompt`: they are computed once, and every
    sequence reads the same blocks. `forced` [B, T + output]: tokens to feed instead of the decoded ones.

    Gradients are off by `no_grad`, not by inference mode: that would switch off torch's count of writes, which `measure` reads.
    """
    cache: PagedCache = attention.cache
    device, (batch, length) = prompt.device, prompt.shape
    sequences = list(range(batch))
    trace = Trace(tokens=prompt)

    progress("prefill", 0, 1)
    if peak is not None:
        peak.begin()
    start = time.perf_counter()
    logits = _prefill(decoder, attention, prompt, prefix)
    token = logits.argmax(-1, keepdim=True) if forced is None else forced[:, length : length + 1]
    synchronize(device)
    trace.prefill_s = time.perf_counter() - start
    if peak is not None:
        trace.peaks["prefill"] = peak.end()
    progress("prefill", 1, 1)

    trace.prefill_blocks = tuple(g.pool.used() for g in cache.groups)
    trace.blocks_trimmed = cache.trim(sequences)
    trace.blocks_moved = cache.relocate()
    produced = [token]
    if keep_logits:
        trace.logits.append(logits)
    if peak is not None:
        peak.begin()
    for i in range(output):
        synchronize(device)
        start = time.perf_counter()
        attention.begin(sequences, [length + i] * batch, 1)
        logits = decoder.forward(token, torch.full((batch, 1), length + i, device=device), attention)
        token = logits.argmax(-1, keepdim=True) if forced is None else forced[:, length + i + 1 : length + i + 2]
        synchronize(device)
        trace.step_s.append(time.perf_counter() - start)
        if keep_logits:
            trace.logits.append(logits)
        produced.append(token)
        progress("decode", i + 1, output)
    if peak is not None:
        trace.peaks["decode"] = peak.end()
    trace.tokens = torch.cat([prompt, *produced[:-1]], 1)
    trace.last_step_bytes_gathered = attention.bytes_gathered
    trace.contiguous_fraction = max((g.pool.contiguous_fraction() for g in cache.groups), default=0.0)
    return trace


def _prefill(decoder: Decoder, attention: PagedAttention, prompt: Tensor, prefix: int) -> Tensor:
    """-> logits [B, V] of each prompt's last token. A shared prefix runs in the first sequence alone; the others start from its blocks."""
    batch, length = prompt.shape
    cache: PagedCache = attention.cache

    def part(sequences: list[int], start: int, end: int) -> Tensor:
        attention.begin(sequences, [start] * len(sequences), end - start, prefill=True)
        positions = torch.arange(start, end, device=prompt.device).expand(len(sequences), -1)
        return decoder.forward(prompt[sequences, start:end], positions, attention)

    everyone = list(range(batch))
    if not prefix:
        cache.add(everyone)
        return part(everyone, 0, length)
    cache.add([0])
    part([0], 0, prefix)
    cache.fork(0, everyone[1:], prefix)
    return torch.cat([part([0], prefix, length), part(everyone[1:], prefix, length)])

"""What the steps of the GPU check share: their setting, pools of shuffled pages, and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from planner.model import ModelSpec
from planner.units import MIB

Result = dict[str, Any]
ReadConfig = Callable[[Mapping[str, Any], str], ModelSpec]
ROTATED_BYTES = 512 * MIB
"""What the rounds of a timing walk through in turn, so that no round finds its rows in a cache."""


@dataclass(slots=True, kw_only=True)
class Setting:
    """`deadline`: time.monotonic() by which a sweep must end. `found`: results of earlier steps, by name."""

    dry: bool
    read_config: ReadConfig
    deadline: float
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    found: dict[str, Result] = field(default_factory=dict)


def pages(
    device: torch.device, batch: int, tokens: int, page: int, rows: Sequence[tuple[int, int]], dtype: torch.dtype, *, copies: int = 1, ragged: bool = False
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Pools [N, page, kv_heads, dim], `copies` block tables [batch, M] over different, shuffled blocks, and the lengths."""
    columns = -(-tokens // page)
    blocks = copies * batch * columns
    pools = [torch.randn(blocks, page, *row, device=device, dtype=torch.bfloat16).to(dtype) for row in rows]
    tables = torch.randperm(blocks, device=device).view(copies, batch, columns).to(torch.int32)
    lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
    if ragged:
        lengths[1:] = torch.randint(tokens // 2, tokens, (batch - 1,), device=device, dtype=torch.int32)
    return pools, list(tables), lengths


def timed(setting: Setting, calls: Sequence[Callable[[], object]], *, captured: bool = False, rounds: int = 7) -> float:
    """Seconds of one call, best of `rounds` walks through `calls`. `captured`: the walk is one CUDA graph, without launch costs."""
    if setting.device.type != "cuda":
        return min(_walk_cpu(calls) for _ in range(2 if setting.dry else rounds)) / len(calls)

    def walk() -> None:
        for call in calls:
            call()

    replay = walk
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        walk()
    torch.cuda.current_stream().wait_stream(side)
    if captured:
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            walk()
        replay = made.replay
    best = float("inf")
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best / len(calls)


def _walk_cpu(calls: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start

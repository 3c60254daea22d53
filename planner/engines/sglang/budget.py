"""What SGLang 0.5.23 keeps outside its pools: the static fraction holds of the memory that is free before the weights are loaded, and
weights and pools lie inside it (srt/mem_cache/kv_cache_configurator.py _profile_available_bytes)."""

from __future__ import annotations

import math

from planner.engines.settings import LedgerLine, Setting
from planner.engines.sglang.device import image_reserve
from planner.engines.shared import used_memory, visible_memory
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.scenario import Scenario
from planner.units import GIB

SOURCE = cite("sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py, srt/arg_groups/memory_hook.py")
# Taken before the weights are loaded, GiB: (seen low, used, seen high). Two start-up logs with four ranks, one of an H100 alone.
CONTEXT_GIB = {1: (0.1, 0.45, 1.95), 2: (0.44, 2.0, 3.3)}
UNEXPLAINED_GIB = 3.5  # a public log of Qwen3-0.6B on an H100 leaves so much less than the rule; two others follow it to the last digit
VISION = cite("blocks, patches and projection by vision_config")


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Out of sight, held by others, taken before the load, free by the fraction (activations, graphs), weights, and what images take later.
    What others hold is not free, so the fraction is one of the rest."""
    visible, gap = visible_memory(hardware)
    used = used_memory(s)
    low, own, high = (round(g * GIB) for g in CONTEXT_GIB[1 if setting.parallel.tensor == 1 else 2])
    context = LedgerLine(code="before_load", bytes=own, kind="assumed", source=cite("public start-up logs of SGLang"), low_bytes=low, high_bytes=high)
    before = visible - own - sum(line.bytes for line in used)
    slack = before - math.floor(before * setting.memory_fraction)
    outside = LedgerLine(code="static_slack", bytes=slack, kind="derived", source=SOURCE, low_bytes=slack,
                         high_bytes=slack + round(UNEXPLAINED_GIB * GIB), args=(("fraction", f"{setting.memory_fraction:.3f}"),))  # fmt: skip
    out = (gap, *used, context, outside, weights, *vision(model, setting, weights))
    images = image_reserve(model, setting.capability, hardware.memory_bytes)
    return (*out, LedgerLine(code="image_reserve", bytes=images, kind="documented", source=SOURCE)) if images else out


def vision(model: ModelSpec, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """The part that reads images, split over ranks like the rest. Stored bytes, where they are given, hold it already."""
    part = model.server.images
    if weights.code == "weights_given" or part is None:
        return ()
    size = (part.parameters or 0) * setting.model_dtype.nbytes(1) // setting.parallel.tensor
    return (LedgerLine(code="weights_vision", bytes=size, kind="assumed", source=VISION, low_bytes=size * 9 // 10,
                       high_bytes=size * setting.parallel.tensor * 6 // 5 if size else 2 * GIB),)  # fmt: skip

"""Which figures of a log follow from which: the arithmetic of the engines' own code, one row a rule."""

from __future__ import annotations

from planner.enginelogs.rules.base import Rule
from planner.enginelogs.rules.llamacpp import LLAMACPP
from planner.enginelogs.rules.others import OTHERS
from planner.enginelogs.rules.vllm import VLLM

RULES: tuple[Rule, ...] = VLLM + OTHERS + LLAMACPP
# Sentences that an engine says once a start, for each rank: said again after a pool was settled, they begin the next start. A draft model's
# context of llama.cpp counts as one.
START = frozenset((
    "Model loading took", "odel weights took", "odel weights take", "total_gpu_memory (", "total_gpu_memory=", "Available KV cache memory",
    "Free device memory:", "reserved for KV cache", "KV cache size", " blocks: ", "Load weight begin", "n_layer", "n_ctx", "Loaded engine size",
    "primary blocks=",
))  # fmt: skip

__all__ = ["RULES", "START", "Rule"]

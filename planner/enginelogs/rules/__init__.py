"""Which figures of a log follow from which: the arithmetic of the engines' own code, one row a rule."""

from __future__ import annotations

from planner.enginelogs.rules.base import Rule
from planner.enginelogs.rules.llamacpp import LLAMACPP
from planner.enginelogs.rules.others import OTHERS
from planner.enginelogs.rules.vllm import VLLM

RULES: tuple[Rule, ...] = VLLM + OTHERS + LLAMACPP
# Sentences that begin a start of the engine, for each rank.
START = frozenset(("Model loading took", "odel weights took", "Load weight begin", "n_layer", "Loaded engine size"))

__all__ = ["RULES", "START", "Rule"]

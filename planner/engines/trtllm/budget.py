"""What TensorRT-LLM keeps outside its KV pool: weights, one forward pass of max_num_tokens, context and communication; the pool is a share
(free_gpu_memory_fraction) of what is then free (_torch/pyexecutor/_util.py _cal_max_memory; C++: kvCacheManager.cpp calculateFreeMemBytes).
"""

from __future__ import annotations

import math

from planner.cache import State
from planner.engines.settings import LedgerLine, Setting
from planner.engines.shared import used_memory, visible_memory
from planner.engines.trtllm.rows import state_bytes, state_slots
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.scenario import Scenario
from planner.units import GIB

SOURCE = cite("TensorRT-LLM _torch/pyexecutor/_util.py (read)")
# Not seen by the pool beside weights, GiB: (seen low, used, seen high). Two public start-up logs of 7B engines on 80 GB cards show 0.6 and
# 2.1 for all of context, buffers and decoder; more ranks add communication buffers.
OUTSIDE_GIB = {1: (0.6, 1.0, 2.1), 2: (0.6, 2.0, 4.0)}


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Out of sight, weights, activations, context, and the part of the rest that the fraction leaves free. States lie inside the pools, but
    are taken before the fraction is."""
    visible, gap = visible_memory(hardware)
    work = activation(model, setting)
    low, used, high = (round(g * GIB) for g in OUTSIDE_GIB[1 if setting.parallel.tensor == 1 else 2])
    outside = LedgerLine(code="non_torch", bytes=used, kind="assumed", source=cite("two public start-up logs of TensorRT-LLM"), low_bytes=low, high_bytes=high)
    others = used_memory(s)
    free = visible - sum(line.bytes for line in others) - weights.bytes - work.bytes - used - _states(model, setting)
    slack = free - math.floor(free * setting.memory_fraction) if free > 0 else 0
    left = LedgerLine(code="free_slack", bytes=slack, kind="derived", source=SOURCE, args=(("fraction", setting.memory_fraction),))
    return (gap, *others, weights, work, outside, left)


def _states(model: ModelSpec, setting: Setting) -> int:
    """Slots of the fullest stage: taken for max_batch_size requests when the managers are made, before the peak is measured."""
    if not any(isinstance(k, State) for k, _ in model.cache_groups()):
        return 0
    stages = setting.parallel.stage_layers(len(model.layers), model.drafts)
    return state_slots(setting) * max(state_bytes(model, setting, layers) for layers in stages)


def activation(model: ModelSpec, setting: Setting) -> LedgerLine:
    """One forward pass of max_num_tokens: the widest feed-forward layer's intermediates and four hidden states, and a row of fp32 logits for
    each sequence that such a pass can end. Assumed: no log of TensorRT-LLM was fitted."""
    tokens = setting.max_num_batched_tokens
    rows = min(tokens, setting.max_num_seqs)
    per_token = (3 * model.widest_mlp() // setting.parallel.tensor + 4 * model.hidden_size) * setting.model_dtype.nbytes(1)
    size = tokens * per_token + rows * model.vocab_size * 4
    return LedgerLine(code="activation", bytes=size, kind="assumed", source=cite("T (3 I / tp + 4 H) b + 4 S V for one pass"),
                      low_bytes=size // 3, high_bytes=2 * size + GIB // 2)  # fmt: skip

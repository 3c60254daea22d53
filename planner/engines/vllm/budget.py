"""What vLLM 0.33 keeps outside its KV pool: the budget is a share of *total* visible memory; weights, activation peak, CUDA graphs and
non-torch memory come off it. Constants are fits over public start-up logs (documented), each with its band; none is a flat percentage.
"""

from __future__ import annotations

import math

from planner.engines.settings import LedgerLine, Setting
from planner.engines.shared import visible_memory
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.scenario import Scenario
from planner.units import GIB

LOGS = cite("fit over 47 start-up logs of vLLM 0.19 on H100, mean error 1.7 % (dense)")
# non-torch memory by tensor ranks, GiB: (seen low, used, seen high); an older release showed 1.79 and 3.58.
NON_TORCH_GIB = {1: (0.07, 0.25, 1.79), 2: (0.34, 2.07, 3.58), 4: (0.39, 2.17, 3.58)}


def requested_bytes(visible: int, fraction: float) -> int:
    """v1/worker/utils.py: ``ceil(total_gpu_memory * gpu_memory_utilization)``."""
    return math.ceil(visible * fraction)


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Everything before the pool, in the order in which it comes off: out of sight, out of the share, then the share's own lines."""
    visible, gap = visible_memory(hardware)
    outside = LedgerLine(code="outside_budget", bytes=visible - requested_bytes(visible, setting.memory_fraction), kind="derived",
                         source=cite("vLLM 0.33 v1/worker/utils.py"), args=(("fraction", setting.memory_fraction),))  # fmt: skip
    return (gap, outside, weights, activation(model, setting), non_torch(setting), cuda_graphs(model))


def activation(model: ModelSpec, setting: Setting) -> LedgerLine:
    """``max(2 T (3.86 I / tp + 0.25 H), 14.8 S V) + 0.08 GiB``: T batched tokens, S sequences, I the widest feed-forward layer that a
    token passes, H hidden, V vocabulary. The sampler's dummy run with S rows of V in fp32 is what binds for large vocabularies.
    MoE layers add 0 to 0.7 GiB."""
    tokens, ranks = min(setting.max_num_batched_tokens, setting.max_model_len * setting.max_num_seqs), setting.parallel.tensor
    width = model.widest_mlp()
    peak = round(max(2 * tokens * (3.86 * width / ranks + 0.25 * model.hidden_size), 14.8 * setting.max_num_seqs * model.vocab_size) + 0.08 * GIB)
    return LedgerLine(code="activation", bytes=peak, kind="documented", source=LOGS, low_bytes=round(peak * 0.95),
                      high_bytes=round(peak * 1.05 + (0.7 * GIB if model.has_experts() else 0)))  # fmt: skip


def non_torch(setting: Setting) -> LedgerLine:
    """Context and communicators, by tensor ranks; a pipeline alone adds little (0.07 GiB)."""
    low, used, high = NON_TORCH_GIB[1 if setting.parallel.tensor == 1 else 2 if setting.parallel.tensor < 4 else 4]
    return LedgerLine(code="non_torch", bytes=round(used * GIB), kind="documented", source=cite("start-up logs of vLLM by tensor ranks"),
                      low_bytes=round(low * GIB), high_bytes=round(high * GIB))  # fmt: skip


def cuda_graphs(model: ModelSpec) -> LedgerLine:
    """``0.39 + 0.0158 layers + 0.55 for MoE`` GiB; estimated inside the budget since 0.21. Logs show 0.64 to 1.85 GiB."""
    used = 0.39 + 0.0158 * len(model.layers) + (0.55 if model.has_experts() else 0)
    return LedgerLine(code="cuda_graphs", bytes=round(used * GIB), kind="documented", source=cite("start-up logs; vLLM pull request 22897"),
                      low_bytes=round(0.9 * used * GIB), high_bytes=round(max(1.1 * used, 1.85) * GIB))  # fmt: skip

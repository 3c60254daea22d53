"""What vLLM keeps outside its KV pool: the budget is a share of *total* visible memory; weights, activation peak, CUDA graphs and non-torch
memory come off it. By release (vllm/versions.py); the peak in vllm/activation.py, the constants in vllm/overhead.py. Every line that is not
exact has its band. docs/budget.md holds them against public start-up logs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.engines.settings import LedgerLine, Setting
from planner.engines.shared import used_memory, visible_memory
from planner.engines.vllm import activation, overhead
from planner.engines.vllm.versions import rules_of, runner
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.scenario import Scenario
from planner.units import GIB, gib
from planner.weights import weight_format

PROFILE = cite("vllm wheels of 0.11 to 0.33: v1/worker/gpu_model_runner.py profile_run, v1/worker/gpu/model_runner.py, v1/sample/sampler.py")
TOOK = cite('"model loading took" of public start-up logs beside the sum of the file\'s shapes; model_executor/layers/rotary_embedding, mla_attention.py')
VISION = cite("blocks, patches and projection by vision_config")
START = cite("vllm 0.9.1 to 0.33 v1/worker/gpu_worker.py init_device: free memory is held against the share before anything is loaded")


def requested_bytes(visible: int, fraction: float) -> int:
    """v1/worker/utils.py: ``ceil(total_gpu_memory * gpu_memory_utilization)``."""
    return math.ceil(visible * fraction)


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Everything before the pool, in the order in which it comes off: out of sight, out of the share, then the share's own lines. Memory that
    others hold, and graphs that are captured after the pool is sized, lie out of the share."""
    visible, gap = visible_memory(hardware)
    rules, _ = rules_of(setting.asked_version)
    graphs = () if s.enforce_eager else (overhead.cuda_graphs(model, setting),)
    used = used_memory(s)
    inside = runner(model, setting.asked_version)[1]
    after = () if inside else tuple(replace(g, code="cuda_graphs_after") for g in graphs)
    counts = state(model, setting)
    if not rules.all_consumed:
        after, counts = (*after, *counts), ()
    apart = (*used, *after) if rules.others_outside else after
    outside = LedgerLine(code="outside_budget", bytes=visible - requested_bytes(visible, setting.memory_fraction) - sum(line.bytes for line in apart),
                         kind="derived", source=cite("vLLM 0.33 v1/worker/utils.py"), args=(("fraction", setting.memory_fraction),))  # fmt: skip
    own = (*weights_beside(model, s, setting, weights, rules.comms), peak(model, setting), *counts)
    return (gap, *used, outside, *after, weights, *own, overhead.non_torch(setting, rules.comms), *(graphs if inside else ()))


def weights_beside(model: ModelSpec, s: Scenario, setting: Setting, weights: LedgerLine, comms: str) -> tuple[LedgerLine, ...]:
    """What loading takes beside the language part's weights: tables and copies, and the part that reads images. Stored bytes, where they are
    given, hold all parts already."""
    beside = overhead.beside_weights(model, setting, weight_format(model, s.weight_dtype, setting.model_dtype), comms)
    out = [LedgerLine(code="weights_beside", bytes=beside, kind="documented", source=TOOK, low_bytes=beside // 2, high_bytes=beside * 2)]
    part = model.server.images
    if weights.code == "weights_given" or part is None:
        return tuple(out)
    size = (part.parameters or 0) * setting.model_dtype.nbytes(1) // setting.parallel.tensor
    high = round(size * 1.2) + GIB // 2 if part.parameters else 2 * GIB
    return (*out, LedgerLine(code="weights_vision", bytes=size, kind="assumed", source=VISION, low_bytes=size * 9 // 10, high_bytes=high))


def peak(model: ModelSpec, setting: Setting) -> LedgerLine:
    """The activation peak; for images and where the forward pass is the larger one, the band is wider."""
    p = activation.peak(model, setting)
    width = 0.03 if p.sampler >= p.forward else 0.12
    more = p.images + (GIB if p.images else 0)
    return LedgerLine(code="activation", bytes=p.bytes, kind="documented", source=PROFILE, low_bytes=round(p.bytes * (1 - width)) - p.workspace // 2,
                      high_bytes=round(p.bytes * (1 + width)) + more)  # fmt: skip


def state(model: ModelSpec, setting: Setting) -> tuple[LedgerLine, ...]:
    size = activation.sampler_state(model, setting)
    return (LedgerLine(code="sampler_state", bytes=size, kind="derived", source=cite("vllm 0.33 v1/worker/gpu/sample/penalties.py")),) if size else ()


def start_check(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting) -> tuple[int, tuple[Note, ...]]:
    """(bytes that are missing for vLLM to start at all, why). From 0.9.1 on the whole share must be free at start, whatever of it is needed;
    the process's own context is taken by then. Graphs that come after the pool need room outside the share."""
    rules, _ = rules_of(setting.asked_version)
    visible, _ = visible_memory(hardware)
    asked, context = requested_bytes(visible, setting.memory_fraction), round(overhead.CONTEXT_GIB[0] * GIB)
    free = visible - (s.used_memory_bytes or 0) - context
    if rules.others_outside and free < asked:
        most = math.floor(max(0, free) / visible * 100) / 100
        return asked - free, (note("warning", "free_memory_below_share", field="memory_fraction", source=START, needs=gib(asked), free=gib(free),
                                   fraction=setting.memory_fraction, most=most),)  # fmt: skip
    graphs = 0 if s.enforce_eager or runner(model, setting.asked_version)[1] else overhead.cuda_graphs(model, setting).bytes
    left = visible - asked - (s.used_memory_bytes or 0)
    if not graphs or left >= graphs + context:
        return 0, ()
    return 0, (note("warning", "graphs_beyond_share", field="memory_fraction", source=overhead.GRAPH_SOURCE, left=gib(left), needs=gib(graphs + context)),)

"""Where each byte of a device goes: the ledger of one rank up to the KV pool. Lines sum exactly to the device's memory.

"Does not fit" shows as a negative pool: nothing is clamped here.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines import vllm_budget
from planner.engines.settings import LedgerLine, LineKind, Setting
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.scenario import Scenario
from planner.units import GIB
from planner.weights import WeightFormat, bytes_on_rank, weight_format

WEIGHTS_SOURCE = cite("sum over the weights of the config's shapes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`before`: lines that come off before the pool, `pool_bytes` what is left (negative: the weights alone do not fit)."""

    before: tuple[LedgerLine, ...]
    pool_bytes: int
    weights_bytes: int


def weights_line(model: ModelSpec, fmt: WeightFormat, setting: Setting, stage: int) -> LedgerLine:
    size = bytes_on_rank(model, fmt, setting.parallel, stage)
    kind: LineKind = "derived" if fmt.kind == "derived" else "assumed"
    band = (None, None) if kind == "derived" else (round(size * 0.97), round(size * 1.06))
    return LedgerLine(code="weights", bytes=size, kind=kind, source=WEIGHTS_SOURCE, low_bytes=band[0], high_bytes=band[1],
                      args=(("matrix", fmt.matrix.name), ("rest", fmt.rest.name)))  # fmt: skip


def budget(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, stage: int) -> Budget:
    """The budget of one rank of a pipeline stage, by the engine's own rule."""
    weights = weights_line(model, weight_format(model, s.weight_dtype, setting.model_dtype), setting, stage)
    if setting.engine == "architecture":
        lines: tuple[LedgerLine, ...] = (weights,)
    elif setting.engine == "transformers":
        _, gap = vllm_budget.visible_memory(hardware)
        lines = (gap, weights, _transformers_activation(model, s, setting), vllm_budget.non_torch(setting))
    else:
        visible, gap = vllm_budget.visible_memory(hardware)
        outside = visible - vllm_budget.requested_bytes(visible, setting.memory_fraction)
        lines = (
            gap,
            LedgerLine(code="outside_budget", bytes=outside, kind="derived", source=cite("vLLM 0.33 v1/worker/utils.py"),
                       args=(("fraction", setting.memory_fraction),)),
            weights,
            *vllm_budget.reserve(model, setting),
        )  # fmt: skip
    return Budget(before=lines, pool_bytes=hardware.memory_bytes - sum(line.bytes for line in lines), weights_bytes=weights.bytes)


def _transformers_activation(model: ModelSpec, s: Scenario, setting: Setting) -> LedgerLine:
    """One prefill of the whole prompt: the widest feed-forward layer's intermediates and four hidden states, plus one row of logits a
    sequence in fp32. Assumed: no logs of transformers were fitted."""
    widths = [m.width or m.expert_width * m.top_k + m.shared_width for layer, _ in model.layer_groups() if (m := layer.mlp)]
    size = s.tokens * (3 * max(widths, default=4 * model.hidden_size) + 4 * model.hidden_size) * setting.model_dtype.nbytes(1)
    size += s.sequences * model.vocab_size * 4
    return LedgerLine(code="activation", bytes=size, kind="assumed", source=cite("2 T (3 I + 4 H) + 4 B V for one prompt at a time"),
                      low_bytes=size // 2, high_bytes=size * 2 + GIB // 4)  # fmt: skip

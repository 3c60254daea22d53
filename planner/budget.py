"""Where each byte of a device goes: the ledger of one rank up to the KV pool. Lines sum exactly to the device's memory.

"Does not fit" shows as a negative pool: nothing is clamped here.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines import engine
from planner.engines.settings import LedgerLine, LineKind, Setting
from planner.engines.shared import used_memory
from planner.engines.vllm import lora
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import memory
from planner.weights import bytes_on_rank, parameters, weight_format

GIVEN_SOURCE = cite("the stored bytes of all weights, as given or by the safetensors headers")
WEIGHTS_SOURCE = cite("sum over the weights of the config's shapes")
QUANTIZED_SOURCE = cite("sum over the weights of the config's shapes, stored as quantization_config says, scales included")
BOUND_SOURCE = cite("sum over the weights of the config's shapes, as if unquantized: an upper bound")

FILES_NEAR = 0.02  # headers, padding and small buffers stay below; a vision part or draft layers do not


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`before`: lines that come off before the pool, `pool_bytes` what is left (negative: the weights alone do not fit)."""

    before: tuple[LedgerLine, ...]
    pool_bytes: int
    weights_bytes: int


def weights_line(model: ModelSpec, s: Scenario, setting: Setting, stage: int) -> LedgerLine:
    """One rank's weights: by the shapes, or the bytes that were given for all of them (file sizes, safetensors headers), shared out
    over ranks as the shapes are."""
    fmt = weight_format(model, s.weight_dtype, setting.model_dtype)
    size = bytes_on_rank(model, fmt, setting.parallel, stage)
    if s.weight_bytes is not None and s.weight_dtype is None:
        whole = bytes_on_rank(model, fmt, Parallel())
        size = s.weight_bytes * size // whole if whole else s.weight_bytes // setting.parallel.ranks
        return LedgerLine(code="weights_given", bytes=size, kind="derived", source=GIVEN_SOURCE)
    kind: LineKind = "derived" if fmt.kind == "derived" else "assumed"
    if fmt.kind == "unknown":  # from one bit in sixteen to none saved
        return LedgerLine(code="weights_bound", bytes=size, kind="assumed", source=BOUND_SOURCE, low_bytes=size // 16, high_bytes=size,
                          args=(("method", fmt.method or ""),))  # fmt: skip
    band = (None, None) if kind == "derived" else _band(model, size, fmt.method is not None and (not fmt.as_read or model.storage != "exact"))
    source = QUANTIZED_SOURCE if fmt.layouts else WEIGHTS_SOURCE
    return LedgerLine(code="weights", bytes=size, kind=kind, source=source, low_bytes=band[0], high_bytes=band[1],
                      args=(("stored", fmt.name),))  # fmt: skip


def weights_counted(model: ModelSpec, s: Scenario, setting: Setting) -> tuple[int, int]:
    """(bytes of all weights as given, bytes by the shapes): the factor between them; (1, 1) where nothing was given."""
    if s.weight_bytes is None or s.weight_dtype is not None:
        return 1, 1
    return s.weight_bytes, bytes_on_rank(model, weight_format(model, None, setting.model_dtype), Parallel()) or s.weight_bytes


def files_differ(model: ModelSpec, s: Scenario, setting: Setting) -> tuple[Note, ...]:
    """A note where the bytes of the files are far from those of the layers that were read: other parts are in them, or the wrong file."""
    if s.weight_bytes is None or s.weight_dtype is not None or model.storage == "unknown":
        return ()
    counted = bytes_on_rank(model, weight_format(model, None, setting.model_dtype), Parallel())
    if abs(s.weight_bytes - counted) <= counted * FILES_NEAR:
        return ()
    return (note("warning", "weights_files_differ", field="weight_bytes", known=memory(s.weight_bytes), counted=memory(counted)),)


def _band(model: ModelSpec, size: int, by_method: bool) -> tuple[int, int]:
    """Around the weights' bytes: what the count leaves open, and what a quantization method named without its details does."""
    p = parameters(model)
    low, high = (size * p.low // p.total, size * p.high // p.total) if p.total else (size, size)
    return (round(low * 0.97), round(high * 1.06)) if by_method else (low, high)


def budget(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, stage: int) -> Budget:
    """The budget of one rank of a pipeline stage, by the engine's own rule."""
    weights = weights_line(model, s, setting, stage)
    lines = engine(setting.engine).lines(model, hardware, s, setting, weights)
    if s.used_memory_bytes and all(line.code != "used_memory" for line in lines):  # an engine without a rule of its own
        lines = (*lines[:1], *used_memory(s), *lines[1:])
    lines = (*lines, *lora.line(model, s, setting, stage))  # of vLLM alone: other engines refuse the option
    return Budget(before=lines, pool_bytes=hardware.memory_bytes - sum(line.bytes for line in lines),
                  weights_bytes=sum(line.bytes for line in lines if line.code == weights.code))  # fmt: skip

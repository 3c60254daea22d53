"""Where each byte of a device goes: the ledger of one rank up to the KV pool. Lines sum exactly to the device's memory.

"Does not fit" shows as a negative pool: nothing is clamped here.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines import engine
from planner.engines.settings import LedgerLine, LineKind, Setting
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.weights import bytes_on_rank, weight_format

GIVEN_SOURCE = cite("the stored bytes of all weights, as given or by the safetensors headers")
WEIGHTS_SOURCE = cite("sum over the weights of the config's shapes")


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
    band = (None, None) if kind == "derived" else (round(size * 0.97), round(size * 1.06))
    return LedgerLine(code="weights", bytes=size, kind=kind, source=WEIGHTS_SOURCE, low_bytes=band[0], high_bytes=band[1],
                      args=(("stored", fmt.name),))  # fmt: skip


def budget(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, stage: int) -> Budget:
    """The budget of one rank of a pipeline stage, by the engine's own rule."""
    weights = weights_line(model, s, setting, stage)
    lines = engine(setting.engine).lines(model, hardware, s, setting, weights)
    return Budget(before=lines, pool_bytes=hardware.memory_bytes - sum(line.bytes for line in lines), weights_bytes=weights.bytes)

"""What both runners settle before they build anything: device, formats, memory, progress; and what becomes of memory that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpu_probe import backends
from gpu_probe import device as devices
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.fit import Speed, host_memory_bytes, usable_bytes
from gpu_probe.pool import PoolExhausted
from gpu_probe.result import ProbeRequest, ProbeResult
from planner.dtypes import KvLayout, kv_layout
from planner.messages import Word, phase_word
from planner.model import ModelSpec
from planner.notes import Note, note

Emit = Callable[[dict[str, Any]], None]
MEMORY_LIMIT = 1.25
"""The process may take so many times what the plan may fill: the plan's estimate of working memory is not exact."""


class Progress:
    """Passes phases on as events; `where` is the one that runs now."""

    def __init__(self, emit: Emit) -> None:
        self.emit, self.where = emit, "start"

    def phase(self, name: str, done: int, total: int) -> None:
        self.where = name
        self.emit({"ev": "phase", "name": name, "done": done, "total": total})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`kv`: how a row is stored; `storage`: the dtype of its numbers, `compute`: of weights and products. `memory`: bytes that the plan
    may fill. `began`: by the clock of `perf_counter`."""

    request: ProbeRequest
    device: torch.device
    kv: KvLayout
    storage: torch.dtype
    compute: torch.dtype
    memory: int
    began: float
    progress: Progress

    @property
    def scaled(self) -> bool:
        """A float32 scale stands beside each token's and head's K and V."""
        return self.kv.scale_bytes > 0

    def speed(self, most_s: float, share: float) -> Speed | None:
        """For a plan of time: `most_s` seconds, and at most this share of the time limit. None: no plan of time on this device."""
        if self.device.type != "cpu":
            return None
        return Speed(flop_per_s=devices.flop_per_s(self.compute, self.device), budget_s=min(most_s, self.request.time_limit_s * share))

    def keep_within(self, memory: int, elements_per_layer: int) -> None:
        """From here on: the memory limit, and as many threads as products of this size gain from."""
        devices.limit_memory(self.device, int(memory * MEMORY_LIMIT))
        devices.use_threads(self.device, elements_per_layer)

    def say_plan(self, *, predicted: int, layers_run: int, layers_total: int, needed: int, notes: tuple[Note, ...]) -> None:
        self.progress.emit({
            "ev": "plan", "predicted_kv_bytes": predicted, "layers_run": layers_run, "layers_total": layers_total,
            "needed_bytes": needed, "memory_bytes": self.memory, "notes": [n.to_json() for n in notes],
        })  # fmt: skip

    def format_notes(self) -> list[Note]:
        """What there is to say of how rows are stored and shared."""
        notes = []
        if self.storage != self.compute and self.storage.itemsize > 1:
            notes.append(note("info", "probe_compute_dtype", "kv_dtype", compute=devices.dtype_name(self.compute), kv=self.kv.name))
        if self.scaled:
            notes.append(note("info", "probe_scales", "kv_dtype", kv=self.kv.name))
        elif self.storage.itemsize == 1:
            notes.append(note("info", "probe_fp8_unscaled", "kv_dtype"))
        if self.request.shared_prefix:
            shared = self.request.shared_tokens()
            notes.append(note("info", "probe_shared", tokens=shared) if shared else note("warning", "probe_shared_short"))
        return notes


def set_up(model: ModelSpec, request: ProbeRequest, progress: Progress) -> Setup:
    """Says hello, and settles what `request` leaves open for `model`. Raises what `device.pick` and the formats refuse."""
    began = time.perf_counter()
    torch.set_float32_matmul_precision("highest")
    device = devices.pick(request.device)
    progress.emit({"ev": "hello", "versions": devices.versions(device), "device": str(device), "device_name": devices.name_of(device),
                   "backends": list(backends.ORDER.get(device.type, backends.ANYWHERE))})  # fmt: skip
    progress.phase("plan", 0, 1)
    kv = kv_layout(_resolved(request.kv_dtype, model))
    storage = devices.storage_dtype(kv.element, device)
    return Setup(
        request=request, device=device, kv=kv, storage=storage, compute=devices.compute_dtype(storage, device),
        memory=usable_bytes(request, devices.free_bytes(device, host_memory_bytes())), began=began, progress=progress,
    )  # fmt: skip


def guarded(request: ProbeRequest, emit: Emit, body: Callable[[ProbeRequest, Progress], ProbeResult]) -> ProbeResult:
    """`body` with the checked request. Memory that is refused, in whatever way, becomes ProbeOutOfMemory with the phase."""
    progress = Progress(emit)
    try:
        return body(request.checked(), progress)
    except PoolExhausted as e:
        asked, free, total = e.args
        raise ProbeOutOfMemory("probe_pool", field="memory_cap", where=phase_word(progress.where), asked=asked, free=free, total=total) from e
    except (RuntimeError, MemoryError) as e:
        if not devices.is_out_of_memory(e):
            raise
        raise refused_memory(e, progress.where, devices.pick(request.device)) from e


def refused_memory(error: BaseException, where: str, device: torch.device) -> ProbeOutOfMemory:
    """What to tell of an allocation that was refused: what was asked for and what was free, where that is known."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    reason = said.rsplit("DefaultCPUAllocator: ", 1)[-1][:160].rstrip(".")  # before it: torch's own file and line
    asked, free = devices.asked_bytes(error), devices.headroom_bytes(device)
    amounts = [Word("unknown", "word.unknown") if n is None else Word(f"{n:,} bytes", "word.bytes", bytes=f"{n:,}") for n in (asked, free)]
    return ProbeOutOfMemory(
        "probe_memory", field="memory_cap", where=phase_word(where), reason=reason, wanted=amounts[0], left=amounts[1], asked=asked, free=free
    )


def _resolved(kv_dtype: str, model: ModelSpec) -> str:
    """`auto` is the model's own dtype; one that no cache is stored in (a quantized checkpoint's) becomes bf16."""
    if kv_dtype != "auto":
        return kv_dtype
    return model.dtype.name if model.dtype.name in ("fp32", "bf16", "fp16") else "bf16"

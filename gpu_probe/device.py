"""The torch device: which one, how fast and how large, and how the run is kept within its memory."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import time
from pathlib import Path

import numpy
import torch

from gpu_probe.fit import host_memory_bytes
from planner.dtypes import DType
from planner.errors import InvalidInput, UnsupportedValue
from planner.units import KIB

TORCH_DTYPES = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "int8": torch.int8,
}  # fmt: skip

SMALL_LAYER = 4_000_000
"""Weights of a layer, in numbers, below which threads do not pay."""


def pick(name: str) -> torch.device:
    """`auto`: the accelerator that torch sees, else the CPU. A named one that is not there is an error, never a fallback.

    A CUDA device comes back with its number: torch's memory limits refuse one without.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        found = torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as e:  # torch raises any of these for a device that is not built in
        raise InvalidInput("probe_device", field="device", value=name[:40], reason=str(e).splitlines()[0][:120]) from e
    return found if device.type == "cuda" else device


def dtype_name(dtype: torch.dtype) -> str:
    """The planner's name of a torch dtype."""
    return next(name for name, known in TORCH_DTYPES.items() if known == dtype)


def synchronize(device: torch.device) -> None:
    """Waits until the device is done; a clock read before that would time the launch only."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        torch.accelerator.synchronize()


def free_bytes(device: torch.device, host_bytes: int | None) -> int | None:
    """Bytes free on the device now; for the CPU and unified memory the host's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return host_bytes


def name_of(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )


def versions(device: torch.device) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__, "platform": sys.platform}
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda or torch.version.hip)
    if device.type == "cpu":
        found["threads"] = str(torch.get_num_threads())
        found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return found


def storage_dtype(kv: DType, device: torch.device) -> torch.dtype:
    if kv.name.startswith("fp8") and device.type == "mps":
        raise UnsupportedValue("probe_kv_dtype", field="kv_dtype", value=kv.name, known="fp32, bf16, fp16")
    return TORCH_DTYPES[kv.name]


def compute_dtype(storage: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of weights and products: the cache's own, or on a CPU float32 where its half-width products are slower."""
    if storage.itemsize == 1:
        storage = torch.bfloat16
    if device.type != "cpu" or storage == torch.float32:
        return storage
    return storage if flop_per_s(storage, device, size=256) > flop_per_s(torch.float32, device, size=256) else torch.float32


def cache_bytes(device: torch.device) -> int:
    """The last-level cache of a CPU; 0 elsewhere, and where it is not told."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size") if device.type == "cpu" else ():
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) * {"K": KIB, "M": KIB**2, "G": KIB**3}.get(text[-1:], 1))
    return max(sizes)


def flop_per_s(dtype: torch.dtype, device: torch.device, *, size: int = 768) -> float:
    """FLOP/s of one square product; best of three after one that does not count."""
    a = torch.ones(size, size, dtype=dtype, device=device)
    best = float("inf")
    for turn in range(4):
        synchronize(device)
        start = time.perf_counter()
        a @ a
        synchronize(device)
        if turn:
            best = min(best, time.perf_counter() - start)
    return 2 * size**3 / max(best, 1e-9)


def use_threads(device: torch.device, elements_per_layer: int) -> None:
    """One thread for small products on a CPU: they gain nothing from a second one, and on a busy machine they wait for it at every
    operation. A number of threads that the environment asks for is left alone."""
    if device.type == "cpu" and elements_per_layer < SMALL_LAYER and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def limit_memory(device: torch.device, cap_bytes: int) -> None:
    """From here on the process may take `cap_bytes` more; beyond that an allocation fails with an ordinary, catchable error.

    CPU: RLIMIT_DATA. Never RLIMIT_AS, and no limit of the host's memory with CUDA: it reserves address space without using it.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total), device)
    elif device.type == "cpu" and sys.platform.startswith("linux"):
        import resource

        most = _status_bytes("VmData:") + cap_bytes
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def offer_to_oom_killer() -> None:
    """Asks the kernel to end this process, and not the server that started it, when the machine runs out of memory."""
    with contextlib.suppress(OSError):  # not Linux, or not allowed: the memory cap still holds
        Path("/proc/self/oom_score_adj").write_text("900")


def memory_now(device: torch.device) -> dict[str, int]:
    """Bytes that the process holds: on the host (now, peak) and on a CUDA device (tensors now, their peak, reserved, asked for)."""
    found = {"host_rss_bytes": _status_bytes("VmRSS:"), "host_peak_rss_bytes": _status_bytes("VmHWM:")}
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        found["device_allocated_bytes"] = int(stats.get("allocated_bytes.all.current", 0))
        found["device_peak_allocated_bytes"] = int(stats.get("allocated_bytes.all.peak", 0))
        found["device_reserved_bytes"] = int(stats.get("reserved_bytes.all.current", 0))
        found["device_requested_bytes"] = int(stats.get("requested_bytes.all.current", 0))
    return found


class Peak:
    """What stretches of a run take at their worst, beyond what was held when they began.

    CUDA: by torch's allocator, whose peak is set back. Linux: by the resident set, whose peak the kernel sets back (clear_refs in proc(5));
    memory that the process's heap had free already does not show. Elsewhere nobody tells. `worst`: the peaks that were set back.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.worst: dict[str, int] = {}
        self._base: int | None = None

    def begin(self) -> None:
        now = memory_now(self.device)
        self.worst = {k: max(v, now.get(k, 0)) for k, v in ({k: 0 for k in now if "_peak_" in k} | self.worst).items()}
        self._base = None
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._base = now["device_allocated_bytes"]
        elif self.device.type == "cpu":
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
                self._base = _status_bytes("VmRSS:")

    def end(self) -> int | None:
        """Bytes since `begin`; None: nobody tells."""
        if self._base is None:
            return None
        now = memory_now(self.device)
        return max(0, now["device_peak_allocated_bytes" if self.device.type == "cuda" else "host_peak_rss_bytes"] - self._base)

    def memory_now(self) -> dict[str, int]:
        """As `memory_now`, with the peaks of the whole run."""
        return {k: max(v, self.worst.get(k, 0)) for k, v in memory_now(self.device).items()}


def levels(device: torch.device, tensor_bytes: int) -> dict[str, int | None]:
    """The same memory at four levels, each at least the one before: bytes of tensors that were found, what the allocator handed out,
    what it took from the driver, what is in use on the device (by every process). None where the device does not tell."""
    found: dict[str, int | None] = {"tensor": tensor_bytes, "allocator": None, "reserved": None, "device": None}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found |= {"allocator": torch.cuda.memory_allocated(device), "reserved": torch.cuda.memory_reserved(device), "device": total - free}
    elif device.type == "mps":
        found |= {"allocator": torch.mps.current_allocated_memory(), "reserved": torch.mps.driver_allocated_memory()}
    return found


def slack(device: torch.device, levels: dict[str, int | None], workspace: int) -> dict[str, int | None]:
    """What lies between the levels, in bytes: `untracked` in the allocator beside tensors that were found and `workspace` (libraries'
    own workspaces), `rounding` up to the allocator's sizes, `unused` segments, `context` of the driver (and of other processes). None
    where the device does not tell."""
    found: dict[str, int | None] = dict.fromkeys(("untracked", "rounding", "unused", "context"))
    allocator, reserved, used, tensor = (levels[name] for name in ("allocator", "reserved", "device", "tensor"))
    if allocator is not None and tensor is not None:
        found["untracked"] = allocator - tensor - workspace
    if allocator is not None and reserved is not None:
        found["unused"] = reserved - allocator
    if used is not None and reserved is not None:
        found["context"] = used - reserved
    if device.type == "cuda":
        now = memory_now(device)
        found["rounding"] = now["device_allocated_bytes"] - now["device_requested_bytes"]
    return found


def asked_bytes(error: BaseException) -> int | None:
    """The size of the allocation that torch says it was refused; None: it does not say."""
    found = re.search(r"tried to allocate ([\d.]+) ?(bytes|[KMGT]iB)", str(error), re.IGNORECASE)
    if found is None:
        return None
    return round(float(found[1]) * {"b": 1, "k": KIB, "m": KIB**2, "g": KIB**3, "t": KIB**4}[found[2][0].lower()])


def headroom_bytes(device: torch.device) -> int | None:
    """Bytes that the process may still take: on an accelerator what is free, on a CPU also what its own limit leaves."""
    if device.type != "cpu" or not sys.platform.startswith("linux"):
        return free_bytes(device, None)
    import resource

    soft, available = resource.getrlimit(resource.RLIMIT_DATA)[0], host_memory_bytes()
    found = [] if soft == resource.RLIM_INFINITY else [max(0, soft - _status_bytes("VmData:"))]
    return min(found + ([] if available is None else [available]), default=None)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text or "not enough memory" in text)


def _status_bytes(key: str) -> int:
    return next((int(line.split()[1]) * KIB for line in _lines("/proc/self/status") if line.startswith(key)), 0)


def _lines(path: str) -> list[str]:
    """Lines of a file that only Linux has; nothing elsewhere."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

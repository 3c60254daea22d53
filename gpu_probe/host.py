"""Which devices this host has, without torch: asked of the driver's own tool in a short child process, of the system otherwise.

NVIDIA: ``nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits`` (MiB of 2^20 bytes). Apple: the chip's name by ``sysctl``,
its memory is the machine's. Any other host: no GPU is claimed, and its RAM stands for the memory of a device.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from planner.errors import UnsupportedValue
from planner.units import MIB

TIMEOUT_S = 5.0
MAX_DEVICES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """`count` equal devices. kind: gpu | apple | cpu; `memory_bytes` of one: the driver's figure, or the machine's RAM."""

    name: str
    memory_bytes: int
    kind: str
    count: int = 1


def devices() -> tuple[HostDevice, ...]:
    """What there is, equal ones as one entry; of a host without any GPU its CPU. Takes up to 5 s.

    Raises UnsupportedValue (field "device") where nothing can be told."""
    ram = _ram_bytes()
    found = _nvidia(ram) or _apple(ram)
    if not found and ram:
        found = (HostDevice(name="CPU RAM", memory_bytes=ram, kind="cpu"),)
    if not found:
        raise UnsupportedValue("host_unknown", field="device")
    return found


def _nvidia(ram: int | None) -> tuple[HostDevice, ...]:
    lines = _said("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits").splitlines()[:MAX_DEVICES]
    counts: dict[tuple[str, int], int] = {}
    for line in lines:
        name, _, size = line.rpartition(",")
        shared = not size.strip().isdigit()  # "[N/A]": the memory is the machine's (GB10, Jetson)
        memory = (ram or 0) if shared else int(size) * MIB
        if name.strip() and memory:
            key = (_printable(name), memory)
            counts[key] = counts.get(key, 0) + 1
    return tuple(HostDevice(name=name, memory_bytes=memory, kind="gpu", count=n) for (name, memory), n in counts.items())


def _apple(ram: int | None) -> tuple[HostDevice, ...]:
    if platform.system() != "Darwin" or platform.machine() != "arm64" or not ram:
        return ()
    return (HostDevice(name=_printable(_said("sysctl", "-n", "machdep.cpu.brand_string")) or "Apple", memory_bytes=ram, kind="apple"),)


def _ram_bytes() -> int | None:
    """All of the machine's memory, or the control group's limit where that is less."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # no such figure on this system
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    least = min(found, default=0)
    return least // MIB * MIB or None if least > 0 else None


def _said(program: str, *words: str) -> str:
    """What a program of this host prints; nothing where it is not there, fails, or takes too long."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:100_000] if done.returncode == 0 else ""


def _printable(text: str) -> str:
    return "".join(c for c in text.strip()[:80] if c.isprintable())

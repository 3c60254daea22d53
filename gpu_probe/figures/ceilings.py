"""How fast a device reads memory and multiplies: the ceilings that shares are of. And a clock that goes round several calls.

The ceiling of reading is of reading alone: a decode step writes next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gpu_probe import device as devices
from gpu_probe.calibration import steady
from planner.units import GIB, MIB

READ_BYTES = {"cpu": 256 * MIB, "cuda": 2 * GIB}
PRODUCT_SIZE = {"cpu": 768, "cuda": 4096}
"""By device type, others as the CPU: the buffer that is read once, and the side of the square product."""
ROUNDS, FEW_ROUNDS = 7, 3
"""Of a suite, and of a single run, whose ceilings must cost next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where something is timed, and the seed of all that is random. `rounds`: of every timing."""

    device: torch.device
    seed: int = 0
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A call that does nothing but `work` bytes or products."""

    work: int
    call: Callable[[], object]


def reading(host: Host, size: int | None = None) -> Ceiling:
    """Memory read once."""
    size = size or READ_BYTES.get(host.device.type, READ_BYTES["cpu"])
    x = torch.ones(size // 4, device=host.device)
    return Ceiling(size, x.sum)


def product(host: Host, dtype: torch.dtype = torch.float32) -> Ceiling:
    """A square product, FLOP counted."""
    n = PRODUCT_SIZE.get(host.device.type, PRODUCT_SIZE["cpu"])
    a = torch.ones(n, n, dtype=dtype, device=host.device)
    return Ceiling(2 * n**3, lambda: a @ a)


def ceiling_bytes(device: str) -> int:
    """What both hold, with the product: by device type."""
    n = PRODUCT_SIZE.get(device, PRODUCT_SIZE["cpu"])
    return READ_BYTES.get(device, READ_BYTES["cpu"]) + 2 * n * n * 4


def ceilings(host: Host, *, dtype: torch.dtype = torch.float32, size: int | None = None, rounds: int = ROUNDS) -> dict[str, float]:
    """Best of the rounds: reading memory once (bytes/s), and square products in `dtype` (FLOP/s). `size`: of the buffer that is read."""
    read, multiply = reading(host, size), product(host, dtype)
    best = {name: min(seconds) for name, seconds in interleaved({"read": read.call, "product": multiply.call}, host, rounds).items()}
    return {"read_bytes_per_s": read.work / best["read"], "flop_per_s": multiply.work / best["product"]}


def around(before: Mapping[str, float], after: Mapping[str, float], dtype: torch.dtype) -> dict[str, Any]:
    """Both as a result carries them, and as `calibration.of` takes them."""
    return {"before": dict(before), "after": dict(after), "dtype": devices.dtype_name(dtype), "steady": steady(before, after)}


def interleaved(calls: Mapping[str, Callable[[], object]], host: Host, rounds: int | None = None) -> dict[str, list[float]]:
    """Seconds of each call, round by round, after a round that does not count. All take turns: a busy minute hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(1 + (rounds or host.rounds)):
        for name, call in calls.items():
            devices.synchronize(host.device)
            start = time.perf_counter()
            call()
            devices.synchronize(host.device)
            if turn:
                found[name].append(time.perf_counter() - start)
    return found

"""Prefill and decode on workers of their own, each like one replica of the plan: how many of which, and what the cache's way costs.

Rates match where ``prefill workers x X_p = decode workers x X_d`` with X_p = 1 / prefill (one prompt at a time) and X_d = B / (output x step).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from planner.capacity import CapacityPlan
from planner.engines.architecture import ideal_pools
from planner.latency import Served
from planner.latency.load import times
from planner.latency.speeds import PCIE_BYTES_PER_S
from planner.throughput import BatchLimit

NIC_BYTES_PER_S = 50e9
"""400 Gbit/s: one network card a GPU, as servers of eight have them."""
MOST_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """`prefill_rate`, `decode_rate`: requests a second of one worker; `prefill_workers` to `decode_workers`: the match with the least idle,
    `idle` of the faster side. `transfer_bytes`: one request's cache, one copy. `transfer_s`: by link, (name, seconds), sent when the prefill
    is done; what a layer-by-layer send leaves open after it is `exposed_s`. `needed`: workers for the request rate, None without one."""

    sequences: int
    prefill_rate: float
    decode_rate: float
    prefill_workers: int
    decode_workers: int
    idle: float
    itl_s: float
    together_itl_s: float
    ttft_s: float
    transfer_bytes: int
    transfer_s: dict[str, float]
    exposed_s: dict[str, float]
    needed: tuple[int, int] | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"needed": list(self.needed) if self.needed else None}


def split(p: CapacityPlan, own: Served, limit: BatchLimit, rate: float | None) -> Split:
    """Of workers like the plan's replica. Decode workers run the batch that memory and engine allow; the targets of the mixed server, whose
    ITL carries prefills, do not bind them. TTFT: over the network card, layer by layer."""
    batch = max(1, min(limit.memory, limit.engine or limit.memory))
    t = times(own.stages, own.speeds, own.at(batch))
    alone = times(own.stages, own.speeds, replace(own.load, sequences=1))
    prefill_s, step_s, output = float(alone.prefill_s), float(t.step_s), float(own.load.output)
    data, pipes = own.stages[0].attention_data, len(own.stages)
    x_p, x_d = data / prefill_s, batch / (output * step_s)  # each attention group prefills for itself
    workers = min(((a, b) for a in range(1, MOST_WORKERS + 1) for b in range(1, MOST_WORKERS + 1)), key=lambda w: (round(_idle(w, x_p, x_d), 2), sum(w)))
    bytes_ = cache_bytes(p, int(own.load.prompt))
    sent = {name: bytes_ / speed for name, speed in links(p).items()}
    layers = max(1, len(p.model.layers))
    # Layer by layer: all but the last layer's share travels while later layers are still computed, as far as there is time.
    exposed = {name: max(s / layers, s - prefill_s * (layers - 1) / layers) for name, s in sent.items()}
    return Split(
        sequences=batch, prefill_rate=x_p, decode_rate=x_d, prefill_workers=workers[0], decode_workers=workers[1], idle=_idle(workers, x_p, x_d),
        itl_s=step_s, together_itl_s=float(t.itl_s), ttft_s=own.speeds.serve_s + prefill_s + exposed["network"] + step_s / pipes, transfer_bytes=bytes_,
        transfer_s=sent, exposed_s=exposed, needed=(ceil(rate / x_p), ceil(rate / x_d)) if rate else None,
    )  # fmt: skip


def _idle(workers: tuple[int, int], x_p: float, x_d: float) -> float:
    """The share of the faster side's time that the slower one leaves it without work."""
    a, b = workers[0] * x_p, workers[1] * x_d
    return 1 - min(a, b) / max(a, b)


def links(p: CapacityPlan) -> dict[str, float]:
    """Bytes a second, one way: the device's own link where it has one, PCIe, the network card."""
    h = p.hardware
    own = {"gpu_link": h.link_bytes_per_s / 2} if h and h.link_bytes_per_s else {}
    return {**own, "pcie": PCIE_BYTES_PER_S.get((h.pcie_gen if h else None) or 4, 31e9), "network": NIC_BYTES_PER_S}


def cache_bytes(p: CapacityPlan, prompt: int) -> int:
    """What one prompt of so many tokens leaves behind: rows, windows and states, one copy of each, without block rounding."""
    setting = p.setting
    pools = ideal_pools(p.model, setting.kv, setting.model_dtype, encoder_tokens=setting.encoder_tokens)
    return int(sum(q.bytes(1, prompt) for q in pools))

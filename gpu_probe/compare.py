"""The table: what the planner predicts beside what the run found. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_probe.result import ProbeRequest, ProbeRow
from planner.cache import Pool
from planner.engines.probe import predicted_kv_bytes
from planner.messages import render


def row(code: str, predicted: float | int | None, measured: float | int | None, *, unit: str = "bytes", exact: bool = False, **args: Any) -> ProbeRow:
    return ProbeRow(
        name=render(f"row.{code}", args),
        predicted=predicted,
        measured=measured,
        how=render(f"row.{code}.how", args),
        unit=unit,
        exact=exact,
    )


def group_reports(pools: Sequence[Pool], request: ProbeRequest, held: Sequence[Any], prefill_blocks: Sequence[int], live_tokens: int) -> list[dict[str, Any]]:
    """One dict a group of layers: bytes and blocks, predicted and found, and how much of the held blocks is empty."""
    out = []
    for pool, found, peak in zip(pools, held, prefill_blocks, strict=True):
        (group,) = pool.groups
        size = pool.block_size or 1
        slots = found.held_blocks * size
        limit = group.resident.cap_tokens
        stored = request.batch * min(live_tokens, live_tokens if limit is None else _stored(live_tokens, limit, size))
        out.append({
            "kind": group.kind,
            "layers": len(group.layers),
            "predicted_bytes": pool.bytes(request.batch, live_tokens),
            "measured_bytes": found.held_bytes,
            "bytes_per_block": group.bytes_per_unit(),
            "predicted_blocks": request.batch * group.resident.units(live_tokens),
            "held_blocks": found.held_blocks,
            "pool_blocks": found.num_blocks,
            "pool_bytes": found.allocated_bytes,
            "tensors": found.tensors,
            "prefill_blocks_predicted": request.batch * group.admission.units(request.prompt),
            "prefill_blocks": peak,
            "transient": peak > request.batch * group.resident.units(request.prompt),
            "internal_fragmentation_fraction": (slots - stored) / slots if slots else 0.0,
        })  # fmt: skip
    return out


def _stored(tokens: int, cap: int, size: int) -> int:
    """Rows inside the blocks that a capped sequence still holds: all but those in blocks given back."""
    return tokens - max(0, -(-tokens // size) * size - cap)


def build_rows(
    pools: Sequence[Pool],
    request: ProbeRequest,
    groups: Sequence[dict[str, Any]],
    *,
    weights: tuple[int, int],
    read: tuple[int, int],
    memory: dict[str, int],
) -> list[ProbeRow]:
    """`weights` and `read`: (predicted, measured) bytes. `memory`: what `device.memory_now` said at the end."""
    total = predicted_kv_bytes(tuple(pools), request.batch, request.tokens())
    rows = [row("kv", total, sum(g["measured_bytes"] for g in groups), exact=True, tokens=request.tokens(), batch=request.batch)]
    for g in groups:
        words = {"kind": g["kind"], "layers": g["layers"]}
        rows.append(row("kv_group", g["predicted_bytes"], g["measured_bytes"], exact=True, **words))
        rows.append(row("blocks", g["predicted_blocks"], g["held_blocks"], unit="blocks", exact=True, **words))
        rows.append(row("prefill_blocks", g["prefill_blocks_predicted"], g["prefill_blocks"], unit="blocks", exact=True, **words))
        rows.append(row("pool", g["pool_blocks"] * g["bytes_per_block"], g["pool_bytes"], exact=True, **words))
        rows.append(row("fragmentation", None, g["internal_fragmentation_fraction"], unit="fraction", **words))
    rows.append(row("weights", weights[0], weights[1], exact=True))
    rows.append(row("read", read[0], read[1]))
    for name, code in (
        ("host_peak_rss_bytes", "host_peak"),
        ("device_peak_allocated_bytes", "device_peak"),
        ("device_reserved_bytes", "device_reserved"),
    ):
        if memory.get(name):
            rows.append(row(code, None, memory[name]))
    return rows

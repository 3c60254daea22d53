"""The table: what the planner predicts beside what the run found. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_probe.result import ProbeRequest, ProbeRow
from planner.cache import Group, Pool
from planner.engines.probe import held_blocks, predicted_kv_bytes, shared_blocks
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
    out, prefix = [], request.shared_tokens()
    for pool, found, peak in zip(pools, held, prefill_blocks, strict=True):
        (group,) = pool.groups
        size = pool.block_size or 1
        slots = found.held_blocks * size
        shared = shared_blocks(group, live_tokens, prefix)
        stored = slots if group.kind == "state" else _rows_stored(group, request, live_tokens, size) - (request.batch - 1) * shared * size
        blocks = held_blocks(group, request.batch, live_tokens, prefix)
        one = group.bytes_per_unit()
        out.append({
            "kind": group.kind,
            "layers": len(group.layers),
            "predicted_bytes": blocks * one,
            "measured_bytes": found.held_bytes,
            "scale_bytes": found.scale_bytes,
            "bytes_per_block": one,
            "predicted_bytes_per_token": one // size,
            "bytes_per_token": found.held_bytes // slots if slots else 0,
            "predicted_blocks": blocks,
            "shared_blocks_predicted": shared,
            "shared_blocks": found.shared_blocks,
            "held_blocks": found.held_blocks,
            "pool_blocks": found.num_blocks,
            "pool_bytes": found.allocated_bytes,
            "tensors": found.tensors,
            "prefill_blocks_predicted": held_blocks(group, request.batch, request.prompt, prefix, "admission"),
            "prefill_blocks": peak,
            "transient": peak > held_blocks(group, request.batch, request.prompt, prefix),
            "internal_fragmentation_fraction": (slots - stored) / slots if slots else 0.0,
            "empty_slots": slots - stored,
            "unusable_blocks": found.unusable_blocks,
        })  # fmt: skip
    return out


def layer_lines(pools: Sequence[Pool], request: ProbeRequest, held: Sequence[Any]) -> list[dict[str, Any]]:
    """One dict a layer, in the model's order: its bytes and, of rows, its bytes a token; a state is the same size at any length."""
    out = []
    for pool, found in zip(pools, held, strict=True):
        (group,) = pool.groups
        unit, slots = group.resident.unit_bytes, found.held_blocks * (pool.block_size or 1)
        predicted = held_blocks(group, request.batch, request.tokens(), request.shared_tokens()) * unit
        for index in group.layers:
            line = {"layer": index, "kind": group.kind, "predicted_bytes": predicted, "measured_bytes": found.by_layer.get(index, 0)}
            if pool.block_size:
                line |= {"predicted_bytes_per_token": unit // pool.block_size, "bytes_per_token": line["measured_bytes"] // slots if slots else 0}
            out.append(line)
    return sorted(out, key=lambda line: line["layer"])


def layer_text(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The lines for a terminal, equal neighbours as one."""
    runs: list[list[dict[str, Any]]] = []
    for line in lines:
        rest = {k: v for k, v in line.items() if k != "layer"}
        last = runs[-1][-1] if runs else None
        if last is not None and last["layer"] == line["layer"] - 1 and {k: v for k, v in last.items() if k != "layer"} == rest:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [
        render("line.layer" if len(run) == 1 else "line.layers", {
            "first": run[0]["layer"], "last": run[-1]["layer"], "kind": run[0]["kind"],
            "predicted": f"{run[0]['predicted_bytes']:,}", "measured": f"{run[0]['measured_bytes']:,}",
        })
        for run in runs
    ]  # fmt: skip


def fragmentation(pools: Sequence[Pool], groups: Sequence[dict[str, Any]], request: ProbeRequest, max_context_tokens: int | None) -> dict[str, Any]:
    """What pages waste, and what they save. Internal: slots of held blocks without a row. External: free blocks that nobody could get.
    Contiguous: the same sequences with room for `max_context_tokens` rows each (windows and chunks: for their own length), reserved at
    once and shared by nobody; None without a maximal context."""
    held = sum(g["measured_bytes"] for g in groups)
    contiguous = None
    if max_context_tokens is not None:
        length = max(max_context_tokens, request.tokens())
        contiguous = 0
        for pool in pools:
            (group,) = pool.groups
            limit = group.limit_tokens or length
            contiguous += request.batch * len(group.layers) * group.resident.unit_bytes * min(limit, length) // (pool.block_size or min(limit, length))
    return {
        "internal_bytes": sum(g["empty_slots"] * g["predicted_bytes_per_token"] for g in groups),
        "external_bytes": sum(g["unusable_blocks"] * g["bytes_per_block"] for g in groups),
        "held_bytes": held, "contiguous_bytes": contiguous, "max_context_tokens": max_context_tokens,
        "held_share_of_contiguous": held / contiguous if contiguous else None,
    }  # fmt: skip


def _rows_stored(group: Group, request: ProbeRequest, tokens: int, size: int) -> int:
    cap = group.resident.cap_tokens
    return request.batch * (tokens if cap is None else min(tokens, _stored(tokens, cap, size)))


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
    scales: tuple[int, int] = (0, 0),
    tables: tuple[int, int] | None = None,
    waste: dict[str, Any] | None = None,
    levels: dict[str, int | None] | None = None,
    accuracy: dict[str, Any] | None = None,
) -> list[ProbeRow]:
    """`weights`, `read`, `scales` and `tables`: (predicted, measured) bytes. `memory`: what `device.memory_now` said at the end.
    `waste`: of `fragmentation`. `levels`: of `device.levels`."""
    total = predicted_kv_bytes(tuple(pools), request.batch, request.tokens(), request.shared_tokens())
    rows = [row("kv", total, sum(g["measured_bytes"] for g in groups), exact=True, tokens=request.tokens(), batch=request.batch)]
    if any(scales):
        rows.append(row("scales", *scales, exact=True))
    if tables is not None:
        rows.append(row("tables", *tables, exact=True))
    for g in groups:
        words = {"kind": g["kind"], "layers": g["layers"]}
        rows.append(row("kv_group", g["predicted_bytes"], g["measured_bytes"], exact=True, **words))
        if g["kind"] != "state":
            rows.append(row("token", g["predicted_bytes_per_token"], g["bytes_per_token"], exact=True, **words))
        if request.shared_tokens():
            rows.append(row("shared_blocks", g["shared_blocks_predicted"], g["shared_blocks"], unit="blocks", exact=True, **words))
        rows.append(row("blocks", g["predicted_blocks"], g["held_blocks"], unit="blocks", exact=True, **words))
        rows.append(row("prefill_blocks", g["prefill_blocks_predicted"], g["prefill_blocks"], unit="blocks", exact=True, **words))
        rows.append(row("pool", g["pool_blocks"] * g["bytes_per_block"], g["pool_bytes"], exact=True, **words))
        rows.append(row("fragmentation", None, g["internal_fragmentation_fraction"], unit="fraction", **words))
    if waste is not None:
        rows.append(row("internal", None, waste["internal_bytes"]))
        rows.append(row("external", 0, waste["external_bytes"], exact=True))
        if waste["contiguous_bytes"] is not None:
            rows.append(row("contiguous", waste["contiguous_bytes"], None, tokens=waste["max_context_tokens"]))
    if accuracy is not None:
        rows.append(row("accuracy", accuracy["tolerance"], accuracy["error"], unit="fraction", kv=accuracy["kv_dtype"]))
    rows.append(row("weights", weights[0], weights[1], exact=True))
    rows.append(row("read", read[0], read[1]))
    for name, code in (
        ("host_peak_rss_bytes", "host_peak"),
        ("device_peak_allocated_bytes", "device_peak"),
        ("device_reserved_bytes", "device_reserved"),
    ):
        if memory.get(name):
            rows.append(row(code, None, memory[name]))
    rows += [row(f"level_{name}", None, value) for name, value in (levels or {}).items() if value is not None]
    return rows

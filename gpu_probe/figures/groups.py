"""What the pages hold, by group of layers and by layer, and what they waste. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_probe.result import ProbeRequest
from planner.cache import Group, Pool
from planner.engines.probe import held_blocks, shared_blocks


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

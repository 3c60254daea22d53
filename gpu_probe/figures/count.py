"""What a run is found to hold, set beside what the planner says: one place for both runners, filled while cache and weights still live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_probe import device as devices
from gpu_probe import measure
from gpu_probe.attention import PagedAttention
from gpu_probe.figures.groups import fragmentation, group_reports, layer_lines
from gpu_probe.session import Trace
from gpu_probe.setup import Setup
from planner.cache import Pool
from planner.engines.probe import predicted_kv_bytes, predicted_read_bytes, predicted_scale_bytes, predicted_table_bytes
from planner.model import ModelSpec
from planner.notes import Note, note

Pair = tuple[int, int]
"""Predicted and measured bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """`kv` includes `scales`. `groups` and `lines`: a dict a group of layers and a layer. `levels`, `slack`: as `device` says.
    `working`: bytes that the plan set aside for prefill and decode."""

    kv: Pair
    scales: Pair
    tables: Pair
    weights: Pair
    read: Pair
    groups: tuple[dict[str, Any], ...]
    lines: tuple[dict[str, Any], ...]
    levels: dict[str, int | None]
    slack: dict[str, int | None]
    workspace: int
    waste: dict[str, Any]
    peaks: dict[str, int | None]
    working: int
    pools: tuple[Pool, ...]

    def notes(self, trimmed: int) -> list[Note]:
        """Groups that hold more during the prefill than after it."""
        return [note("info", "probe_prefill_transient", kind=g["kind"], peak=g["prefill_blocks"], trimmed=trimmed) for g in self.groups if g["transient"]]


def count(
    setup: Setup, model: ModelSpec, layers: Sequence[int], pools: tuple[Pool, ...], attention: PagedAttention, trace: Trace,
    *, weights: Any, weights_predicted: int, working: int,
) -> Counted:  # fmt: skip
    """`model`, `layers`: of which `pools` were allocated. `weights`: an object whose tensors are the weights."""
    request = setup.request
    held = measure.held(attention.cache)
    load = (request.batch, request.tokens(), request.shared_tokens())
    groups = group_reports(pools, request, held, trace.prefill_blocks, request.tokens())
    levels = devices.levels(setup.device, measure.storage_bytes([weights, attention.cache]))
    workspace = measure.workspace_bytes(attention)
    return Counted(
        kv=(predicted_kv_bytes(pools, *load), sum(h.held_bytes for h in held)),
        scales=(predicted_scale_bytes(model, pools, setup.kv, *load), sum(h.scale_bytes for h in held)),
        tables=(predicted_table_bytes(pools, request.batch, request.tokens()), measure.table_bytes(attention)),
        weights=(weights_predicted, measure.storage_bytes(weights)),
        read=(predicted_read_bytes(model, layers, setup.kv, request.batch, request.tokens()), trace.last_step_bytes_gathered),
        groups=tuple(groups),
        lines=tuple(layer_lines(pools, request, held)),
        levels=levels,
        slack=devices.slack(setup.device, levels, workspace),
        workspace=workspace,
        waste=fragmentation(pools, groups, request, model.max_context_tokens),
        peaks=trace.peaks,
        working=working,
        pools=pools,
    )

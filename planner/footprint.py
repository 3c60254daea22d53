"""Bytes of the load by architecture and by engine, without any device: what `kv` answers, and how the two differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.cache import Pool
from planner.draft import QUIRK as DRAFT_QUIRK
from planner.draft import check as check_draft
from planner.engines import engine, options
from planner.engines.architecture import ideal_pools
from planner.engines.settings import Allocation, Setting
from planner.errors import InvalidInput
from planner.fan import copies, fanned, like
from planner.formula import FormulaLine, formula
from planner.gap import GapLine, lines, rank_waste
from planner.hardware import Hardware
from planner.images import with_images
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.offload import Offload, offload
from planner.prefix import SOURCE as PREFIX_SOURCE
from planner.prefix import shared_prefix
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of the load without any device: what `kv` answers. `prefix_tokens`: how much of a shared prefix is held once;
    `prefix_bytes_saved`: what that saves, over all ranks of a replica; `fan_bytes_saved`: what samples save by their common prompt.
    `host_bytes`: what lies in the host's memory instead; `offload`: the tier of host memory behind the pool."""

    setting: Setting
    allocation: Allocation
    architecture_bytes: int
    per_rank_bytes: tuple[int, ...]
    admission_bytes: int
    bytes_per_token_unbounded: float | int
    windowed: tuple[dict[str, Any], ...]
    state_bytes_per_sequence: int
    cross_bytes_per_encoder_token: int
    cross_bytes: int
    formula: tuple[FormulaLine, ...]
    notes: tuple[Note, ...]
    prefix_tokens: int = 0
    prefix_bytes_saved: int = 0
    fan_bytes_saved: int = 0
    offload: Offload | None = None
    host_bytes: int = 0

    @property
    def engine_bytes(self) -> int:
        return sum(self.per_rank_bytes) + self.host_bytes


def measure(model: ModelSpec, hardware: Hardware | None, s: Scenario, sequences: int | None = None) -> Footprint:
    """Bytes of `s.sequences` (or of one replica's `sequences`) sequences of `s.tokens` tokens, by architecture and by engine."""
    options.check(s)
    s, image_notes = with_images(model, s)
    e = engine(s.engine)
    model = drafting(model, s)
    setting = e.settle(model, hardware, s)
    allocation, fan_notes = fanned(s, setting, e.allocate(model, setting))
    tier, tier_notes = offload(s, setting, allocation)
    n = s.sequences if sequences is None else sequences
    each = n * copies(s)
    ideal = ideal_pools(model, setting.kv, setting.model_dtype, encoder_tokens=setting.encoder_tokens)
    one_copy = sum(p.bytes(each, s.tokens) for p in ideal)
    prefix, prefix_notes = shared_prefix(s, setting, allocation)
    by_stage = [_rank_bytes(pools, setting, n, s.tokens, prefix=prefix) for pools in allocation.stages]
    saved = 0
    if prefix:
        saved = sum(b for pools in allocation.stages for b in _rank_bytes(pools, setting, n, s.tokens)) - sum(b for stage in by_stage for b in stage)
        prefix_notes += (note("derived", "prefix_shared", field="shared_prefix", source=PREFIX_SOURCE, tokens=s.shared_prefix, saved=saved),)
    fan_saved = _fan_saved(allocation, setting, n, s.tokens)
    admission = sum(b for pools in allocation.stages for b in _rank_bytes(pools, setting, n, s.tokens, "admission"))
    on_host = sum(pool.bytes(n, s.tokens) for pool in allocation.host)
    notes: tuple[Note, ...] = ()
    if model.max_context_tokens and s.tokens > model.max_context_tokens:
        notes += (note("warning", "beyond_model_limit", field="tokens", tokens=s.tokens, limit=model.max_context_tokens),)
    cross = [g for p in ideal for g in p.groups if g.kind == "cross"]
    cross_one = sum(len(g.layers) * g.resident.unit_bytes for g in cross)
    return Footprint(
        setting=setting,
        allocation=allocation,
        architecture_bytes=one_copy,
        per_rank_bytes=tuple(b for stage in by_stage for b in stage),
        admission_bytes=admission + on_host,
        bytes_per_token_unbounded=_unbounded(ideal),
        windowed=tuple(
            {"layers": len(g.layers), "window_tokens": g.resident.cap_tokens, "bytes_per_token": len(g.layers) * g.resident.unit_bytes, "kind": g.kind}
            for p in ideal
            for g in p.groups
            if g.resident.cap_tokens is not None
        ),
        state_bytes_per_sequence=sum(len(g.layers) * g.resident.unit_bytes for p in ideal for g in p.groups if g.kind == "state"),
        cross_bytes_per_encoder_token=cross_one,
        cross_bytes=each * sum(len(g.layers) * g.resident.unit_bytes * g.resident.extra_units for g in cross),
        formula=formula(model, setting.kv, setting.model_dtype, s.tokens, each, setting.encoder_tokens),
        notes=notes + setting.notes + allocation.notes + image_notes + fan_notes + tier_notes + prefix_notes,
        prefix_tokens=prefix,
        prefix_bytes_saved=saved,
        fan_bytes_saved=fan_saved,
        offload=tier,
        host_bytes=on_host,
    )


def drafting(model: ModelSpec, s: Scenario) -> ModelSpec:
    """The model as it runs: with its draft layers where the user speculates, without them otherwise. None in the file: InvalidInput."""
    check_draft(s)
    if s.draft and DRAFT_QUIRK not in model.quirks:
        raise InvalidInput("draft_not_loaded", field="draft")
    if not s.num_speculative_tokens:
        return model.resting()
    if not model.drafts and not model.draft_layers:
        raise InvalidInput("no_draft_layers", field="num_speculative_tokens", model_type=model.model_type)
    return model.speculating()


def _rank_bytes(pools: tuple[Pool, ...], setting: Setting, sequences: int, tokens: int, term: str = "resident", prefix: int = 0) -> list[int]:
    """Bytes on each tensor rank of a stage. Each attention group holds a shared prefix of its own."""
    counts = setting.parallel.spread(sequences)
    by_count = {n: sum(pool.bytes(n, tokens, term, prefix) for pool in pools) for n in set(counts)}
    return [by_count[n] for n in counts]


def _fan_saved(allocation: Allocation, setting: Setting, sequences: int, tokens: int) -> int:
    """What samples save over all ranks because they hold the prompt of their sequence together."""
    apart = (tuple(like(p, p.samples, 0) for p in pools) for pools in allocation.stages)
    return sum(sum(_rank_bytes(a, setting, sequences, tokens)) - sum(_rank_bytes(b, setting, sequences, tokens))
               for a, b in zip(apart, allocation.stages, strict=True) if any(p.prompt for p in b))  # fmt: skip


def _unbounded(pools: Iterable[Pool]) -> float | int:
    """Bytes that each further token adds for ever, one sequence."""
    whole, part = 0, 0.0
    for p in pools:
        for g in p.groups:
            if g.kind in ("window", "chunk", "state", "cross"):
                continue
            rows, rest = divmod(len(g.layers) * g.resident.unit_bytes, g.resident.unit_tokens or 1)
            whole, part = whole + rows, part + rest / (g.resident.unit_tokens or 1)
    return whole if not part else whole + part


def gap_of(model: ModelSpec, foot: Footprint, sequences: int, tokens: int) -> tuple[GapLine, ...]:
    """Architecture bytes to engine bytes: copies over ranks, then the engine's rows and its waste rank by rank (planner/gap.py)."""
    setting, p = foot.setting, foot.setting.parallel
    samples = foot.allocation.stages[0][0].samples
    shared, parts = 0, []
    for layers, pools in zip(p.stage_layers(len(model.layers), model.drafts), foot.allocation.stages, strict=True):
        ideal = ideal_pools(model, setting.kv, setting.model_dtype, parallel=p, layers=layers, encoder_tokens=setting.encoder_tokens)
        pools = tuple(q.alone() for q in pools) + foot.allocation.host
        null = sum(q.block_bytes * q.null_blocks for q in pools)
        for n, ranks in Counter(count * samples for count in p.spread(sequences)).items():
            rows = sum(q.bytes(n, tokens) for q in ideal)
            shared += ranks * rows
            parts.append({code: ranks * size for code, size in (rank_waste(pools, rows, n, tokens) | {"null_blocks": null}).items()})
    parts.append({"copies": shared - foot.architecture_bytes, "shared_prefix": -foot.prefix_bytes_saved, "samples": -foot.fan_bytes_saved})
    return lines(parts)

"""plan(): does it fit, how many, how long. The one result that pages, reports and the command line read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.budget import Budget, budget, files_differ
from planner.cache import Pool, max_sequences, max_tokens
from planner.engines import engine, options
from planner.engines.settings import LedgerLine, Setting, Sizes, replicas
from planner.errors import InvalidInput
from planner.footprint import Footprint, drafting, gap_of, measure
from planner.gap import GapLine
from planner.hardware import Hardware
from planner.images import with_images
from planner.ledger import ledger
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.scenario import MAX_TOKENS, Scenario
from planner.units import gib, memory

Parts = tuple[tuple[tuple[Pool, ...], int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Keeps its inputs for replay. Figures of capacity are per replica; ledgers are per rank of one replica, in rank order.

    `limited_by`: None | model (length beyond the model's limit) | slots (more than the engine runs at once) | weights | start (the engine
    refuses its largest length) | pool.
    """

    model: ModelSpec
    hardware: Hardware | None
    scenario: Scenario
    setting: Setting
    footprint: Footprint
    ledgers: tuple[tuple[LedgerLine, ...], ...]
    replicas: int
    sequences_per_replica: int
    binding_rank: int
    kv_pool_bytes: int
    fits: bool
    limited_by: str | None
    shortfall_bytes: int
    bytes_per_block: int | None
    num_blocks: int | None
    blocks_per_request: int | None
    max_concurrency: float | None
    kv_tokens: int | None
    max_sequences: int
    weights_bytes_per_rank: tuple[int, ...]
    gap: tuple[GapLine, ...]
    notes: tuple[Note, ...]
    asked: Scenario  # before the tokens of its images were added to `scenario`: what is kept and planned again
    sizes: Sizes | None = None  # of the binding rank, where the engine cuts its memory into pools

    @property
    def parts(self) -> Parts:
        """What must fit on the binding rank: (pools, their bytes). One pair, or one a pool where the engine cuts its memory beforehand."""
        return _parts(self.pools, max(0, self.kv_pool_bytes), self.sizes)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of the binding rank."""
        return self.footprint.allocation.stages[self.binding_rank // self.setting.parallel.tensor]

    @property
    def free_bytes(self) -> int:
        """What the pool has left beside the load, on the binding rank; negative where it does not fit."""
        return self.kv_pool_bytes - self.footprint.per_rank_bytes[self.binding_rank]

    @property
    def load_bytes(self) -> int:
        """The whole load as the engine holds it, over all replicas."""
        return self.footprint.engine_bytes * self.replicas

    @property
    def sequence_bytes(self) -> int:
        """The load's bytes a sequence, blocks included, over the ranks of a replica."""
        return self.footprint.engine_bytes // self.sequences_per_replica

    @property
    def total_max_sequences(self) -> int:
        """`max_sequences` of all replicas together."""
        return self.max_sequences * self.replicas

    def longest_context_tokens(self) -> int:
        """The longest request that the engine admits alone: the smaller of the model's limit and the pool's."""
        limit = min(self.model.max_context_tokens or MAX_TOKENS, MAX_TOKENS)
        return min(max_tokens(tuple(p.alone() for p in pools), 1, size, limit, "admission") for pools, size in self.parts)

    @property
    def longest_context_by(self) -> str:
        """What ends the longest request: "model", its own limit, or "pool"."""
        return "model" if self.longest_context_tokens() >= min(self.model.max_context_tokens or MAX_TOKENS, MAX_TOKENS) else "pool"

    def longest_tokens_for_load(self) -> int:
        """The longest length at which all `sequences` of the load fit together."""
        limit = min(self.model.max_context_tokens or MAX_TOKENS, MAX_TOKENS)
        return min(max_tokens(pools, self.rank_sequences, size, limit, prefix=self.footprint.prefix_tokens) for pools, size in self.parts)

    @property
    def rank_sequences(self) -> int:
        """Sequences on the fullest rank: with data-parallel attention each attention group serves its own."""
        return -(-self.sequences_per_replica // self.setting.parallel.attention_data)

    def within_parts(self, sequences: int, tokens: int) -> bool:
        """Whether `sequences` of one replica at `tokens` each stay within each pool's own bytes; of an engine with one budget: always."""
        each, prefix = -(-sequences // self.setting.parallel.attention_data), self.footprint.prefix_tokens
        return self.sizes is None or all(sum(p.bytes(each, tokens, prefix=prefix) for p in pools) <= size for pools, size in self.parts)

    def rank_bytes(self, sequences: Any, tokens: Any) -> Any:
        """Bytes on the binding rank for `sequences` of one replica at `tokens` each; ints or numpy arrays: the heat map's cells."""
        each = -(-sequences // self.setting.parallel.attention_data)
        return sum(p.bytes(each, tokens, prefix=self.footprint.prefix_tokens) for p in self.pools)


def plan(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> CapacityPlan:
    """One plan. `hardware` may be None only with `kv_memory`. Raises InvalidInput for combinations that no engine runs."""
    if hardware is None and s.kv_memory is None:
        raise InvalidInput("no_device", field="gpu")
    options.check(s)
    asked = s
    s, image_notes = with_images(model, s)
    model = drafting(model, s)
    e = engine(s.engine)
    setting = e.settle(model, hardware, s)
    n_replicas = replicas(s, setting.parallel)
    per_replica = -(-s.sequences // n_replicas)
    foot = measure(model, hardware, s, per_replica)
    setting = foot.setting
    stages = foot.allocation.stages
    budgets: list[Budget | None]
    if s.kv_memory is not None:
        budgets = [None] * len(stages)
        pool_of = [s.kv_memory] * len(stages)
    else:
        assert hardware is not None
        budgets = [budget(model, hardware, s, setting, stage) for stage in range(len(stages))]
        pool_of = [b.pool_bytes for b in budgets if b is not None]
    p = setting.parallel
    sizes_of = [e.sizes(model, setting, stages[i], pool_of[i]) if e.sizes else None for i in range(len(stages))]
    # The rank with the least left decides; pooled engines give every rank the blocks of the poorest one.
    stage = min(range(len(stages)), key=lambda i: _room(stages[i], pool_of[i], foot.per_rank_bytes[i * p.tensor], sizes_of[i]))
    pools, pool_bytes, sizes = stages[stage], pool_of[stage], sizes_of[stage]
    parts, checks = _parts(pools, pool_bytes, sizes if pool_bytes > 0 else None), e.reserves and e.sizes is None
    longest = setting.max_model_len
    one_request = sum(pool.alone().bytes(1, longest, "admission") for pool in pools)
    blocks = pools[0].num_blocks(pool_bytes) if len(pools) == 1 else None
    per_request = pools[0].printed_units(longest) if len(pools) == 1 and pools[0].priced == "pooled" else None
    limit = setting.longest_possible or model.max_context_tokens
    beyond = limit is not None and max(s.tokens, longest if e.reserves else 0) > limit
    # The start-up check of a pooled engine leaves one block out (the null block); `bytes` counts it.
    held = [(sum(q.bytes(p.spread(per_replica)[0], s.tokens, prefix=foot.prefix_tokens) for q in of), size) for of, size in parts]
    missing = max(max(bytes_, one_request if checks else 0) - size for bytes_, size in held)
    unfree, refused = e.start_check(model, hardware, s, setting) if e.start_check and hardware is not None and s.kv_memory is None else (0, ())
    limited_by = None
    if beyond or s.tokens > longest:
        limited_by = "model"
    elif unfree > 0:
        limited_by = "free"
    elif not all(pool.holds(per_replica, s.tokens) for pool in pools):
        limited_by = "slots"
    elif pool_bytes <= 0:
        limited_by = "weights"
    elif any(bytes_ > size for bytes_, size in held):
        limited_by = "pool"
    elif missing > 0:
        limited_by = "start"
    ledgers: list[tuple[LedgerLine, ...]] = []
    for i, in_stage in enumerate(stages):
        by_load: dict[int, tuple[LedgerLine, ...]] = {}  # ranks with as many sequences have the same ledger
        for rank, n in enumerate(p.spread(per_replica)):
            if n not in by_load:
                by_load[n] = ledger(model, foot, budgets[i], in_stage, pool_of[i], foot.per_rank_bytes[i * p.tensor + rank], n, s.tokens, i, sizes_of[i])
            ledgers.append(by_load[n])
    groups = p.attention_data
    return CapacityPlan(
        model=model,
        hardware=hardware,
        scenario=s,
        setting=setting,
        footprint=foot,
        ledgers=tuple(ledgers),
        replicas=n_replicas,
        sequences_per_replica=per_replica,
        binding_rank=stage * p.tensor,
        kv_pool_bytes=pool_bytes,
        fits=limited_by is None,
        limited_by=limited_by,
        shortfall_bytes=unfree if limited_by == "free" else max(0, missing) if limited_by in ("weights", "pool", "start") else 0,
        bytes_per_block=pools[0].block_bytes or None if len(pools) == 1 else None,
        num_blocks=blocks,
        blocks_per_request=per_request,
        max_concurrency=blocks / per_request if blocks is not None and per_request else None,
        kv_tokens=sizes.tokens if sizes else _kv_tokens(e.printed_tokens, setting, pools, pool_bytes, blocks, per_request),
        max_sequences=groups * min(max_sequences(of, s.tokens, max(0, size), prefix=foot.prefix_tokens) for of, size in parts),
        weights_bytes_per_rank=tuple(b.weights_bytes for b in budgets if b is not None for _ in range(p.tensor)),
        gap=gap_of(model, foot, per_replica, s.tokens),
        notes=_notes(model, s, foot, limited_by, longest)
        + image_notes
        + refused
        + _band_note(budgets[stage], -missing, limited_by is None)
        + _start_notes(tuple(pool.alone() for pool in pools), pool_bytes, longest, one_request if checks else 0)
        + _state_notes(s, setting, pools, blocks)
        + (_running_notes(s, sizes, p.spread(per_replica)[0]) if sizes else ()),
        asked=asked,
        sizes=sizes,
    )


def _running_notes(s: Scenario, sizes: Sizes, sequences: int) -> tuple[Note, ...]:
    """Why the engine cut its memory as it did, and whether it runs all sequences of a rank at once."""
    most = dict(sizes.printed).get("max_running_requests", sequences)
    waits = (note("warning", "sglang_running", field="max_num_seqs", most=most, sequences=sequences),) if 0 < most < sequences else ()
    return sizes.notes + waits


def _band_note(before: Budget | None, free: int, fits: bool) -> tuple[Note, ...]:
    """Where a load fits by less than what the lines before the pool may be larger by."""
    band = sum((line.high_bytes or line.bytes) - line.bytes for line in before.before) if before else 0
    return (note("info", "fits_within_band", spare=memory(free), band=memory(band)),) if fits and 0 <= free < band else ()


def _parts(pools: tuple[Pool, ...], pool_bytes: int, sizes: Sizes | None) -> Parts:
    return ((pools, pool_bytes),) if sizes is None else tuple(((pool,), share) for pool, share in zip(pools, sizes.shares, strict=True))


def _start_notes(pools: tuple[Pool, ...], pool_bytes: int, longest: int, one_request: int) -> tuple[Note, ...]:
    """What an engine that reserves says when it refuses to start: the bytes of one request of the largest length, without the null block
    (vLLM 0.33 v1/core/kv_cache_utils.py), and the longest length that would fit."""
    if not 0 < pool_bytes < one_request:
        return ()
    needs = sum(p.bytes(1, longest, "admission") - p.block_bytes * p.null_blocks for p in pools)
    fits = max_tokens(pools, 1, pool_bytes, longest, "admission")
    return (note("warning", "start_needs", field="max_model_len", longest=longest, needs=gib(needs), available=gib(pool_bytes), fits=fits),)


def _state_notes(s: Scenario, setting: Setting, pools: tuple[Pool, ...], blocks: int | None) -> tuple[Note, ...]:
    """Whether vLLM's decoding graphs have a block for the state of each sequence; without graphs nothing asks for them."""
    states = any(g.kind == "state" for p in pools for g in p.groups)
    if setting.engine != "vllm" or not blocks or s.enforce_eager or not states:
        return ()
    from planner.engines.vllm.versions import state_slots

    return state_slots(setting.asked_version, setting.max_num_seqs, blocks)


def _room(pools: tuple[Pool, ...], pool_bytes: int, load: int, sizes: Sizes | None) -> int:
    if sizes is not None:
        return sizes.tokens
    return pools[0].num_blocks(pool_bytes) or 0 if pools[0].priced == "pooled" and pool_bytes > 0 else pool_bytes - load


def _kv_tokens(printed: Any, setting: Setting, pools: tuple[Pool, ...], pool_bytes: int, blocks: int | None, per_request: int | None) -> int | None:
    """What the engine prints; an engine that prints nothing gets the tokens that one endless sequence could hold."""
    if printed is not None and pools[0].slots:
        return printed(setting, pools[0], 0, 0)  # type: ignore[no-any-return]
    if printed is not None:
        return printed(setting, pools[0], blocks, per_request) if blocks is not None and per_request else None
    return max_tokens(pools, 1, max(0, pool_bytes), MAX_TOKENS)


def _notes(model: ModelSpec, s: Scenario, foot: Footprint, limited_by: str | None, longest: int) -> tuple[Note, ...]:
    out = model.notes + foot.notes
    if model.drafts and not s.draft:
        out += (note("assumed", "draft_layers", field="num_speculative_tokens", layers=model.drafts, tokens=s.num_speculative_tokens),)
    if limited_by == "start":
        out += (note("warning", "start_refused", field="max_model_len", longest=longest, tokens=s.tokens),)
    if limited_by == "slots" and (c := foot.setting.context):
        out += (note("warning", "llamacpp_slots", field="sequences", sequences=s.sequences, tokens=s.tokens, slots=c.sequences, cells=c.n_ctx),)
    if model.max_context_tokens and s.max_model_len and s.max_model_len > model.max_context_tokens and foot.setting.engine == "vllm":
        out += (note("warning", "max_model_len_beyond", field="max_model_len", longest=s.max_model_len, limit=model.max_context_tokens),)
    if s.tokens > longest and s.max_model_len:
        out += (note("warning", "beyond_max_model_len", field="max_model_len", tokens=s.tokens, longest=longest),)
    return out + files_differ(model, s, foot.setting)


def replan(p: CapacityPlan, **changes: Any) -> CapacityPlan:
    """The same plan with some choices changed."""
    return plan(p.model, p.hardware, replace(p.scenario, **changes))

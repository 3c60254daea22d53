"""The probe's own block pool, predicted: one block table per kind of cache, whole blocks, no reserve.

`gpu_probe` builds its pools from these very groups, so the prediction and the run cannot drift apart; what the run *measures* is
found by walking its live tensors and owes nothing to this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.cache import Group, Pool, Rows, State, Term, max_sequences
from planner.dtypes import DTYPES, DType, KvLayout
from planner.errors import InvalidInput, UnsupportedModel
from planner.model import LayerSpec, ModelSpec

STATES_RUN = ("gated_delta_net", "mamba1", "mamba2")
"""Mechanisms whose states the probe keeps and steps."""

TABLE_ENTRY_BYTES = 4
"""A block id in a block table."""


def caches_of(layer: LayerSpec, index: int) -> tuple[Rows | None, State | None]:
    """What the probe keeps for `layer`: rows, a state, both or nothing. Raises UnsupportedModel for kinds it cannot run."""
    rows: list[Rows] = []
    states: list[State] = []
    for kind in layer.caches:
        if isinstance(kind, State) and kind.mechanism in STATES_RUN:
            states.append(kind)
        elif isinstance(kind, Rows) and kind.kind != "index" and kind.ratio == 1:
            rows.append(kind)
        else:
            named = f"state {kind.mechanism}".strip() if isinstance(kind, State) else kind.kind
            if isinstance(kind, Rows) and kind.ratio != 1:
                named = "compressed"
            raise UnsupportedModel("probe_kind", field=f"layers[{index}].caches", kind=named, layer=index)
    if len(rows) > 1 or len(states) > 1:
        raise UnsupportedModel("probe_several_caches", field=f"layers[{index}].caches", count=len(layer.caches), layer=index)
    return rows[0] if rows else None, states[0] if states else None


def cache_of(layer: LayerSpec, index: int) -> Rows | None:
    """The rows that the probe keeps for `layer`; None: it keeps none. Raises UnsupportedModel for kinds it cannot run."""
    return caches_of(layer, index)[0]


def rows_read(model: ModelSpec, index: int) -> Rows | None:
    """The rows that a layer attends to: its own, or those of the layer that it shares with."""
    layer = model.layers[index]
    own = cache_of(layer, index)
    return own if own is not None or layer.shares_with is None else cache_of(model.layers[layer.shares_with], layer.shares_with)


def state_dtype(model: ModelSpec) -> DType:
    """In what a state is kept that names no dtype of its own: the model's, or bf16 for a checkpoint stored narrower."""
    return model.dtype if model.dtype.name in ("fp32", "bf16", "fp16") else DTYPES["bf16"]


def steady_blocks(limit_tokens: int, block_size: int) -> int:
    """The most blocks that one sequence keeps in a sliding or chunked layer while it decodes, wherever the window starts in a block.

    A block goes back to the pool when a new one would exceed this number, so it is also what a long sequence holds.

    >>> steady_blocks(4096, 16), steady_blocks(1, 16)
    (257, 1)
    """
    return -(-(limit_tokens - 1) // block_size) + 1


def chosen_layers(model: ModelSpec, count: int | None) -> tuple[int, ...]:
    """Which `count` layers stand for the model: one of every kind first, then the earliest, in the order of the model.

    A layer that reads another one's cache is taken only together with it.
    """
    everything = tuple(range(len(model.layers)))
    if count is None or count >= len(everything):
        return everything
    if count < 1:
        raise InvalidInput("out_of_range", field="layers", value=count, low=1, high=len(everything))
    keepers = [i for i in everything if model.layers[i].caches] or list(everything)
    firsts: dict[object, int] = {}
    for i in keepers:
        firsts.setdefault(model.layers[i].caches, i)
    order = [*firsts.values(), *(i for i in everything if i not in firsts.values())]
    chosen: list[int] = []
    for i in order:
        target = model.layers[i].shares_with
        if target is None or target in chosen:
            chosen.append(i)
        if len(chosen) == count:
            break
    return tuple(sorted(chosen))


def allocate(model: ModelSpec, *, kv: KvLayout, block_size: int, layers: int | tuple[int, ...] | None = None) -> tuple[Pool, ...]:
    """One pool per kind of cache. `layers`: how many (see `chosen_layers`) or exactly which; None: all of them.

    Resident: what a decoding sequence holds. Admission: what it holds while its whole prompt is prefilled in one pass, for which a
    sliding layer needs every block of the prompt at once.
    """
    if block_size < 1:
        raise InvalidInput("out_of_range", field="block_size", value=block_size, low=1, high=None)
    which = layers if isinstance(layers, tuple) else chosen_layers(model, layers)
    by_kind: dict[Rows | State, list[int]] = {}
    for i in which:
        for kind in caches_of(model.layers[i], i):
            if kind is not None:
                by_kind.setdefault(kind, []).append(i)
    pools = []
    for rows, members in by_kind.items():
        if isinstance(rows, State):
            one = Term(unit_bytes=rows.bytes_per_sequence(state_dtype(model)), unit_tokens=None, extra_units=1)
            pools.append(Pool(name="state", groups=(Group(kind="state", layers=tuple(members), admission=one, resident=one),), priced="own"))
            continue
        page_bytes = block_size * rows.row_bytes(kv)
        whole = Term(unit_bytes=page_bytes, unit_tokens=block_size)
        limit = rows.limit_tokens
        capped = whole if limit is None else Term(unit_bytes=page_bytes, unit_tokens=block_size, cap_tokens=steady_blocks(limit, block_size) * block_size)
        group = Group(kind=rows.kind, layers=tuple(members), admission=whole, resident=capped, limit_tokens=limit)
        pools.append(Pool(name=rows.kind, groups=(group,), priced="own", block_size=block_size))
    return tuple(pools)


def shared_blocks(group: Group, tokens: int, prefix: int, term: str = "resident") -> int:
    """Blocks that sequences of `tokens` tokens hold together when their first `prefix` tokens are the same: the whole blocks of the
    prefix that are still held. A window keeps its newest blocks, so it shares only those that reach back so far; states share none."""
    t: Term = getattr(group, term)
    if t.unit_tokens is None:
        return 0
    end = -(-tokens // t.unit_tokens)
    return max(0, min(prefix // t.unit_tokens, end) - (end - int(t.units(tokens))))


def held_blocks(group: Group, sequences: int, tokens: int, prefix: int = 0, term: str = "resident") -> int:
    """Different blocks that `sequences` live sequences of `tokens` tokens hold; a shared one once."""
    each = int(getattr(group, term).units(tokens))
    return sequences * each - max(0, sequences - 1) * shared_blocks(group, tokens, prefix, term)


def predicted_kv_bytes(pools: tuple[Pool, ...], sequences: int, tokens: int, prefix: int = 0) -> int:
    """Bytes of the blocks that `sequences` live sequences of `tokens` tokens each hold after decoding, the first `prefix` tokens of all
    the same; scales and states included."""
    return sum(held_blocks(g, sequences, tokens, prefix) * g.bytes_per_unit() for p in pools for g in p.groups)


def predicted_scale_bytes(model: ModelSpec, pools: tuple[Pool, ...], kv: KvLayout, sequences: int, tokens: int, prefix: int = 0) -> int:
    """The part of `predicted_kv_bytes` that is scales."""
    only, total = kv.scales(), 0
    for pool in pools if only is not None else ():
        for g in pool.groups:
            rows = cache_of(model.layers[g.layers[0]], g.layers[0])
            if g.kind != "state" and rows is not None and only is not None:
                total += held_blocks(g, sequences, tokens, prefix) * (pool.block_size or 1) * len(g.layers) * rows.row_bytes(only)
    return total


def predicted_table_bytes(pools: tuple[Pool, ...], sequences: int, tokens: int) -> int:
    """Bytes of the block tables of all groups: a row a sequence, an entry a block that it holds. Layers of a group share theirs."""
    return sum(TABLE_ENTRY_BYTES * sequences * int(g.resident.units(tokens)) for p in pools for g in p.groups)


def predicted_read_bytes(model: ModelSpec, layers: Iterable[int], kv: KvLayout, sequences: int, tokens: int) -> int:
    """Bytes of the cache that one decode step must read: the rows that it sees, and each state. A shared row is read by each sequence."""
    total = 0
    for i in layers:
        rows, (_, state) = rows_read(model, i), caches_of(model.layers[i], i)
        total += 0 if rows is None else rows.bytes_read_per_step(tokens, kv)
        total += 0 if state is None else state.bytes_per_sequence(state_dtype(model))
    return sequences * total


def attention_flop(model: ModelSpec, layers: Iterable[int], sequences: int, tokens: int) -> int:
    """FLOP of scores and values in one decode step, two a multiply-add; MLA absorbed, where all heads work on one latent row."""
    total = 0
    for i in layers:
        a, rows = model.layers[i].attention, rows_read(model, i)
        if rows is not None:
            heads = rows.heads if a is None else a.q_heads
            widths = rows.k_dim + (rows.v_dim or (a.kv_rank if a is not None and a.kv_rank else rows.k_dim))
            total += 2 * heads * widths * min(tokens, rows.limit_tokens or tokens)
    return sequences * total


def largest_batch(pools: Sequence[Pool], blocks: Sequence[int], tokens: int) -> int:
    """The most sequences of `tokens` tokens that `blocks` blocks in each of `pools` hold, nothing shared: the planner's own inverse."""
    return min(max_sequences((pool,), tokens, n * pool.groups[0].bytes_per_unit()) for pool, n in zip(pools, blocks, strict=True))

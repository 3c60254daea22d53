"""The probe's own block pool, predicted: one block table per kind of cache, whole blocks, no reserve.

`gpu_probe` builds its pools from these very groups, so the prediction and the run cannot drift apart; what the run *measures* is
found by walking its live tensors and owes nothing to this file.
"""

from __future__ import annotations

from planner.cache import Group, Pool, Rows, Term
from planner.dtypes import KvLayout
from planner.errors import InvalidInput, UnsupportedModel
from planner.model import LayerSpec, ModelSpec


def cache_of(layer: LayerSpec, index: int) -> Rows | None:
    """The one cache that the probe keeps for `layer`; None: it keeps nothing. Raises UnsupportedModel for kinds it cannot run."""
    for kind in layer.caches:
        if not isinstance(kind, Rows) or kind.kind == "index" or kind.ratio != 1:
            named = kind.kind if not isinstance(kind, Rows) or kind.ratio == 1 else "compressed"
            raise UnsupportedModel("probe_kind", field=f"layers[{index}].caches", kind=named, layer=index)
    if len(layer.caches) > 1:
        raise UnsupportedModel("probe_several_caches", field=f"layers[{index}].caches", count=len(layer.caches), layer=index)
    return layer.caches[0] if layer.caches else None  # type: ignore[return-value]


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
    by_kind: dict[Rows, list[int]] = {}
    for i in which:
        rows = cache_of(model.layers[i], i)
        if rows is not None:
            by_kind.setdefault(rows, []).append(i)
    pools = []
    for rows, members in by_kind.items():
        page_bytes = block_size * rows.row_bytes(kv)
        whole = Term(unit_bytes=page_bytes, unit_tokens=block_size)
        limit = rows.limit_tokens
        capped = whole if limit is None else Term(unit_bytes=page_bytes, unit_tokens=block_size, cap_tokens=steady_blocks(limit, block_size) * block_size)
        group = Group(kind=rows.kind, layers=tuple(members), admission=whole, resident=capped)
        pools.append(Pool(name=rows.kind, groups=(group,), priced="own", block_size=block_size))
    return tuple(pools)


def predicted_kv_bytes(pools: tuple[Pool, ...], sequences: int, tokens: int) -> int:
    """Bytes of the blocks that `sequences` live sequences of `tokens` tokens each hold after decoding."""
    return sum(p.bytes(sequences, tokens) for p in pools)

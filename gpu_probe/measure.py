"""Bytes that the run really holds, found by walking its live objects. Knows nothing of models, kinds or predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.pool import BlockPool, PoolExhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one group of the cache was found to hold. Bytes are whole blocks; `allocated_bytes` counts blocks that nobody holds too.
    `scale_bytes`: the part of `held_bytes` in tensors of scales. `by_layer`: held bytes of each layer. `unusable_blocks`: free ones that
    a request for all free blocks at once does not get (external fragmentation)."""

    kind: str
    tensors: int
    layers: tuple[int, ...]
    held_blocks: int
    num_blocks: int
    held_bytes: int
    allocated_bytes: int
    scale_bytes: int = 0
    by_layer: dict[int, int] = field(default_factory=dict)
    unusable_blocks: int = 0
    shared_blocks: int = 0


def tensors_in(root: Any) -> Iterator[torch.Tensor]:
    """Every tensor reachable from `root` through containers and attributes, each storage once."""
    seen: set[int] = set()
    storages: set[int] = set()
    todo = [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, bool, type(None), type)):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            where = item.untyped_storage().data_ptr()
            if where not in storages:
                storages.add(where)
                yield item
        elif isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo += list(item)
        else:
            todo += [*getattr(item, "__dict__", {}).values(), *(getattr(item, s) for s in _slots(type(item)) if hasattr(item, s))]


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def was_written(tensor: torch.Tensor) -> bool:
    """torch counts the in-place writes to a storage, views included; a page tensor that no layer ever wrote to has none."""
    return tensor._version > 0


def held(cache: PagedCache) -> tuple[Held, ...]:
    """One entry a group. A tensor's share is its storage divided by its blocks, times the blocks that live sequences hold."""
    found = []
    for group in cache.groups:
        written = [t for t in tensors_in(group) if was_written(t)]
        blocks = len(group.pool.held())
        scales = {t.untyped_storage().data_ptr() for pages in group.layers.values() for t in getattr(pages, "scales", list)()}

        def share(tensors: Iterable[torch.Tensor], blocks: int = blocks) -> int:
            return sum(t.untyped_storage().nbytes() // t.shape[0] * blocks for t in tensors)

        found.append(
            Held(
                kind=group.rows.kind,
                tensors=len(written),
                layers=tuple(group.layers),
                held_blocks=blocks,
                num_blocks=group.pool.num_blocks,
                held_bytes=share(written),
                allocated_bytes=sum(t.untyped_storage().nbytes() for t in tensors_in(group)),
                scale_bytes=share(t for t in written if t.untyped_storage().data_ptr() in scales),
                by_layer={i: share(t for t in tensors_in(pages) if was_written(t)) for i, pages in group.layers.items()},
                unusable_blocks=unusable_blocks(group.pool),
                shared_blocks=group.pool.shared(),
            )
        )
    return tuple(found)


def unusable_blocks(pool: BlockPool) -> int:
    """Free blocks that one request for as many as are free does not get. The request is made, and given back."""
    free, visitor, peak = pool.free(), min(pool.tables, default=0) - 1, pool.peak_used
    pool.add(visitor)
    try:
        pool.extend(visitor, free * pool.block_size, keep_all=True)
        return free - len(pool.tables[visitor].blocks)
    except PoolExhausted:
        return free
    finally:
        pool.release(visitor)
        pool.peak_used = peak


def table_bytes(attention: PagedAttention) -> int:
    """Storage of the block tables of the last step, as they lie on the device."""
    return sum(view.table.untyped_storage().nbytes() for view in attention._views.values())


def storage_bytes(root: Any) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors_in(root))


def workspace_bytes(attention: PagedAttention) -> int:
    """Scratch that the backends of the decode steps keep between steps; block tables, which they may hold on to, are counted elsewhere."""
    tables = {view.table.untyped_storage().data_ptr() for view in attention._views.values()}
    kept = [t.untyped_storage() for t in tensors_in([choice.backend for choice in attention.choices.values()])]
    return sum(storage.nbytes() for storage in kept if storage.data_ptr() not in tables)

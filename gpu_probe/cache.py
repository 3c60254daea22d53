"""The paged cache: one tensor of pages per K and per V (MLA: one in all) and layer; the layers of a group share block tables.

Letters: N blocks, P block_size, K kv heads, D head_dim, B batch, T query tokens, M blocks in the longest table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_probe.fit import Fit
from gpu_probe.pool import BlockPool
from gpu_probe.shapes import Shape
from planner.cache import Rows


@dataclass(slots=True)
class Pages:
    """keys [N, P, K, D]; values [N, P, K, v_dim], or None: the value is the front of the key (latent rows)."""

    keys: Tensor
    values: Tensor | None

    def tensors(self) -> list[Tensor]:
        return [self.keys] if self.values is None else [self.keys, self.values]


@dataclass(slots=True)
class CacheGroup:
    """Layers that share a block table. `layers`: model index -> pages."""

    rows: Rows
    pool: BlockPool
    layers: dict[int, Pages]


@dataclass(slots=True)
class View:
    """Where one step's tokens go and which blocks its queries read, for one group. `table` [B, M] physical blocks, padded by 0;
    `first[b]`: the number of row b's first block; `slots` [B * T] = block * P + offset."""

    table: Tensor
    first: list[int]
    first_tensor: Tensor
    slots: Tensor
    starts: list[int]
    count: int


class PagedCache:
    """Pools and pages for every group of a run."""

    def __init__(self, groups: list[CacheGroup], block_size: int, device: torch.device) -> None:
        self.groups, self.block_size, self.device = groups, block_size, device
        self.group_of = {layer: group for group in groups for layer in group.layers}

    @classmethod
    def build(cls, shape: Shape, plan: Fit, *, dtype: torch.dtype, device: torch.device, block_size: int, seed: int) -> PagedCache:
        """Pages are zeroed and thereby touched: memory that is only promised would be found out in the middle of a run."""
        rows_of = {layer.index: layer.rows for layer in shape.layers if layer.rows is not None}
        groups = []
        for j, (pool, blocks) in enumerate(zip(plan.pools, plan.blocks, strict=True)):
            (group,) = pool.groups
            rows = rows_of[group.layers[0]]
            keep = None if group.resident.cap_tokens is None else group.resident.units(group.resident.cap_tokens)
            layers = {}
            for layer in group.layers:
                keys = torch.zeros(blocks, block_size, rows.heads, rows.k_dim, dtype=dtype, device=device)
                values = torch.zeros(blocks, block_size, rows.heads, rows.v_dim, dtype=dtype, device=device) if rows.v_dim else None
                layers[layer] = Pages(keys, values)
            groups.append(CacheGroup(rows, BlockPool(blocks, block_size, seed=seed + j, keep_blocks=keep), layers))
        return cls(groups, block_size, device)

    def add(self, sequences: Sequence[int]) -> None:
        for group in self.groups:
            for s in sequences:
                group.pool.add(s)

    def views(self, sequences: Sequence[int], starts: Sequence[int], count: int, *, prefill: bool) -> dict[int, View]:
        """Takes blocks for `count` new tokens a sequence, the first at position starts[b]; returns group number -> view."""
        made = {}
        for j, group in enumerate(self.groups):
            for s, start in zip(sequences, starts, strict=True):
                group.pool.extend(s, start + count, keep_all=prefill)
            tables = [group.pool.tables[s] for s in sequences]
            most = max(len(t.blocks) for t in tables)
            first = [t.first for t in tables]
            slots = [
                t.blocks[p // self.block_size - t.first] * self.block_size + p % self.block_size
                for t, start in zip(tables, starts, strict=True)
                for p in range(start, start + count)
            ]
            made[j] = View(
                table=torch.tensor([t.blocks + [0] * (most - len(t.blocks)) for t in tables], device=self.device),
                first=first,
                first_tensor=torch.tensor(first, device=self.device),
                slots=torch.tensor(slots, device=self.device),
                starts=list(starts),
                count=count,
            )
        return made

    def trim(self, sequences: Sequence[int]) -> int:
        """After a prefill: blocks that no query will see again go back. Returns how many."""
        return sum(group.pool.trim(s) for group in self.groups for s in sequences)

    def relocate(self) -> int:
        """Shuffles the live blocks of every group, contents with them. Returns how many changed their place."""
        changed = 0
        for group in self.groups:
            moved = group.pool.relocate()
            changed += sum(old != new for old, new in moved.items())
            old = torch.tensor(list(moved.keys()), device=self.device)
            new = torch.tensor(list(moved.values()), device=self.device)
            for pages in group.layers.values():
                for tensor in pages.tensors():
                    raw = bits(tensor)
                    raw[new] = raw[old]  # the right-hand side is a copy: no block is overwritten before it is read
        return changed


def bits(tensor: Tensor) -> Tensor:
    """A one-byte float tensor as bytes: indexing works for those on every device. Same storage."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def write(pages: Tensor, slots: Tensor, rows: Tensor) -> None:
    """rows [B, T, K, D] -> pages [N, P, K, D] at `slots` [B * T], in the cache's dtype. Beyond the range of fp8: its largest number."""
    if pages.dtype.itemsize == 1:
        most = torch.finfo(pages.dtype).max
        rows = rows.clamp(-most, most)
    bits(pages).flatten(0, 1)[slots] = bits(rows.to(pages.dtype)).flatten(0, 1)


def gather(pages: Tensor, blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """pages [N, P, K, D], blocks [B, m] -> [B, m * P, K, D] in `dtype`."""
    raw = bits(pages).index_select(0, blocks.flatten())
    return raw.view(pages.dtype).to(dtype).view(blocks.shape[0], -1, *pages.shape[2:])

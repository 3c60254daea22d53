"""The paged cache: one tensor of pages per K and per V (MLA: one in all) and layer; the layers of a group share block tables.

A format with scales has one float32 beside each token's and head's K, and one beside its V. A recurrent state is a group too, whose
one block holds a sequence's state whole, however long the sequence is.

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
from gpu_probe.states import StateShape
from planner.cache import Rows, State

TORCH_STATE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(slots=True)
class Pages:
    """keys [N, P, K, D]; values [N, P, K, v_dim], or None: the value is the front of the key (latent rows). Scales [N, P, K]."""

    keys: Tensor
    values: Tensor | None
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    @classmethod
    def build(cls, rows: Rows, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device, *, scaled: bool) -> Pages:
        def tensor(*shape: int, of: torch.dtype = dtype) -> Tensor:
            return torch.zeros(blocks, block_size, *shape, dtype=of, device=device)

        keys, values = tensor(rows.heads, rows.k_dim), tensor(rows.heads, rows.v_dim) if rows.v_dim else None
        if not scaled:
            return cls(keys, values)
        return cls(keys, values, *(None if t is None else tensor(rows.heads, of=torch.float32) for t in (keys, values)))

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.keys, self.values, self.key_scales, self.value_scales) if t is not None]

    def scales(self) -> list[Tensor]:
        return [t for t in (self.key_scales, self.value_scales) if t is not None]

    def write(self, slots: Tensor, keys: Tensor, values: Tensor | None = None) -> None:
        """keys [B, T, K, D] and values [B, T, K, v_dim] to `slots` [B * T]."""
        write(self.keys, slots, keys, self.key_scales)
        if self.values is not None and values is not None:
            write(self.values, slots, values, self.value_scales)

    def read(self, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, int]:
        """blocks [B, m] -> keys, values (None: latent rows) [B, m * P, K, ...] in `dtype`, and the bytes that were gathered."""
        keys = gather(self.keys, blocks, dtype, self.key_scales)
        values = None if self.values is None else gather(self.values, blocks, dtype, self.value_scales)
        one_block = sum(t[0].numel() * t.dtype.itemsize for t in self.tensors())
        return keys, values, one_block * blocks.numel()


@dataclass(slots=True)
class StatePages:
    """One sequence's state a block: name -> [N, ...], in the dtype in which it is kept."""

    held: dict[str, Tensor]

    def tensors(self) -> list[Tensor]:
        return list(self.held.values())

    def scales(self) -> list[Tensor]:
        return []

    def write(self, blocks: Tensor, new: dict[str, Tensor]) -> None:
        """`new`: name -> [B, ...], for the sequences whose states lie in `blocks` [B]."""
        for name, tensor in new.items():
            self.held[name][blocks] = tensor.to(self.held[name].dtype)

    def read(self, blocks: Tensor) -> tuple[dict[str, Tensor], int]:
        """Name -> [B, ...] in float32, and the bytes that were gathered."""
        found = {name: tensor[blocks] for name, tensor in self.held.items()}
        return {name: t.float() for name, t in found.items()}, sum(t.numel() * t.dtype.itemsize for t in found.values())


@dataclass(slots=True)
class CacheGroup:
    """Layers that share a block table. `rows`: what each of them keeps. `layers`: model index -> pages."""

    rows: Rows | State
    pool: BlockPool
    layers: dict[int, Pages | StatePages]

    @property
    def is_state(self) -> bool:
        return isinstance(self.rows, State)


@dataclass(slots=True)
class View:
    """Where one step's tokens go and which blocks its queries read, for one group. `table` int32 [B, M] physical blocks, padded by 0;
    `first[b]`: the number of row b's first block; `slots` [B * T] = block * P + offset (a state's: its blocks [B])."""

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
        self.group_of = {layer: group for group in groups if not group.is_state for layer in group.layers}
        self.state_of = {layer: group for group in groups if group.is_state for layer in group.layers}
        self.lengths: dict[int, int] = {}
        self.blocks_copied = 0

    @classmethod
    def build(cls, shape: Shape, plan: Fit, *, dtype: torch.dtype, device: torch.device, block_size: int, seed: int, scaled: bool = False) -> PagedCache:
        """Pages are zeroed and thereby touched: memory that is only promised would be found out in the middle of a run. `dtype`: of
        the rows; states have their own. `scaled`: a float32 scale a token and head beside K and beside V."""
        rows_of = {layer.index: layer.rows for layer in shape.layers if layer.rows is not None}
        state_of = {layer.index: layer.state for layer in shape.layers if layer.state is not None}
        groups: list[CacheGroup] = []
        for j, (pool, blocks) in enumerate(zip(plan.pools, plan.blocks, strict=True)):
            (group,) = pool.groups
            tables = BlockPool.of(group, blocks, block_size, seed=seed + j)
            if group.kind == "state":
                states = {layer: _state_pages(state_of[layer], blocks, device) for layer in group.layers}
                groups.append(CacheGroup(state_of[group.layers[0]].state, tables, dict(states)))
                continue
            rows = rows_of[group.layers[0]]
            pages = {layer: Pages.build(rows, blocks, block_size, dtype, device, scaled=scaled) for layer in group.layers}
            groups.append(CacheGroup(rows, tables, dict(pages)))
        return cls(groups, block_size, device)

    def add(self, sequences: Sequence[int]) -> None:
        for group in self.groups:
            for s in sequences:
                group.pool.add(s)

    def release(self, sequences: Sequence[int]) -> None:
        for group in self.groups:
            for s in sequences:
                group.pool.release(s)

    def fork(self, parent: int, children: Sequence[int], tokens: int) -> None:
        """New sequences that begin with the parent's first `tokens` tokens, in the same blocks. ValueError where blocks of them are gone,
        or where a state is not that of just so many tokens."""
        if any(group.is_state for group in self.groups) and self.lengths.get(parent) != tokens:
            raise ValueError(f"shared prefix: {tokens} tokens, state of {self.lengths.get(parent)}")
        for group in self.groups:
            for child in children:
                group.pool.fork(parent, child, tokens)

    def views(self, sequences: Sequence[int], starts: Sequence[int], count: int, *, prefill: bool) -> dict[int, View]:
        """Takes blocks for `count` new tokens a sequence, the first at position starts[b], and copies of shared blocks that they are
        written to; returns group number -> view."""
        made = {}
        self.lengths |= {s: start + count for s, start in zip(sequences, starts, strict=True)}
        for j, group in enumerate(self.groups):
            for s, start in zip(sequences, starts, strict=True):
                group.pool.extend(s, start + count, keep_all=prefill)
                self._copy(group, group.pool.make_writable(s, start, start + count))
            tables = [group.pool.tables[s] for s in sequences]
            most = max(len(t.blocks) for t in tables)
            first = [t.first for t in tables]
            slots = [t.blocks[0] for t in tables] if group.is_state else [
                t.blocks[p // self.block_size - t.first] * self.block_size + p % self.block_size
                for t, start in zip(tables, starts, strict=True)
                for p in range(start, start + count)
            ]  # fmt: skip
            made[j] = View(
                table=torch.tensor([t.blocks + [0] * (most - len(t.blocks)) for t in tables], dtype=torch.int32, device=self.device),
                first=first,
                first_tensor=torch.tensor(first, device=self.device),
                slots=torch.tensor(slots, device=self.device),
                starts=list(starts),
                count=count,
            )
        return made

    def _copy(self, group: CacheGroup, copies: list[tuple[int, int]]) -> None:
        for old, new in copies:
            self.blocks_copied += 1
            for pages in group.layers.values():
                for tensor in pages.tensors():
                    bits(tensor)[new] = bits(tensor)[old]

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
    """A one-byte tensor as plain bytes: indexing works for those on every device. Same storage."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def _state_pages(shape: StateShape, blocks: int, device: torch.device) -> StatePages:
    made = {name: torch.zeros(blocks, *size, dtype=TORCH_STATE_DTYPES[kept], device=device) for name, (size, kept) in shape.tensors().items()}
    return StatePages(made)


def write(pages: Tensor, slots: Tensor, rows: Tensor, scales: Tensor | None = None) -> None:
    """rows [B, T, K, D] -> pages [N, P, K, D] at `slots` [B * T], in the cache's dtype. Beyond the range of fp8: its largest number.

    `scales` [N, P, K]: each token and head is first divided by its own, largest absolute number / largest storable one (vLLM 0.33
    v1/attention/ops/triton_reshape_and_cache_flash.py, the per-token-head formats).
    """
    if pages.dtype.itemsize == 1:
        whole = not pages.dtype.is_floating_point
        most = 127.0 if whole else torch.finfo(pages.dtype).max
        if scales is not None:
            scale = (rows.float().abs().amax(-1) / most).clamp(min=torch.finfo(torch.float32).tiny)
            scales.flatten(0, 1)[slots] = scale.flatten(0, 1)
            rows = rows.float() / scale.unsqueeze(-1)
        rows = (rows.round() if whole else rows).clamp(-most, most)
    bits(pages).flatten(0, 1)[slots] = bits(rows.to(pages.dtype)).flatten(0, 1)


def gather(pages: Tensor, blocks: Tensor, dtype: torch.dtype, scales: Tensor | None = None) -> Tensor:
    """pages [N, P, K, D], blocks [B, m] -> [B, m * P, K, D] in `dtype`, times `scales` [N, P, K] where there are any."""
    chosen = blocks.flatten()
    found = bits(pages).index_select(0, chosen).view(pages.dtype)
    if scales is not None:
        found = found.float() * scales.index_select(0, chosen).unsqueeze(-1)
    return found.to(dtype).view(blocks.shape[0], -1, *pages.shape[2:])

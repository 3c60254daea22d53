"""Blocks, block tables and reference counts of one group of layers. Plain Python: the truth from which device tensors are made.

Invariant, checked by `check()`: every block is free or referenced, never both; a block's reference count is the number of tables
that hold it; free + used = total. A block that more than one table holds is never written: its writer takes a copy first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from planner.cache import Group

ENDLESS = 2**62
"""Tokens in the one block of a state."""


class PoolExhausted(Exception):
    """Wanted, free, total. The pool is unchanged."""


@dataclass(slots=True)
class Table:
    """Block ids of one sequence. `blocks[j]` holds tokens (first + j) * block_size ... + block_size - 1; earlier ones were given back."""

    first: int = 0
    blocks: list[int] = field(default_factory=list)

    def end(self) -> int:
        """Blocks ever taken: the number of the next block."""
        return self.first + len(self.blocks)


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens. The free list is shuffled by `seed`, so that neighbours in a sequence are not
    neighbours in memory. `keep_blocks`: a decoding sequence gives back its oldest block rather than hold more than that (sliding
    layers); None: it keeps all."""

    def __init__(self, num_blocks: int, block_size: int, *, seed: int = 0, keep_blocks: int | None = None) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"num_blocks {num_blocks}, block_size {block_size}")
        self.num_blocks, self.block_size, self.keep_blocks = num_blocks, block_size, keep_blocks
        self.tables: dict[int, Table] = {}
        self.peak_used = 0
        self._references = [0] * num_blocks
        self._random = random.Random(seed)
        self._free = list(range(num_blocks))
        self._random.shuffle(self._free)

    @classmethod
    def of(cls, group: Group, num_blocks: int, block_size: int, *, seed: int = 0) -> BlockPool:
        """For a planned group: a state has one block a sequence, a window keeps as many blocks as the plan says."""
        if group.kind == "state":
            return cls(num_blocks, ENDLESS, seed=seed)
        keep = None if group.resident.cap_tokens is None else int(group.resident.units(group.resident.cap_tokens))
        return cls(num_blocks, block_size, seed=seed, keep_blocks=keep)

    # -- a sequence's life

    def add(self, sequence: int) -> None:
        if sequence in self.tables:
            raise KeyError(f"live: {sequence}")
        self.tables[sequence] = Table()

    def extend(self, sequence: int, tokens: int, *, keep_all: bool = False) -> None:
        """Makes room for `tokens` tokens in all. `keep_all`: a prefill in one pass still reads the old blocks; `trim` afterwards."""
        table = self.tables[sequence]
        missing = -(-tokens // self.block_size) - table.end()
        if missing > len(self._free) + (0 if keep_all else self._spare(table, missing)):
            raise PoolExhausted(missing, len(self._free), self.num_blocks)
        for _ in range(missing):
            if not keep_all and self.keep_blocks is not None and len(table.blocks) >= self.keep_blocks:
                self._drop_oldest(table)
            block = self._free.pop()
            self._references[block] = 1
            table.blocks.append(block)
            self.peak_used = max(self.peak_used, self.used())

    def trim(self, sequence: int) -> int:
        """Gives back the blocks beyond `keep_blocks`, oldest first; returns how many."""
        table, dropped = self.tables[sequence], 0
        while self.keep_blocks is not None and len(table.blocks) > self.keep_blocks:
            self._drop_oldest(table)
            dropped += 1
        return dropped

    def fork(self, parent: int, child: int, tokens: int) -> None:
        """`child` starts with the parent's first `tokens` tokens, in the same blocks; a last block that is not full is shared too, and
        whoever writes to it first takes a copy (`make_writable`). ValueError where the parent does not hold what the child would read:
        too few tokens, or blocks of them that its window gave back."""
        table, wanted = self.tables[parent], -(-tokens // self.block_size)
        needed = wanted if self.keep_blocks is None else min(wanted, self.keep_blocks)
        if tokens < 1 or wanted > table.end() or wanted - table.first < needed:
            raise ValueError(f"shared prefix: {tokens} tokens")
        self.add(child)
        self.tables[child].first = table.first
        for block in table.blocks[: wanted - table.first]:
            self._references[block] += 1
            self.tables[child].blocks.append(block)

    def make_writable(self, sequence: int, start: int, end: int) -> list[tuple[int, int]]:
        """Gives `sequence` blocks of its own for the tokens start ... end - 1, which it holds already: returns (shared, copy) for each
        block that another table holds too. The caller copies the contents before it writes. PoolExhausted changes nothing."""
        table = self.tables[sequence]
        numbers = range(max(0, start // self.block_size - table.first), -(-end // self.block_size) - table.first)
        shared = [j for j in numbers if self._references[table.blocks[j]] > 1]
        if len(shared) > len(self._free):
            raise PoolExhausted(len(shared), len(self._free), self.num_blocks)
        copies = []
        for j in shared:
            old, new = table.blocks[j], self._free.pop()
            self._references[new] = 1
            table.blocks[j] = new
            self._unreference(old)
            copies.append((old, new))
        self.peak_used = max(self.peak_used, self.used())
        return copies

    def release(self, sequence: int) -> None:
        for block in self.tables.pop(sequence).blocks:
            self._unreference(block)

    # -- what is where

    def used(self) -> int:
        return self.num_blocks - len(self._free)

    def free(self) -> int:
        return len(self._free)

    def shared(self) -> int:
        """Blocks that more than one sequence holds."""
        return sum(count > 1 for count in self._references)

    def held(self) -> set[int]:
        """The blocks that live sequences hold; a shared one once."""
        return {block for table in self.tables.values() for block in table.blocks}

    def relocate(self) -> dict[int, int]:
        """Moves the held blocks to random places, at least one of them to another, and returns old -> new. The caller moves the contents
        before the next read."""
        old = sorted(self.held())
        places = list(range(self.num_blocks))
        moved = dict(zip(old, places, strict=False))
        while old and len(places) > 1 and all(a == b for a, b in moved.items()):  # a shuffle may leave few blocks as they are
            self._random.shuffle(places)
            moved = dict(zip(old, places, strict=False))
        references = [0] * self.num_blocks
        for block, place in moved.items():
            references[place] = self._references[block]
        self._references = references
        for table in self.tables.values():
            table.blocks = [moved[b] for b in table.blocks]
        self._free = places[len(old) :]
        return moved

    def contiguous_fraction(self) -> float:
        """Share of neighbouring blocks of a sequence that are also neighbours in memory; a shuffled pool is near 0."""
        pairs = [(a, b) for t in self.tables.values() for a, b in zip(t.blocks, t.blocks[1:], strict=False)]
        return sum(b == a + 1 for a, b in pairs) / len(pairs) if pairs else 0.0

    def check(self) -> None:
        """Raises AssertionError where an invariant is broken."""
        counted = [0] * self.num_blocks
        for table in self.tables.values():
            assert len(set(table.blocks)) == len(table.blocks), "held twice"
            for block in table.blocks:
                counted[block] += 1
        assert counted == self._references, "reference counts"
        assert len(set(self._free)) == len(self._free), "free twice"
        assert all(counted[block] == 0 for block in self._free), "free and held"
        assert len(self._free) + len(self.held()) == self.num_blocks, "free + used"

    # -- inside

    def _spare(self, table: Table, missing: int) -> int:
        """Blocks that the sequence itself would hand back, and that nobody else holds, while it takes `missing` new ones."""
        if self.keep_blocks is None:
            return 0
        leaving = max(0, len(table.blocks) + missing - self.keep_blocks)
        own = sum(self._references[b] == 1 for b in table.blocks[:leaving])
        return own + max(0, leaving - len(table.blocks))

    def _drop_oldest(self, table: Table) -> None:
        self._unreference(table.blocks.pop(0))
        table.first += 1

    def _unreference(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free.insert(self._random.randint(0, len(self._free)), block)

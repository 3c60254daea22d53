"""Blocks are free or held, never both, whatever happens to the sequences."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpu_probe.pool import BlockPool, PoolExhausted


def test_blocks_of_a_sequence_are_not_neighbours() -> None:
    pool = BlockPool(200, 16, seed=3)
    pool.add(0)
    pool.extend(0, 100 * 16)
    assert pool.contiguous_fraction() < 0.1
    assert BlockPool(200, 16, seed=3)._free == BlockPool(200, 16, seed=3)._free
    assert BlockPool(200, 16, seed=4)._free != BlockPool(200, 16, seed=3)._free


def test_relocation_keeps_order_and_counts_and_moves_blocks() -> None:
    pool = BlockPool(50, 4, seed=1)
    pool.add(0)
    pool.extend(0, 40)
    before = list(pool.tables[0].blocks)
    moved = pool.relocate()
    assert [moved[b] for b in before] == pool.tables[0].blocks
    assert sum(a != b for a, b in moved.items()) >= 5
    pool.check()


@pytest.mark.parametrize(("tokens", "keep", "held", "first"), [(1, 3, 1, 0), (12, 3, 3, 0), (13, 3, 3, 1), (400, 3, 3, 97)])
def test_a_sliding_group_gives_back_its_oldest_block(tokens: int, keep: int, held: int, first: int) -> None:
    pool = BlockPool(8, 4, keep_blocks=keep)
    pool.add(0)
    for t in range(1, tokens + 1):
        pool.extend(0, t)
    assert (len(pool.tables[0].blocks), pool.tables[0].first) == (held, first)
    pool.check()


def test_a_prefill_keeps_all_until_it_is_trimmed() -> None:
    pool = BlockPool(10, 4, keep_blocks=3)
    pool.add(0)
    pool.extend(0, 40, keep_all=True)
    assert pool.used() == 10
    assert pool.trim(0) == 7
    assert (pool.used(), pool.tables[0].first) == (3, 7)


def test_exhaustion_changes_nothing() -> None:
    pool = BlockPool(4, 4)
    pool.add(0)
    pool.extend(0, 8)
    with pytest.raises(PoolExhausted):
        pool.extend(0, 24)
    assert pool.used() == 2
    pool.check()


def test_a_shared_prefix_is_counted_once_and_outlives_its_parent() -> None:
    pool = BlockPool(10, 4)
    pool.add(0)
    pool.extend(0, 10)
    pool.fork(0, 1, 8)
    pool.extend(1, 12)
    assert len(pool.held()) == pool.used() == 4
    pool.release(0)
    assert pool.used() == 3
    pool.check()
    with pytest.raises(ValueError, match="shared prefix"):
        pool.fork(1, 2, 7)
    with pytest.raises(KeyError):
        pool.add(1)


class PoolMachine(RuleBasedStateMachine):
    """Random lives of sequences; the invariants hold after every step."""

    @initialize(blocks=st.integers(1, 24), size=st.integers(1, 5), keep=st.none() | st.integers(1, 4), seed=st.integers(0, 99))
    def start(self, blocks: int, size: int, keep: int | None, seed: int) -> None:
        self.pool = BlockPool(blocks, size, seed=seed, keep_blocks=keep)
        self.tokens: dict[int, int] = {}
        self.next = 0

    @rule()
    def add(self) -> None:
        self.pool.add(self.next)
        self.tokens[self.next] = 0
        self.next += 1

    @rule(data=st.data(), more=st.integers(1, 12), keep_all=st.booleans())
    def extend(self, data: st.DataObject, more: int, keep_all: bool) -> None:
        if self.tokens:
            who = data.draw(st.sampled_from(sorted(self.tokens)))
            before = (self.pool.used(), list(self.pool.tables[who].blocks))
            try:
                self.pool.extend(who, self.tokens[who] + more, keep_all=keep_all)
                self.tokens[who] += more
            except PoolExhausted:
                assert before == (self.pool.used(), list(self.pool.tables[who].blocks))

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        if self.tokens:
            who = data.draw(st.sampled_from(sorted(self.tokens)))
            self.pool.trim(who)
            assert self.pool.keep_blocks is None or len(self.pool.tables[who].blocks) <= self.pool.keep_blocks

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        whole = [w for w, t in self.tokens.items() if not self.pool.tables[w].first and t >= self.pool.block_size]
        if whole:
            parent = data.draw(st.sampled_from(whole))
            shared = data.draw(st.integers(1, self.tokens[parent] // self.pool.block_size)) * self.pool.block_size
            self.pool.fork(parent, self.next, shared)
            self.tokens[self.next] = shared
            self.next += 1

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.tokens:
            who = data.draw(st.sampled_from(sorted(self.tokens)))
            self.pool.release(who)
            del self.tokens[who]

    @rule()
    def relocate(self) -> None:
        self.pool.relocate()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.free() + self.pool.used() == self.pool.num_blocks
            for who, tokens in self.tokens.items():
                assert self.pool.tables[who].end() == -(-tokens // self.pool.block_size)


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestPool = PoolMachine.TestCase

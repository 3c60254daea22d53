"""Blocks are free or held, never both, whatever happens to the sequences."""

from __future__ import annotations

import pytest

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
        pool.fork(1, 2, 13)
    with pytest.raises(KeyError):
        pool.add(1)


def test_a_shared_block_is_copied_by_its_first_writer() -> None:
    pool = BlockPool(10, 4)
    pool.add(0)
    pool.extend(0, 10)
    pool.fork(0, 1, 10)
    assert (pool.used(), pool.shared()) == (3, 3)
    last = pool.tables[0].blocks[2]
    ((old, new),) = pool.make_writable(1, 10, 11)
    assert (old, pool.tables[1].blocks[2], pool.tables[0].blocks[2]) == (last, new, last)
    assert (pool.used(), pool.shared()) == (4, 2)
    assert pool.make_writable(1, 10, 11) == pool.make_writable(0, 10, 11) == []  # each has its own now
    pool.check()


def test_a_copy_that_cannot_be_made_changes_nothing() -> None:
    pool = BlockPool(3, 4)
    pool.add(0)
    pool.extend(0, 10)
    pool.fork(0, 1, 10)
    with pytest.raises(PoolExhausted):
        pool.make_writable(1, 10, 11)
    assert (pool.used(), pool.shared()) == (3, 3)
    pool.check()


def test_a_window_is_forked_only_while_its_blocks_are_there() -> None:
    pool = BlockPool(20, 4, keep_blocks=3)
    pool.add(0)
    for t in range(1, 31):
        pool.extend(0, t)
    pool.fork(0, 1, 30)
    assert pool.tables[1] == pool.tables[0]
    with pytest.raises(ValueError, match="shared prefix"):
        pool.fork(0, 2, 20)
    pool.check()

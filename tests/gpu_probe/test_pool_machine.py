"""Random lives of sequences over one pool: free + used = total always, and nobody ever reads what another one wrote.

The machine keeps its own books: what each sequence was told to hold, and what lies in each slot of memory. The pool says only where.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gpu_probe.pool import BlockPool, PoolExhausted

QUICK = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))


class PoolMachine(RuleBasedStateMachine):
    """Every rule may be refused for lack of blocks; then nothing has changed."""

    make: Callable[..., BlockPool] = BlockPool

    @initialize(blocks=st.integers(1, 24), size=st.integers(1, 5), keep=st.none() | st.integers(1, 4), seed=st.integers(0, 99))
    def start(self, blocks: int, size: int, keep: int | None, seed: int) -> None:
        self.pool = type(self).make(blocks, size, seed=seed, keep_blocks=keep)
        self.total, self.size = blocks, size
        self.tokens: dict[int, list[int]] = {}
        self.memory: dict[int, int] = {}
        self.written = self.next = 0

    def pick(self, data: st.DataObject) -> int | None:
        return data.draw(st.sampled_from(sorted(self.tokens))) if self.tokens else None

    def picture(self) -> object:
        tables = {s: (t.first, tuple(t.blocks)) for s, t in self.pool.tables.items()}
        return tables, self.pool.free(), self.pool.used(), sorted(self.pool.held())

    def slots(self, who: int) -> dict[int, int]:
        """Position -> slot, for every token that the sequence's table still covers."""
        table = self.pool.tables[who]
        low = table.first * self.size
        return {p: table.blocks[p // self.size - table.first] * self.size + p % self.size for p in range(low, len(self.tokens[who]))}

    @rule()
    def admit(self) -> None:
        self.pool.add(self.next)
        self.tokens[self.next] = []
        self.next += 1

    @rule(data=st.data(), more=st.integers(1, 12), prefill=st.booleans())
    def append(self, data: st.DataObject, more: int, prefill: bool) -> None:
        who = self.pick(data)
        if who is not None:
            self.grow(who, more, prefill)

    def grow(self, who: int, more: int, prefill: bool) -> None:
        before, start = self.picture(), len(self.tokens[who])
        # A window's old blocks go in a decode step only, one token at a time; a prefill keeps all of them.
        for length in [start + more] if prefill else range(start + 1, start + more + 1):
            try:
                self.pool.extend(who, length, keep_all=prefill)
            except PoolExhausted:
                assert before == self.picture()
                return
            grown = self.picture()
            try:
                copies = self.pool.make_writable(who, len(self.tokens[who]), length)
            except PoolExhausted:
                assert grown == self.picture()
                self.finish(who)  # room without the right to write: the run ends here
                return
            for old, new in copies:
                assert old != new
                for j in range(self.size):
                    self.memory[new * self.size + j] = self.memory.get(old * self.size + j, -1)
            for _ in range(length - len(self.tokens[who])):
                self.written += 1
                self.tokens[who].append(self.written)
                at = len(self.tokens[who]) - 1
                self.memory[self.slots(who)[at]] = self.written
            before = self.picture()

    @rule(data=st.data(), part=st.booleans())
    def fork(self, data: st.DataObject, part: bool) -> None:
        """`part`: at the parent's end, and both go on at once, the child first."""
        parent = self.pick(data)
        if parent is None or not self.tokens[parent]:
            return
        end, before = len(self.tokens[parent]), self.picture()
        shared = end if part else data.draw(st.integers(1, end + 2))
        blocks, table = -(-shared // self.size), self.pool.tables[parent]
        least = blocks if self.pool.keep_blocks is None else min(blocks, self.pool.keep_blocks)
        if blocks > table.end() or blocks - table.first < least:
            with pytest.raises(ValueError, match="shared prefix"):
                self.pool.fork(parent, self.next, shared)
            assert before == self.picture()
            return
        free = self.pool.free()
        self.pool.fork(parent, self.next, shared)
        assert self.pool.free() == free  # sharing costs nothing
        child, self.next = self.next, self.next + 1
        self.tokens[child] = self.tokens[parent][:shared]
        if part:
            self.grow(child, 1, prefill=False)
            self.grow(parent, 1, prefill=False)

    @rule(data=st.data())
    def window_release(self, data: st.DataObject) -> None:
        who = self.pick(data)
        if who is not None:
            before = len(self.pool.tables[who].blocks)
            dropped = self.pool.trim(who)
            assert len(self.pool.tables[who].blocks) == before - dropped
            assert self.pool.keep_blocks is None or len(self.pool.tables[who].blocks) <= self.pool.keep_blocks

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        who = self.pick(data)
        if who is not None:
            self.finish(who)

    def finish(self, who: int) -> None:
        self.pool.release(who)
        del self.tokens[who]

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """More than there is, names that are live or unknown: an error, and nothing has changed."""
        before = self.picture()
        with pytest.raises(KeyError):
            self.pool.release(self.next)
        who = self.pick(data)
        if who is not None:
            with pytest.raises(KeyError):
                self.pool.add(who)
            with pytest.raises(PoolExhausted):
                self.pool.extend(who, (self.pool.tables[who].end() + self.total + 1) * self.size, keep_all=True)
        assert before == self.picture()

    @rule()
    def relocate(self) -> None:
        moved = self.pool.relocate()
        old = dict(self.memory)
        for a, b in moved.items():
            for j in range(self.size):
                self.memory[b * self.size + j] = old.get(a * self.size + j, -1)

    @invariant()
    def free_and_used_are_all(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()
            held = {b for t in self.pool.tables.values() for b in t.blocks}
            assert self.pool.free() + len(held) == self.pool.free() + self.pool.used() == self.total
            assert set(self.pool._free) | held == set(range(self.total))

    @invariant()
    def everybody_reads_what_it_wrote(self) -> None:
        for who, tokens in getattr(self, "tokens", {}).items():
            assert self.pool.tables[who].end() >= -(-len(tokens) // self.size)
            assert all(self.memory[slot] == tokens[p] for p, slot in self.slots(who).items())


PoolMachine.TestCase.settings = QUICK
TestPool = PoolMachine.TestCase


# -- planted faults: the machine must see each of them


class LeaksOnRelease(BlockPool):
    """The last block of a sequence that ends is never given back."""

    def release(self, sequence: int) -> None:
        for block in self.tables.pop(sequence).blocks[:-1]:
            self._unreference(block)


class LeaksFromWindow(BlockPool):
    """A block that leaves a window is forgotten."""

    def _drop_oldest(self, table: object) -> None:
        table.blocks.pop(0)  # type: ignore[attr-defined]
        table.first += 1  # type: ignore[attr-defined]


class ForgetsReference(BlockPool):
    """A child's blocks are not counted: they are free as soon as the parent ends."""

    def fork(self, parent: int, child: int, tokens: int) -> None:
        before = list(self._references)
        super().fork(parent, child, tokens)
        self._references = before


class WritesShared(BlockPool):
    """No copy before a write."""

    def make_writable(self, sequence: int, start: int, end: int) -> list[tuple[int, int]]:
        return []


class CopiesTheWrongBlock(BlockPool):
    """The copy is said to come from another block than the shared one."""

    def make_writable(self, sequence: int, start: int, end: int) -> list[tuple[int, int]]:
        return [((old + 1) % self.num_blocks, new) for old, new in super().make_writable(sequence, start, end)]


class KeepsHalfOfARefusal(BlockPool):
    """A refused request has taken what there was."""

    def extend(self, sequence: int, tokens: int, *, keep_all: bool = False) -> None:
        try:
            super().extend(sequence, tokens, keep_all=keep_all)
        except PoolExhausted:
            if self._free:
                block = self._free.pop()
                self._references[block] = 1
                self.tables[sequence].blocks.append(block)
            raise


@pytest.mark.parametrize("broken", [LeaksOnRelease, LeaksFromWindow, ForgetsReference, WritesShared, CopiesTheWrongBlock, KeepsHalfOfARefusal])
def test_a_planted_fault_turns_the_machine_red(broken: type[BlockPool]) -> None:
    class Machine(PoolMachine):
        make = broken

    many = settings(QUICK, max_examples=300, stateful_step_count=30, derandomize=True, database=None, phases=[Phase.generate])
    with pytest.raises((AssertionError, KeyError, IndexError)):
        run_state_machine_as_test(Machine, settings=many)

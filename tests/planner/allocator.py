"""A block allocator in the plainest form, for tests: block by block, with reference counts and windows that give blocks back.

It knows nothing of terms: what it counts is held against them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Allocator:
    """`blocks`: how many there are; None: no end. A block of a shared prefix is one block, whoever holds it."""

    blocks: int | None = None
    held: dict[object, int] = field(default_factory=dict)

    def take(self, name: object) -> bool:
        if name not in self.held and self.blocks is not None and len(self.held) >= self.blocks:
            return False
        self.held[name] = self.held.get(name, 0) + 1
        return True

    def give(self, name: object) -> None:
        self.held[name] -= 1
        if not self.held[name]:
            del self.held[name]


@dataclass(frozen=True)
class Layers:
    """What one group of layers asks of the allocator. kind: full | window | chunk | state."""

    kind: str
    block: int = 1
    window: int = 0
    slots: int = 0


def first_needed(g: Layers, computed: int) -> int:
    """The first token that the next one can still see."""
    if g.kind == "window":
        return max(0, computed - g.window + 1)
    if g.kind == "chunk":
        return computed - computed % g.window
    return 0


def run(group: int, g: Layers, tokens: int, prefix_blocks: int = 0, sequence: int = 0) -> tuple[set[object], int]:
    """(blocks of one sequence after `tokens` tokens and before the next, the most it held on the way)."""
    if g.kind == "state":
        return {(group, sequence, i) for i in range(g.slots)}, g.slots
    mine: set[object] = set()
    most = 0
    for computed in range(tokens):
        keep_from = first_needed(g, computed) // g.block
        mine = {name for name in mine if name[-1] >= keep_from}  # type: ignore[index]
        i = computed // g.block
        mine.add((group, "prefix", i) if i < prefix_blocks else (group, sequence, i))
        most = max(most, len(mine))
    keep_from = first_needed(g, tokens) // g.block
    return {name for name in mine if name[-1] >= keep_from}, most  # type: ignore[index]

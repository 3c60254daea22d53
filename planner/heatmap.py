"""Context length x sequences: bytes on the fullest rank, which cells fit its pool, and the line where it stops fitting.

Cells run through the plan's own terms with numpy arrays; nothing is estimated. `replan` at a cell gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from planner.budget import budget
from planner.cache import last, max_sequences
from planner.capacity import CapacityPlan
from planner.engines import engine
from planner.scenario import MAX_SEQUENCES, MAX_TOKENS
from planner.units import KIB, MIB, gib_number

WIDE = 50  # from here on an axis by powers of ten has enough of them
FIRST_TOKENS, LAST_SEQUENCES, MOST_COLUMNS, STEPS = 512, 256, 16, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """`rank_bytes[row][column]`: row by `sequences` (in total), column by `tokens`. `line`: (tokens, most sequences that fit), falling."""

    tokens: tuple[int, ...]
    sequences: tuple[int, ...]
    rank_bytes: tuple[tuple[int, ...], ...]
    fits: tuple[tuple[bool, ...], ...]
    line: tuple[tuple[int, int], ...]


def heat_map(p: CapacityPlan) -> HeatMap:
    """Powers of two up to the model's limit (and the chosen length) and up to 256 sequences (or the chosen number)."""
    limit = p.model.max_context_tokens or p.scenario.tokens
    tokens = powers(FIRST_TOKENS, min(MAX_TOKENS, max(limit, p.scenario.tokens, 4 * FIRST_TOKENS)))[-MOST_COLUMNS:]
    tokens = tuple(t for t in tokens if t >= p.scenario.shared_prefix) or (p.scenario.tokens,)  # none is shorter than its prefix
    sequences = powers(1, min(MAX_SEQUENCES, max(LAST_SEQUENCES, 2 * p.scenario.sequences)))[-MOST_COLUMNS:]
    columns, rows = np.array(tokens, dtype=np.int64), np.array(sequences, dtype=np.int64)
    if p.rank_bytes(sequences[-1], tokens[-1]) >= 2**62:
        columns, rows = columns.astype(object), rows.astype(object)
    cells = p.rank_bytes(-(-rows[:, None] // p.replicas), columns[None, :])
    cells = np.broadcast_to(cells, (len(sequences), len(tokens)))
    rooms = [_room(p, t) for t in tokens]
    held = [[all(pool.holds(-(-n // p.replicas), t) for pool in p.pools) and p.within_parts(-(-n // p.replicas), t) for t in tokens] for n in sequences]
    fits = tuple(tuple(held[i][j] and int(cells[i, j]) <= room - (n - 1) * each for j, (room, each) in enumerate(rooms)) for i, n in enumerate(sequences))
    return HeatMap(
        tokens=tokens,
        sequences=sequences,
        rank_bytes=tuple(tuple(int(v) for v in row) for row in cells),
        fits=fits,
        line=_line(p, tokens),
    )


def powers(first: int, last: int) -> tuple[int, ...]:
    """Powers of two from `first` to the first one that reaches `last`; `last` itself closes the row where it is none."""
    out = [first]
    while out[-1] * 2 <= last:
        out.append(out[-1] * 2)
    return tuple(out)


def _line(p: CapacityPlan, tokens: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The most sequences that fit, at each power of two and between them."""
    out = []
    between = {round(t * 2 ** (k / STEPS)) for t in tokens[:-1] for k in range(STEPS)} | {tokens[-1]}
    for t in sorted(between):
        room, each = _room(p, t)
        fixed = sum(pool.bytes(0, t) for pool in p.pools)
        parts = p.parts if p.sizes else ((p.pools, max(0, room)),)
        prefix = p.footprint.prefix_tokens
        most = min(max_sequences(pools, t, size, prefix=prefix) for pools, size in parts) if not each else _most(p, t, room, each, fixed)
        if most >= 1:
            out.append((t, most * p.setting.parallel.attention_data * p.replicas))
    return tuple(out)


def _most(p: CapacityPlan, tokens: int, room: int, each: int, fixed: int) -> int:
    """As `max_sequences`, where every sequence also takes `each` bytes from the pool (one pool, one device)."""
    if slots := max((pool.slots.most for pool in p.pools if pool.slots), default=0):
        return last(slots, lambda n: all(q.holds(n, tokens) for q in p.pools) and sum(q.bytes(n, tokens) for q in p.pools) <= room - (n - 1) * each)
    price = sum(pool.bytes(1, tokens) for pool in p.pools) - fixed + each
    return (room + each - fixed) // price if price > 0 else 0


def _room(p: CapacityPlan, tokens: int) -> tuple[int, int]:
    """(pool bytes with one sequence of `tokens`, bytes that the pool loses for each further sequence). Only an engine without a reserved
    pool gives up pool for a larger load; for the others the pool is one number."""
    if engine(p.setting.engine).reserves or p.scenario.kv_memory is not None or p.hardware is None:
        return p.kv_pool_bytes, 0
    one, two = (budget(p.model, p.hardware, replace(p.scenario, tokens=tokens, sequences=n), p.setting, 0).pool_bytes for n in (1, 2))
    return one, one - two


def log2s(values: Iterable[int]) -> list[float]:
    """Positions on an axis of powers of two."""
    return [math.log2(max(1, v)) for v in values]


def log10_ticks(values: Iterable[float]) -> list[float]:
    """Places on an axis of powers of ten: the powers alone over a wide range, 1, 2 and 5 times them over a narrow one, which else has one or none.

    >>> log10_ticks([0.25, 4.5]), log10_ticks([3.0, 4000.0])
    ([0.5, 1.0, 2.0], [10.0, 100.0, 1000.0])
    """
    seen = [v for v in values if v > 0]
    if not seen:
        return []
    low, high = min(seen), max(seen)
    steps = (1,) if high > WIDE * low else (1, 2, 5)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [t for t in ticks if low <= t <= high] or [high]


def short_count(value: int) -> str:
    """A power of two as an axis prints it: 512, 8k, 2M.

    >>> short_count(512), short_count(8192), short_count(2**21)
    ('512', '8k', '2M')
    """
    for factor, letter in ((MIB, "M"), (KIB, "k")):
        if value >= factor and value % factor == 0:
            return f"{value // factor:,}{letter}"
    return f"{value:,}"


def gib_cell(size_bytes: int) -> str:
    """GiB for a small cell: 0.06, 1.00, 16.0, 128."""
    value = gib_number(size_bytes)
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"

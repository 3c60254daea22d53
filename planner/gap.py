"""From what the model must remember to what the engine holds, line by line: copies, row layouts, and every kind of waste in blocks.

Each line is a difference between two totals, so that the lines sum to the engine's bytes exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.cache import Group, Pool

# In the order in which they are told.
CODES = ("copies", "row_layout", "last_block", "window_slack", "state_slots", "state_pages", "padding", "blocks", "empty_cells", "null_blocks", "shared_prefix",
         "samples")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLine:
    """One step from architecture bytes to engine bytes (the whole load, all ranks of the replicas that serve it)."""

    code: str
    bytes: int

    @property
    def name(self) -> str:
        from planner.messages import render

        return render(f"gap.{self.code}")


def rank_waste(pools: tuple[Pool, ...], ideal_bytes: int, sequences: int, tokens: int) -> dict[str, int]:
    """What one rank holds beyond `ideal_bytes` of rows and states, by code; null blocks are left out.

    `row_layout`: rows in the engine's own layout (scales, packed or index rows, state dtypes); `last_block`: the empty part of the last
    block; `window_slack`: rows that a window or chunk no longer needs; `state_slots`: further slots of a state; `state_pages`: a state
    padded to the attention's page; `padding`: pages and groups padded to one size; `blocks`: all of it where units are not told apart;
    `empty_cells`: what a cache that is taken whole at start has beyond the load.
    """
    out = dict.fromkeys(CODES[1:-3], 0)
    needed = 0
    for pool in pools:
        loaded = replace(pool, slots=replace(pool.slots, sequences=0, tokens=0)) if pool.slots else pool
        for g in pool.groups:
            price = pool.price(g)
            cost = int(loaded.group_bytes(g, sequences, tokens))
            out["empty_cells"] += int(pool.group_bytes(g, sequences, tokens)) - cost
            units = cost // price if price else 0
            if g.kind == "padding":
                out["padding"] += cost
                continue
            if not g.content_bytes:
                needed += cost
                continue
            rows = _needed(g, sequences, tokens)
            needed += rows
            out["state_pages" if g.kind == "state" else "padding"] += cost - g.content_bytes * units
            out[_slack(g)] += g.content_bytes * units - rows
    layout = needed - ideal_bytes
    out["row_layout" if all(g.content_bytes or g.kind == "padding" for p in pools for g in p.groups) else "blocks"] += layout
    return out


def _needed(g: Group, sequences: int, tokens: int) -> int:
    """Bytes of the rows that the next step reads, in the engine's layout; of a state one slot; an encoder's rows as reserved."""
    if g.resident.unit_tokens is None:
        return g.content_bytes * sequences * (1 if g.kind == "state" else g.resident.extra_units)
    kept = min(tokens, g.limit_tokens) if g.limit_tokens else tokens
    return sequences * (g.content_bytes * kept // g.resident.unit_tokens)


def _slack(g: Group) -> str:
    if g.resident.unit_tokens is None:
        return "state_slots"
    return "window_slack" if g.limit_tokens else "last_block"


def lines(parts: Iterable[dict[str, int]]) -> tuple[GapLine, ...]:
    """The sum of several ranks' parts as lines, zeros left out but for the first three that every engine has."""
    total = dict.fromkeys(CODES, 0)
    for part in parts:
        for code, size in part.items():
            total[code] += size
    return tuple(GapLine(code=code, bytes=size) for code, size in total.items() if size or code in ("copies", "null_blocks"))

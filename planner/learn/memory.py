"""Blocks, sharing, and what is held beside what must be remembered (claims C7, C15, C20)."""

from __future__ import annotations

from planner.cache import Pool
from planner.engines import probe
from planner.errors import PlannerError
from planner.learn import Figures, Lesson
from planner.learn.words import columns, exactly, row, said, times
from planner.messages import render
from planner.report.content import gap_line
from planner.units import count, memory, percent

BLOCK_TOKENS = 16
"""Of the probe's pool, by which an engine without blocks is explained."""
COUNTED = ("held_bytes", "internal_bytes", "contiguous_bytes")
"""Of a probe's result."""


def paging(f: Figures) -> Lesson:
    """Blocks of the deciding rank (or of the probe's pool) against one region of the largest length a sequence."""
    pools, mine, engine = _pools(f)
    if not pools:
        return Lesson(code="paging", texts=(render("learn.paging.none"),))
    s, sequences = f.scenario, mine
    block = min(p.block_size for p in pools if p.block_size)
    longest = max(s.tokens, f.plan.setting.max_model_len if f.plan else f.model.max_context_tokens or 0)
    held = sum(int(p.bytes(sequences, s.tokens)) for p in pools)
    one = sum(int(p.units(s.tokens)) for p in pools)
    region = sequences * _each(pools, longest)
    used = sequences * _each(pools, s.tokens)
    empty = -s.tokens % block
    args = {"block": block, "engine": engine, "blocks": one, "tokens": s.tokens, "empty": empty, "longest": longest, "sequences": sequences,
            "held": memory(held), "region": memory(region), "times": times(region, held), "used": percent(used / region if region else 1.0)}  # fmt: skip
    rows = (
        row("block_tokens", count(block)),
        row("blocks_sequence", count(one)),
        row("blocks_load", count(sequences * one)),
        row("empty_tokens", count(empty)),
        row("paged", exactly(held)),
        row("contiguous", exactly(region)),
        row("table", exactly(probe.TABLE_ENTRY_BYTES * sequences * one)),
    )
    code = "paging.about" if empty else "paging.full"
    return Lesson(code="paging", texts=(said(code, args), said("paging.gain", args)), columns=columns("what", "value"), rows=rows,
                  measured=_fragmentation(f))  # fmt: skip


def _each(pools: tuple[Pool, ...], tokens: int) -> int:
    """Bytes of one sequence of `tokens` tokens, without what lies in a pool whatever its number of sequences (unused blocks)."""
    return sum(int(p.bytes(1, tokens)) - int(p.bytes(0, tokens)) for p in pools)


def _fragmentation(f: Figures) -> tuple[tuple[str, str], ...]:
    """What the probe counted in its own blocks; a result from elsewhere may lack it."""
    found = f.probe.get("fragmentation") or {}
    return tuple((render(f"learn.measured.{k}"), exactly(found[k])) for k in COUNTED if isinstance(found.get(k), int))


def prefix(f: Figures) -> Lesson:
    """The same first tokens in every sequence, held once. Half of the prompt where no shared prefix was chosen."""
    pools, sequences, engine = _pools(f)
    s = f.scenario
    shared = s.shared_prefix or f.prompt // 2
    if not pools or shared < 1 or sequences < 2:
        return Lesson(code="prefix", texts=(render("learn.prefix.none"),))
    apart = sum(int(p.bytes(sequences, s.tokens)) for p in pools)
    together = sum(int(p.bytes(sequences, s.tokens, prefix=shared)) for p in pools)
    args = {"shared": shared, "prompt": f.prompt, "sequences": sequences, "apart": memory(apart), "together": memory(together),
            "saved": memory(apart - together),
            "share": percent((apart - together) / apart if apart else 0.0), "engine": engine, "one": sequences - 1}  # fmt: skip
    if together == apart:
        return Lesson(code="prefix", texts=(said("prefix.gone", args),))
    rows = (row("apart", exactly(apart)), row("together", exactly(together)), row("saved", exactly(apart - together)))
    texts = [said("prefix.about", args), said("prefix.blocks", args)]
    if f.has_state:
        texts.append(render("learn.prefix.states"))
    return Lesson(code="prefix", texts=tuple(texts), columns=columns("what", "value"), rows=rows)


def held(f: Figures) -> Lesson:
    """From what must be remembered to what the engine holds, line by line."""
    if f.plan is None:
        return Lesson(code="held", texts=(render("learn.held.none"),))
    p = f.plan
    foot = p.footprint
    args = {"architecture": exactly(foot.architecture_bytes), "engine": p.setting.engine, "version": p.setting.version, "held": exactly(foot.engine_bytes),
            "ratio": times(foot.engine_bytes, foot.architecture_bytes), "sequences": p.sequences_per_replica, "tokens": f.scenario.tokens,
            "pool": memory(p.kv_pool_bytes), "most": p.total_max_sequences}  # fmt: skip
    rows = tuple((g.name, exactly(g.bytes)) for g in p.gap if g.bytes)
    return Lesson(
        code="held",
        texts=(said("held.about", args), gap_line(p), said("held.pool" if p.kv_pool_bytes > 0 else "held.pool.none", args)),
        columns=columns("step_between", "value"),
        rows=rows,
    )


def _pools(f: Figures) -> tuple[tuple[Pool, ...], int, str]:
    """(pools with blocks, sequences in them, whose): the plan's, else the probe's."""
    if f.plan is not None and any(p.block_size for p in f.plan.pools):
        return f.plan.pools, f.plan.rank_sequences, f.plan.setting.engine
    try:
        made = probe.allocate(f.model, kv=f.kv, block_size=BLOCK_TOKENS)
    except PlannerError:
        return (), 0, ""
    return (made if any(p.block_size for p in made) else ()), f.scenario.sequences, render("learn.probe_pool")

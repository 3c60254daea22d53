"""A log beside a plan of the same server: each printed figure with what the planner gives for it, and the difference.

Two routes. From the pool: the KV memory that the log prints goes in, and tokens, blocks and concurrency must come out within what printing
rounded. From the device: memory and flags go in, and the budget comes out line by line, with the bands of its constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.budget import weights_line
from planner.cache import max_tokens
from planner.capacity import CapacityPlan, plan
from planner.enginelogs.intervals import Interval
from planner.enginelogs.reader import Figure, LogReading
from planner.engines import engine
from planner.errors import PlannerError
from planner.footprint import drafting, measure
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.scenario import Scenario
from planner.units import MIB

# An engine prints what its allocator held after loading: padded vocabularies, buffers and rounded allocations beside the weights.
LOADING_SHARE, LOADING = 0.03, 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a plan gives for a figure of the log: between `low` and `high` with what the figures that it starts from were rounded by."""

    name: str
    figure: Figure
    low: float
    high: float
    how: str
    middle: float | None = None

    @property
    def value(self) -> float:
        return (self.low + self.high) / 2 if self.middle is None else self.middle

    @property
    def difference(self) -> float:
        return float(self.figure.value) - self.value

    @property
    def agrees(self) -> bool:
        """Whether the printed figure can be what the plan gives."""
        return Interval(self.low, self.high).meets(Interval(self.figure.value - self.figure.off, self.figure.value + self.figure.off))


def predictions(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario, *, budget: bool = True) -> list[Predicted]:
    """Every figure that a plan of this scenario speaks of; `budget` False: only those that need no constants of the device. Raises
    PlannerError where the scenario cannot be planned."""
    out: list[Predicted] = []
    if s.engine == "llamacpp":
        out += _context(log, model, hardware, s)
    else:
        out += _pool(log, model, hardware, s)
    out += _weights(log, model, hardware, s)
    if hardware is not None and budget:
        out += _device(log, model, hardware, s)
    return out


# -- from the printed pool -------------------------------------------------------------------------------------------------


def pool_figure(log: LogReading) -> Figure | None:
    """The bytes of the pool that the log prints: one figure, or K and V (and states) together."""
    given = log.one("available_kv_bytes")
    if given is not None and given.value > 0:
        return given
    whole = log.all("kv_pool_bytes")
    k, v = log.one("k_bytes"), log.one("v_bytes")
    windows = whole and whole[-1].said == "SWAKVPool mem usage"  # the sum of the full and the window pool, whose K and V stand before it
    parts = [whole[-1]] if windows else [k, v] if k and v else [whole[-1]] if whole else []
    parts += [f for name in ("conv_state_bytes", "ssm_state_bytes") if (f := log.one(name))]
    if not parts or parts[0] is None:
        return None
    known = [f for f in parts if f is not None]
    return replace(known[0], value=sum(f.value for f in known), off=sum(f.off for f in known))


def _pool(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Iterator[Predicted]:
    given = pool_figure(log)
    if given is None or given.value <= given.off:
        yield from _request(log, model, hardware, s, None)
        return
    ends = [round(given.value - given.off), given.value, round(given.value + given.off)]
    plans = [plan(model, hardware, replace(s, kv_memory=max(1, size))) for size in ends]
    for name, get in _POOL.items():
        figure = log.one(name)
        if figure is None:
            continue
        values = [get(p) for p in plans]
        if any(v is None for v in values):
            continue
        yield Predicted(name=name, figure=figure, low=values[0], high=values[2], middle=values[1], how="pool")
    yield from _request(log, model, hardware, s, plans)


_POOL: dict[str, Any] = {
    "kv_tokens": lambda p: p.kv_tokens,
    "num_blocks": lambda p: p.num_blocks,
    "max_concurrency": lambda p: p.max_concurrency,
    "state_slots": lambda p: dict(p.sizes.printed).get("max_mamba_cache_size") if p.sizes else None,
    "swa_tokens": lambda p: dict(p.sizes.printed).get("swa_max_total_num_tokens") if p.sizes else None,
}


def _request(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario, plans: list[CapacityPlan] | None) -> Iterator[Predicted]:
    """What one request of the largest length needs, as a refusal prints it (without the null block), and the longest that would fit."""
    needed, longest = log.one("kv_needed_bytes"), log.one("estimated_max_len")
    if needed is None and (longest is None or plans is None):
        return
    p = plans[1] if plans else plan(model, hardware, replace(s, kv_memory=1 << 40))
    if needed is not None:
        size = sum(q.bytes(1, p.setting.max_model_len, "admission") - q.block_bytes * q.null_blocks for q in p.pools)
        yield Predicted(name="kv_needed_bytes", figure=needed, low=size, high=size, how="request")
    if longest is not None and plans is not None:
        ends = [max_tokens(q.pools, 1, q.kv_pool_bytes, q.setting.max_model_len, "admission") for q in (plans[0], plans[2])]
        yield Predicted(name="estimated_max_len", figure=longest, low=ends[0], high=ends[1], how="request")


# -- llama.cpp's context ---------------------------------------------------------------------------------------------------


def _context(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Iterator[Predicted]:
    """A context is allocated whole, so its settings give every buffer; lines print two digits of a MiB each."""
    foot = measure(model, hardware, s)
    context = foot.setting.context
    if context is None:
        return
    pools = (*(p for stage in foot.allocation.stages for p in stage), *foot.allocation.host)
    rows = sum(g.bytes(s.sequences, s.tokens) for p in pools for g in _parts(p) if g.kind != "state")
    states = sum(g.bytes(s.sequences, s.tokens) for p in pools for g in _parts(p) if g.kind == "state")
    for name, size in (("kv_pool_bytes", rows), ("state_pool_bytes", states)):
        found = log.all(name)
        if found:
            distinct = list({(f.value, f.text, f.line): f for f in found}.values())
            whole = replace(found[0], value=sum(f.value for f in distinct), off=sum(f.off for f in distinct))
            yield Predicted(name=name, figure=whole, low=size, high=size, how="context")
    for name, cells in (("n_ctx", context.n_ctx), ("n_ctx_seq", context.n_ctx_seq)):
        if figure := log.one(name):
            yield Predicted(name=name, figure=figure, low=cells, high=cells, how="context")


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    pool: Any

    def bytes(self, sequences: int, tokens: int) -> int:
        return int(self.pool.bytes(sequences, tokens))


def _parts(pool: Any) -> list[_Part]:
    """Each group of a pool as a pool of its own, so that rows and states can be told apart."""
    return [_Part(g.kind, replace(pool, groups=(g,))) for g in pool.groups]


# -- from the device -------------------------------------------------------------------------------------------------------


def _weights(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Iterator[Predicted]:
    figure = log.one("weights_bytes")
    if figure is None:
        return
    running = drafting(model, s)
    setting = engine(s.engine).settle(running, hardware, s)
    lines = [weights_line(running, s, setting, stage) for stage in range(setting.parallel.pipeline)]
    most = max(lines, key=lambda line: line.bytes)
    low, high = (most.bytes if end is None else end for end in (most.low_bytes, most.high_bytes))
    yield Predicted(name="weights_bytes", figure=figure, how="weights", middle=most.bytes, low=low - round(low * LOADING_SHARE) - LOADING,
                    high=high + round(high * LOADING_SHARE) + LOADING)  # fmt: skip


# figure of a log -> codes of ledger lines that make it up
_LEDGER = {"activation_bytes": ("activation",), "non_torch_bytes": ("non_torch",), "cuda_graphs_bytes": ("cuda_graphs",),
           "cuda_graphs_estimated_bytes": ("cuda_graphs",)}  # fmt: skip


def _device(log: LogReading, model: ModelSpec, hardware: Hardware, s: Scenario) -> Iterator[Predicted]:
    p = plan(model, hardware, replace(s, kv_memory=None))
    lines = {line.code: line for line in p.ledgers[p.binding_rank]}
    for name, codes in _LEDGER.items():
        figure = log.one(name)
        found = [lines[c] for c in codes if c in lines]
        if figure is not None and found:
            low = sum(line.bytes if line.low_bytes is None else line.low_bytes for line in found)
            high = sum(line.bytes if line.high_bytes is None else line.high_bytes for line in found)
            yield Predicted(name=name, figure=figure, low=low, high=high, middle=sum(line.bytes for line in found), how="device")
    if figure := log.one("total_memory_bytes"):
        yield Predicted(name="total_memory_bytes", figure=figure, low=hardware.visible_bytes or hardware.memory_bytes,
                        high=hardware.memory_bytes, middle=hardware.visible_bytes or hardware.memory_bytes, how="device")  # fmt: skip
    pool = pool_figure(log)
    low, high = _band(p)
    if pool is not None and s.engine != "llamacpp":
        yield Predicted(name="available_kv_bytes", figure=pool, low=low, high=high, middle=p.kv_pool_bytes, how="device")


def _band(p: CapacityPlan) -> tuple[int, int]:
    """The pool with every line before it at the end of its band."""
    before = [line for line in p.ledgers[p.binding_rank] if line.low_bytes is not None and line.high_bytes is not None]
    return (p.kv_pool_bytes - sum((line.high_bytes or 0) - line.bytes for line in before),
            p.kv_pool_bytes + sum(line.bytes - (line.low_bytes or 0) for line in before))  # fmt: skip


def answered(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario, *, budget: bool = True) -> list[Predicted] | None:
    """`predictions`, or None where this scenario cannot be planned: for candidates of causes."""
    try:
        return predictions(log, model, hardware, s, budget=budget)
    except PlannerError:
        return None

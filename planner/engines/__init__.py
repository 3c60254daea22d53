"""The table of engines. An engine is a few functions plus numbers; there is no base class and nobody borrows another's constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.cache import Pool
from planner.engines import architecture, transformers, vllm, vllm_budget
from planner.engines.settings import Allocation, LedgerLine, Setting
from planner.errors import UnknownName
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """settle: defaults filled in. allocate: pools of one rank. lines: what comes off a device before the pool, weights among it.

    `printed_tokens`: (setting, pool, blocks, blocks a request) -> the figure of the engine's log; None where it prints none.
    `reserves`: the pool is taken at start and is one number; the engine does not start unless one request of the largest length fits.
    `many_ranks`: it can spread a model over devices.
    """

    name: str
    version: str
    settle: Callable[[ModelSpec, Hardware | None, Scenario], Setting]
    allocate: Callable[[ModelSpec, Setting], Allocation]
    lines: Callable[[ModelSpec, Hardware, Scenario, Setting, LedgerLine], tuple[LedgerLine, ...]]
    printed_tokens: Callable[[Setting, Pool, int, int], int] | None = None
    reserves: bool = False
    many_ranks: bool = False


ENGINES: dict[str, Engine] = {
    "architecture": Engine(
        name="architecture", version=architecture.VERSION, settle=architecture.settle, allocate=architecture.allocate, lines=architecture.lines
    ),
    "transformers": Engine(
        name="transformers", version=transformers.VERSION, settle=transformers.settle, allocate=transformers.allocate, lines=transformers.lines
    ),
    "vllm": Engine(
        name="vllm",
        version=vllm.VERSION,
        settle=vllm.settle,
        allocate=vllm.allocate,
        lines=vllm_budget.lines,
        printed_tokens=vllm.printed_tokens,
        reserves=True,
        many_ranks=True,
    ),
}


def engine(name: str) -> Engine:
    if name not in ENGINES:
        raise UnknownName("unknown_engine", field="engine", value=name[:40], known=", ".join(ENGINES))
    return ENGINES[name]

"""The table of engines. An engine is a few functions plus numbers; there is no base class and nobody borrows another's constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.cache import Pool
from planner.engines import architecture, llamacpp, llamacpp_budget, sglang, sglang_budget, sglang_sizes, transformers, vllm, vllm_budget
from planner.engines.settings import Allocation, LedgerLine, Setting, Sizes
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
    `sizes`: how it cuts a rank's bytes into pools, for an engine that gives each pool its own; such a one starts though no request of the
    largest length fits.
    """

    name: str
    version: str
    settle: Callable[[ModelSpec, Hardware | None, Scenario], Setting]
    allocate: Callable[[ModelSpec, Setting], Allocation]
    lines: Callable[[ModelSpec, Hardware, Scenario, Setting, LedgerLine], tuple[LedgerLine, ...]]
    printed_tokens: Callable[[Setting, Pool, int, int], int] | None = None
    reserves: bool = False
    many_ranks: bool = False
    sizes: Callable[[ModelSpec, Setting, tuple[Pool, ...], int], Sizes] | None = None


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
    "sglang": Engine(
        name="sglang",
        version=sglang.VERSION,
        settle=sglang.settle,
        allocate=sglang.allocate,
        lines=sglang_budget.lines,
        reserves=True,
        many_ranks=True,
        sizes=sglang_sizes.sizes,
    ),
    "llamacpp": Engine(
        name="llamacpp",
        version=llamacpp.VERSION,
        settle=llamacpp.settle,
        allocate=llamacpp.allocate,
        lines=llamacpp_budget.lines,
        printed_tokens=llamacpp.printed_tokens,
    ),
}


def engine(name: str) -> Engine:
    if name not in ENGINES:
        raise UnknownName("unknown_engine", field="engine", value=name[:40], known=", ".join(ENGINES))
    return ENGINES[name]

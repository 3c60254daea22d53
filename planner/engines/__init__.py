"""The table of engines. An engine is a few functions plus numbers; there is no base class and nobody borrows another's constants.

Each is a module or package of this one, imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from planner.cache import Pool
from planner.engines.settings import Allocation, LedgerLine, Setting, Sizes
from planner.errors import UnknownName
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """settle: defaults filled in. allocate: pools of one rank. lines: what comes off a device before the pool, weights among it.

    `printed_tokens`: (setting, pool, blocks, blocks a request) -> the figure of the engine's log; None where it prints none.
    `reserves`: the pool is taken at start and is one number; the engine does not start unless one request of the largest length fits.
    `many_ranks`: it can spread a model over devices.
    `sizes`: how it cuts a rank's bytes into pools, for an engine that gives each pool its own; such a one starts though no request of the
    largest length fits.
    `start_check`: bytes that must be free beside what other processes hold and are not, with why; the engine does not start then.
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
    start_check: Callable[[ModelSpec, Hardware, Scenario, Setting], tuple[int, tuple[Note, ...]]] | None = None


# name -> flags, and the functions that stand elsewhere than in the engine's own module (VERSION, settle, allocate stand there).
TABLE: dict[str, dict[str, Any]] = {
    "architecture": {"lines": "architecture.lines"},
    "transformers": {"lines": "transformers.lines"},
    "vllm": {
        "lines": "vllm.budget.lines",
        "printed_tokens": "vllm.printed_tokens",
        "reserves": True,
        "many_ranks": True,
        "start_check": "vllm.budget.start_check",
    },
    "sglang": {"lines": "sglang.budget.lines", "sizes": "sglang.sizes.sizes", "reserves": True, "many_ranks": True},
    "trtllm": {"lines": "trtllm.budget.lines", "sizes": "trtllm.sizes.sizes", "reserves": True, "many_ranks": True},
    "llamacpp": {"lines": "llamacpp.budget.lines", "printed_tokens": "llamacpp.printed_tokens"},
}
ENGINES = tuple(TABLE)


@cache
def engine(name: str) -> Engine:
    """The engine called `name`. Raises UnknownName."""
    if name not in TABLE:
        raise UnknownName("unknown_engine", field="engine", value=name[:40], known=", ".join(ENGINES))
    own = import_module(f"planner.engines.{name}")
    more = {key: _found(value) if isinstance(value, str) else value for key, value in TABLE[name].items()}
    return Engine(name=name, version=own.VERSION, settle=own.settle, allocate=own.allocate, **more)


def _found(dotted: str) -> Any:
    module, _, function = dotted.rpartition(".")
    return getattr(import_module(f"planner.engines.{module}"), function)

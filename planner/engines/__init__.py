"""The table of engines. An engine is a few functions plus numbers; there is no base class and nobody borrows another's constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.engines import architecture, transformers, vllm
from planner.engines.settings import Allocation, Setting
from planner.errors import UnknownName
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """settle: defaults filled in. allocate: pools of one rank. `printed_tokens`: (blocks, blocks a request, largest length) -> the
    figure of the engine's log; None where the engine prints none. `pool_share`: the budget is this share of the *total* memory."""

    name: str
    version: str
    settle: Callable[[ModelSpec, Hardware | None, Scenario], Setting]
    allocate: Callable[[ModelSpec, Setting], Allocation]
    printed_tokens: Callable[[int, int, int], int] | None = None


ENGINES: dict[str, Engine] = {
    "architecture": Engine(name="architecture", version=architecture.VERSION, settle=architecture.settle, allocate=architecture.allocate),
    "transformers": Engine(name="transformers", version=transformers.VERSION, settle=transformers.settle, allocate=transformers.allocate),
    "vllm": Engine(name="vllm", version=vllm.VERSION, settle=vllm.settle, allocate=vllm.allocate, printed_tokens=vllm.printed_tokens),
}


def engine(name: str) -> Engine:
    if name not in ENGINES:
        raise UnknownName("unknown_engine", field="engine", value=name[:40], known=", ".join(ENGINES))
    return ENGINES[name]

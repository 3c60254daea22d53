"""Grids of plans: models x devices x parallelism x dtypes x lengths x batches, each point as plan() and latency() have it.

A combination is planned once; its lengths and batches run through the same terms and times as arrays (`planner/sweep/points.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.draft import attach
from planner.errors import InvalidInput, PlannerError
from planner.hardware import find
from planner.model import ModelSpec
from planner.scenario import Scenario
from planner.sources import Loaded
from planner.sweep.grid import MAX_POINTS, Grid
from planner.sweep.points import Block, Cancelled, block, length_of, plans_of, refused
from planner.sweep.table import Table

MAX_PLANS = 20_000

Opened = Callable[[str], tuple[ModelSpec, Mapping[str, Any]]]
Source = tuple[ModelSpec, Mapping[str, Any]] | PlannerError
Step = Callable[[int, int], bool]


def run(grid: Grid, base: Scenario, opened: Opened, draft: Callable[[str], Loaded], *, step: Step | None = None, most: int = MAX_POINTS) -> Table:
    """All points of `grid`; options that are not in it are those of `base`.

    `opened` gives (model, provenance) of a source, `draft` the config of a draft model. `step` hears (points done, points in all) and ends
    the sweep by returning False. Raises InvalidInput for a grid that is too large, and the error of the model where no model can be read.
    """
    grid.checked(most)
    if base.lengths:
        raise InvalidInput("sweep_option", field="lengths", known=", ".join(name for name, _ in grid.axes))
    rows, sequences = grid.loads(base)
    shape, at = (len(rows), len(sequences)), tuple(length_of(s) for s in rows)
    wanted = [(chosen, replace(base, **chosen)) for chosen in grid.combinations()]
    prices = dict(grid.prices)

    sources = {name: _opened(name, opened) for name in dict.fromkeys(s.model for _, s in wanted)}
    models = [_attached(sources[s.model], s, draft) for _, s in wanted]
    if len(sources) == 1 and isinstance(fault := next(iter(sources.values())), PlannerError):
        raise fault
    plans = sum(plans_of(m[0], m[1], shape) for m in models if not isinstance(m, PlannerError))
    if plans > MAX_PLANS:
        raise InvalidInput("sweep_plans", field="engine", plans=plans, limit=MAX_PLANS)
    done, total = 0, grid.points
    blocks: list[Block] = []

    def advance(points: int) -> None:
        nonlocal done
        done += points
        if step is not None and not step(done, total):
            raise Cancelled

    devices = {gpu: find(gpu) for gpu in dict.fromkeys(s.gpu for _, s in wanted)}
    complete = True
    for (chosen, s), found in zip(wanted, models, strict=True):
        try:
            hardware = devices[s.gpu]
            price = prices.get(hardware.name) or s.price_per_gpu_hour or hardware.price_usd_per_hour
            if isinstance(found, PlannerError):
                blocks.append(refused(chosen, s, price, shape, found))
                advance(shape[0] * shape[1])
                continue
            model, stored = found
            before = done
            blocks.append(block(model, hardware, chosen, stored, at, sequences, price, advance))
            done = before + shape[0] * shape[1]
        except Cancelled:
            complete = False
            break
    return Table(axes=tuple(name for name, _ in grid.axes), lengths=rows, sequences=sequences, blocks=tuple(blocks), complete=complete)


def _opened(name: str, opened: Opened) -> Source:
    """Once a model. What is wrong with one spoils no other."""
    try:
        return opened(name)
    except PlannerError as e:
        return e


def _attached(source: Source, s: Scenario, draft: Callable[[str], Loaded]) -> tuple[ModelSpec, Scenario] | PlannerError:
    if isinstance(source, PlannerError):
        return source
    try:
        return attach(source[0], s, source[1], draft)
    except PlannerError as e:
        return e

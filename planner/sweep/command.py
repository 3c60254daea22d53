"""The verb `sweep` of the command line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from planner.api import declared, model_of
from planner.errors import InvalidInput
from planner.messages import render
from planner.model import ModelSpec
from planner.scenario import Scenario, from_options
from planner.sources import load
from planner.sweep import Step, run
from planner.sweep.files import lines, to_json, write_csv
from planner.sweep.grid import MAX_POINTS, Grid, prices, read
from planner.sweep.points import Cancelled
from planner.sweep.table import Table

EVERY_S = 1.0


def sweep(
    source: str | None, grids: Sequence[str], options: Mapping[str, Any], *, price: str | None = None, out: str | None = None, as_json: bool = False
) -> int:
    """Exit code: 0, or 2 where no point could be planned. Raises PlannerError."""
    grid = Grid(axes=(), prices=prices(price))
    for given in grids:
        grid = grid.over(read(given))
    table = swept(source or "", grid, options, token=os.environ.get("HF_TOKEN"), step=_shown() if sys.stderr.isatty() else None)
    answer = to_json(table)
    if out:
        try:
            with Path(out).open("w", encoding="utf-8-sig", newline="") as f:
                write_csv(table, f)
        except OSError as e:
            raise InvalidInput("file_unreadable", field="out", value=out[:200], detail=e.strerror or "") from None
        answer["written"] = out
    if as_json:
        print(json.dumps(answer))
    elif out:
        print("\n".join(lines(table)))
    else:
        write_csv(table, sys.stdout)
    return 0 if table.count("refused") < table.points else 2


def swept(source: str, grid: Grid, options: Mapping[str, Any], *, token: str | None = None, allow_paths: bool = True, step: Step | None = None,
          most: int = MAX_POINTS) -> Table:  # fmt: skip
    """The points of `grid`, with `options` under it; `token` and `allow_paths` as in planner.sources. Raises PlannerError."""
    if not source.strip() and not grid.values("model"):
        raise InvalidInput("sweep_no_model", field="source")
    chosen = {k: v for k, v in options.items() if k != "harmless"}
    base = from_options(chosen, Scenario(model=source.strip()[:400].strip() or Scenario().model))
    given: dict[str, Any] = {"token": token, "allow_paths": allow_paths}
    keys = declared(options.get("harmless"))

    def opened(name: str) -> tuple[ModelSpec, Mapping[str, Any]]:
        if step is not None and not step(0, grid.points):  # a hub may be slow
            raise Cancelled
        loaded = load(source if name == base.model and source.strip() else name, **given)  # a config as text is longer than its name here
        return model_of(loaded, keys), loaded.provenance

    return run(grid, base, opened, partial(load, **given), step=step, most=most)


def _shown() -> Any:
    """Progress on a terminal, once a second."""
    last = time.monotonic()

    def step(done: int, total: int) -> bool:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            print(render("sweep.progress", {"done": done, "total": total}), file=sys.stderr)
        return True

    return step

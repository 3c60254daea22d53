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

from planner.errors import InvalidInput
from planner.messages import render
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario, from_options
from planner.sources import load
from planner.sweep import run
from planner.sweep.files import lines, to_json, write_csv
from planner.sweep.grid import Grid, prices, read

EVERY_S = 1.0


def sweep(
    source: str | None, grids: Sequence[str], options: Mapping[str, Any], *, price: str | None = None, out: str | None = None, as_json: bool = False
) -> int:
    """Exit code: 0, or 2 where no point could be planned. Raises PlannerError."""
    chosen = {k: v for k, v in options.items() if k != "harmless"}
    grid = Grid(axes=(), prices=prices(price))
    for given in grids:
        grid = grid.over(read(given))
    if not source and not grid.values("model"):
        raise InvalidInput("sweep_no_model", field="source")
    base = from_options(chosen, Scenario(model=(source or "").strip()[:400] or Scenario().model))
    opener = partial(_opened, token=os.environ.get("HF_TOKEN"), harmless=tuple(options.get("harmless") or ()))
    table = run(grid, base, opener, partial(load, token=os.environ.get("HF_TOKEN")), step=_shown() if sys.stderr.isatty() else None)
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


def _opened(name: str, *, token: str | None, harmless: tuple[str, ...]) -> tuple[ModelSpec, Mapping[str, Any]]:
    loaded = load(name, token=token)
    return read_config(loaded.raw, loaded.name, harmless=harmless), loaded.provenance


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

"""Loads to start from: each row of `data/presets.toml` is a whole scenario."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from planner.errors import DataError
from planner.scenario import Scenario, from_options

_FILE = Path(__file__).parent / "data" / "presets.toml"


@lru_cache(maxsize=1)
def presets() -> dict[str, Scenario]:
    """Code -> scenario, in the order of the table. A scenario is frozen, so what is handed out stays as it is."""
    try:
        rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["preset"]
        return {row.pop("code"): from_options(row) for row in rows}
    except (OSError, tomllib.TOMLDecodeError, KeyError, AttributeError) as e:
        raise DataError("bad_table", field="presets", table=_FILE.name) from e

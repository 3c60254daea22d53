"""A comparison as a file that can be opened again: each column holds what a saved plan holds (planner/saved.py). Nothing in the file is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import saved
from planner.compare import MOST
from planner.errors import NotAConfig
from planner.scenario import Scenario, from_options
from planner.sources import Loaded

FORMAT, VERSION = "kvledger-comparison", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One column of a file. `document`: it as a saved plan, None where its model could not be had when it was written."""

    scenario: Scenario
    document: bytes | None


def source_json(found: tuple[Loaded, tuple[str, ...]] | None) -> dict[str, Any]:
    """What a column needs beside its scenario: the config as its source gave it, its provenance, and the keys declared harmless."""
    if found is None:
        return {"provenance": None, "config": None, "inputs": None}
    loaded, harmless = found
    return {"provenance": loaded.provenance, "config": loaded.raw, "inputs": saved.inputs_json(loaded.notes, harmless, None)}


def read_back(raw: Mapping[str, Any]) -> tuple[Kept, ...]:
    """The columns of a parsed file, in order. Raises NotAConfig with the part that is missing or damaged, InvalidInput for a choice that
    cannot be."""
    columns = raw.get("columns")
    if raw.get("format") != FORMAT:
        raise NotAConfig("comparison_unreadable", field="format")
    if not isinstance(columns, list) or not 1 <= len(columns) <= MOST:
        raise NotAConfig("comparison_unreadable", field="columns")
    return tuple(_column(column) for column in columns)


def _column(raw: Any) -> Kept:
    if not isinstance(raw, dict) or not isinstance(raw.get("scenario"), dict):
        raise NotAConfig("comparison_unreadable", field="columns.scenario")
    document = None if raw.get("provenance") is None else json.dumps({**raw, "format": saved.FORMAT, "version": saved.VERSION}).encode()
    return Kept(scenario=from_options(raw["scenario"]), document=document)

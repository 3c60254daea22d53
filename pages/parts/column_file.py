"""A comparison as a file: written with the configs of its columns, and opened again as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence

import streamlit as st

from pages.parts import columns, source, start
from pages.parts.errors import caught
from planner.compare import Column
from planner.compare.files import to_json
from planner.compare.saved import Kept, read_back
from planner.saved import Saved
from planner.sources import text


def made(sources: Sequence[columns.Source], found: Sequence[Column]) -> bytes:
    return json.dumps(to_json(found, sources), indent=1).encode()


def opened() -> None:
    """A callback: the columns of a comparison's file, the first as the current plan."""
    s = st.session_state
    file = s["column_file"]
    if file is None:
        return
    s["_column_fault"] = None
    try:
        raw, _ = text.parse(file.getvalue(), file.name, config=False)
        first, *others = (_kept_column(k, file.name) for k in read_back(raw))
        if first.loaded is None and first.saved is not None:
            start.choose(first.saved.scenario)
        else:
            source.take_up(first, "comparison")
        columns.place(others)
    except Exception as e:
        s["_column_fault"] = caught(e).to_json()


def _kept_column(kept: Kept, name: str) -> source.Upload:
    """Read as a saved plan is; a column without a model keeps its choices, and says again what is wrong."""
    if kept.document is not None:
        return source.read_kept(name, kept.document)
    return source.Upload(name=name, saved=Saved(scenario=kept.scenario, config=None, provenance={}, name=""))

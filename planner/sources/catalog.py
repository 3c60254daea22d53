"""The catalog: well-known models as config dicts with a source each, readable with no network.

The table is `planner/data/catalog.json`: a row's `config` is what the model's own config.json says (keys that touch no size are left
out) and goes through the same readers as any file. `source` says where the values come from and how they were checked.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.errors import DataError, UnknownName

_FILE = Path(__file__).parent.parent / "data" / "catalog.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model. `kind` is a label for a picker: how the cache is kept, and MoE where the experts are routed."""

    name: str
    repo_id: str
    kind: str
    source: str


@lru_cache(maxsize=1)
def _table() -> tuple[str, tuple[dict[str, Any], ...]]:
    """The parsed table, its date first; read once, its rows never handed out without a copy."""
    try:
        parsed = json.loads(_FILE.read_bytes())
        return str(parsed["as_of"]), tuple(parsed["models"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError("bad_table", field="catalog", table=_FILE.name) from e


def _rows() -> tuple[dict[str, Any], ...]:
    return _table()[1]


def as_of() -> str:
    """The day (ISO 8601) on which the table was last changed."""
    return _table()[0]


@lru_cache(maxsize=1)
def _index() -> dict[str, dict[str, Any]]:
    """Row by squeezed name; then by the last part of every hub id that the row stands for."""
    index = {_squeeze(row["name"]): row for row in _rows()}
    for row in _rows():
        for repo_id in _repo_ids(row):
            index.setdefault(_squeeze(repo_id.rpartition("/")[2]), row)
    return index


def _repo_ids(row: dict[str, Any]) -> tuple[str, ...]:
    """The hub id of the row, then others with the same shape."""
    return (row["repo_id"], *row.get("also", ()))


def _squeeze(name: str) -> str:
    """Letters and digits only, small: `llama-3.1-8b`, `Llama 3.1 8B` and `LLAMA3.1_8B` are one name."""
    return "".join(c for c in name.casefold() if c.isalnum())


def entries() -> tuple[Entry, ...]:
    """All rows in the order of the table."""
    return tuple(_entry(row) for row in _rows())


def names() -> tuple[str, ...]:
    return tuple(row["name"] for row in _rows())


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(name=row["name"], repo_id=row["repo_id"], kind=row["kind"], source=row["source"])


def row(name: str) -> tuple[Entry, dict[str, Any]]:
    """The entry called `name` (short name or hub id, case and punctuation aside) and a fresh copy of its config.

    Raises UnknownName with near names.
    """
    found = _find(name)
    if found is None:
        raise UnknownName("unknown_catalog_name", field="source", name=name.strip()[:80], near=", ".join(near(name)))
    return _entry(found), copy.deepcopy(found["config"])


def name_of(text: str) -> str | None:
    """The row's name for a short name or a hub id; None where the catalog has no such model."""
    found = _find(text)
    return None if found is None else str(found["name"])


def _find(text: str) -> dict[str, Any] | None:
    if "/" not in text:
        return _index().get(_squeeze(text))
    wanted = text.strip().casefold()
    return next((row for row in _rows() if wanted in [repo_id.casefold() for repo_id in _repo_ids(row)]), None)


def near(text: str, count: int = 4) -> tuple[str, ...]:
    """The catalog's names closest to `text`, best first; the first rows where nothing is close."""
    from difflib import get_close_matches

    wanted = _squeeze(text.rpartition("/")[2])[:80]
    keys = {_squeeze(name): name for name in names()}
    found = [key for key in keys if len(wanted) > 2 and key.startswith(wanted)]
    found += [key for key in get_close_matches(wanted, keys, n=count, cutoff=0.5) if key not in found]
    return tuple(keys[key] for key in found[:count]) or names()[:count]

"""The table of patterns, planner/data/enginelogs.toml, checked and compiled once a process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.errors import DataError
from planner.units import GIB, KIB, MIB, TIB

_FILE = Path(__file__).parents[1] / "data" / "enginelogs.toml"
ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "tgi", "lmdeploy", "mlc", "lightllm", "torch")
UNITS: dict[str, int] = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB, "bytes": 1, "count": 1, "ratio": 1, "exact": 1, "text": 1, "size": 1}
# A number with a sign and separators between groups of digits: 1,277,184 or 79,19 or 1.277.184.
NUMBER = r"(-?\d{1,20}(?:[.,'_]\d{1,20}){0,8})"
SIZE = NUMBER[:-1] + r"\s{0,2}(?:[KMGT]i?B|[Bb]ytes|B)\b)"  # with the unit that the engine chose by the size: 4.5 GiB, 411.0 MiB, 0 B


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a log. `figures`: (name, unit, optional) for each group but `dev`; a name "_" is passed over."""

    engine: str
    key: str
    regex: re.Pattern[str]
    figures: tuple[tuple[str, str], ...]
    refusal: str | None = None
    variant: str | None = None
    near: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    engine: str
    keys: tuple[str, ...]
    variant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    engine: str
    key: str
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`flags`: spelling with "_" -> flag. `eras`: (line of vLLM's source file that prints the tokens, the release), in that order."""

    rows: tuple[Row, ...]
    marks: tuple[Mark, ...]
    versions: tuple[Version, ...]
    flags: dict[str, Flag]
    eras: tuple[tuple[int, str], ...]


@cache
def table() -> Table:
    """The whole table. Raises DataError where the file is malformed: our fault, found by the tests."""
    import tomllib

    try:
        raw = tomllib.loads(_FILE.read_text(encoding="utf-8"))
        rows = tuple(_row(engine, r) for engine in ENGINES for r in raw[engine])
        marks = tuple(Mark(engine=m["engine"], keys=tuple(m["keys"]), variant=m.get("variant")) for m in raw["mark"])
        versions = tuple(Version(engine=v["engine"], key=v["key"], regex=re.compile(v["regex"])) for v in raw["version"])
        flags = {word: Flag(name=f["name"], kind=f["kind"]) for f in raw["flag"] for word in f["words"].split()}
        eras = tuple((int(line), str(release)) for line, release in raw["era"]["vllm"])
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, re.error) as e:
        raise DataError("log_table", detail=str(e)[:200]) from e
    return Table(rows=rows, marks=marks, versions=versions, flags=flags, eras=eras)


def _row(engine: str, raw: dict[str, Any]) -> Row:
    regex = re.compile(raw["regex"].replace("{n}", NUMBER).replace("{s}", SIZE))
    figures = []
    for text in raw["figures"]:
        name, unit = text.split()
        if unit not in UNITS:
            raise ValueError(text)
        figures.append((name.rstrip("?"), unit))
    if regex.groups - len(regex.groupindex) != len(figures) or not set(regex.groupindex) <= {"dev"}:
        raise ValueError(raw["regex"])
    more = {name: raw[name] for name in ("refusal", "variant", "near") if name in raw}
    return Row(engine=engine, key=raw["key"], regex=regex, figures=tuple(figures), **more)

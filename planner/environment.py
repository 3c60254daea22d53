"""Every KVLEDGER_* variable of the environment: its kind, its default and its bounds, read in this one place
(but for the language, which planner/messages reads too: an error of this module is said in it).

A value that cannot be, and a name that is not here, are refused at the start of the server (`check`), never passed over. What a value was
is in no message: an address may hold a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Any

from planner.errors import InvalidInput
from planner.units import GIB, MIB, parse_bytes

PREFIX = "KVLEDGER_"
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_FRAME = re.compile(r"'self'|'none'|https?://[A-Za-z0-9_.*-]{1,253}(?::\d{1,5})?")
_FLAGS = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """`kind`: flag | int | number | bytes | hosts | sources | text. `low` and `high` bound numbers, `high` the characters of a text."""

    kind: str
    default: Any
    low: float = 0
    high: float = 4096
    ours: bool = False  # set by the program itself, not by whoever runs it


VARIABLES: dict[str, Variable] = {
    "KVLEDGER_API": Variable(kind="flag", default=True),
    "KVLEDGER_API_BODY": Variable(kind="bytes", default=MIB, low=1024, high=64 * MIB),
    "KVLEDGER_API_SECONDS": Variable(kind="number", default=30.0, low=0.1, high=600),
    "KVLEDGER_API_REQUESTS": Variable(kind="int", default=8, low=1, high=256),
    "KVLEDGER_API_POINTS": Variable(kind="int", default=2_000, low=1, high=100_000),
    "KVLEDGER_RATE": Variable(kind="int", default=0, high=100_000),
    "KVLEDGER_PROXIES": Variable(kind="int", default=0, high=8),
    "KVLEDGER_HUB_HOSTS": Variable(kind="hosts", default=()),
    "KVLEDGER_FRAMES": Variable(kind="sources", default="'self'", high=1000),
    "KVLEDGER_PROBE": Variable(kind="flag", default=True),
    "KVLEDGER_PROBE_MEMORY": Variable(kind="bytes", default=4 * GIB, low=64 * MIB, high=2**50),
    "KVLEDGER_PROBE_SECONDS": Variable(kind="int", default=3600, low=1, high=86_400),
    "KVLEDGER_PROBE_CHILDREN": Variable(kind="int", default=4, low=1, high=64),
    "KVLEDGER_PROBE_LOCK": Variable(kind="text", default=""),
    "KVLEDGER_PROBE_LOCK_HOLDER": Variable(kind="text", default="", high=20, ours=True),
    "KVLEDGER_DATABASE": Variable(kind="text", default=""),
    "KVLEDGER_DATABASE_LIMIT": Variable(kind="bytes", default=GIB, low=MIB, high=2**50),
    "KVLEDGER_FONT": Variable(kind="text", default=""),
    "KVLEDGER_LANGUAGE": Variable(kind="text", default="", high=20),
}
OF_THE_TESTS = frozenset(f"KVLEDGER_{n}" for n in ("CORPUS", "REQUIRE_CORPUS", "REQUIRE_BROWSER", "CHECK_ALL", "SHOTS", "TEST_DATABASE"))


def value(name: str, environ: Mapping[str, str] | None = None) -> Any:
    """The value of one variable, of its kind's type; empty or absent: the default. Raises InvalidInput (field: the name)."""
    v = VARIABLES[name]
    given = (os.environ if environ is None else environ).get(name, "").strip()
    if not given:
        return v.default
    found = _read(v, given)
    if found is None:
        raise InvalidInput("env_value", field=name, want=wanted(v))
    return found


def _read(v: Variable, given: str) -> Any:
    """None for what it cannot be."""
    if v.kind == "flag":
        return _FLAGS.get(given.lower())
    if v.kind == "hosts":
        hosts = tuple(h.strip().lower() for h in given.split(",") if h.strip())
        return hosts if all(_HOST.fullmatch(h) for h in hosts) else None
    if v.kind == "sources":
        return given if len(given) <= v.high and all(_FRAME.fullmatch(part) for part in given.split()) else None
    if v.kind == "text":
        return given if len(given) <= v.high and given.isprintable() else None
    try:
        if v.kind == "bytes":
            number: float = parse_bytes(given, "size")
        else:
            number = int(given) if v.kind == "int" else float(given)
    except (ValueError, InvalidInput):
        return None
    return number if isfinite(number) and v.low <= number <= v.high else None


def wanted(v: Variable) -> str:
    """What a value of this variable is, in words."""
    from planner.messages import render

    return render(f"env.want.{v.kind}", {"low": _plain(v.low), "high": _plain(v.high)})


def _plain(number: float) -> Any:
    return int(number) if number == int(number) else number


def check(environ: Mapping[str, str] | None = None) -> None:
    """All of them, and no name that is not here. Raises InvalidInput with the name of the first that is wrong."""
    given = os.environ if environ is None else environ
    for name in sorted(given):
        if not name.startswith(PREFIX) or name in OF_THE_TESTS:
            continue
        if name not in VARIABLES:
            near = ", ".join(get_close_matches(name, [n for n, v in VARIABLES.items() if not v.ours], 3, 0.5)) or "-"
            raise InvalidInput("env_unknown", field=name[:60], near=near)
        value(name, given)

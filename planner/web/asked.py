"""One request of the API: read from a query or a body, checked by name, answered by the functions of the command line. No HTTP here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from planner.api import SWITCHES, answer
from planner.errors import InvalidInput, NotAConfig
from planner.scenario import ALIASES, OPTIONS, flag
from planner.sources import text
from planner.sweep import Step
from planner.sweep.command import swept
from planner.sweep.files import to_json
from planner.sweep.grid import Grid, from_mapping, prices, read

OWN: dict[str, tuple[str, ...]] = {
    "read": ("harmless",),
    "kv": ("harmless",),
    "plan": ("harmless", "saved", *SWITCHES),
    "sweep": ("harmless", "grid", "price", "rows"),
}
"""Each command with what it takes beside a source and the options of a scenario."""
WITHOUT_SCENARIO = ("read",)
SOURCES = ("source", "model")
FETCHED = ("model", "draft")  # axes of a sweep whose every value may be a request to the hub
MOST_FETCHED = 16
SIMULATE_S = 2.0  # of the server; the answer says where it stopped


def negations() -> tuple[str, ...]:
    """``no_X`` of every option that is a switch."""
    return tuple(f"no_{name}" for name, o in OPTIONS.items() if o.kind == "flag")


def meant(name: str) -> str:
    """The option that a name stands for: its own, another word for it, or its negation."""
    name = ALIASES.get(name, name)
    return name.removeprefix("no_") if name in negations() else name


def known(command: str) -> tuple[str, ...]:
    """Every name that the command takes, the source's apart."""
    scenario = () if command in WITHOUT_SCENARIO else (*(n for n in OPTIONS if n != "model"), *ALIASES, *negations())
    return (*OWN[command], *scenario)


def from_query(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Of the pairs of a query string. Raises InvalidInput for a name that is there twice."""
    options: dict[str, Any] = {}
    for name, value in pairs:
        if _plain(name) in options:
            raise InvalidInput("request_repeated", field=name[:60])
        options[_plain(name)] = value
    return options


def from_body(data: bytes) -> dict[str, Any]:
    """Of a JSON object, parsed as an upload is: bounded in nesting and digits. Raises NotAConfig or InvalidInput."""
    try:
        raw, notes = text.parse(data, "", config=False)
    except NotAConfig as e:
        if e.code == "not_an_object":
            raise InvalidInput("request_not_object", field="body") from None
        raise NotAConfig(e.code, **{**e.args_by_name, "field": e.field or "body"}) from None
    repeated = [n.field for n in notes if n.code == "repeated_key"]
    if repeated:
        raise InvalidInput("request_repeated", field=repeated[0][:60])
    options: dict[str, Any] = {}
    for name, value in raw.items():
        if _plain(name) in options:
            raise InvalidInput("request_repeated", field=name[:60])
        options[_plain(name)] = value
    return options


def _plain(name: str) -> str:
    return name.replace("-", "_")


def checked(command: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(the source as text, the other options). Raises InvalidInput for a name that the command does not take."""
    given = [name for name in SOURCES if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidInput("request_repeated", field="model")
    rest = {name: value for name, value in options.items() if name not in SOURCES}
    allowed = known(command)
    seen: set[str] = set()
    for name in rest:
        if meant(name) in seen:  # by two of its names, or on and off at once
            raise InvalidInput("request_repeated", field=name[:60])
        seen.add(meant(name))
        if name not in allowed:
            raise InvalidInput("unknown_option", field=name[:60], known=", ".join(sorted(allowed)))
    source = options[given[0]] if given else ""
    if isinstance(source, dict):
        return json.dumps(source), rest
    if not isinstance(source, str):
        raise InvalidInput("not_a_text", field=given[0], value=repr(source)[:60])
    return source, rest


def answered(command: str, source: str, options: Mapping[str, Any], *, most: int, step: Step | None = None) -> dict[str, Any]:
    """What the command line prints with --json. No file of this machine is opened. `most`: points of a sweep. Raises PlannerError."""
    if command != "sweep":
        return answer(command, source, options, allow_paths=False, simulate_s=SIMULATE_S)
    grid = _grid(options)
    for name in FETCHED:
        if len(grid.values(name)) > MOST_FETCHED:
            raise InvalidInput("sweep_values", field=name, limit=MOST_FETCHED)
    chosen = {name: value for name, value in options.items() if name not in ("grid", "price", "rows")}
    rows = flag("rows", options.get("rows") or False)
    table = swept(source, grid, chosen, allow_paths=False, step=step, most=most)
    return to_json(table) | ({"rows": list(table.rows())} if rows else {})


def _grid(options: Mapping[str, Any]) -> Grid:
    given = options.get("grid")
    if given is None:
        raise InvalidInput("option_missing", field="grid")
    if not isinstance(given, (str, dict)):
        raise InvalidInput("not_a_text", field="grid", value=repr(given)[:60])
    grid = from_mapping(given) if isinstance(given, dict) else read(given, allow_paths=False)
    return Grid(axes=grid.axes, prices=prices(options["price"])) if options.get("price") is not None else grid

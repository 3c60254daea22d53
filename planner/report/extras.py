"""Results of other commands as tables: the probe, its suite, a log's reconciliation, latency. Each is read as its command printed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput, NotAConfig
from planner.messages import known, render
from planner.report.table import Figure, Table, exact, number, printable, table, whole
from planner.sources import text
from planner.units import percent, seconds

MAX_ROWS, MAX_NUMBER = 5_000, 10**18
ONE_DIGIT = 100  # rates from here on are read with one digit, below with three


def check(parts: Mapping[str, Mapping[str, Any]]) -> tuple[Table, ...]:
    """The tables of `parts` (planner.saved.PARTS). Raises NotAConfig with the part's name where it is not what its command prints."""
    out = []
    for name, part in parts.items():
        try:
            out.append(_TABLES[name](part))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as e:
            raise NotAConfig("report_part_missing", field=name) from e
    return tuple(out)


def read(name: str) -> tuple[str, dict[str, Any]]:
    """(part, its JSON) of a file that a command printed: a probe's result, a suite, a reconciled log. A file of events gives its last line.
    Raises PlannerError."""
    try:
        with Path(name).open("rb") as f:
            data = f.read(text.MAX_BYTES + 1)
    except OSError as e:
        raise InvalidInput("file_unreadable", field="with", value=name[:200], detail=e.strerror or "") from None
    try:
        raw, _ = text.parse(data, name[-120:], config=False)
    except NotAConfig as e:
        if e.code != "has_trailing_text":
            raise
        raw, _ = text.parse(data.strip().splitlines()[-1], name[-120:], config=False)
    part = next((part for part, keys in _KNOWN_BY.items() if keys <= raw.keys()), "")
    if not part:
        raise InvalidInput("no_result", field="with", value=name[:120])
    check({part: raw})
    return part, raw


def probe_table(probe: Mapping[str, Any]) -> Table:
    return table("probe", ("line", "predicted", "measured", "how"), probe_rows(probe), {1, 2})


def probe_rows(probe: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Predicted beside measured: the bytes held, the times, then all else (a PDF shows the first rows). `probe` is a ProbeResult as JSON."""
    rows = [(str(r["name"]), probe_value(r.get("predicted"), r.get("unit", "")), probe_value(r.get("measured"), r.get("unit", "")), str(r.get("how", "")))
            for r in probe["rows"][:MAX_ROWS]]  # fmt: skip
    itl = probe["itl_s"]
    how = f"{probe['backend']}, {probe['device']}"
    times: list[tuple[str, str]] = [
        ("ttft", time(probe["ttft_s"])),
        *((f"itl_{q}", time(itl[q])) for q in ("p50", "p90", "p99")),
        ("tokens_per_s", number(probe["tokens_per_s"], 1)),
    ]
    return rows[:1] + [(render(f"report.probe.{code}"), "-", value, how) for code, value in times] + rows[1:]


def probe_value(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "bytes":
        return exact(value)
    if unit == "fraction":
        return Figure(percent(value), value * 100, "%", 1)
    if isinstance(value, int):
        return whole(value, unit)
    return Figure(f"{value:.3g} {unit}".strip(), value, unit, 3)


def suite_table(suite: Mapping[str, Any]) -> Table:
    """One row an item: what the documents say, what this host said to it, and the verdict."""
    rows = ((" ".join(i["claims"]), i["name"], i["says"], i["measured"], render(f"suite.verdict.{i['verdict']}")) for i in suite["items"][:MAX_ROWS])
    return table("suite", ("claims", "line", "says", "measured", "verdict"), rows)


def reconciliation_table(found: Mapping[str, Any]) -> Table:
    """One row a line of the log: predicted, reported, the difference, and the cause where one was found."""

    def row(x: Mapping[str, Any]) -> tuple[str, ...]:
        name, cause = str(x["name"]), x.get("cause")
        why = str(cause["text"]) if isinstance(cause, Mapping) else str(cause or "-")
        same = rounded(x.get("reported"), x.get("predicted"), x.get("difference"))
        left = render("log.rounded") if same else _value(name, x.get("difference"))
        return str(x.get("label") or name), _value(name, x.get("predicted")), _value(name, x.get("reported")), left, why

    rows = map(row, found["lines"][:MAX_ROWS])
    return table("reconciliation", ("line", "predicted", "reported", "difference", "cause"), rows, {1, 2, 3})


def rounded(reported: Any, predicted: Any, difference: Any) -> bool:
    """Whether a line of a log agrees only within what printing rounded: two figures that are not the same, and no difference told."""
    return difference == 0 and None not in (reported, predicted) and reported != predicted


def answer_tables(answer: Mapping[str, Any]) -> Iterator[Table]:
    """What a plan answers beyond memory, where it does: latency, the limit of the batch, launch lines."""
    for key in ("latency", "batch_limit"):
        part = answer.get(key)
        if isinstance(part, Mapping) and part:
            yield table(key, ("line", "value"), flat(part), {1})
    if answer.get("launch"):
        yield table("launch", ("engine", "command"), tuple(answer["launch"].items()))


def flat(part: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(name, value) of every figure in nested objects. A name that has a label (`report.key.NAME`) is printed as that."""
    for key, value in list(part.items())[:MAX_ROWS]:
        name = f"{before}{key}"
        label = render(f"report.key.{name}") if known(f"report.key.{name}") else name
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and len(value) == 2:
            yield label, render("report.range", {"low": _value(name, value[0]), "high": _value(name, value[1])})
        elif value is not None and not isinstance(value, list | tuple):
            yield label, _value(name, value)


def time(value: float) -> Figure:
    """A time in seconds, read in the unit that suits its size."""
    return Figure(seconds(value), float(value), "s", 6)


# Names whose values are codes of ours: where their words stand.
_WORDS = {"bound": "page.serve.part", "binding": "page.serve.limit"}


def _value(name: str, value: Any) -> str:
    """A value in the unit that its name ends in."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return render(f"report.holds.{'yes' if value else 'no'}")
    if isinstance(value, str):
        word = f"{_WORDS[name]}.{value}" if name in _WORDS else ""
        return render(word) if known(word) else printable(value)
    if not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        raise ValueError(name)
    if any(part.endswith("_s") and not part.endswith("per_s") for part in name.split(".")):
        return time(value)
    if name.endswith("bytes"):
        return exact(value)
    return whole(value) if isinstance(value, int) else number(value, 1 if abs(value) >= ONE_DIGIT else 3)


_KNOWN_BY = {"probe": {"rows", "itl_s", "ttft_s"}, "suite": {"items", "ceilings"}, "reconciliation": {"engine", "lines"}}
_TABLES = {"probe": probe_table, "suite": suite_table, "reconciliation": reconciliation_table}

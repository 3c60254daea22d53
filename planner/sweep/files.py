"""A sweep as CSV, as JSON and as lines of text: every point with its reason, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from planner.messages import render
from planner.report.csv import sheet, write_rows
from planner.sweep.table import Point, Table
from planner.units import count, seconds

MOST_LENGTHS, MOST_ROWS, MOST_REFUSALS = 20, 10, 50


def write_csv(table: Table, out: TextIO) -> int:
    """All points, one a row. Returns how many. Texts that a spreadsheet would run are quoted; unknown figures are empty."""
    return max(write_rows(_lines(table), out) - 1, 0)


def _lines(table: Table) -> Iterator[Iterable[Any]]:
    """The names, then the points; nothing where there is no point."""
    for n, row in enumerate(table.rows()):
        if not n:
            yield row
        yield row.values()


def to_json(table: Table) -> dict[str, Any]:
    """Counts; at each of the first lengths the cheapest that meet the targets and the Pareto front; why combinations were refused."""
    x = "cost" if table.has_prices() else "gpus"
    by_length = []
    for j in range(min(len(table.lengths), MOST_LENGTHS)):
        s = table.lengths[j]
        by_length.append({
            "tokens": s.tokens, "prompt": s.prompt, "output": s.output,
            "cheapest": [table.row(at) for at in table.cheapest(j, MOST_ROWS)],
            "pareto": {"x": x, "y": "itl_s", "points": [table.row(at) for at in table.pareto(j, x)[:MOST_ROWS]]},
        })  # fmt: skip
    return {
        "points": table.points, "complete": table.complete, "fits": table.count("fits"), "meets_targets": table.count("meets"),
        "refused": table.count("refused"), "lengths": len(table.lengths), "by_length": by_length, "refusals": refusals(table),
    }  # fmt: skip


def refusals(table: Table) -> list[dict[str, Any]]:
    """Combinations that no engine runs at any load, with why."""
    found = [(dict(b.choices), b.error) for b in table.blocks if b.error]
    return [{"choices": choices, "reason": e.message, "hint": e.hint, "field": e.field} for choices, e in found[:MOST_REFUSALS]]


def lines(table: Table) -> list[str]:
    """What the command line says."""
    out = [render("sweep.text", {"points": table.points, "fits": table.count("fits"), "meets": table.count("meets"), "refused": table.count("refused")})]
    if not table.complete:
        out.append(render("sweep.text.cancelled"))
    out += [answer(table, j) for j in range(min(len(table.lengths), MOST_LENGTHS))]
    out += [render("sweep.text.refused", {"what": choices(r["choices"]), "reason": r["reason"]}) for r in refusals(table)[:MOST_ROWS]]
    return out


def answer(table: Table, length: int) -> str:
    """At one length, the cheapest that meets the targets."""
    best, tokens = table.cheapest(length, 1), count(table.lengths[length].tokens)
    return render("sweep.text.best", {"tokens": tokens, "what": said(table, best[0])}) if best else render("sweep.text.none", {"tokens": tokens})


def said(table: Table, at: Point) -> str:
    """One point in words."""
    row = table.row(at)
    cost = row["usd_per_million_tokens"]
    price = render("sweep.no_price") if cost is None else render("sweep.cost", {"cost": usd(cost)})
    return render("sweep.point", {"what": name(table, at), "sequences": count(row["sequences"]), "gpus": count(row["gpus_used"]), "price": price,
                                  **{k: seconds(row[f"{k}_s"]) if row[f"{k}_s"] is not None else "?" for k in ("ttft", "itl")}})  # fmt: skip


BEST = ("what", "gpus", "sequences", "ttft", "itl", "rate", "cost", "measured")


def best_cells(table: Table, length: int) -> list[list[str]]:
    """A row of texts for each combination that meets the targets at one length, the cheapest first; columns as in BEST."""
    out = []
    for at in table.cheapest(length):
        row = table.row(at)
        cost = row["usd_per_million_tokens"]
        out.append([
            name(table, at), count(row["gpus_used"]), count(row["sequences"]), *(_between(row, k) for k in ("ttft", "itl")),
            "-" if row["tokens_per_s"] is None else count(row["tokens_per_s"]), render("sweep.no_price") if cost is None else usd(cost),
            render(f"sweep.measured.{'yes' if row['times_measured'] else 'no'}"),
        ])  # fmt: skip
    return out


def _between(row: Mapping[str, Any], which: str) -> str:
    """A time with its range."""
    if row[f"{which}_s"] is None:
        return "-"
    return render("sweep.between", {k: seconds(row[f"{which}_{k}"]) for k in ("s", "low_s", "high_s")})


def text_bytes(table: Table) -> bytes:
    """The CSV file as it is downloaded."""
    return sheet(_lines(table))


def name(table: Table, at: Point) -> str:
    """A combination by what the grid varies of it; its GPU where nothing varies."""
    b = table.blocks[at.block]
    varied = {a for a in table.axes if len({dict(o.choices).get(a) for o in table.blocks}) > 1}
    return choices({k: v for k, v in b.choices if k in varied}) or b.scenario.gpu


def choices(chosen: Mapping[str, Any]) -> str:
    """``H100 SXM, tp 4, kv_dtype fp8``."""
    return ", ".join(str(v) if k in ("model", "gpu", "engine") else f"{k} {'auto' if v is None else v}" for k, v in chosen.items())


def usd(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.3g}"

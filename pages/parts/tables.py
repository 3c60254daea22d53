"""Values -> rows, and the one way in which rows are shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.parts.errors import caught, plain
from pages.parts.look import COLOURS
from planner.cache import Kind, Rows
from planner.capacity import CapacityPlan, plan
from planner.errors import PlannerError
from planner.hardware import find
from planner.layermap import KindGroup
from planner.messages import kind_word, known_word, render, said
from planner.model import ModelSpec
from planner.notes import Note
from planner.report.content import distinct_ranks, state_of
from planner.report.csv import sheet
from planner.scenario import Scenario
from planner.units import count, gib_number, memory
from planner.whatif import Variant

if TYPE_CHECKING:
    from pages.parts.source import Upload

LARGE = ("source", "error")
Row = dict[str, Any]
GIB = ("gib", "load_gib")
WHOLE = (
    "groups",
    "block_tokens",
    "page_bytes",
    "reserved_blocks",
    "held_blocks",
    "bytes",
    "rank_bytes",
    "elements",
    "layers",
    "token_bytes",
    "max_sequences",
    "heads",
    "dims",
    "window",
)
FLUSH_RIGHT = (*GIB, *WHOLE, "predicted", "measured", "ratio", "band", "most", "target", "time", "share", "chunk", "itl", "p99", "ttft", "steps", "tp", "rate",
               "rate_gpu", "sent", "exposed", "mean", "p50", "p90", "p99_each")  # fmt: skip
UNIT = re.compile(r"(?<=\d) (?=(?:us|ms|s|%|bytes|KiB|MiB|GiB|TiB)\b|%)")  # the blank between a figure and its unit
WIDER = {"bytes": 130, "token_bytes": 110, "max_sequences": 120}
SMALL = ("band", "kind", "level", "fits", "kinds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows under column codes; columns that are empty everywhere are left out when shown."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def show(table: Listing, *, key: str) -> None:
    """A table that sorts and downloads. Numbers stay numbers: GiB with two digits, counts with separators."""
    used = _used(table)
    config: dict[str, Any] = {}
    for c in used:
        label = render(f"page.column.{c}")
        if c in GIB:
            config[c] = st.column_config.NumberColumn(label, format="%.2f", width="small")
        elif c == "fits":
            config[c] = st.column_config.MultiselectColumn(
                label, options=[render(f"page.state.{state}") for state in COLOURS], color=list(COLOURS.values()), width=140
            )
        elif c in WHOLE:
            config[c] = st.column_config.NumberColumn(label, format="localized", width=WIDER.get(c, "small"))
        else:
            config[c] = st.column_config.TextColumn(label, width="small" if c in SMALL else "large" if c in LARGE else "medium")
    rows = [{c: [row[c]] if c == "fits" and row.get(c) else _seen(row.get(c)) for c in used} for row in table.rows]
    st.dataframe(
        rows, hide_index=True, placeholder="", column_config=config, key=key, height="content", alt=", ".join(render(f"page.column.{c}") for c in used)
    )


def worded(rows: list[Row], name: str) -> None:
    """Rows with long texts, which wrap. `name`: what a screen reader calls the table."""
    st.table(rows, hide_index=True, alt=name)


def notes(found: Iterable[Note]) -> None:
    """What was read, derived, assumed or is worth a warning, under its heading; nothing where there is none."""
    rows = note_rows(found)
    if rows:
        st.subheader(render("page.notes"), anchor=False)
        worded(rows, render("page.notes"))


def text(table: Listing) -> None:
    """A short table as text: it wraps, is there at once, and costs the browser nothing. Numbers are set flush right."""
    used = _used(table)
    head = [render(f"page.column.{c}") for c in used]
    rule = ["---:" if c in FLUSH_RIGHT else "---" for c in used]
    rows = [[_cell(c, row.get(c)) for c in used] for row in table.rows]
    st.markdown("\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)))


def plain_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False, left: Sequence[int] = ()) -> None:
    """Rows that are text already under labels: the first column flush left, all others right; left too where they are `words`, or in `left`."""
    rule = ["---" if words or i == 0 or i in left else "---:" for i in range(len(columns))]
    lines = [columns, rule, *([plain(together(cell)) for cell in row] for row in rows)]
    st.markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def together(text: str) -> str:
    """A figure stays with its unit where a narrow cell wraps."""
    return UNIT.sub("\N{NO-BREAK SPACE}", text)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    return _two_digits(value) if column in GIB else count(value) if column in WHOLE else plain(together(str(_seen(value))))


def _two_digits(value: float) -> str:
    """No zero with a sign: what rounds to nothing is 0.00."""
    text = f"{value:,.2f}"
    return text.removeprefix("-") if text == "-0.00" else text


def _seen(value: Any) -> Any:
    """A cell as readers see it: words in their language, several with commas; numbers stay numbers."""
    return ", ".join(map(str, map(said, value))) if isinstance(value, tuple) else said(value)


def _used(table: Listing) -> list[str]:
    return [c for c in table.columns if any(row.get(c) not in (None, "") for row in table.rows)]


def ledger_rows(p: CapacityPlan) -> Listing:
    kinds = distinct_ranks(p)
    rows = tuple(
        {
            "rank": label if len(kinds) > 1 else "",
            "line": line.name,
            "gib": gib_number(line.bytes),
            "bytes": line.bytes,
            "kind": known_word(line.kind),
            "band": _band(line.low_bytes, line.high_bytes),
            "source": line.source,
        }
        for label, rank in kinds
        for line in p.ledgers[rank]
    )
    return Listing(columns=("rank", "line", "gib", "bytes", "kind", "band", "source"), rows=rows)


def group_rows(model: ModelSpec) -> Listing:
    rows = tuple(_group(kind, len(where)) for kind, where in model.cache_groups())
    return Listing(columns=("kind", "layers", "heads", "dims", "window"), rows=rows)


def _group(kind: Kind, layers: int) -> Row:
    row: Row = {"kind": kind_word(kind.kind), "layers": layers}
    if isinstance(kind, Rows):
        row |= {"heads": kind.heads, "dims": sum((kind.k_dim, kind.v_dim)), "window": kind.limit_tokens}
    return row


def pool_rows(p: CapacityPlan) -> Listing:
    """The engine's groups on the deciding rank; equal ones in one row with their number."""
    equal: Counter[tuple[Any, ...]] = Counter()
    for pool in p.pools:
        for g in pool.groups:
            reserved = int(g.admission.units(p.setting.max_model_len))
            equal[pool.name, g.kind, len(g.layers), g.resident.unit_tokens, g.resident.unit_bytes, reserved, int(g.resident.units(p.scenario.tokens))] += 1
    columns = ("groups", "kind", "layers", "block_tokens", "page_bytes", "reserved_blocks", "held_blocks")
    rows = tuple(dict(zip(columns, (times, kind_word(key[1]), *key[2:]), strict=True)) for key, times in equal.items())
    return Listing(columns=columns, rows=rows)


def upload_rows(uploads: Iterable[Upload], s: Scenario) -> Listing:
    """One row a file: what it is and what the load comes to, or its own error."""
    columns = ("file", "kinds", "token_bytes", "load_gib", "fits", "max_sequences", "model_type", "layers", "error")
    return Listing(columns=columns, rows=tuple(_upload(u, s) for u in uploads))


def as_csv(table: Listing) -> bytes:
    """The same rows for a spreadsheet, under their codes: no cell begins a formula. With a byte order mark, as the other exports."""
    return sheet([table.columns, *([", ".join(v) if isinstance(v, tuple) else v for v in map(row.get, table.columns)] for row in table.rows)])


def _upload(u: Upload, s: Scenario) -> Row:
    row: Row = {"file": u.name}
    try:
        if u.error is not None:
            raise u.error
        assert u.model is not None
        row |= {
            "model_type": u.model.model_type,
            "layers": len(u.model.layers),
            "kinds": tuple(kind_word(k) for k in dict.fromkeys(k.kind for k, _ in u.model.cache_groups())),
        }
        p = plan(u.model, find(s.gpu), s)
        row |= {"token_bytes": p.footprint.bytes_per_token_unbounded, "load_gib": gib_number(p.load_bytes), "fits": render(f"page.state.{state_of(p)}"),
                "max_sequences": p.total_max_sequences}  # fmt: skip
    except Exception as e:
        row["error"] = error_text(caught(e))
    return row


def error_text(e: PlannerError) -> str:
    return render("page.file_error", {"field": e.field, "message": e.message}) if e.field and e.field not in e.message else e.message


def note_rows(notes: Iterable[Note]) -> list[Row]:
    """For st.table, which wraps long texts; hence escaped."""
    labels = {c: render(f"page.column.{c}") for c in ("level", "text", "field", "source")}
    rows = [
        {"level": render(f"report.level.{n.level}"), "text": plain(n.text), "field": plain(n.field), "source": plain(n.source)}
        for n in sorted(notes, key=lambda n: n.level != "warning")
    ]
    used = [c for c in labels if any(row[c] for row in rows)]
    return [{labels[c]: row[c] for c in used} for row in rows]


def kind_rows(groups: Iterable[KindGroup]) -> Listing:
    rows = tuple({**_group(g.kind, len(g.layers)), "places": g.places, "token_bytes": g.token_bytes or None, "bytes": g.bytes} for g in groups)
    return Listing(columns=("kind", "layers", "places", "heads", "dims", "window", "token_bytes", "bytes"), rows=rows)


def why_rows(groups: Iterable[KindGroup], keys: Mapping[Kind, tuple[tuple[str, Any], ...]]) -> Listing:
    """The keys of the file that decide each group; a group without any stands by class defaults, which the notes name."""
    rows = []
    for g in groups:
        said = ", ".join(render("page.layers.key", {"key": key, "value": _brief(value)}) for key, value in keys.get(g.kind, ()))
        rows.append({"kind": kind_word(g.kind.kind), "places": g.places, "decided_by": said or render("page.layers.key.none")})
    return Listing(columns=("kind", "places", "decided_by"), rows=tuple(rows))


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return render("page.layers.key.list", {"count": len(value)})
    return str(value) if len(str(value)) <= 24 else f"{str(value)[:24]}..."


def variant_rows(variants: Iterable[Variant]) -> Listing:
    """The model's own form is set in bold by its mark."""
    rows = tuple(
        {
            "variant": render("page.layers.own", {"name": v.name}) if v.own else v.name,
            "elements": v.elements,
            "bytes": v.bytes,
            "rank_bytes": v.rank_bytes,
            "ratio": render("page.layers.ratio", {"ratio": f"{v.ratio:.3f}"}),
        }
        for v in variants
    )
    return Listing(columns=("variant", "elements", "bytes", "rank_bytes", "ratio"), rows=rows)


def ledger_by_rank(p: CapacityPlan) -> list[Row]:
    """One row a line, one column of GiB a kind of rank; ranks that hold alike stand in one column."""
    kinds = distinct_ranks(p)
    lines = {line.code: line for _, rank in kinds for line in p.ledgers[rank]}
    of = {label: {line.code: line for line in p.ledgers[rank]} for label, rank in kinds}
    rows = []
    for code, line in lines.items():
        sizes = {label: _two_digits(gib_number(held[code].bytes)) if code in held else "" for label, held in of.items()}
        rows.append(
            {
                render("page.column.line"): line.name,
                **sizes,
                render("page.column.kind"): said(known_word(line.kind)),
                render("page.column.source"): plain(line.source),
            }
        )
    return rows


def gap_rows(p: CapacityPlan) -> Listing:
    rows = tuple({"line": g.name, "gib": gib_number(g.bytes), "bytes": g.bytes} for g in p.gap if g.bytes)
    return Listing(columns=("line", "gib", "bytes"), rows=rows)


def one_replica(p: CapacityPlan) -> None:
    """The formula is of one replica; where there are several, that is said, with what all of them come to."""
    if p.replicas > 1:
        said = {"replicas": count(p.replicas), "sequences": count(p.sequences_per_replica), "whole": memory(p.load_bytes)}
        st.caption(render("page.formula.replica", said))


def _band(low: int | None, high: int | None) -> str:
    return "" if low is None or high is None else render("page.band", {"low": f"{gib_number(low):,.2f}", "high": f"{gib_number(high):,.2f}"})

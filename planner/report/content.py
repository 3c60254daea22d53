"""What a report says, once: facts, tables and pictures as values. The writers only lay them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.api import identities
from planner.capacity import CapacityPlan
from planner.claims import claims
from planner.heatmap import HeatMap, heat_map
from planner.messages import render
from planner.mix_capacity import MixCapacity, mix_capacity
from planner.report.choices import setting_rows
from planner.units import count, gib, memory, percent, seconds

if TYPE_CHECKING:
    from planner.report import Request

TIGHT_FRACTION = 0.05
YES = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`numeric`: the columns that are set flush right."""

    key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()

    @property
    def title(self) -> str:
        return render(f"report.table.{self.key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`facts`: (label, value, exact value). `ranks`: (label, ledger lines) of ranks that differ."""

    title: str
    created: str
    state: str
    verdict: str
    facts: tuple[tuple[str, str, str], ...]
    formula: tuple[str, ...]
    gap: str
    tables: tuple[Table, ...]
    ranks: tuple[tuple[str, tuple[tuple[str, str, int], ...]], ...]
    memory_bytes: int
    heat: HeatMap
    notes: Table
    provenance: Table = field(repr=False)


def state_of(p: CapacityPlan) -> str:
    """fits | tight | no: tight where less than 5 % of the pool is free."""
    if not p.fits:
        return "no"
    return "tight" if p.free_bytes < TIGHT_FRACTION * p.kv_pool_bytes else "fits"


def verdict(p: CapacityPlan) -> str:
    """The answer in one sentence, with the free bytes, the shortfall, or what stops it."""
    state = state_of(p)
    code = state if state != "no" else f"no_{p.limited_by}"
    args = {
        "free": gib(p.free_bytes),
        "short": gib(p.shortfall_bytes),
        "sequences": count(p.scenario.sequences),
        "tokens": count(p.scenario.tokens),
        "limit": count(min(p.model.max_context_tokens or p.setting.max_model_len, p.setting.max_model_len)),
        "longest": count(p.setting.max_model_len),
    }
    return render(f"report.verdict.{code}", args)


def facts(p: CapacityPlan) -> tuple[tuple[str, str, str], ...]:
    """Label, readable value, exact value: the headline figures."""
    f, n = p.footprint, p.sequences_per_replica
    each = f.engine_bytes / n
    out = [
        ("kv_load", gib(f.engine_bytes * p.replicas), _exact(f.engine_bytes * p.replicas)),
        ("kv_architecture", gib(f.architecture_bytes * p.replicas), _exact(f.architecture_bytes * p.replicas)),
        ("kv_sequence", gib(each), _exact(each)),
        ("kv_token", _exact(f.bytes_per_token_unbounded), _exact(f.bytes_per_token_unbounded)),
        ("kv_pool", gib(p.kv_pool_bytes), _exact(p.kv_pool_bytes)),
        ("max_sequences", count(p.max_sequences * p.replicas), ""),
        ("longest_context", render("report.tokens", {"tokens": count(p.longest_context_tokens())}), ""),
    ]
    if f.host_bytes:
        out.append(("kv_host", gib(f.host_bytes * p.replicas), _exact(f.host_bytes * p.replicas)))
    if f.prefix_tokens:
        out.append(("prefix_saved", gib(f.prefix_bytes_saved * p.replicas), _exact(f.prefix_bytes_saved * p.replicas)))
    if p.kv_tokens is not None:
        out.append(("kv_tokens", render("report.tokens", {"tokens": count(p.kv_tokens)}), ""))
    return tuple((render(f"report.fact.{code}"), value, exact) for code, value, exact in out)


def gap_line(p: CapacityPlan) -> str:
    """From architecture bytes to engine bytes in one line, every step that is not nothing with its reason."""
    steps = [render(f"report.gap.{'more' if g.bytes > 0 else 'less'}", {"size": memory(abs(g.bytes)), "name": g.name}) for g in p.gap if g.bytes]
    ends = {"architecture": gib(p.footprint.architecture_bytes), "engine": p.setting.engine, "held": gib(p.footprint.engine_bytes)}
    return render("report.gap", {"steps": " ".join(["", *steps]), **ends})


def reserved_line(p: CapacityPlan) -> str | None:
    """What the engine reserves at start, or prints of its pools, beside what a running sequence holds; None where it does neither."""
    if p.sizes and p.sizes.printed:
        printed = ", ".join(render("report.printed.one", {"name": name, "value": count(value)}) for name, value in p.sizes.printed)
        return render("report.printed", {"engine": p.setting.engine, "printed": printed})
    if p.num_blocks is None or not p.blocks_per_request or not p.bytes_per_block:
        return None
    held = sum(pool.units(p.scenario.tokens) for pool in p.pools)
    args = {
        "engine": p.setting.engine, "longest": count(p.setting.max_model_len), "blocks": count(p.blocks_per_request),
        "reserved": gib(p.blocks_per_request * p.bytes_per_block), "have": count(p.num_blocks), "times": f"{p.max_concurrency or 0:,.2f}",
        "printed": count(p.kv_tokens or 0), "tokens": count(p.scenario.tokens), "held_blocks": count(held), "held": gib(held * p.bytes_per_block),
    }  # fmt: skip
    return render("report.reserved" if p.num_blocks else "report.reserved.none", args)


def distinct_ranks(p: CapacityPlan) -> tuple[tuple[str, int], ...]:
    """(label, rank) of one rank of each kind: equal ledgers are one kind."""
    kinds: dict[Any, list[int]] = {}
    for rank, lines in enumerate(p.ledgers):
        kinds.setdefault(lines, []).append(rank)
    labels = []
    for ranks in kinds.values():
        label = _rank_label(ranks, len(p.ledgers))
        if len(kinds) > 1 and p.binding_rank in ranks:
            label = render("report.rank.binds", {"rank": label})
        labels.append((label, ranks[0]))
    return tuple(labels)


def _rank_label(ranks: list[int], whole: int) -> str:
    if whole == 1:
        return render("report.rank.only")
    if len(ranks) == 1:
        return render("report.rank.one", {"rank": ranks[0]})
    if len(ranks) == whole:
        return render("report.rank.all", {"ranks": whole})
    return render("report.rank.some", {"ranks": len(ranks), "first": ranks[0], "last": ranks[-1]})


def build(r: Request) -> Report:
    p, probe = r.plan, r.probe
    kinds = distinct_ranks(p)
    ledger = tuple((label, line.name, gib(line.bytes), count(line.bytes), line.kind, line.source) for label, rank in kinds for line in p.ledgers[rank])
    groups = tuple(
        (
            g.kind,
            count(len(g.layers)),
            pool.name,
            _or_dash(g.resident.unit_tokens),
            count(g.resident.unit_bytes),
            count(g.admission.units(p.setting.max_model_len)),
            count(g.resident.units(p.scenario.tokens)),
        )
        for pool in p.pools
        for g in pool.groups
    )
    held = tuple(
        (render(f"report.identity.{i['name']}"), str(i.get("rank", "")), count(i["left"]), count(i["right"]), render(f"report.holds.{YES[i['holds']]}"))
        for i in identities(p)
    )
    tables = [
        _table("ledger", ("rank", "line", "gib", "bytes", "kind", "source"), ledger, {2, 3}),
        _table("gap", ("line", "bytes"), tuple((g.name, count(g.bytes)) for g in p.gap), {1}),
        _table("groups", ("kind", "layers", "pool", "unit_tokens", "unit_bytes", "reserved_units", "units"), groups, {1, 3, 4, 5, 6}),
        _table("scenario", ("option", "value"), tuple(setting_rows(p))),
        _table("identities", ("line", "rank", "left", "right", "holds"), held, {2, 3}),
    ]
    mixed = mix_capacity(p, r.mix) if r.mix else None
    if mixed is not None:
        tables.insert(3, _table("mix", ("line", "value"), mix_rows(mixed), {1}))
    if probe is not None:
        tables.append(_table("probe", ("line", "predicted", "measured", "how"), tuple(probe_rows(probe)), {1, 2}))
    everything = (*r.notes, *p.notes, *(mixed.notes if mixed else ()), *claims(p))
    return Report(
        title=render("report.title", {"model": p.model.name}),
        created=r.created,
        state=state_of(p),
        verdict=verdict(p),
        facts=facts(p),
        formula=tuple(line.text for line in p.footprint.formula),
        gap=gap_line(p),
        tables=tuple(tables),
        ranks=tuple((label, tuple((line.code, line.name, line.bytes) for line in p.ledgers[rank])) for label, rank in kinds),
        memory_bytes=sum(line.bytes for line in p.ledgers[p.binding_rank]),
        heat=heat_map(p),
        notes=_table("notes", ("level", "text", "field", "source"), tuple((render(f"report.level.{n.level}"), n.text, n.field, n.source) for n in everything)),
        provenance=_table("provenance", ("option", "value"), tuple((k, str(v)) for k, v in sorted(r.provenance.items()))),
    )


def mix_rows(m: MixCapacity) -> tuple[tuple[str, str], ...]:
    """The figures of a mix of lengths under their names; bytes exactly."""
    values = m.to_json()
    rows = [(render("report.table.mix"), render("mix.requests", {"points": values["points"], "rows": values["rows"]}))]
    lengths = ("mean_tokens", "p50_tokens", "p99_tokens", "longest_tokens", "tokens_held")
    rows += [(render(f"mix.{name}"), render("report.tokens", {"tokens": f"{values[name]:,.1f}".removesuffix(".0")})) for name in lengths]
    numbers = (("sequences_guaranteed", m.total_guaranteed), ("sequences_typical", m.total_typical))
    rows += [(render(f"mix.{name}"), count(number)) for name, number in numbers]
    always, found = ("mean_bytes", "held_bytes", "waste_bytes"), ("state_bytes", "window_saved_bytes", "shared_prefix_bytes_saved")
    rows += [(render(f"mix.{name}"), _exact(values[name])) for name in (*always, *found) if values[name] or name in always]
    rows += [(render("report.column.text"), render(f"mix.limited.{m.limited_by}"))] if m.limited_by else []
    return tuple(rows)


def probe_rows(probe: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Predicted beside measured, then the times. `probe` is a ProbeResult as JSON."""
    rows = [(str(r["name"]), probe_value(r.get("predicted"), r.get("unit", "")), probe_value(r.get("measured"), r.get("unit", "")), str(r.get("how", "")))
            for r in probe["rows"]]  # fmt: skip
    itl = probe["itl_s"]
    how = f"{probe['backend']}, {probe['device']}"
    times = [
        ("ttft", seconds(probe["ttft_s"])),
        *((f"itl_{q}", seconds(itl[q])) for q in ("p50", "p90", "p99")),
        ("tokens_per_s", f"{probe['tokens_per_s']:,.1f}"),
    ]
    return rows + [(render(f"report.probe.{code}"), "-", value, how) for code, value in times]


def probe_value(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "bytes":
        return render("report.bytes", {"bytes": count(value)})
    if unit == "fraction":
        return percent(value)
    text = count(value) if isinstance(value, int) else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _exact(value: float) -> str:
    return render("report.bytes", {"bytes": count(value) if value == int(value) else f"{value:,.1f}"})


def _or_dash(value: int | None) -> str:
    return "-" if value is None else count(value)


def _table(key: str, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], numeric: Iterable[int] = ()) -> Table:
    return Table(key=key, columns=tuple(render(f"report.column.{c}") for c in columns), rows=rows, numeric=frozenset(numeric))

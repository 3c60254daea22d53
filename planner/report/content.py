"""What a report says, once: facts, tables and pictures as values. The writers only lay them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.capacity import CapacityPlan
from planner.claims import claims
from planner.heatmap import HeatMap, heat_map
from planner.messages import kind_word, known_word, render, said
from planner.mix_capacity import MixCapacity, mix_capacity
from planner.report import extras
from planner.report.choices import setting_rows
from planner.report.extras import probe_rows, probe_value
from planner.report.program import program
from planner.report.table import Figure, Table, exact, in_gib, or_dash, printable, table, tokens, whole
from planner.units import count, gib, memory

if TYPE_CHECKING:
    from planner.report import Request

__all__ = ["Report", "Table", "build", "distinct_ranks", "facts", "gap_line", "mix_rows", "probe_rows", "probe_value", "reserved_line", "state_of", "verdict"]
TIGHT_FRACTION = 0.05
YES = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`facts`: (label, value, exact value). `ranks`: (label, ledger lines) of ranks that differ, `binding` the label of those
    that decide. `tables` in the order of reading; notes and provenance, which end a report, apart."""

    title: str
    created: str
    made_by: str
    state: str
    verdict: str
    facts: tuple[tuple[str, str, str], ...]
    formula: tuple[str, ...]
    gap: str
    tables: tuple[Table, ...]
    ranks: tuple[tuple[str, tuple[tuple[str, str, int], ...]], ...]
    binding: str
    memory_bytes: int
    pool_bytes: int
    heat: HeatMap
    notes: Table
    provenance: Table = field(repr=False)

    @property
    def all_tables(self) -> tuple[Table, ...]:
        return (*self.tables, self.notes, self.provenance)


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
    each = f.engine_bytes // n if f.engine_bytes % n == 0 else f.engine_bytes / n
    sizes: list[tuple[str, float]] = [
        ("kv_load", f.engine_bytes * p.replicas),
        ("kv_architecture", f.architecture_bytes * p.replicas),
        ("kv_sequence", each),
        ("kv_token", f.bytes_per_token_unbounded),
        ("kv_pool", p.kv_pool_bytes),
    ]
    if f.host_bytes:
        sizes.append(("kv_host", f.host_bytes * p.replicas))
    if f.prefix_tokens:
        sizes.append(("prefix_saved", f.prefix_bytes_saved * p.replicas))
    out: list[tuple[str, str, str]] = [(code, exact(size) if code == "kv_token" else in_gib(size), exact(size)) for code, size in sizes]
    counts: list[tuple[str, str]] = [("max_sequences", whole(p.max_sequences * p.replicas)), ("longest_context", tokens(p.longest_context_tokens()))]
    if p.kv_tokens is not None:
        counts.append(("kv_tokens", tokens(p.kv_tokens)))
    out[5:5] = [(code, value, "") for code, value in counts]
    return tuple((render(f"report.fact.{code}"), value, exact) for code, value, exact in out)


def gap_line(p: CapacityPlan) -> str:
    """From architecture bytes to engine bytes in one line, every step that is not nothing with its reason."""
    steps = [render(f"report.gap.{'more' if g.bytes > 0 else 'less'}", {"size": memory(abs(g.bytes)), "name": g.name}) for g in p.gap if g.bytes]
    ends = {"architecture": memory(p.footprint.architecture_bytes), "engine": p.setting.engine, "held": memory(p.footprint.engine_bytes)}
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
    """Raises NotAConfig for a result of another command that is not what that command prints."""
    p = r.plan
    kinds = distinct_ranks(p)
    tables = [_ledger(p, kinds), table("gap", ("line", "bytes"), ((g.name, whole(g.bytes)) for g in p.gap), {1}), _groups(p)]
    mixed = mix_capacity(p, r.mix) if r.mix else None
    if mixed is not None:
        tables.append(table("mix", ("line", "value"), mix_rows(mixed), {1}))
    tables += extras.answer_tables(r.answer)
    tables += [table("scenario", ("option", "value"), setting_rows(p)), _identities(r.answer["identities"])]
    tables += extras.check(r.parts)
    everything = (*r.notes, *p.notes, *(mixed.notes if mixed else ()), *claims(p))
    return Report(
        title=printable(render("report.title", {"model": p.model.name})),
        created=r.created,
        made_by=_made_by(),
        state=state_of(p),
        verdict=verdict(p),
        facts=facts(p),
        formula=tuple(line.text for line in p.footprint.formula),
        gap=gap_line(p),
        tables=tuple(tables),
        ranks=tuple((label, tuple((line.code, line.name, line.bytes) for line in p.ledgers[rank])) for label, rank in kinds),
        binding=next(label for label, rank in kinds if p.ledgers[rank] == p.ledgers[p.binding_rank]),
        memory_bytes=sum(line.bytes for line in p.ledgers[p.binding_rank]),
        pool_bytes=p.kv_pool_bytes,
        heat=heat_map(p),
        notes=table("notes", ("level", "text", "field", "source"), ((render(f"report.level.{n.level}"), n.text, n.field, n.source) for n in everything)),
        provenance=table("provenance", ("option", "value"), _provenance(r)),
    )


def _ledger(p: CapacityPlan, kinds: tuple[tuple[str, int], ...]) -> Table:
    rows = (
        (label, line.name, in_gib(line.bytes), whole(line.bytes), said(known_word(line.kind)), line.source) for label, rank in kinds for line in p.ledgers[rank]
    )
    return table("ledger", ("rank", "line", "gib", "bytes", "kind", "source"), rows, {2, 3})


def _groups(p: CapacityPlan) -> Table:
    rows = (
        (
            said(kind_word(g.kind)),
            whole(len(g.layers)),
            pool.name,
            or_dash(g.resident.unit_tokens),
            whole(g.resident.unit_bytes),
            whole(g.admission.units(p.setting.max_model_len)),
            whole(g.resident.units(p.scenario.tokens)),
        )
        for pool in p.pools
        for g in pool.groups
    )
    return table("groups", ("kind", "layers", "pool", "unit_tokens", "unit_bytes", "reserved_units", "units"), rows, {1, 3, 4, 5, 6})


def _identities(found: list[dict[str, Any]]) -> Table:
    rows = (
        (render(f"report.identity.{i['name']}"), or_dash(i.get("rank")), or_dash(i["left"]), or_dash(i["right"]), render(f"report.holds.{YES[i['holds']]}"))
        for i in found
    )
    return table("identities", ("line", "rank", "left", "right", "holds"), rows, {2, 3})


def _provenance(r: Request) -> list[tuple[str, str]]:
    """Where the config came from, its hash, what was declared of it, and the program that read it."""
    from planner.report.json import config_sha256

    rows = [(k, str(v)) for k, v in sorted(r.provenance.items())]
    if r.config is not None:
        rows.append(("config_sha256", config_sha256(r.config) or ""))
    if r.harmless:
        rows.append(("harmless", ", ".join(r.harmless)))
    return rows + [(f"program {k}", v) for k, v in program().items() if v]


def _made_by() -> str:
    made = program()
    return " ".join(x for x in (made["name"], made["version"], (made["commit"] or "")[:12]) if x)


def mix_rows(m: MixCapacity) -> tuple[tuple[str, str], ...]:
    """The figures of a mix of lengths under their names; bytes exactly."""
    values = m.to_json()
    rows = [(render("report.table.mix"), render("mix.requests", {"points": values["points"], "rows": values["rows"]}))]
    lengths = ("mean_tokens", "p50_tokens", "p99_tokens", "longest_tokens", "tokens_held")
    rows += [(render(f"mix.{name}"), _tokens(values[name])) for name in lengths]
    numbers = (("sequences_guaranteed", m.total_guaranteed), ("sequences_typical", m.total_typical))
    rows += [(render(f"mix.{name}"), whole(number)) for name, number in numbers]
    always, found = ("mean_bytes", "held_bytes", "waste_bytes"), ("state_bytes", "window_saved_bytes", "shared_prefix_bytes_saved")
    rows += [(render(f"mix.{name}"), exact(values[name])) for name in (*always, *found) if values[name] or name in always]
    rows += [(render("report.column.text"), render(f"mix.limited.{m.limited_by}"))] if m.limited_by else []
    return tuple(rows)


def _tokens(value: float) -> str:
    """A mean of lengths: with one digit where it is no whole number."""
    text = render("report.tokens", {"tokens": f"{value:,.1f}".removesuffix(".0")})
    return Figure(text, value, text.split(" ", 1)[-1], 0 if ".0 " in f"{value:,.1f} " else 1)

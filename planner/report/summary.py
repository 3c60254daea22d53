"""A plan's answer as a few lines of text, to copy into a message: the figures of the headline, each with its exact bytes."""

from __future__ import annotations

from planner import hardware
from planner.capacity import CapacityPlan
from planner.messages import render
from planner.owngpu import shown_name
from planner.report.content import facts, gap_line, verdict
from planner.sources import catalog
from planner.units import count


def summary(p: CapacityPlan, link: str = "") -> str:
    """Lines: what runs where, the load, the verdict, the figures, the formula, the date of the tables. `link`: the plan's address, if it has one."""
    s = p.scenario
    where = {"model": p.model.name, "gpus": s.gpus, "gpu": shown_name(s.gpu), "engine": p.setting.engine, "version": p.setting.version}
    rows = [
        render("summary.row", {"name": name, "value": value, "exact": exact}) if exact and exact != value
        else render("summary.row.exact", {"name": name, "value": value})
        for name, value, exact in facts(p)
    ]  # fmt: skip
    lines = [
        render("summary.plan", where),
        render("summary.load", {"sequences": count(s.sequences), "tokens": count(s.tokens), "kv_dtype": p.setting.kv.name}),
        verdict(p),
        *rows,
        *(line.text for line in p.footprint.formula),
        gap_line(p),
        render("summary.data", {"models": catalog.as_of(), "devices": hardware.as_of()}),
    ]
    return "\n".join([*lines, *([render("summary.link", {"link": link})] if link else [])])

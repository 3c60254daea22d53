"""A plan's choices as (label, value) rows: what was asked, and what the engine's defaults filled in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.capacity import CapacityPlan
from planner.messages import known, render
from planner.report.table import Figure, whole
from planner.scenario import Scenario

ALWAYS = frozenset(("model", "gpu", "gpus", "engine", "tokens", "sequences", "kv_dtype"))


def setting_rows(p: CapacityPlan) -> Iterator[tuple[str, str]]:
    """The main choices and every option that differs from its default, then what it resolved to."""
    usual = Scenario().to_json()
    for name, value in p.asked.to_json().items():
        if name in ALWAYS or value != usual[name]:
            yield label(name), plain(value)
    for name, value in resolved(p):
        yield render("report.resolved", {"name": render(f"report.resolved.{name}")}), plain(value)


def label(name: str) -> str:
    """What a field of a scenario is called on the pages; its own name where it has no input there."""
    return render(f"input.{name}") if known(f"input.{name}") else name


def resolved(p: CapacityPlan) -> tuple[tuple[str, Any], ...]:
    """(name, value) of what the engine's defaults filled in; those that this engine has."""
    s = p.setting
    found: tuple[tuple[str, Any], ...] = (
        ("engine_rules", f"{s.engine} {s.version}"),
        ("kv_dtype", s.kv.name),
        ("dtype", s.model_dtype.name),
        ("max_model_len", s.max_model_len),
        ("tensor", s.parallel.tensor),
        ("pipeline", s.parallel.pipeline),
        ("replicas", p.replicas),
        ("block_size", p.pools[0].block_size),
        ("memory_fraction", s.memory_fraction),
        ("max_num_batched_tokens", s.max_num_batched_tokens),
        ("max_num_seqs", s.max_num_seqs),
    )
    return tuple((name, value) for name, value in found if value is not None)


def plain(value: Any) -> str:
    if isinstance(value, bool):
        return render(f"report.holds.{'yes' if value else 'no'}")
    if isinstance(value, int):
        return whole(value)
    return Figure(str(value), value, digits=4) if isinstance(value, float) else str(value)

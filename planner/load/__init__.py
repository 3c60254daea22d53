"""Requests as they come: does the plan carry them, with what waiting, on how many replicas and at what price.

`load_of` takes a plan whose scenario has a request rate; the parts are `arrivals` (Little's law), `speculation`, `disaggregated`, `fleet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.capacity import CapacityPlan
from planner.latency import Served, served
from planner.load.arrivals import HEADROOM, Arrivals, arrivals
from planner.load.disaggregated import Split, split
from planner.load.fleet import Fleet, fleet
from planner.load.speculation import Speculation, speculation
from planner.notes import Note, note
from planner.throughput import BatchLimit, batch_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """`arrivals`, `fleet`: None without a request rate, or where not one sequence can be served. `speculation`: None without an
    acceptance rate."""

    arrivals: Arrivals | None
    fleet: Fleet | None
    speculation: Speculation | None
    split: Split | None
    notes: tuple[Note, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: part.to_json() if (part := getattr(self, name)) else None for name in ("arrivals", "fleet", "speculation", "split")}


def load_of(p: CapacityPlan, own: Served | None = None, limit: BatchLimit | None = None) -> LoadPlan | Note:
    """What the scenario's request rate, acceptance rate and price ask of a plan. A note where no times can be given.

    `request_rate` is of all replicas together; each gets an even share.
    """
    found = own or served(p)
    if isinstance(found, Note):
        return found
    within = limit or batch_limit(p, found)
    if isinstance(within, Note):
        return within
    s, best = p.scenario, within.best
    notes: tuple[Note, ...] = ()
    coming = arrivals(found, best, s.request_rate / p.replicas, variation=_variation(p)) if s.request_rate and best else None
    if coming is not None:
        notes = coming.notes
    elif s.request_rate:
        notes = (note("warning", "load_none_served", field="request_rate"),)
    drafted = speculation(p, found, max(1, min(best, int(found.load.sequences))), s.acceptance_rate) if s.acceptance_rate else None
    gpus = p.setting.parallel.ranks
    return LoadPlan(
        arrivals=coming,
        fleet=fleet(coming, s.request_rate, p.replicas, gpus, s.price_per_gpu_hour) if coming and s.request_rate else None,
        speculation=drafted,
        split=split(p, found, within, s.request_rate) if best else None,
        notes=notes,
    )


def _variation(p: CapacityPlan) -> float:
    """Squared variation of the outputs (variance over squared mean): of the mix of lengths, 0 for equal ones."""
    if not p.scenario.lengths:
        return 0.0
    from planner.mix import from_text

    points = from_text(p.scenario.lengths).points
    whole = sum(x.weight for x in points)
    mean = sum(x.weight * x.output for x in points) / whole
    return sum(x.weight * (x.output - mean) ** 2 for x in points) / whole / mean**2 if mean else 0.0


__all__ = ["HEADROOM", "Arrivals", "Fleet", "LoadPlan", "Speculation", "Split", "load_of"]

"""The report as JSON: the plan as the command line prints it, with provenance, the config and the versions. It reads back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.api import notes_json, plan_json
from planner.claims import claims
from planner.engines import ENGINES, engine
from planner.errors import NotAConfig
from planner.heatmap import heat_map
from planner.scenario import Scenario, from_options

if TYPE_CHECKING:
    from planner.report import Request

FORMAT, VERSION = "kvledger-plan", 1


def write(r: Request) -> bytes:
    heat = heat_map(r.plan)
    body = plan_json(r.plan, mix=r.mix)
    body["notes"] = notes_json(r.notes) + body["notes"] + notes_json(claims(r.plan))
    out: dict[str, Any] = {
        "format": FORMAT,
        "format_version": VERSION,
        "created": r.created,
        **body,
        "heat_map": {
            "tokens": heat.tokens,
            "sequences": heat.sequences,
            "bytes_per_rank": heat.rank_bytes,
            "fits": heat.fits,
            "most_sequences": [{"tokens": t, "sequences": n} for t, n in heat.line],
        },
        "provenance": dict(r.provenance),
        "config": r.config,
        "versions": {name: engine(name).version for name in ENGINES},
        "probe": r.probe,
    }
    return (json.dumps(out, indent=1, ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a report in JSON holds for taking the plan up again."""

    scenario: Scenario
    config: dict[str, Any] | None
    provenance: dict[str, Any]
    name: str


def is_report(raw: Mapping[str, Any]) -> bool:
    return raw.get("format") == FORMAT


def read_back(raw: Mapping[str, Any]) -> Saved:
    """The plan in a parsed report. Raises PlannerError with the field where the file was changed into something that is no plan."""
    for key in ("scenario", "provenance"):
        if not isinstance(raw.get(key), dict):
            raise NotAConfig("report_part_missing", field=key)
    config = raw.get("config")
    if config is not None and not isinstance(config, dict):
        raise NotAConfig("report_part_missing", field="config")
    name = raw.get("model")
    return Saved(
        scenario=from_options(raw["scenario"]),
        config=config,
        provenance=dict(raw["provenance"]),
        name=name[:120] if isinstance(name, str) else "",
    )

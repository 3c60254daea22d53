"""The report as JSON: the plan as the command line prints it, with provenance, the config and the versions. It reads back (planner/saved.py)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.answers import notes_json
from planner.claims import claims
from planner.engines import ENGINES, engine
from planner.heatmap import heat_map
from planner.report.program import program
from planner.saved import FORMAT, VERSION, inputs_json

if TYPE_CHECKING:
    from planner.report import Request


def write(r: Request) -> bytes:
    from planner.report.extras import check

    heat = heat_map(r.plan)
    check(r.parts)
    body = dict(r.answer)
    body["notes"] = notes_json(r.notes) + body["notes"] + notes_json(claims(r.plan))
    out: dict[str, Any] = {
        "format": FORMAT,
        "format_version": VERSION,
        "created": r.created,
        "program": program(),
        **body,
        "heat_map": {
            "tokens": heat.tokens,
            "sequences": heat.sequences,
            "bytes_per_rank": heat.rank_bytes,
            "fits": heat.fits,
            "most_sequences": [{"tokens": t, "sequences": n} for t, n in heat.line],
        },
        "provenance": dict(r.provenance),
        "config_sha256": config_sha256(r.config),
        "config": r.config,
        "inputs": inputs_json(r.notes, r.harmless, r.mix),
        "versions": {name: engine(name).version for name in ENGINES},
        **{name: r.parts.get(name) for name in ("probe", "suite", "reconciliation")},
    }
    return (json.dumps(out, indent=1, ensure_ascii=False) + "\n").encode()


def config_sha256(config: Mapping[str, Any] | None) -> str | None:
    """Of the config as compact JSON with sorted keys, so that its spelling in the file does not matter. In hexadecimal digits."""
    if config is None:
        return None
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

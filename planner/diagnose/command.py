"""`python -m planner diagnose SOURCE --seen itl=33ms --seen sequences=32 --paste scrape.txt`: the diagnosis as lines or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from planner.api import asked
from planner.diagnose import Diagnosis, Observed, diagnose, observed, paste
from planner.diagnose.observed import COMPLAINTS, OOM, TIMES
from planner.errors import InvalidInput
from planner.messages import render
from planner.units import count, seconds

NAMES = tuple(f.name.removesuffix("_s") if f.name in TIMES else f.name for f in fields(Observed))


def seen(pairs: Iterable[str], pasted: str | None) -> Observed:
    """What the command line says was seen, over what a pasted file holds. Raises InvalidInput."""
    out = observed(dict(_pair(p) for p in pairs))
    if pasted is None:
        return out
    try:
        with Path(pasted).open(encoding="utf-8-sig", errors="replace") as f:
            return out.over(paste.read(f.read(paste.MAX_CHARS + 1)).seen)
    except OSError as e:
        raise InvalidInput("file_unreadable", field="paste", value=pasted[:200], detail=e.strerror or "") from None


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    name, value = name.strip().replace("-", "_").removesuffix("_s"), value.strip().lower()
    if name not in NAMES or not value:
        raise InvalidInput("seen_pair", field="seen", value=text[:60], known=", ".join(NAMES))
    if name in ("oom", "complaint"):
        if value not in (OOM if name == "oom" else COMPLAINTS):
            raise InvalidInput("not_a_choice", field=name, value=value[:40], choices=", ".join(OOM if name == "oom" else COMPLAINTS))
        return name, value
    full = f"{name}_s" if f"{name}_s" in TIMES else name
    factor = 1e-3 if full in TIMES and value.endswith("ms") else 1.0
    try:
        return full, float(value.removesuffix("ms").removesuffix("s") if full in TIMES else value[:40]) * factor
    except ValueError:
        raise InvalidInput("not_a_number", field=full, value=value[:40]) from None


def command(source: str, pairs: Iterable[str], pasted: str | None, options: Mapping[str, Any], *, as_json: bool, token: str | None = None) -> int:
    """Prints the answer; exit 0. Raises PlannerError."""
    given = seen(pairs, pasted)
    found = diagnose(asked(source, options, token=token).plan(), given)
    print(json.dumps(found.to_json()) if as_json else text(found))
    return 0


def text(d: Diagnosis) -> str:
    lines = [render(f"diagnose.verdict.{d.verdict}"), *(f"- {e.text}" for e in d.evidence)]
    if d.asks:
        lines += [render("text.diagnose.asks"), *(f"- {a.text}" for a in d.asks)]
    for fix in d.fixes:
        after, before = fix.turned.after, d.before
        assert before
        lines.append(render("text.diagnose.fix", {
            "text": fix.turned.text, "cost": fix.turned.cost, "itl_before": seconds(d.seen.itl_s or before.itl_s), "itl": seconds(fix.itl_s or after.itl_s),
            "ttft_before": seconds(d.seen.ttft_s or before.ttft_s), "ttft": seconds(fix.ttft_s or after.ttft_s), "most_before": count(before.best),
            "most": count(after.best)}))  # fmt: skip
    return "\n".join(lines)

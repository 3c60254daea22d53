"""A suite's result as Markdown: what a document says beside what was measured. No torch: the page offers it for any upload too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_probe.claims import read
from gpu_probe.claims.catalog import ENTRIES
from gpu_probe.claims.numbers import Numbers
from gpu_probe.claims.views import absent
from planner.errors import NotAConfig
from planner.messages import render

RATES = (("read_bytes_per_s", "read"), ("flop_per_s", "flop"))


def markdown(result: Mapping[str, Any]) -> str:
    """One table, and the circumstances under it; what a result does not have is a dash. Raises NotAConfig where it has no items."""
    items = read(result)
    lines = [render("suite.title", {"device": _line(result.get("device_name", ""))}), "", render("suite.columns"), "|---|---|---|---|---|"]
    for i in items:
        cells = (" ".join(i.claims), i.name, i.says, i.measured, render(f"suite.verdict.{i.verdict}"))
        lines.append("| " + " | ".join(_line(c).replace("|", "/") for c in cells) + " |")
    lines += ["", render("suite.circumstances", _circumstances(result))]
    if left := absent(items):
        lines += ["", render("page.suite.absent", {"entries": ", ".join(render(f"suite.entry.{name}") for name in left)})]
    if result.get("partial"):
        lines += ["", render("page.suite.partial", {"count": len(ENTRIES) - len(left), "total": len(ENTRIES)})]
    if unsteady(result):
        lines += ["", render("suite.unsteady")]
    if any(i.bytes_right is False for i in items):
        lines += ["", render("suite.bytes_wrong")]
    return "\n".join(lines)


def unsteady(result: Mapping[str, Any]) -> bool:
    """Whether the ceilings before and after were found to differ by over a quarter."""
    ceilings = result.get("ceilings")
    return isinstance(ceilings, Mapping) and ceilings.get("steady") is False


def _circumstances(result: Mapping[str, Any]) -> dict[str, str]:
    versions = result.get("versions")
    told = versions if isinstance(versions, Mapping) else {}
    words = {name: _line(source.get(name, "-")) for source, names in ((result, ("backend", "rounds")), (told, ("torch", "threads"))) for name in names}
    for when in ("before", "after"):
        for name, short in RATES:
            words[f"{short}_{when}"] = _shown(result, ("ceilings", when), name, 1e9, ".3g")
    return {**words, "wall": _shown(result, (), "wall_s", 1, ".0f")}


def _shown(result: Mapping[str, Any], path: tuple[str, ...], name: str, unit: float, form: str) -> str:
    try:
        where = Numbers(result, "")
        for part in path:
            where = where.part(part)
        return format(where.number(name) / unit, form)
    except NotAConfig:
        return "-"


def _line(value: Any) -> str:
    """Text of a result on one line, and no longer than a cell may be."""
    return " ".join(str(value).split())[:1000]

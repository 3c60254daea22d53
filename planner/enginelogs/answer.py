"""`python -m planner reconcile`: logs from files or standard input, one JSON object each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.api import model_of
from planner.enginelogs.reconcile import reconcile
from planner.enginelogs.text import MAX_BYTES
from planner.errors import InvalidInput
from planner.hardware import Hardware, find
from planner.messages import render
from planner.model import ModelSpec
from planner.sources import known_weight_bytes, load
from planner.units import count, gib


def log_bytes(name: str) -> tuple[bytes, dict[str, Any]]:
    """(the bytes of a log, its source) for a path, or "-" for standard input. One byte beyond the limit is read, so that a cut is known.
    Raises InvalidInput."""
    if name == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1), {"kind": "stdin", "path": "-"}
    try:
        with Path(name).open("rb") as f:
            return f.read(MAX_BYTES + 1), {"kind": "file", "path": name[:400]}
    except (OSError, ValueError) as e:
        raise InvalidInput("file_unreadable", field="log", value=name[:200], detail=getattr(e, "strerror", None) or type(e).__name__) from None


def for_model(source: str | None, options: Mapping[str, Any], *, token: str | None = None) -> tuple[ModelSpec | None, Hardware | None, dict[str, Any]]:
    """The model and the device to plan with (None where none was named), and the options with the weights' stored bytes where the source
    tells them. Raises PlannerError."""
    given = {k: v for k, v in options.items() if k not in ("harmless", "gpu")}
    gpu = options.get("gpu")
    hardware = find(str(gpu)) if gpu else None
    if source is None:
        return None, hardware, given
    loaded = load(source, token=token)
    stored = known_weight_bytes(loaded.provenance)
    if stored and not {"weight_bytes", "weight_dtype"} & set(given):
        given["weight_bytes"] = stored
    return model_of(loaded, tuple(str(k) for k in options.get("harmless") or ())), hardware, given


def answer_log(name: str, model: ModelSpec | None, hardware: Hardware | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """One log's object of the contract. Raises PlannerError."""
    data, source = log_bytes(name)
    out = reconcile(data, model=model, hardware=hardware, given=given).to_json()
    out["source"] = source
    return out


def text(out: Mapping[str, Any]) -> str:
    """One log's object as lines to read."""
    lines = [render("text.log", {"engine": out["engine"] or "?", "version": out["engine_version"] or "", "lines": count(out["log_lines"]),
                                 "figures": count(len(out["found"]))})]  # fmt: skip
    for line in out["lines"]:
        args = {"mark": {"differs": "!", "open": "?", "agrees": " "}[line["status"]], "line": line["line"], "label": line["label"], "why": line["why"],
                "reported": shown(line["name"], line["reported"]), "predicted": shown(line["name"], line["predicted"])}  # fmt: skip
        lines.append(render("text.log.line", args))
        if cause := line["cause"]:
            lines.append(render("text.log.cause", {"text": cause["text"], "predicted": shown(line["name"], cause.get("predicted"))}))
    lines += [render("text.log.refusal", {"line": r["line"], "text": r["meaning"]}) for r in out["refusals"]]
    return "\n".join(lines + [f"  - {n['text']}" for n in out["notes"]])


def shown(name: str, value: Any) -> str:
    """A figure in the unit that suits its name: GiB for bytes, separators for counts."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return gib(value)
    return count(value) if float(value).is_integer() else f"{value:,.4g}"

"""`python -m gpu_probe gpu-check`: six minutes on a GPU, one JSON line a step, and a measurement file that is worth keeping.

A step that fails is a result; the file is written anew after each step, so that whatever ends the process leaves what was found.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.messages import render

LIMIT_S = 330.0
SWEEP_ENDS_S = 310.0
"""A sweep stops here, so that the last ceilings still fit."""
FOLDER = Path("docs/measurements")

Emit = Callable[[dict[str, Any]], None]


class Check:
    """The measurement as it grows. `out`: a file, a folder for <date>-<device>.json, or None."""

    def __init__(self, *, dry: bool, out: Path | None) -> None:
        self.out, self.began = out, time.monotonic()
        self.data: dict[str, Any] = {
            "kind": "gpu-check", "version": 1, "date": datetime.now(UTC).date().isoformat(), "dry": dry, "device": "", "device_name": "",
            "complete": False, "seconds": 0.0, "steps": [],
        }  # fmt: skip
        self._lock = threading.RLock()

    def add(self, step: dict[str, Any]) -> None:
        with self._lock:
            self.data["steps"].append(step)
            if step["step"] == "facts" and step["ok"]:
                self.data |= {name: step["result"][name] for name in ("device", "device_name")}
            self.save()

    def save(self) -> Path | None:
        """Writes JSON and, beside it, the table; returns the JSON's path. Whole files: each replaces the one before."""
        with self._lock:
            self.data["seconds"] = round(time.monotonic() - self.began, 1)
            path = self.path()
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                for target, text in ((path, json.dumps(self.data, indent=1) + "\n"), (path.with_suffix(".md"), markdown(self.data))):
                    part = target.with_name(target.name + ".part")
                    part.write_text(text, encoding="utf-8")
                    part.replace(target)
            return path

    def path(self) -> Path | None:
        if self.out is None or self.out.suffix == ".json":
            return self.out
        name = re.sub(r"[^a-z0-9]+", "-", (self.data["device_name"] or "unknown").lower()).strip("-")
        return self.out / f"{self.data['date']}-{name}.json" if self.data["device_name"] else None


def check(
    read_config: Callable[[Mapping[str, Any], str], Any], emit: Emit, *, dry: bool = False, out: Path | None = None, limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """All steps until `limit_s`; a step that is stuck then ends the process, with what was found on disk and in the last line.

    `dry`: what a CPU allows, small, kernels interpreted. Raises InvalidInput where a GPU is asked for and torch sees none.
    """
    if dry:
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
    import torch

    from gpu_probe.gpu_check.steps import steps
    from gpu_probe.gpu_check.tools import Setting

    if not dry and not torch.cuda.is_available():
        raise InvalidInput("probe_no_gpu", field="device", torch=torch.__version__)
    made = Check(dry=dry, out=out)
    setting = Setting(dry=dry, read_config=read_config, deadline=made.began + limit_s * SWEEP_ENDS_S / LIMIT_S)
    stop = threading.Timer(limit_s + 5, _give_up, (made, emit))
    stop.daemon = True
    stop.start()
    try:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        with torch.no_grad():
            for name, step in steps():
                began = time.monotonic()
                line: dict[str, Any] = {"ev": "step", "step": name, "ok": False, "at_s": round(began - made.began, 1)}
                if began - made.began > limit_s:
                    line["error"] = "time"
                else:
                    try:
                        setting.found[name] = line["result"] = _plain(step(setting))
                        line["ok"] = True
                    except Exception as e:  # a step that fails is a result
                        line["error"] = f"{type(e).__name__}: {e}"[:400]
                line["s"] = round(time.monotonic() - began, 1)
                made.add(line)
                emit(line)
    finally:
        stop.cancel()
    made.data["complete"] = all(step["ok"] for step in made.data["steps"])
    made.save()
    return made.data


def _give_up(made: Check, emit: Emit) -> None:
    """The time is over and a step hangs: say so, keep what there is, end."""
    from gpu_probe.errors import EXIT_TIME

    made.save()
    emit({"ev": "step", "step": "limit", "ok": False, "error": "time", "at_s": made.data["seconds"]})
    os._exit(EXIT_TIME)


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know: as words."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


# -- the table


def markdown(data: Mapping[str, Any]) -> str:
    """The measurement for a reader: what each step means, then its figures."""
    lines = [f"# {render('gpu.title', {'device': data['device_name'] or '?', 'date': data['date']})}", ""]
    lines += [render("gpu.dry"), ""] if data["dry"] else []
    lines += [render("gpu.state", {"state": render("word.complete" if data["complete"] else "word.incomplete"), "seconds": data["seconds"]}), ""]
    for step in data["steps"]:
        lines += [f"## {step['step']} ({step.get('s', 0)} s)", "", render(f"gpu.{step['step']}"), ""]
        if not step["ok"]:
            lines += [f"`{_cell(step['error'])}`", ""]
            continue
        single = {k: v for k, v in step["result"].items() if k != "probe" and not _is_rows(v)}
        if single:
            lines += _table(["", ""], [[k, v] for k, v in _flat(single)])
        for name, rows in step["result"].items():
            if _is_rows(rows):
                heads = list(dict.fromkeys(k for row in rows for k in row))
                lines += [*([] if name == "rows" else [f"{name}:", ""]), *_table(heads, [[row.get(h, "") for h in heads] for row in rows])]
    return "\n".join(lines)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(before + key, value)]
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    body = ["| " + " | ".join(_cell(v) for v in row) + " |" for row in rows]
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *body, ""]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return " ".join(str(value).split()).replace("|", "\\|")
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.4g}"

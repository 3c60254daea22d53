"""From measured points of the user's own deployment, or a probe's calibration, to one scale factor of the planner's times.

A point is what one run of a benchmark gave: sequences at once, mean prompt and output, ITL, and the TTFT where it was measured. Files are
bounded and only parsed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from planner.capacity import CapacityPlan, plan
from planner.errors import InvalidInput, PlannerError
from planner.hardware import find
from planner.latency import Served, figures, served
from planner.latency.load import Load, times
from planner.latency.speeds import FORMS, Speeds
from planner.notes import Note
from planner.scale import First, Scale, checked, from_text, is_text

MAX_BYTES, MAX_POINTS, MIN_POINTS = 1_000_000, 1000, 3
MOST_TOKENS, MOST_SEQUENCES = 100_000_000, 1_000_000
# Columns of a CSV and keys of JSON -> what they are. vLLM benchmarks/benchmark_serving.py and vllm bench serve, sglang/bench_serving.py.
NAMES = {
    "sequences": ("sequences", "concurrency", "batch", "batch_size", "max_concurrency"),
    "prompt": ("prompt", "isl", "input_len", "prompt_tokens", "random_input_len"),
    "output": ("output", "osl", "output_len", "output_tokens", "random_output_len"),
    "itl_ms": ("itl_ms", "tpot_ms", "mean_tpot_ms", "mean_itl_ms", "median_tpot_ms", "median_itl_ms"),
    "ttft_ms": ("ttft_ms", "mean_ttft_ms", "median_ttft_ms"),
}
PROBE_KEYS = frozenset(("read_bytes_per_s", "flop_per_s", "t_fixed_s", "t_layer_s"))
OWN_LOOPS = ("architecture", "transformers")
"""Engines whose steps are launched one kernel at a time, as the probe's own: of its host they also take the fixed times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: `sequences` at once of one replica, mean tokens of prompt and output, mean time between tokens in seconds, and to the
    first one where that was measured."""

    sequences: int
    prompt: int
    output: int
    itl_s: float
    ttft_s: float | None = None


def take(value: Any, p: CapacityPlan, *, allow_paths: bool) -> Scale:
    """The scale that the option `calibration` names: a kept text, or (`allow_paths`) a file, fitted on the plan `p`. Raises InvalidInput."""
    if is_text(value) or not allow_paths:
        return from_text(value)
    path = Path(str(value))
    try:
        if not path.is_file():
            raise InvalidInput("calibration_neither", field="calibration", value=str(value)[:200])
        with path.open("rb") as f:
            data = f.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise InvalidInput("file_unreadable", field="calibration", value=str(value)[:200], detail=getattr(e, "strerror", None) or "") from None
    return fit(p, data)


def fit(p: CapacityPlan, data: bytes) -> Scale:
    """From the bytes of a file: a probe's calibration, or points. Raises InvalidInput."""
    raw = _parsed(data)
    if isinstance(raw, Mapping) and raw.keys() >= PROBE_KEYS:
        return of_probe(p, raw)
    return of_points(p, points(raw))


def _plain(p: CapacityPlan) -> Served:
    """Of the plan without any scale. Raises InvalidInput where no times can be given."""
    own = served(plan(p.model, p.hardware, replace(p.scenario, calibration=None)))
    if isinstance(own, Note):
        raise InvalidInput("calibration_no_times", field="calibration", detail=own.text)
    return own


def of_points(p: CapacityPlan, measured: tuple[Point, ...]) -> Scale:
    """The median of measured over predicted: one point that went wrong does not move it. The residual is that of the worst point. The TTFT
    has its own, where every point has it. Raises InvalidInput where some lack it."""
    if len(measured) < MIN_POINTS:
        raise InvalidInput("calibration_few", field="calibration", points=len(measured), least=MIN_POINTS)
    own = _plain(p)
    with_first = [m for m in measured if m.ttft_s is not None]
    if with_first and len(with_first) < len(measured):
        row = next(i for i, m in enumerate(measured, 1) if m.ttft_s is None)
        raise InvalidInput("calibration_column", field="calibration", row=row, column="ttft_ms", names=", ".join(NAMES["ttft_ms"]))
    first = _spread([(m.ttft_s or 0.0) / _first(own, m) for m in with_first]) if with_first else None
    return _scale(p, [m.itl_s / _itl(own, own.speeds, m) for m in measured], "points", first)


def _at(own: Served, m: Point) -> Load:
    base = own.load
    return Load(prompt=m.prompt, output=m.output, sequences=min(m.sequences, own.most or m.sequences), chunk=base.chunk, policy=base.policy,
                cached=min(int(base.cached), m.prompt - 1))  # fmt: skip


def _itl(own: Served, v: Speeds, m: Point) -> float:
    return float(times(own.stages, v, _at(own, m)).itl_s)


def _first(own: Served, m: Point) -> float:
    """TTFT of a point; sequences beyond the engine's slots wait, as in a plan."""
    return float(figures(replace(own, load=replace(_at(own, m), sequences=m.sequences))).ttft_s)


def _spread(ratios: list[float]) -> tuple[float, float, int]:
    """(factor, residual, points), bounded so that they can be kept as text."""
    factor = median(ratios)
    residual = max(max(r / factor, factor / r) for r in ratios) - 1
    return round(min(factor, 999.0), 4), round(min(residual, 99.0), 4), len(ratios)


def _scale(p: CapacityPlan, ratios: list[float], of: str, first: tuple[float, float, int] | None = None) -> Scale:
    factor, residual, points = _spread(ratios)
    assert p.hardware is not None
    found = Scale(factor=factor, residual=residual, points=points, of=of, gpu=p.hardware.name, engine=p.setting.engine,
                  model=p.model.name or p.model.model_type,
                  first=None if first is None else First(factor=first[0], residual=first[1], points=first[2]))  # fmt: skip
    return checked(found)


def of_probe(p: CapacityPlan, raw: Mapping[str, Any]) -> Scale:
    """The plan's own load at one, half of and all its sequences, with the host's measured rates in place of the table's: the median ratio.

    Raises InvalidInput where the probe ran on another device than the plan's.
    """
    own = _plain(p)
    name = raw.get("device_name")
    assert p.hardware is not None
    if not isinstance(name, str) or not _same(name[:200], p.hardware.name):
        raise InvalidInput("calibration_other_device", field="calibration", name=str(name)[:80], gpu=p.hardware.name)
    read, flop = _number(raw, "read_bytes_per_s"), _number(raw, "flop_per_s")
    v, load = own.speeds, own.load
    weights = read * (_number(raw, "eff_w") if raw.get("eff_w") is not None else v.read["16"] / own.bandwidth_bytes_per_s)
    cache = read * (_number(raw, "eff_kv") if raw.get("eff_kv") is not None else v.read_cache / own.bandwidth_bytes_per_s)
    changes: dict[str, Any] = {
        "read": {form: v.read[form] * weights / v.read["16"] for form in FORMS},
        "read_experts": {form: v.read_experts[form] * weights / v.read["16"] for form in FORMS},
        "read_cache": cache, "read_latent": v.read_latent * cache / v.read_cache, "read_state": v.read_state * cache / v.read_cache,
    }  # fmt: skip
    if raw.get("dtype") in ("bf16", "fp16"):
        changes["multiply"] = {form: v.multiply[form] * flop / v.multiply["16"] for form in FORMS}
    if p.setting.engine in OWN_LOOPS:
        layer, zero = _number(raw, "t_layer_s", zero=True), 0.0
        changes |= {"step_s": _number(raw, "t_fixed_s", zero=True), "attention_layer_s": layer, "latent_layer_s": layer, "state_layer_s": layer,
                    "mlp_layer_s": zero, "moe_layer_s": zero}  # fmt: skip
    host, most = replace(v, **changes), int(load.sequences)
    at = [Point(sequences=n, prompt=load.prompt, output=load.output, itl_s=1.0) for n in (1, max(1, most // 2), most)]
    return _scale(p, [_itl(own, host, m) / _itl(own, v, m) for m in at], "probe")


def _same(name: str, gpu: str) -> bool:
    try:
        return find(name).name == gpu
    except PlannerError:
        return name.strip().lower() == gpu.strip().lower()


# -- reading ------------------------------------------------------------------------------------------------------------


def _parsed(data: bytes) -> Any:
    """JSON, JSON a line, or the text of a CSV."""
    if len(data) > MAX_BYTES:
        raise InvalidInput("calibration_large", field="calibration", limit=MAX_BYTES)
    text = data.decode("utf-8-sig", errors="replace").strip()
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput("calibration_unreadable_file", field="calibration") from None
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines()[: MAX_POINTS + 1] if line.strip()]
    except (ValueError, RecursionError):
        raise InvalidInput("calibration_unreadable_file", field="calibration") from None


def points(raw: Any) -> tuple[Point, ...]:
    """Of a parsed JSON (one run, or a list of runs) or the text of a CSV with a head. Raises InvalidInput."""
    runs = list(_runs(raw))
    if not runs or len(runs) > MAX_POINTS:
        raise InvalidInput("calibration_few" if not runs else "calibration_many", field="calibration", points=len(runs), least=MIN_POINTS, most=MAX_POINTS)
    return tuple(_point(run, i) for i, run in enumerate(runs, 1))


def _runs(raw: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(raw, str):
        lines = raw.splitlines()[: MAX_POINTS + 2]
        separator = max(",;\t", key=lines[0].count) if lines else ","
        try:
            yield from csv.DictReader(io.StringIO("\n".join(lines)), delimiter=separator)
        except csv.Error:
            raise InvalidInput("calibration_unreadable_file", field="calibration") from None
        return
    held = raw.get("points", [raw]) if isinstance(raw, Mapping) else raw
    for run in held if isinstance(held, list) else [held]:
        if not isinstance(run, Mapping):
            raise InvalidInput("calibration_unreadable_file", field="calibration")
        yield run


def _point(run: Mapping[str, Any], row: int) -> Point:
    """Of one run. benchmark_serving prints totals: their means over the requests, and concurrency by Little's law where no limit was set."""
    named = {str(k).strip().lower(): v for k, v in run.items() if k is not None}
    found = {role: next((named[n] for n in names if named.get(n) not in (None, "")), None) for role, names in NAMES.items()}
    done = named.get("completed")
    if done:
        for role, total in (("prompt", "total_input_tokens"), ("output", "total_output_tokens")):
            if named.get(total):
                found[role] = _number(named, total, row=row) / _number(named, "completed", row=row)
        if found["sequences"] is None and named.get("request_throughput") and named.get("mean_e2el_ms"):
            found["sequences"] = _number(named, "request_throughput", row=row) * _number(named, "mean_e2el_ms", row=row) / 1e3
    first = found.pop("ttft_ms")
    for role, value in found.items():
        if value is None:
            raise InvalidInput("calibration_column", field="calibration", row=row, column=role, names=", ".join(NAMES[role]))
    value = {role: _number(found, role, row=row) for role in found}
    out = Point(sequences=max(1, round(value["sequences"])), prompt=max(1, round(value["prompt"])), output=max(1, round(value["output"])),
                itl_s=value["itl_ms"] / 1e3, ttft_s=None if first is None else _number({"ttft_ms": first}, "ttft_ms", row=row) / 1e3)  # fmt: skip
    if out.ttft_s is not None and not 1e-6 <= out.ttft_s <= 86_400:
        raise InvalidInput("calibration_number", field="calibration", row=row, column="ttft_ms", value=repr(first)[:40])
    if out.sequences > MOST_SEQUENCES or max(out.prompt, out.output) > MOST_TOKENS or not 1e-6 <= out.itl_s <= 86_400:
        raise InvalidInput("calibration_number", field="calibration", row=row, column="itl_ms", value=f"{value['itl_ms']:.6g}")
    return out


def _number(data: Mapping[str, Any], name: str, *, zero: bool = False, row: int = 1) -> float:
    value = data.get(name)
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) and len(str(value)) <= 40 else float("nan")
    except (ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number) or number < 0 or (number == 0 and not zero):
        raise InvalidInput("calibration_number", field="calibration", row=row, column=name, value=repr(value)[:40])
    return number

"""A pasted `/metrics` scrape or benchmark output of vLLM or SGLang -> what was seen. Bounded, and only parsed.

Names: vLLM v1/metrics/loggers.py (0.8 to 0.20) and benchmarks/benchmark_serving.py; SGLang srt/metrics/collector.py and bench_serving.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from planner.diagnose.observed import Observed, observed
from planner.errors import InvalidInput

MAX_CHARS, MAX_LINES, MAX_LINE = 1_000_000, 20_000, 2_000
# name of a sample (its part after "vllm:" or "sglang:") -> what it is; the first that is there counts
GAUGES = {
    "sequences": ("num_requests_running", "num_running_reqs"),
    "waiting": ("num_requests_waiting", "num_queue_reqs"),
    "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
    "preemptions": ("num_preemptions_total", "num_preemptions", "num_retracted_reqs", "num_retracted_requests_total"),
    "tokens_per_s": ("gen_throughput",),
}
MEANS = {
    "ttft_s": ("time_to_first_token_seconds",),
    "itl_s": ("inter_token_latency_seconds", "request_time_per_output_token_seconds", "time_per_output_token_seconds"),
    "queue_s": ("request_queue_time_seconds", "queue_time_seconds"),
    "prompt": ("request_prompt_tokens", "prompt_tokens_histogram"),
    "output": ("request_generation_tokens", "generation_tokens_histogram"),
}
BENCH = {  # lines of a benchmark's summary and keys of its JSON -> (role, factor)
    "mean ttft (ms)": ("ttft_s", 1e-3), "mean_ttft_ms": ("ttft_s", 1e-3), "mean tpot (ms)": ("itl_s", 1e-3), "mean_tpot_ms": ("itl_s", 1e-3),
    "output token throughput (tok/s)": ("tokens_per_s", 1.0), "output_throughput": ("tokens_per_s", 1.0), "concurrency": ("sequences", 1.0),
    "maximum request concurrency": ("limit", 1.0), "max request concurrency": ("limit", 1.0), "max_concurrency": ("limit", 1.0),
    "successful requests": ("done", 1.0), "completed": ("done", 1.0), "total input tokens": ("input", 1.0), "total_input_tokens": ("input", 1.0),
    "total generated tokens": ("generated", 1.0), "total_output_tokens": ("generated", 1.0), "request throughput (req/s)": ("rate", 1.0),
    "request_throughput": ("rate", 1.0), "mean e2el (ms)": ("whole_s", 1e-3), "mean_e2el_ms": ("whole_s", 1e-3),
    "mean e2e latency (ms)": ("whole_s", 1e-3), "mean_e2e_latency_ms": ("whole_s", 1e-3),
}  # fmt: skip
_SAMPLE = re.compile(r"(?:vllm|sglang)[:_]([a-z0-9_]{1,80})(?:\{[^}]{0,1500}\})? +([-+0-9.eE]{1,40}|NaN|[+-]?Inf)(?: +\d{1,20})?", re.ASCII)
_LINE = re.compile(r"([A-Za-z0-9 /()_]{3,60}):\s+([0-9][0-9,]{0,20}(?:\.[0-9]{1,12})?)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """`kind`: metrics | benchmark; `taken`: which figures it gave."""

    kind: str
    seen: Observed
    taken: tuple[str, ...]


def read(text: str) -> Pasted:
    """Raises InvalidInput (field "paste") for a text that is too long or holds nothing of this kind."""
    if len(text) > MAX_CHARS:
        raise InvalidInput("paste_large", field="paste", limit=MAX_CHARS)
    lines = [line.strip()[:MAX_LINE] for line in text.splitlines()[:MAX_LINES]]
    samples = _samples(lines)
    kind, values = ("metrics", _of_metrics(samples)) if samples else ("benchmark", _of_bench(_bench(text, lines)))
    values = {k: v for k, v in values.items() if v is not None}
    if not values:
        raise InvalidInput("paste_nothing", field="paste")
    return Pasted(kind=kind, seen=observed(values), taken=tuple(values))


def _samples(lines: list[str]) -> dict[str, float]:
    """Sums over labels (engines of one server, buckets left out); averages of what is a share."""
    sums: dict[str, list[float]] = {}
    for line in lines:
        m = _SAMPLE.fullmatch(line)
        if m and not m[1].endswith("_bucket"):
            try:
                value = float(m[2])
            except ValueError:
                continue
            if isfinite(value) and value >= 0:
                sums.setdefault(m[1], []).append(value)
    shares = GAUGES["kv_usage"]
    return {name: sum(v) / len(v) if name in shares else sum(v) for name, v in sums.items()}


def _of_metrics(samples: Mapping[str, float]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for role, names in GAUGES.items():
        out[role] = next((samples[n] for n in names if n in samples), None)
    for role, names in MEANS.items():
        out[role] = next((samples[f"{n}_sum"] / samples[f"{n}_count"] for n in names if samples.get(f"{n}_count") and f"{n}_sum" in samples), None)
    done = samples.get("num_requests_total") or samples.get("request_success_total") or samples.get("time_to_first_token_seconds_count")
    for role, name in (("prompt", "prompt_tokens_total"), ("output", "generation_tokens_total")):
        if out[role] is None and done and samples.get(name):
            out[role] = samples[name] / done
    if not out["sequences"]:
        out["sequences"] = None  # scraped at rest: the means are of an earlier load
    for role in ("prompt", "output"):
        out[role] = max(1, out[role]) if out[role] else None
    for role in ("ttft_s", "itl_s", "queue_s", "tokens_per_s"):
        out[role] = out[role] or None
    out["kv_usage"] = None if out["kv_usage"] is None else min(1.0, out["kv_usage"])
    return out


def _bench(text: str, lines: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    start = text.lstrip()
    if start.startswith("{"):
        try:
            raw = json.loads(start)
        except (ValueError, RecursionError):
            raise InvalidInput("paste_nothing", field="paste") from None
        pairs = [(str(k).lower(), v) for k, v in raw.items() if isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e300]
    else:
        pairs = [(m[1].strip().lower(), float(m[2].replace(",", ""))) for line in lines if (m := _LINE.fullmatch(line))]
    for name, value in pairs:
        if name in BENCH and isfinite(value) and value > 0:
            role, factor = BENCH[name]
            found.setdefault(role, value * factor)
    return found


def _of_bench(found: Mapping[str, float]) -> dict[str, Any]:
    """The measured concurrency counts before the limit; without either, Little's law."""
    out: dict[str, Any] = {role: found.get(role) for role in ("ttft_s", "itl_s", "tokens_per_s")}
    out["sequences"] = found.get("sequences") or found.get("limit")
    if not out["sequences"] and found.get("rate") and found.get("whole_s"):
        out["sequences"] = found["rate"] * found["whole_s"]
    if out["sequences"]:
        out["sequences"] = max(1, out["sequences"])
    if found.get("done"):
        for role, total in (("prompt", "input"), ("output", "generated")):
            out[role] = max(1, found[total] / found["done"]) if found.get(total) else None
    return out

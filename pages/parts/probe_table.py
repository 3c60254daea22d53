"""Results of several probes -> one table: a row a figure, a column a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_probe.result import ProbeResult
from pages.parts import tables
from pages.parts.errors import plain
from planner.messages import render
from planner.units import count, memory, percent, seconds

CUT = 60


def names(found: Sequence[ProbeResult]) -> list[str]:
    return [render("page.probe.name", {**_asked(r), "number": i, "model": _model(r), "kv_dtype": r.kv_dtype[:CUT], "device": r.device[:CUT]})
            for i, r in enumerate(found, 1)]  # fmt: skip


def words_of(r: ProbeResult) -> tuple[str, str]:
    """(a name to begin with, what a search of the history finds it by); no words of any language."""
    device = r.device_name[:CUT] or r.device[:CUT]
    return f"{_model(r)}, {_load(r)}", " · ".join((_model(r), _load(r), device, r.backend[:CUT], r.kv_dtype[:CUT]))


def side_by_side(found: Sequence[ProbeResult]) -> None:
    """Wide: it scrolls within itself on a phone."""
    label = render("page.column.line")
    rows = []
    for code, value in ROWS.items():
        cells = [value(r) for r in found]
        if any(c != "-" for c in cells):
            rows.append({label: render(f"page.probe.row.{code}"), **{str(i): plain(c) for i, c in enumerate(cells, 1)}})
    tables.worded(rows, render("page.probe.compare"))


def _asked(r: ProbeResult) -> dict[str, str]:
    """Of the request, as text; a result from elsewhere may lack it."""
    return {name: str(r.request.get(name, "-"))[:CUT] for name in ("batch", "prompt", "output", "shared_prefix", "block_size")}


def _model(r: ProbeResult) -> str:
    return str(r.model.get("name", "-"))[:CUT]


def _load(r: ProbeResult) -> str:
    return "{batch} x {prompt} + {output}".format(**_asked(r))


def number(part: Mapping[str, Any], name: str) -> float | None:
    """Of a part of a result whose values nobody has checked; None where it is none."""
    value = part.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _shown(part: Mapping[str, Any], name: str, show: Callable[[float], str]) -> str:
    value = number(part, name)
    return "-" if value is None else show(value)


def _rate(value: float) -> str:
    return f"{value:,.1f}"


ROWS: dict[str, Callable[[ProbeResult], Any]] = {
    "model": _model,
    "load": _load,
    "shared_prefix": lambda r: _asked(r)["shared_prefix"],
    "block_size": lambda r: _asked(r)["block_size"],
    "layers": lambda r: f"{r.layers_run} / {r.layers_total}",
    "device": lambda r: r.device_name[:CUT],
    "backend": lambda r: r.backend[:CUT],
    "runner": lambda r: str(r.extra.get("runner", "-"))[:CUT],
    "kv_dtype": lambda r: r.kv_dtype[:CUT],
    "predicted": lambda r: count(r.predicted_kv_bytes),
    "measured": lambda r: count(r.measured_kv_bytes),
    "agree": lambda r: render("page.yes" if r.bytes_agree else "page.no"),
    "ttft": lambda r: seconds(r.ttft_s),
    "itl": lambda r: seconds(r.itl_s["p50"]),
    "itl_p99": lambda r: seconds(r.itl_s["p99"]),
    "prefill": lambda r: _rate(r.prefill_tokens_per_s),
    "decode": lambda r: _rate(r.decode_tokens_per_s),
    "share": lambda r: _shown(r.roofline, "share", percent),
    "capacity": lambda r: _shown(r.capacity, "found", count),
    "host_peak": lambda r: _shown(r.memory, "host_peak_rss_bytes", memory),
    "error": lambda r: "-" if r.logits_max_rel_error is None else f"{r.logits_max_rel_error:.1e}",
}

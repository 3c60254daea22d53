"""What a latency model needs to know of a host, out of a suite's or a probe's result. No torch.

The terms are those of ``t_step = bytes / BW + max(.., FLOP / F) + layers * t_layer + t_fixed``: BW and F as measured ceilings, t_layer and
t_fixed as found in steps whose bytes are negligible, and how much of BW weights and KV reach where that was fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from planner.errors import NotAConfig, UnsupportedValue

MOST_CHANGE = 0.25
"""Ceilings that moved by more than this between the start and the end of a run belong to no host."""
RATES = ("read_bytes_per_s", "flop_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Rates per second, times in seconds. `dtype`: of the products behind `flop_per_s`. `eff_w`, `eff_kv`: share of the read rate that
    reading weights and KV reached, None where the result does not tell. `source`: suite or probe."""

    device: str
    device_name: str
    dtype: str
    read_bytes_per_s: float
    flop_per_s: float
    t_fixed_s: float
    t_layer_s: float
    eff_w: float | None = None
    eff_kv: float | None = None
    source: str = "suite"
    threads: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Raises NotAConfig where something is missing or is no number."""
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        for name in ("device", "device_name", "dtype"):
            if not isinstance(values.get(name), str):
                raise NotAConfig("calibration_unreadable", field=name)
        for name in (*RATES, "t_fixed_s", "t_layer_s", "eff_w", "eff_kv"):
            if values.get(name) is not None or name not in ("eff_w", "eff_kv"):
                values[name] = _number(values, name, zero=name.startswith("t_"))
        values |= {name: str(values.get(name, default))[:80] for name, default in (("source", "suite"), ("threads", ""))}
        return cls(**values)


def steady(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether both ceilings moved by at most a quarter, of the smaller of the two."""
    return all(max(before[n], after[n]) <= (1 + MOST_CHANGE) * min(before[n], after[n]) for n in RATES)


def of(result: Mapping[str, Any]) -> Calibration:
    """From a suite's result, or a probe's that carries ceilings and overheads in the same form (itself or in `extra`).

    Raises UnsupportedValue where the ceilings before and after differ by over a quarter, NotAConfig where the result has none.
    """
    ceilings, overhead = _part(result, "ceilings"), _part(result, "overhead")
    before, after = ({n: _number(_section(ceilings, when), n) for n in RATES} for when in ("before", "after"))
    if not steady(before, after):
        moved = max(max(before[n], after[n]) / min(before[n], after[n]) for n in RATES)
        raise UnsupportedValue("calibration_unsteady", field="ceilings", factor=f"{moved:.2f}")
    best = {n: max(before[n], after[n]) for n in RATES}  # a ceiling is the best that was seen
    versions = result.get("versions")
    threads = versions.get("threads", "") if isinstance(versions, Mapping) else ""
    return Calibration.from_json({
        "device": result.get("device"), "device_name": result.get("device_name"), "dtype": ceilings.get("dtype", "fp32"), **best,
        "t_fixed_s": overhead.get("t_fixed_s"), "t_layer_s": overhead.get("t_layer_s"), "threads": threads,
        **_shares(result, best["read_bytes_per_s"], overhead), "source": "suite" if "items" in result else "probe",
    })  # fmt: skip


def _shares(result: Mapping[str, Any], read: float, overhead: Mapping[str, Any]) -> dict[str, float | None]:
    """Of the suite's fit of a step over batch and context: the fixed part without overheads reads the weights, the slope reads KV.
    A share of over 1 (caches of the processor) is kept at 1."""
    items = result.get("items")
    numbers = next((i.get("numbers") for i in items if isinstance(i, Mapping) and i.get("name") == "itl"), None) if isinstance(items, list) else None
    if not isinstance(numbers, Mapping):
        return {}
    fixed = _number(numbers, "fixed_s", signed=True) - _number(overhead, "t_fixed_s", zero=True)
    fixed -= _number(numbers, "layers") * _number(overhead, "t_layer_s", zero=True)
    token = _number(numbers, "per_token_s", signed=True)
    return {
        "eff_w": min(1.0, _number(numbers, "weight_bytes") / fixed / read) if fixed > 0 else None,
        "eff_kv": min(1.0, _number(numbers, "kv_bytes_per_token") / token / read) if token > 0 else None,
    }


def _part(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    extra = result.get("extra")
    for where in (result, extra if isinstance(extra, Mapping) else {}):
        if isinstance(part := where.get(name), Mapping):
            return part
    raise NotAConfig("calibration_unreadable", field=name)


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = data.get(name)
    if not isinstance(part, Mapping):
        raise NotAConfig("calibration_unreadable", field=f"ceilings.{name}")
    return part


def _number(data: Mapping[str, Any], name: str, *, zero: bool = False, signed: bool = False) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e300 or not isfinite(value):
        raise NotAConfig("calibration_unreadable", field=name)
    if not signed and (value < 0 or (value == 0 and not zero)):
        raise NotAConfig("calibration_unreadable", field=name)
    return float(value)

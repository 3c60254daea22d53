"""What a device reaches with an engine: rates and fixed times, out of data/efficiency.toml and the device's nominal peaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.errors import DataError
from planner.hardware import Hardware
from planner.latency.ranges import FirstRange, first_range
from planner.notes import cite
from planner.scale import Scale

_FILE = Path(__file__).parents[1] / "data" / "efficiency.toml"
SOURCE = cite("planner/data/efficiency.toml: kernel tables of aiconfigurator-core 0.12.0, fixed times fitted end to end")
FORMS = ("16", "fp8", "fp4", "mxfp4", "packed")
PCIE_BYTES_PER_S = {3: 16e9, 4: 31e9, 5: 63e9}
"""One way, sixteen lanes, where no link of the device's own is known."""
PCIE_REDUCE_S = 20e-6
STAGE_S = 10e-6
"""Passing a pipeline stage (aiconfigurator's constant)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Rates in bytes and FLOP a second that are reached, times in seconds. `range_itl`: (low, high) = (t / down, t * up).

    `wait_share`, `request_s`: what each other request adds to the TTFT, a share of its prefill and host work. `prefill`: the engine's own
    policy, chunked or whole. `measured`: whether whole engines were measured on this device with this engine. `ttft_factor`: a
    measured factor of the TTFT alone, beside that of all times. `serve_s`: the way of a request to the engine and back; `first_layer_s`: what a
    layer of the first token's steps takes beside the fixed times of every step.
    """

    read: dict[str, float]
    read_experts: dict[str, float]
    multiply: dict[str, float]
    multiply_experts: dict[str, float]
    read_cache: float
    read_latent: float
    read_state: float
    attend_prefill: float
    attend_decode: float
    attention_layer_s: float
    latent_layer_s: float
    state_layer_s: float
    mlp_layer_s: float
    moe_layer_s: float
    step_s: float
    prefill_layer_s: float
    first_layer_s: float
    serve_s: float
    reduce_s: float
    link: float
    wait_share: float
    request_s: float
    prefill: str
    measured: bool
    range_itl: tuple[float, float]
    range_ttft: FirstRange
    ttft_factor: float = 1.0
    source: str = SOURCE


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_FILE.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise DataError("bad_table", field="efficiency", table=_FILE.name) from e


def missing(hardware: Hardware) -> str | None:
    """The figure of a device without which nothing can be said, by its key; None where all are there."""
    if not hardware.bandwidth_bytes_per_s:
        return "bandwidth_bytes_per_s"
    return None if _plain_rate(hardware) else "flops_per_s"


def speeds(hardware: Hardware, engine: str, kv_bytes: float, *, eager: bool = False) -> Speeds:
    """The speeds of `hardware` under `engine`. `kv_bytes`: of one element of the cache; `eager`: no CUDA graphs, each kernel launched by
    itself. The device must not be `missing` anything."""
    t = table()
    fit, own, e = t["fitted"], _kernels(t, hardware), t["engines"].get(engine, t["engines"]["architecture"])
    bandwidth, plain = float(hardware.bandwidth_bytes_per_s or 0), _plain_rate(hardware)
    packed, launches = e.get("packed", 1.0), e.get("launches", 1.0)
    read = {form: bandwidth * own[f"weights_{form}"] * (packed if form == "packed" else 1.0) for form in FORMS}
    multiply = {form: _rate(hardware, plain, form) * own.get(f"multiply_{_kind(hardware, form)}", fit[f"multiply_{_kind(hardware, form)}"]) for form in FORMS}
    if eager:
        launches = max(launches, t["eager"]["launches"])
    measured = bool(own.get("end_to_end") and e.get("measured") and not eager)
    ranges = t["range"]
    which = "measured" if measured else "elsewhere"
    return Speeds(
        read=read,
        read_experts={form: bandwidth * own[f"experts_{form}"] * (packed if form == "packed" else 1.0) for form in FORMS},
        multiply=multiply,
        multiply_experts={form: rate * fit["multiply_experts"] for form, rate in multiply.items()},
        read_cache=bandwidth * own["cache_16" if kv_bytes >= 2 else "cache_8"],
        read_latent=bandwidth * own["latent"],
        read_state=bandwidth * own["state"],
        attend_prefill=plain * own["attention"],
        attend_decode=plain * fit["decode_attention"],
        **{name: fit[name] * launches for name in ("attention_layer_s", "latent_layer_s", "state_layer_s", "mlp_layer_s", "moe_layer_s")},
        step_s=e["step_s"],
        prefill_layer_s=e["prefill_layer_s"],
        first_layer_s=e["first_layer_s"],
        serve_s=e["serve_s"],
        reduce_s=max(fit["reduce_s"] if hardware.link_bytes_per_s else PCIE_REDUCE_S, t["eager"]["reduce_s"] if eager else 0.0),
        link=_link(hardware) * fit["link_share"],
        wait_share=e["wait_share"],
        request_s=e["request_s"],
        prefill=e.get("prefill", "chunked"),
        measured=measured,
        range_itl=tuple(ranges[which]),
        range_ttft=first_range(ranges, engine, measured=measured),
    )


RATES_BY_FORM = ("read", "read_experts", "multiply", "multiply_experts")
RATES = ("read_cache", "read_latent", "read_state", "attend_prefill", "attend_decode", "link")
FIXED = ("attention_layer_s", "latent_layer_s", "state_layer_s", "mlp_layer_s", "moe_layer_s", "step_s", "prefill_layer_s", "first_layer_s", "serve_s",
         "request_s", "reduce_s")  # fmt: skip


def scaled(v: Speeds, scale: Scale) -> Speeds:
    """Every time `scale.factor` as long, and the ITL's range as narrow as its residual allows. The TTFT has its own factor and range where
    it was measured too. Elsewhere it is scaled like the rest, and its range stays."""
    f = scale.factor
    changes: dict[str, Any] = {name: {form: rate / f for form, rate in getattr(v, name).items()} for name in RATES_BY_FORM}
    changes |= {name: getattr(v, name) / f for name in RATES} | {name: getattr(v, name) * f for name in FIXED}
    if scale.first is not None and scale.first.usable:
        changes |= {"ttft_factor": scale.first.factor / f, "range_ttft": v.range_ttft.changed(scale.first.narrowed)}
    return replace(v, **changes, range_itl=scale.narrowed(v.range_itl))


def _kernels(t: dict[str, Any], hardware: Hardware) -> dict[str, Any]:
    """The device's own table, else its architecture's (or the device it is like), over what holds for any."""
    of = t["kernels"].get(hardware.name)
    if of is None:
        of = t["architectures"].get(hardware.architecture, {})
        if "like" in of:
            of = {k: v for k, v in t["kernels"][of["like"]].items() if k != "end_to_end"}
    out = {**t["kernels"]["other"], **of}
    out.setdefault("cache_8", out["cache_16"])
    return out


def _plain_rate(hardware: Hardware) -> float:
    return float(hardware.flops_per_s.get("bf16") or hardware.flops_per_s.get("fp16") or 0.0)


def _kind(hardware: Hardware, form: str) -> str:
    """The dtype in which products of matrices in `form` run on the device: its own rate where it has one, else the 16-bit one."""
    if form == "fp4" and hardware.flops_per_s.get("fp4"):
        return "fp4"
    if form == "fp8" or (form in ("fp4", "mxfp4") and hardware.flops_per_s.get("fp4")):
        return "fp8" if hardware.flops_per_s.get("fp8") else "16"
    return "16"


def _rate(hardware: Hardware, plain: float, form: str) -> float:
    kind = _kind(hardware, form)
    return plain if kind == "16" else float(hardware.flops_per_s[kind])


def _link(hardware: Hardware) -> float:
    """One way, of one device."""
    return hardware.link_bytes_per_s / 2 if hardware.link_bytes_per_s else PCIE_BYTES_PER_S.get(hardware.pcie_gen or 4, 31e9)

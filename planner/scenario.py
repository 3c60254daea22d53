"""What the user chose, as one frozen value: lossless to and from a query string, JSON, and command-line options.

None means "the engine's own default". Engines turn a Scenario into a Setting (engines/settings.py); nothing is resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from planner.dtypes import KV_DTYPES
from planner.errors import InvalidInput
from planner.units import parse_bytes

ENGINE_NAMES = ("architecture", "vllm", "sglang", "trtllm", "transformers", "llamacpp")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")  # llama.cpp's names (common/arg.cpp)
WEIGHT_DTYPES = ("bf16", "fp16", "fp32", "fp8", "int8", "int4", "fp4", "nvfp4", "mxfp4")
MAX_TOKENS, MAX_SEQUENCES, MAX_SAMPLES = 100_000_000, 1_000_000, 1024
MAX_LENGTHS_TEXT = 400  # of a mix of lengths in an address

_INT = re.compile(r"\s*[+-]?(?:\d+|\d{1,3}(?:[,_]\d{3})+)\s*")
ALIASES = {"batch": "sequences", "concurrency": "sequences", "used_memory": "used_memory_bytes"}
"""Other words for an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one field is read from text or JSON. kind: int | bytes | fraction | number | seconds | flag | text | scale | one of `choices`."""

    kind: str
    low: float = 1
    high: float = MAX_TOKENS
    choices: tuple[str, ...] = ()


OPTIONS: dict[str, Option] = {
    "model": Option(kind="text", high=400),
    "gpu": Option(kind="text", high=120),
    "gpus": Option(kind="int", high=4096),
    "engine": Option(kind="choice", choices=ENGINE_NAMES),
    "engine_version": Option(kind="text", high=40),
    "tokens": Option(kind="int", high=MAX_TOKENS),
    "sequences": Option(kind="int", high=MAX_SEQUENCES),
    "prompt": Option(kind="int", high=MAX_TOKENS),
    "output": Option(kind="int", high=MAX_TOKENS),
    "tp": Option(kind="int", high=4096),
    "pp": Option(kind="int", high=4096),
    "dp_attention": Option(kind="int", high=4096),
    "ep": Option(kind="int", high=4096),
    "dcp": Option(kind="int", high=4096),
    "dtype": Option(kind="choice", choices=("bf16", "fp16", "fp32")),
    "kv_dtype": Option(kind="choice", choices=KV_DTYPES),
    "weight_dtype": Option(kind="choice", choices=WEIGHT_DTYPES),
    "block_size": Option(kind="int", high=65_536),
    "memory_fraction": Option(kind="fraction"),
    "swa_full_tokens_ratio": Option(kind="fraction"),
    "mamba_full_memory_ratio": Option(kind="fraction"),
    "cross_kv_cache_fraction": Option(kind="fraction"),
    "window_pools": Option(kind="flag"),
    "kv_memory": Option(kind="bytes"),
    "weight_bytes": Option(kind="bytes"),
    "used_memory_bytes": Option(kind="bytes"),
    "max_model_len": Option(kind="int", high=MAX_TOKENS),
    "max_num_seqs": Option(kind="int", high=MAX_SEQUENCES),
    "max_num_batched_tokens": Option(kind="int", high=MAX_TOKENS),
    "encoder_tokens": Option(kind="int", low=0, high=MAX_TOKENS),
    "shared_prefix": Option(kind="int", low=0, high=MAX_TOKENS),
    "lengths": Option(kind="text", high=MAX_LENGTHS_TEXT),
    "num_speculative_tokens": Option(kind="int", low=0, high=64),
    "draft": Option(kind="text", high=400),
    "samples": Option(kind="int", high=MAX_SAMPLES),
    "beams": Option(kind="int", high=MAX_SAMPLES),
    "images": Option(kind="int", low=0, high=10_000),
    "max_loras": Option(kind="int", low=0, high=10_000),
    "max_lora_rank": Option(kind="int", high=4096),
    "kv_offload": Option(kind="bytes"),
    "cache_implementation": Option(kind="choice", choices=("dynamic", "static", "quantized")),
    "cache_backend": Option(kind="choice", choices=("quanto", "hqq")),
    "cache_nbits": Option(kind="int", high=8),
    "cache_residual": Option(kind="int", high=65_536),
    "parallel": Option(kind="int", high=MAX_SEQUENCES),
    "cache_type_k": Option(kind="choice", choices=CACHE_TYPES),
    "cache_type_v": Option(kind="choice", choices=CACHE_TYPES),
    "n_gpu_layers": Option(kind="int", low=0, high=100_000),
    "n_ubatch": Option(kind="int", low=0, high=MAX_TOKENS),
    "n_rs_seq": Option(kind="int", low=0, high=64),
    "flash_attn": Option(kind="choice", choices=("auto", "on", "off")),
    "kv_unified": Option(kind="flag"),
    "swa_full": Option(kind="flag"),
    "prefix_caching": Option(kind="flag"),
    "hybrid_kv_cache_manager": Option(kind="flag"),
    "async_scheduling": Option(kind="flag"),
    "enforce_eager": Option(kind="flag"),
    "target_ttft": Option(kind="seconds", low=1e-6, high=86_400),
    "target_itl": Option(kind="seconds", low=1e-6, high=86_400),
    "prefill_policy": Option(kind="choice", choices=("chunked", "whole")),
    "request_rate": Option(kind="number", low=1e-6, high=1e9),
    "prefix_hit_rate": Option(kind="fraction"),
    "acceptance_rate": Option(kind="fraction"),
    "price_per_gpu_hour": Option(kind="number", low=1e-6, high=1e6),
    "calibration": Option(kind="scale", high=300),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Defaults are the plan a newcomer sees first. `tokens`: prompt plus output of one sequence; `sequences`: at once, in total.
    `shared_prefix`: tokens that all of them begin with. `lengths`: a mix of lengths as a text (planner/mix.py). `samples`, `beams`: of each
    sequence, with its prompt in common (planner/fan.py); `images`: in each prompt, beside its tokens; `draft`: the source of a draft model."""

    model: str = "Llama-3.1-8B"
    gpu: str = "H100 SXM"
    gpus: int = 1
    engine: str = "vllm"
    engine_version: str | None = None
    tokens: int = 8192
    sequences: int = 16
    prompt: int | None = None
    output: int | None = None
    tp: int | None = None
    pp: int = 1
    dp_attention: int = 1
    ep: int = 1
    dcp: int = 1
    dtype: str | None = None
    kv_dtype: str = "auto"
    weight_dtype: str | None = None
    block_size: int | None = None
    memory_fraction: float | None = None
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    cross_kv_cache_fraction: float | None = None
    window_pools: bool = False
    kv_memory: int | None = None
    weight_bytes: int | None = None
    used_memory_bytes: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    encoder_tokens: int | None = None
    shared_prefix: int = 0
    lengths: str | None = None
    num_speculative_tokens: int = 0
    draft: str | None = None
    samples: int = 1
    beams: int = 1
    images: int = 0
    max_loras: int = 0
    max_lora_rank: int = 16
    kv_offload: int | None = None
    cache_implementation: str = "dynamic"
    cache_backend: str = "quanto"
    cache_nbits: int = 4
    cache_residual: int = 128
    parallel: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    n_gpu_layers: int | None = None
    n_ubatch: int | None = None
    n_rs_seq: int = 0
    flash_attn: str = "auto"
    kv_unified: bool = False
    swa_full: bool = False
    prefix_caching: bool = True
    hybrid_kv_cache_manager: bool = True
    async_scheduling: bool = True
    enforce_eager: bool = False
    target_ttft: float | None = None
    target_itl: float | None = None
    prefill_policy: str | None = None
    request_rate: float | None = None
    prefix_hit_rate: float | None = None
    acceptance_rate: float | None = None
    price_per_gpu_hour: float | None = None
    calibration: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_query(self) -> dict[str, str]:
        """Only what differs from the defaults, as text."""
        out = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default or (f.name == "tokens" and (self.prompt or self.output)):  # else their sum would stand for it
                out[f.name] = ("true" if value else "false") if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)
        return out


def from_options(options: Mapping[str, Any], base: Scenario | None = None) -> Scenario:
    """A Scenario from text or JSON values under their flag names (``-`` or ``_``). Unknown names and bad values: InvalidInput with
    the name. None leaves the default. ``no_X`` flags are the negation of X; ``batch`` and ``concurrency`` mean ``sequences``."""
    chosen: dict[str, Any] = {} if base is None else base.to_json()
    tokens_given = False
    for key, value in options.items():
        name, value = _plain_name(str(key).replace("-", "_"), value)
        if value is None:
            continue
        if name not in OPTIONS:
            raise InvalidInput("unknown_option", field=str(key)[:60], known=", ".join(sorted(OPTIONS)))
        chosen[name] = _value(name, value)
        tokens_given |= name == "tokens"
    if not tokens_given and (chosen.get("prompt") or chosen.get("output")) and ("prompt" in options or "output" in options):
        chosen["tokens"] = (chosen.get("prompt") or 0) + (chosen.get("output") or 0)
    return Scenario(**chosen)


def _plain_name(name: str, value: Any) -> tuple[str, Any]:
    name = ALIASES.get(name, name)
    if name.startswith("no_") and OPTIONS.get(name[3:], Option(kind="")).kind == "flag":
        return name[3:], None if value is None else not _value(name[3:], value)
    return name, value


def flag(name: str, value: Any) -> bool:
    """A switch as text or JSON. Raises InvalidInput."""
    text = str(value).strip().lower()
    if text not in ("1", "0", "true", "false", "yes", "no", "on", "off"):
        raise InvalidInput("not_a_flag", field=name, value=repr(text)[:40])
    return text in ("1", "true", "yes", "on")


def _value(name: str, value: Any) -> Any:
    o = OPTIONS[name]
    if o.kind == "bytes":
        return parse_bytes(value, name)
    if o.kind == "flag":
        return flag(name, value)
    if o.kind == "text":
        if not isinstance(value, str) or len(value) > o.high or not value.strip():
            raise InvalidInput("not_a_text", field=name, value=repr(value)[:60])
        return value.strip()
    if o.kind == "scale":
        from planner.scale import from_text

        return from_text(value).text()
    if o.kind == "choice":
        text = str(value).strip().lower()
        if text not in o.choices:
            raise InvalidInput("not_a_choice", field=name, value=text[:40], choices=", ".join(o.choices))
        return text
    try:
        number = float(value) if o.kind in ("fraction", "number") else _seconds(value) if o.kind == "seconds" else _whole(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("not_a_number", field=name, value=repr(value)[:60]) from None
    low, high = (0.01, 1.0) if o.kind == "fraction" else (o.low, o.high)
    if isinstance(value, bool) or not low <= number <= high:  # and so no NaN
        raise InvalidInput("out_of_range", field=name, value=str(value)[:40], low=low, high=high)
    return number


def _whole(value: Any) -> int:
    """``8192``, ``8,192`` or ``8_192``. Raises ValueError: a comma elsewhere may be a decimal one."""
    text = str(value)
    if not _INT.fullmatch(text):
        raise ValueError(text[:60])
    return int(text.replace(",", "").replace("_", ""))


def _seconds(value: Any) -> float:
    """``0.05``, ``50ms`` or ``2s`` in seconds. Raises ValueError or TypeError."""
    text = str(value).strip().lower()
    if text.endswith("ms"):
        return float(text[:-2]) / 1000
    return float(text.removesuffix("s"))

"""The Scenario that a log's flags and figures describe, so that the same server can be planned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.dtypes import KV_DTYPES
from planner.enginelogs.reader import LogReading
from planner.engines import ENGINES
from planner.engines.shared import version_tuple
from planner.errors import PlannerError
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.scenario import CACHE_TYPES, MAX_TOKENS, Scenario, from_options

_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32", "float": "fp32", "fp32": "fp32"}
_KV = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
       "float8_e4m3fnuz": "fp8_e4m3", "fp8_inc": "fp8"}  # fmt: skip
_FLASH = {"0": "off", "1": "on", "disabled": "off", "enabled": "on", "auto": "auto", "on": "on", "off": "off"}
# Flag or figure -> option, for every engine: (option, from a flag called, else from figures called in this order).
_PLAIN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("tp", "tp", ()),
    ("pp", "pp", ()),
    ("dcp", "dcp", ()),
    ("memory_fraction", "memory_fraction", ("memory_fraction",)),
    ("max_num_seqs", "max_num_seqs", ("max_num_seqs",)),
    ("max_num_batched_tokens", "max_num_batched_tokens", ("max_num_batched_tokens",)),
    ("block_size", "block_size", ()),
    ("num_speculative_tokens", "num_speculative_tokens", ()),
    ("swa_full_tokens_ratio", "swa_full_tokens_ratio", ()),
    ("mamba_full_memory_ratio", "mamba_full_memory_ratio", ()),
    ("async_scheduling", "async_scheduling", ()),
    ("prefix_caching", "prefix_caching", ()),
)


def engine_of(log: LogReading) -> str | None:
    """The planner's engine for the log's; None where it has no such engine."""
    return log.engine if log.engine in ENGINES else None


def scenario_of(log: LogReading, model: ModelSpec, given: Mapping[str, Any]) -> tuple[Scenario, dict[str, Any], tuple[Note, ...]]:
    """(scenario, the options that came from the log, notes). `given`: the user's own options, which win. Raises PlannerError for those.

    The load is one sequence of the largest length, as `plan` has it on the command line.
    """
    engine = engine_of(log) or "vllm"
    options: dict[str, Any] = {"engine": engine}
    if log.release and log.engine == engine != "llamacpp":
        options["engine_version"] = log.release[:40]
    for option, flag, figures in _PLAIN:
        value = log.flag(flag)
        for figure in figures:
            value = log.value(figure) if value is None else value
        options[option] = value
    if log.flag("expert_parallel") and log.flag("tp"):
        options["ep"] = log.flag("tp")
    if log.flag("dp_attention") and log.flag("dp"):
        options["dp_attention"] = log.flag("dp")
    if log.flag("no_prefix_caching"):
        options["prefix_caching"] = False
    if log.flag("no_hybrid_manager"):
        options["hybrid_kv_cache_manager"] = False
    options["tp"] = options["tp"] or _ranks(log)
    options["max_model_len"] = log.value("concurrency_tokens") or log.flag("max_model_len") or log.value("max_model_len")
    options["kv_dtype"] = _kv_dtype(log.flag("kv_dtype") or log.value("kv_dtype"))
    options["dtype"] = _DTYPES.get(str(log.flag("dtype") or log.value("model_dtype") or "").removeprefix("torch.").lower())
    if engine == "llamacpp":
        options = _llamacpp(log)
    taken, notes = _accepted(options)
    if "engine_version" in taken and log.version is None:
        notes += (note("assumed", "log_era", field="engine_version", line=log.value("source_line"), version=taken["engine_version"]),)
    user = {k.replace("-", "_"): v for k, v in given.items() if v is not None}
    longest = user.get("max_model_len") or taken.get("max_model_len") or model.max_context_tokens or Scenario().tokens
    base = Scenario(model=model.name[:400], sequences=1, tokens=1)
    s = from_options({**taken, **user}, base)
    if "tokens" not in user:
        tokens, sequences = max(1, min(int(longest), MAX_TOKENS)), 1
        if s.engine == "llamacpp":
            sequences = s.parallel or 1
            tokens = max(1, tokens if s.kv_unified else tokens // sequences)
        s = from_options({"tokens": tokens, "sequences": user.get("sequences", sequences)}, s)
    if "gpus" not in user:
        s = from_options({"gpus": (s.tp or 1) * s.pp}, s)
    return s, {k: v for k, v in taken.items() if k not in user}, notes


def _accepted(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The options that a Scenario takes; what a log says beyond its limits is left out with a note."""
    taken: dict[str, Any] = {}
    notes: list[Note] = []
    for name, value in options.items():
        if value is None:
            continue
        try:
            from_options({name: value})
            if name == "engine_version":
                version_tuple(str(value))
        except PlannerError as e:
            notes.append(note("warning", "log_flag_refused", field=name, name=name, detail=e.message))
            continue
        taken[name] = value
    return taken, tuple(notes)


def _kv_dtype(text: Any) -> str | None:
    plain = str(text or "").removeprefix("torch.").lower()
    plain = _KV.get(plain, plain)
    return plain if plain in KV_DTYPES and plain != "auto" else None


def _ranks(log: LogReading) -> int | None:
    """Tensor ranks by the highest rank that a worker signs with; None where no second one speaks."""
    seen = [int(m[1]) for f in log.figures if (m := re.search(r"TP(\d{1,4})", f.rank))]
    return max(seen) + 1 if seen and max(seen) > 0 else None


def _llamacpp(log: LogReading) -> dict[str, Any]:
    """llama.cpp prints its settled context: cells in all, sequences, batches, types, streams."""
    sequences = log.value("n_seq_max")
    streams = log.value("streams")
    unified = {"true": True, "1": True, "false": False, "0": False}.get(str(log.value("kv_unified")))
    k_type, v_type = (str(log.value(f"{c}_type") or log.flag(f"cache_type_{c}") or "") for c in "kv")
    out: dict[str, Any] = {
        "engine": "llamacpp",
        "max_model_len": log.value("n_ctx") or log.flag("max_model_len") or log.value("full_tokens") or log.value("cells") or log.value("n_ctx_seq"),
        "parallel": sequences if sequences else log.flag("parallel"),
        "kv_unified": unified if unified is not None else (streams == 1 and (sequences or 1) > 1 if streams else None),
        "cache_type_k": k_type if k_type in CACHE_TYPES else None,
        "cache_type_v": v_type if v_type in CACHE_TYPES else None,
        "n_ubatch": log.value("n_ubatch") or log.flag("n_ubatch"),
        "max_num_batched_tokens": log.value("n_batch") or log.flag("n_batch"),
        "flash_attn": _FLASH.get(str(log.value("flash_attn")).lower()),
        "swa_full": True if log.value("swa_tokens") and log.value("swa_tokens") == log.value("full_tokens") else None,
    }
    layers, of = log.value("gpu_layers"), log.value("gpu_layers_of")
    if layers is not None and layers != of:
        out["n_gpu_layers"] = layers
    if not v_type:
        out["cache_type_v"] = out["cache_type_k"]  # a latent cache prints no V
    return out

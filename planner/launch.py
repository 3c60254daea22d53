"""The engine's own command line for a plan, with the values that the plan assumed. Everything is shell-quoted."""

from __future__ import annotations

import json
import shlex
from typing import Any

from planner.cache import Rows
from planner.capacity import CapacityPlan
from planner.errors import PlannerError
from planner.sources import catalog
from planner.sources.hub_address import address_of
from planner.units import GIB

# vllm 0.33.0 names of the flags (engine/arg_utils.py).
_VLLM_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_WITH_REVISION = ("vllm", "sglang")
_GGML = {"fp16": "f16", "fp32": "f32"}


def launch(p: CapacityPlan, model: str | None = None) -> dict[str, str]:
    """Engine name -> command line. Empty for a plan that does not fit, or an engine that has no server. `model` None: as the plan names it."""
    model, revision = (model, "") if model is not None else served_as(p)
    line = _LINES.get(p.setting.engine)
    if p.setting.engine == "trtllm" and p.setting.own.whole_block_up:  # a C++ engine
        line = None
    if not p.fits or not line:
        return {}
    pinned = revision and p.setting.engine in _WITH_REVISION
    return {p.setting.engine: line(p, model) + (f" --revision {shlex.quote(revision)}" if pinned else "")}


def served_as(p: CapacityPlan) -> tuple[str, str]:
    """(what an engine loads the model by, its revision or nothing): the hub id of a page, an id or the catalog's row, else the plan's name."""
    asked = p.scenario.model
    try:
        address = address_of(asked) if "/" in asked else None
    except PlannerError:
        address = None
    if address is not None:
        return address.repo_id, "" if address.revision == "main" else address.revision
    row = next((e for e in catalog.entries() if e.name == p.model.name and asked.removeprefix("catalog:") == e.name), None)
    return (row.repo_id if row else asked if "/" in asked else p.model.name), ""


def vllm(p: CapacityPlan, model: str) -> str:
    """`--kv-cache-memory-bytes` stands in for the memory fraction where the pool was given by hand."""
    s, setting = p.scenario, p.setting
    words = ["vllm", "serve", model, "--max-model-len", str(setting.max_model_len), "--max-num-seqs", str(setting.max_num_seqs),
             "--max-num-batched-tokens", str(setting.max_num_batched_tokens)]  # fmt: skip
    for flag, value in (("--tensor-parallel-size", setting.parallel.tensor), ("--pipeline-parallel-size", setting.parallel.pipeline)):
        if value > 1:
            words += [flag, str(value)]
    if setting.parallel.expert > 1:
        words.append("--enable-expert-parallel")
    if s.dtype:
        words += ["--dtype", _VLLM_DTYPES[s.dtype]]
    if s.kv_dtype != "auto":
        words += ["--kv-cache-dtype", _VLLM_DTYPES.get(s.kv_dtype, s.kv_dtype)]
    if s.num_speculative_tokens:
        who = {"model": s.draft} if s.draft else {"method": "mtp"}
        words += ["--speculative-config", json.dumps({**who, "num_speculative_tokens": s.num_speculative_tokens})]
    if s.max_loras:
        words += ["--enable-lora", "--max-loras", str(s.max_loras), "--max-lora-rank", str(s.max_lora_rank)]
    if s.kv_offload is not None:  # of all ranks together, in GiB (config/cache.py)
        words += ["--kv-offloading-size", repr(s.kv_offload * setting.parallel.ranks / GIB)]
    if s.block_size:
        words += ["--block-size", str(s.block_size)]
    if s.kv_memory is not None:
        words += ["--kv-cache-memory-bytes", str(s.kv_memory)]
    else:
        words += ["--gpu-memory-utilization", repr(setting.memory_fraction)]
    for flag, on in (("--no-enable-prefix-caching", setting.prefix_caching), ("--disable-hybrid-kv-cache-manager", setting.hybrid_manager),
                     ("--no-async-scheduling", s.async_scheduling), ("--enforce-eager", not s.enforce_eager)):  # fmt: skip
        if not on:
            words.append(flag)
    return shlex.join(words)


def llamacpp(p: CapacityPlan, model: str) -> str:
    """llama-server (common/arg.cpp). A model that is no GGUF yet is named as the converter would name it."""
    s, setting, context = p.scenario, p.setting, p.setting.context
    assert context is not None
    path = model if model.lower().endswith(".gguf") else model.rsplit("/", 1)[-1] + ".gguf"
    k, v = (_GGML.get(e.name, e.name) for e in (setting.kv.element, setting.kv.v_element or setting.kv.element))
    layers = "all" if context.gpu_layers is None else str(context.gpu_layers)
    words = ["llama-server", "-m", path, "-c", str(context.n_ctx), "-np", str(context.sequences), "-ctk", k, "-ctv", v, "-ngl", layers,
             "-b", str(setting.max_num_batched_tokens), "-ub", str(context.batch), "-fa", s.flash_attn,
             "--kv-unified" if s.kv_unified else "--no-kv-unified"]  # fmt: skip
    return shlex.join([*words, "--swa-full"] if context.swa_full else words)


def sglang(p: CapacityPlan, model: str) -> str:
    """Flags of sglang 0.5.23 (srt/arg_groups/fields/*.py). A pool given by hand has no flag in bytes: its tokens are the cap instead."""
    s, setting = p.scenario, p.setting
    words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--context-length", str(setting.max_model_len)]
    if s.kv_memory is None:
        words += ["--mem-fraction-static", f"{setting.memory_fraction:.3f}"]
    elif p.kv_tokens:
        words += ["--max-total-tokens", str(p.kv_tokens)]
    for flag, value in (("--tp-size", setting.parallel.tensor), ("--pp-size", setting.parallel.pipeline),
                        ("--attn-dp-size", setting.parallel.attention_data), ("--ep-size", setting.parallel.expert),
                        ("--page-size", setting.block_size or 1)):  # fmt: skip
        if value > 1:
            words += [flag, str(value)]
    for flag, given in (("--chunked-prefill-size", s.max_num_batched_tokens), ("--max-running-requests", s.max_num_seqs),
                        ("--swa-full-tokens-ratio", s.swa_full_tokens_ratio), ("--mamba-full-memory-ratio", s.mamba_full_memory_ratio),
                        ("--dtype", _VLLM_DTYPES[s.dtype] if s.dtype else None)):  # fmt: skip
        if given is not None:
            words += [flag, str(given)]
    if s.kv_dtype != "auto":
        words += ["--kv-cache-dtype", {"fp8": "fp8_e4m3"}.get(s.kv_dtype, s.kv_dtype) if s.kv_dtype not in ("fp16", "fp32") else "auto"]
    if s.num_speculative_tokens:
        words += ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(s.num_speculative_tokens), "--speculative-eagle-topk", "1",
                  "--speculative-num-draft-tokens", str(s.num_speculative_tokens + 1)]  # fmt: skip
    if s.kv_offload is not None:  # of each rank, in whole GB (srt/arg_groups/fields)
        words += ["--enable-hierarchical-cache", "--hicache-size", str(max(1, s.kv_offload // 10**9))]
    return shlex.join(words if s.prefix_caching else [*words, "--disable-radix-cache"])


def trtllm(p: CapacityPlan, model: str) -> str:
    """trtllm-serve, its cache options written to a file before (YAML reads JSON). Flags of tensorrt_llm/commands/serve.py, keys of
    llmapi/llm_args.py. Engines of 0.x are built first, so they have no such line. A pool given by hand is a cap in tokens."""
    s, setting = p.scenario, p.setting
    cache: dict[str, Any] = {"free_gpu_memory_fraction": setting.memory_fraction, "tokens_per_block": setting.block_size,
                             "enable_block_reuse": setting.prefix_caching, "dtype": _TRT_CACHES.get(setting.kv.name, "auto")}  # fmt: skip
    if s.kv_memory is not None and p.kv_tokens:
        cache["max_tokens"] = p.kv_tokens
    if setting.own.window_pools:
        cache["max_attention_window"] = _windows(p)
    if s.kv_offload is not None:
        cache["host_cache_size"] = s.kv_offload
    options: dict[str, Any] = {"kv_cache_config": cache}
    if s.beams > 1:
        options["max_beam_width"] = s.beams
    if setting.parallel.attention_data > 1:
        options["enable_attention_dp"] = True
    if setting.draft_tokens:
        options["speculative_config"] = {"decoding_type": "MTP", "num_nextn_predict_layers": setting.draft_tokens}
    words = ["trtllm-serve", model, "--backend", "pytorch", "--max_seq_len", str(setting.max_model_len), "--max_batch_size", str(setting.max_num_seqs),
             "--max_num_tokens", str(setting.max_num_batched_tokens)]  # fmt: skip
    for flag, value in (("--tp_size", setting.parallel.tensor), ("--pp_size", setting.parallel.pipeline), ("--ep_size", setting.parallel.expert)):
        if value > 1:
            words += [flag, str(value)]
    write = shlex.join(["printf", "%s", json.dumps(options)])
    return f"{write} > {_TRT_FILE} && {shlex.join([*words, '--extra_llm_api_options', _TRT_FILE])}"


_TRT_FILE = "trtllm-options.yaml"
_TRT_CACHES = {"fp8": "fp8", "fp8_e4m3": "fp8", "nvfp4": "nvfp4"}


def _windows(p: CapacityPlan) -> list[int]:
    """max_attention_window: one entry a layer that caches."""
    longest, out = p.setting.max_model_len, []
    for layer in p.model.layers:
        rows = [k for k in layer.caches if isinstance(k, Rows)]
        if rows:
            out.append(min(longest, rows[0].window or longest))
    return out


_LINES = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm, "llamacpp": llamacpp}

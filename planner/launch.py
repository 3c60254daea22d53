"""The engine's own command line for a plan, with the values that the plan assumed. Everything is shell-quoted."""

from __future__ import annotations

import json
import shlex

from planner.capacity import CapacityPlan

# vllm 0.33.0 names of the flags (engine/arg_utils.py).
_VLLM_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_GGML = {"fp16": "f16", "fp32": "f32"}


def launch(p: CapacityPlan, model: str) -> dict[str, str]:
    """Engine name -> command line. Empty for a plan that does not fit, or an engine that has no server."""
    line = _LINES.get(p.setting.engine)
    return {p.setting.engine: line(p, model)} if p.fits and line else {}


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
        words += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": s.num_speculative_tokens})]
    if s.block_size:
        words += ["--block-size", str(s.block_size)]
    if s.kv_memory is not None:
        words += ["--kv-cache-memory-bytes", str(s.kv_memory)]
    else:
        words += ["--gpu-memory-utilization", repr(setting.memory_fraction)]
    for flag, on in (("--no-enable-prefix-caching", setting.prefix_caching), ("--disable-hybrid-kv-cache-manager", setting.hybrid_manager),
                     ("--no-async-scheduling", s.async_scheduling)):  # fmt: skip
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
    return shlex.join(words if s.prefix_caching else [*words, "--disable-radix-cache"])


_LINES = {"vllm": vllm, "sglang": sglang, "llamacpp": llamacpp}

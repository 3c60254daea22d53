"""The engine's own command line for a plan, with the values that the plan assumed. Everything is shell-quoted."""

from __future__ import annotations

import json
import shlex

from planner.capacity import CapacityPlan

# vllm 0.33.0 names of the flags (engine/arg_utils.py).
_VLLM_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def launch(p: CapacityPlan, model: str) -> dict[str, str]:
    """Engine name -> command line. Empty for a plan that does not fit, or an engine that has no server."""
    return {"vllm": vllm(p, model)} if p.fits and p.setting.engine == "vllm" else {}


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

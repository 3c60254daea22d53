"""SGLang and llama.cpp: figures of public logs beside a plan's, with the band that the plan gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.capacity import CapacityPlan, plan
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from planner.units import MIB

QWEN3_06B: dict[str, Any] = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151_936, "max_position_embeddings": 40_960,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "model_type": "gemma", "architectures": ["GemmaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
    "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16_384, "vocab_size": 256_000, "max_position_embeddings": 8192,
    "hidden_act": "gelu", "torch_dtype": "bfloat16",
}  # fmt: skip
COMPUTE = "llamacpp_compute"
# log row -> (what was printed, its unit, config or catalog name, options, the ledger's line or None for the tokens)
LOGS: dict[str, tuple[float, str, dict[str, Any] | str, dict[str, Any], str | None]] = {
    "SGLang, Qwen3-235B-A22B in fp8 on four H100, fraction 0.93 (vllm issue 21348)": (
        367_404, "tokens", "Qwen3-235B-A22B",
        {"engine": "sglang", "gpus": 4, "tp": 4, "weight_dtype": "fp8", "memory_fraction": 0.93}, None),
    "SGLang, Qwen3-0.6B on one H100, defaults (sglang issue 39713)": (556_202, "tokens", QWEN3_06B, {"engine": "sglang"}, None),
    "llama.cpp, Gemma-1.1-2B at 4,096 cells (build 4937)": (
        509.01, "MiB of compute buffers", GEMMA, {"engine": "llamacpp", "max_model_len": 4096, "tokens": 4096}, COMPUTE),
    "llama.cpp, StarCoder at 2,048 cells without flash attention (2024)": (
        220, "MiB of compute buffers", "StarCoder", {"engine": "llamacpp", "max_model_len": 2048, "tokens": 2048, "flash_attn": "off"}, COMPUTE),
    "llama.cpp, Qwen3-8B at 131,072 cells without flash attention (LM Studio, 2025)": (
        9240, "MiB of compute buffers", "Qwen3-8B",
        {"engine": "llamacpp", "max_model_len": 131_072, "tokens": 40_000, "flash_attn": "off", "gpu": "H200 SXM"}, COMPUTE),
}  # fmt: skip


@dataclass(frozen=True)
class Other:
    name: str
    unit: str
    printed: float
    predicted: float
    low: float
    high: float


def others() -> list[Other]:
    out = []
    for name, (printed, unit, model, options, code) in LOGS.items():
        raw = model if isinstance(model, dict) else load(f"catalog:{model}").raw
        s = Scenario(**{"sequences": 1, "tokens": 1, **options})
        out.append(_other(name, printed, unit, plan(read_config(raw, name), find(s.gpu), s), code))
    return out


def _other(name: str, printed: float, unit: str, p: CapacityPlan, code: str | None) -> Other:
    ledger = p.ledgers[p.binding_rank]
    if code is None:  # the pool's band is that of all lines before it
        more = sum((line.high_bytes or line.bytes) - line.bytes for line in ledger)
        less = sum(line.bytes - (line.bytes if line.low_bytes is None else line.low_bytes) for line in ledger)
        tokens, pool = p.kv_tokens or 0, p.kv_pool_bytes
        return Other(name, unit, printed, tokens, tokens * (pool - more) / pool, tokens * (pool + less) / pool)
    line = next(line for line in ledger if line.code == code)
    return Other(name, unit, printed, line.bytes / MIB, (line.low_bytes or 0) / MIB, (line.high_bytes or 0) / MIB)


def table() -> list[str]:
    out = ["## SGLang and llama.cpp", "", "| log | printed | predicted | band |", "|---|---:|---:|---:|"]
    return out + [f"| {o.name} | {o.printed:,.0f} {o.unit} | {o.predicted:,.0f} | {o.low:,.0f} to {o.high:,.0f} |" for o in others()]

"""Measured rows of whole engines and of single streams, and what the planner says for each. Rows and configs are read from the corpus.

MiniMax-M2.5's shape is written here, since the corpus has rows of it but no config: keys of MiniMaxAI/MiniMax-M2.5's config.json, numbers held
against transformers 5's configuration_minimax_m2.py (its class defaults) and scripts/models/minimax-m2.5.sh of radixark/miles at 737b949.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.capacity import plan
from planner.hardware import Hardware, custom, find
from planner.latency import Latency, Served, latency, served
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import from_options
from tests.conftest import CORPUS

MINIMAX_M25 = {
    "model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"], "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8, "vocab_size": 200064,
    "max_position_embeddings": 196608, "torch_dtype": "bfloat16", "shared_intermediate_size": 0, "tie_word_embeddings": False,
    "attn_type_list": [1] * 62, "use_qk_norm": True, "qk_norm_type": "per_layer", "rotary_dim": 64,
}  # fmt: skip
FILES = {
    "Qwen/Qwen3-32B": "Qwen__Qwen3-32B.json",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai__DeepSeek-R1.json",
    "meta-llama/Llama-3.1-70B": "meta-llama__Meta-Llama-3.1-70B.json",
    "Qwen/Qwen3.5-397B-A17B": "nvidia__Qwen3.5-397B-A17B-NVFP4.json",
    "Llama-2-7B": "meta-llama__Llama-2-7b-chat-hf.json", "LLaMA-2-7B": "meta-llama__Llama-2-7b-chat-hf.json",
    "LLaMA-7B": "meta-llama__Llama-2-7b-chat-hf.json", "CodeLlama-7B": "meta-llama__Llama-2-7b-chat-hf.json",
    "Llama-2-70B": "meta-llama__Llama-2-70b-hf__mlc.json", "LLaMA-2-70B": "meta-llama__Llama-2-70b-hf__mlc.json",
    "Llama-3-8B": "Skywork__Skywork-Reward-Llama-3.1-8B-v0.2.json", "Llama-3-70B": "meta-llama__Meta-Llama-3-70B.json",
}  # fmt: skip
FITTED = ("meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3.5-397B-A17B")
DENSE = ("meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B")
GPUS = {"h100_sxm": "H100 SXM", "h200_sxm": "H200 SXM", "b200_sxm": "B200 SXM", "b300_sxm": "B300 SXM", "gb200": "GB200 (per GPU)"}
# Devices of the single-stream rows by our names; those that the table lacks, by the public data sheets.
SINGLE_GPUS = {
    "A100-80GB (330 W limit)": "A100 SXM 80GB", "A100 80GB": "A100 SXM 80GB", "H100 PCIe 80GB": "H100 PCIe", "RTX 3090 24GB": "RTX 3090",
    "RTX 4090 24GB": "RTX 4090", "RTX 4090": "RTX 4090", "RTX A6000 48GB": "RTX A6000", "RTX 6000 Ada 48GB": "RTX 6000 Ada",
    "M1 Max 32-Core 64GB": "Apple M1 Max", "M2 Ultra 76-Core 192GB": "Apple M2 Ultra", "M2 Ultra": "Apple M2 Ultra", "RTX 5090": "RTX 5090",
}  # fmt: skip
SHEETS = {  # GB, bandwidth in GB/s, dense fp16 TFLOP/s with fp32 accumulation
    "RTX 3070 8GB": (8, 448, 40.6), "RTX 3080 10GB": (10, 760, 59.5), "RTX 4070 Ti 12GB": (12, 504, 80.2), "RTX 4080 16GB": (16, 717, 97.5),
    "MI250X (one GCD)": (64, 1638, 191.5),
}  # fmt: skip
BITS = {"bf16": 16.0, "F16": 16.0, "int8 weight only": 8.0, "int4 weight only": 4.5, "Q4_K_M": 4.85, "Q4_0": 4.5, "Q8_0": 8.5}
"""Bits a weight: ggml-common.h's blocks; Q4_K_M as llama.cpp prints it for Llama-3-8B (4.58 GiB of 8.03 B)."""
FORMATS = {"bf16": "bf16", "F16": "fp16"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured row with the planner's answer. `fitted`: its family was in the fit. Times in seconds."""

    model: str
    gpu: str
    engine: str
    precision: str
    tp: int
    sequences: int
    prompt: int
    output: int
    itl_s: float | None
    ttft_s: float | None
    got: Latency
    own: Served
    ep: int = 1

    @property
    def fitted(self) -> bool:
        return self.model in FITTED

    @property
    def itl_error(self) -> float:
        assert self.itl_s
        return abs(self.got.itl_s / self.itl_s - 1)


def whole(text: str, default: int = 0) -> int:
    try:
        return int(float(text))
    except ValueError:
        return default


@cache
def model_of(name: str) -> ModelSpec:
    raw = MINIMAX_M25 if name == "MiniMaxAI/MiniMax-M2.5" else json.loads((CORPUS / "configs" / FILES[name]).read_text(encoding="utf-8"))
    return read_config(raw, name)


@cache
def device(name: str) -> Hardware:
    if name in SHEETS:
        gb, bandwidth, tflops = SHEETS[name]
        return custom(name, gb * 10**9, bandwidth_bytes_per_s=bandwidth * 1e9, flops_per_s={"fp16": tflops * 1e12})
    return find(SINGLE_GPUS.get(name, name))


def answer(model: ModelSpec, hardware: Hardware, **options: Any) -> dict[str, Any]:
    own = served(plan(model, hardware, from_options(options)))
    assert isinstance(own, Served), own
    return {"got": latency(own), "own": own}


def clean(r: dict[str, str]) -> bool:
    """Aggregated, one replica of up to eight ranks, precision named, no flag raised by those who gathered the rows."""
    known = r["model"] in FILES or r["model"] == "MiniMaxAI/MiniMax-M2.5"
    small = whole(r["pp_size"], 1) == 1 and whole(r["tp_size"], 1) <= 8 and whole(r["attention_dp_size"], 1) <= 1
    return known and small and not r["flags"] and r["system"] in GPUS and bool(r["tpot_ms_median"] and r["precision"])


def measured() -> Iterator[dict[str, str]]:
    with (CORPUS / "e2e_silicon_samples.csv").open(newline="") as f:
        yield from filter(clean, csv.DictReader(f))


def ranks(r: dict[str, str]) -> tuple[int, int]:
    """(all, those over which the experts are dealt)."""
    tp, ep = whole(r["tp_size"], 1), whole(r["moe_ep_size"], 1) or 1
    return tp, ep if tp % ep == 0 else 1


def end_to_end() -> Iterator[Row]:
    for r in measured():
        tp, ep = ranks(r)
        asked = {"engine": r["backend"], "gpus": tp, "tp": tp, "weight_dtype": r["precision"], "prompt": whole(r["isl"]), "output": whole(r["osl"]),
                 "concurrency": whole(r["concurrency_total"]), "ep": ep}  # fmt: skip
        yield Row(model=r["model"], gpu=GPUS[r["system"]], engine=r["backend"], precision=r["precision"], tp=tp, sequences=asked["concurrency"],
                  prompt=asked["prompt"], output=asked["output"], ep=ep, itl_s=float(r["tpot_ms_median"]) / 1e3,
                  ttft_s=float(r["ttft_ms_median"]) / 1e3 if r["ttft_ms_median"] else None,
                  **answer(model_of(r["model"]), find(GPUS[r["system"]]), **asked))  # fmt: skip


def single_streams() -> Iterator[Row]:
    """gpt-fast and llama.cpp: one sequence, decode or prefill, models of plain formats on devices that are known."""
    engines = {"gpt-fast": "vllm", "llama.cpp": "llamacpp"}
    with (CORPUS / "perf_points.csv").open(newline="") as f:
        for r in csv.DictReader(f):
            kind = {"decode tokens/s": "itl", "prefill tokens/s": "ttft"}.get(r["metric"])
            if r["engine"] not in engines or kind is None or r["model"] not in FILES or r["dtype"] not in BITS or r["batch_or_concurrency"] != "1":
                continue
            if kind == "ttft" and not whole(r["input_len"]):
                continue
            model, hardware = model_of(r["model"]), device(r["gpu"])
            prompt, output = max(1, whole(r["input_len"], 1)), max(1, whole(r["output_len"], 200))
            tp = whole(r["tp"]) if re.fullmatch(r"\d+", r["tp"]) else 1
            options: dict[str, Any] = {"engine": engines[r["engine"]], "prompt": prompt, "output": output, "concurrency": 1, "gpus": tp, "tp": tp}
            if r["dtype"] in FORMATS:
                options["weight_dtype"] = FORMATS[r["dtype"]]
            elif r["dtype"] == "int8 weight only":
                options["weight_dtype"] = "int8"
            else:
                from planner.weights import parameters

                options |= {"weight_bytes": int(parameters(model).total * BITS[r["dtype"]] / 8), "weight_dtype": None}
            rate = float(r["value"])
            yield Row(model=r["model"], gpu=r["gpu"], engine=r["engine"], precision=r["dtype"], tp=tp, sequences=1, prompt=prompt, output=output,
                      itl_s=1 / rate if kind == "itl" else None, ttft_s=prompt / rate if kind == "ttft" else None,
                      **answer(model, hardware, **options))  # fmt: skip


def within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]

"""Figures, flags, versions and refusals of every engine's log, literally; and the same whatever stands around or in the lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.enginelogs import read_log
from planner.enginelogs.numbers import real, whole
from planner.enginelogs.table import table
from planner.messages.en import TEXT
from tests.planner.enginelogs import logs

GIB, MIB = 2**30, 2**20

# (log, engine, version, figure -> value, refusals)
CASES: tuple[tuple[str, str, str | None, dict[str, Any], list[str]], ...] = (
    (logs.VLLM_V1, "vllm", "0.19.0", {
        "weights_bytes": 15 * GIB, "activation_bytes": 2 * GIB, "non_torch_bytes": GIB // 4, "cuda_graphs_bytes": round(0.9 * GIB),
        "available_kv_bytes": round(54.02 * GIB), "kv_tokens": 442_528, "max_concurrency": 54.02, "concurrency_tokens": 8192, "num_blocks": 27_658,
        "requested_bytes": round(71.27 * GIB), "total_memory_bytes": round(79.19 * GIB), "free_memory_bytes": round(78.6 * GIB), "memory_fraction": 0.9,
        "kv_to_fit_bytes": 56_876_104_417, "kv_to_fill_bytes": 64_746_631_987, "non_kv_bytes": round(17.25 * GIB)}, []),
    (logs.VLLM_V0, "vllm", None, {
        "weights_bytes": 15 * GIB, "activation_bytes": 1.5 * GIB, "non_torch_bytes": round(0.1 * GIB), "available_kv_bytes": 5 * GIB, "num_blocks": 2560,
        "cpu_blocks": 2048, "max_concurrency": 10.0, "concurrency_tokens": 4096, "total_memory_bytes": 24 * GIB, "memory_fraction": 0.9}, []),
    (logs.VLLM_REFUSED, "vllm", None, {
        "max_model_len": 131_072, "kv_needed_bytes": 16 * GIB, "available_kv_bytes": 8 * GIB, "estimated_max_len": 65_536}, ["needs_more_kv"]),
    (logs.VLLM_RANKS, "vllm", None, {"available_kv_bytes": round(39.5 * GIB), "kv_tokens": 647_168, "max_concurrency": 4.94}, []),
    (logs.SGLANG, "sglang", None, {
        "avail_before_weights_bytes": 70 * GIB, "avail_after_weights_bytes": 54 * GIB, "weights_bytes": 16 * GIB, "kv_tokens": 327_680, "k_bytes": 20 * GIB,
        "v_bytes": 20 * GIB, "avail_after_pool_bytes": 14 * GIB, "cuda_graphs_bytes": round(0.8 * GIB), "max_running_requests": 2048,
        "max_model_len": 131_072, "max_num_batched_tokens": 8192, "kv_dtype": "bfloat16", "model_dtype": "bfloat16", "architecture": "LlamaForCausalLM"}, []),
    (logs.SGLANG_NEW, "sglang", None, {
        "weights_bytes": round(80.31 * GIB), "state_slots": 117, "conv_state_bytes": round(0.28 * GIB), "ssm_state_bytes": round(8.07 * GIB),
        "draft_state_bytes": round(2.25 * GIB), "kv_tokens": 1_226_984, "swa_tokens": 171_008, "full_tokens": 213_761,
        "cuda_graphs_bytes": round(0.79 * GIB)}, []),
    (logs.TRTLLM, "trtllm", "1.0.0", {
        "kv_tokens": 220_480, "num_blocks": 3445, "block_size": 64, "available_kv_bytes": round(26.91 * GIB), "free_for_kv_bytes": round(63.62 * GIB),
        "max_model_len": 131_072, "blocks_per_request": 2048, "max_num_seqs": 2048, "cpu_blocks": 0}, []),
    (logs.TRTLLM_TORCH, "trtllm", None, {
        "weights_bytes": round(63.52 * GIB), "activation_bytes": round(0.85 * GIB), "non_torch_bytes": round(27.09 * GIB), "non_kv_bytes": round(91.46 * GIB),
        "available_kv_bytes": round(41.1 * GIB), "memory_fraction": 0.85, "bytes_per_token": 35_136, "total_memory_bytes": round(139.81 * GIB)}, []),
    (logs.LLAMACPP, "llamacpp", "4937", {
        "kv_pool_bytes": 2048 * MIB, "k_bytes": 1024 * MIB, "v_bytes": 1024 * MIB, "cells": 16_384, "cached_layers": 32, "n_seq_max": 1, "streams": 1,
        "k_type": "f16", "v_type": "f16", "weights_bytes": round(7.95 * GIB), "n_ctx": 16_384, "n_ubatch": 512, "gpu_layers": 20, "gpu_layers_of": 33,
        "compute_buffer_bytes": 560 * MIB, "n_layer": 32, "n_head_kv": 8}, []),
    (logs.LLAMACPP_WINDOWS, "llamacpp", None, {
        "full_tokens": 8192, "swa_tokens": 1024, "state_pool_bytes": round(75.38 * MIB), "state_slots": 1, "k_type": "q8_0"}, []),
    (logs.TGI, "tgi", None, {"kv_tokens": 123_449, "num_blocks": 123_449, "block_size": 1}, []),
    (logs.LMDEPLOY, "lmdeploy", None, {"block_bytes": 8 * MIB, "num_blocks": 6214, "max_model_len": 202_752}, []),
    (logs.MLC, "mlc", None, {"kv_tokens": 120_261, "weights_bytes": round(4308.133 * MIB), "available_kv_bytes": round(1092.267 * MIB)}, []),
    (logs.LIGHTLLM, "lightllm", None, {"kv_tokens": 294_912, "bytes_per_token": 131_072, "memory_fraction": 0.9}, []),
)  # fmt: skip

# One sentence each: (engine, sentence, figure, value)
SENTENCES: tuple[tuple[str, str, str, Any], ...] = (
    ("vllm", "INFO 08-06 11:37:41 llm_engine.py:196] # GPU blocks: 861, # CPU blocks: 512", "num_blocks", 861),
    ("vllm", "INFO 06-21 10:00:18 llm_engine.py:128] # GPU blocks: -1, # CPU blocks: 512", "num_blocks", -1),
    ("vllm", "INFO kv_cache_utils.py:395] # GPU blocks: 1381", "num_blocks", 1381),
    ("vllm", "INFO model_runner.py:692] Loading model weights took 57.7520 GB", "weights_bytes", round(57.752 * GIB)),
    ("vllm", "Memory profiling results: total_gpu_memory=79.10GiB initial_memory_usage=34.44GiB peak_torch_memory=30.56GiB "
             "memory_usage_post_profile=34.81GiB non_torch_memory=5.21GiB kv_cache_size=35.42GiB gpu_memory_utilization=0.90", "available_kv_bytes",
     round(35.42 * GIB)),
    ("vllm", "Actual usage is 7.97 GiB for consumed memory (weights + non-torch), 0.8 GiB for peak activation", "consumed_bytes", round(7.97 * GIB)),
    ("vllm", "Estimated CUDA graph memory: 0.61 GiB total", "cuda_graphs_estimated_bytes", round(0.61 * GIB)),
    ("vllm", "Graph capturing finished in 25 secs, took -0.42 GiB", "cuda_graphs_bytes", round(-0.42 * GIB)),
    ("vllm", "Initial free memory 139.21 GiB, reserved 6.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling.",
     "available_kv_bytes", 6 * GIB),
    ("vllm", "GPU KV cache size: 43,664 tokens, Maximum concurrency for 2,048 tokens per request: 21.32x", "max_concurrency", 21.32),
    ("vllm", "Current kv cache memory in use is 59212694937 bytes.", "available_kv_bytes", 59_212_694_937),
    ("vllm", "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.", "block_size", 544),
    ("vllm", "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161)", "mamba_blocks", 161),
    ("vllm", "The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (2400).", "kv_tokens", 2400),
    ("vllm", "(1000000), 3.09 GiB KV cache is needed, which is larger than the available KV cache memory (0.24 GiB).", "available_kv_bytes", round(0.24 * GIB)),
    ("vllm", "Free memory on device cuda:0 (10.1/79.19 GiB) on startup is less than desired GPU memory utilization (0.9, 71.27 GiB).", "free_memory_bytes",
     round(10.1 * GIB)),
    ("vllm", "INFO [NPU worker_v1.py] Available memory: -25288237056, total memory: 65787658240", "available_kv_bytes", -25_288_237_056),
    ("vllm", "Usable num_blocks: 1234, actual allocated num_blocks: 1235", "num_blocks", 1234),
    ("vllm", "LMCache INFO: Cache size per token (bytes): 43723", "bytes_per_token", 43_723),
    ("sglang", "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.", "kv_tokens", -561_981),
    ("sglang", "DSV4 memory calculation: bytes_per_full_token=13735.04, available_bytes=118.93 GB, c128_state_fixed=1.01 GB, full_token=9217792", "kv_tokens",
     9_217_792),
    ("trtllm", "[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.", "available_kv_bytes", 69_524_783_104),
    ("trtllm", '[TensorRT-LLM] stats {"kvCacheStats": {"maxNumBlocks": 7240, "tokensPerBlock": 64}}', "num_blocks", 7240),
    ("trtllm", "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 8193 [window size=262112], tokens per block=32, primary blocks=8191, secondary blocks=0,"
               " max sequence length=262145", "num_blocks", 8191),
    ("llamacpp", "llama_new_context_with_model: KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 MiB, kv^T: not used", "kv_pool_bytes", round(1166.62 * MIB)),
    ("llamacpp", "llama_new_context_with_model: kv self size  = 1024.00 MB", "kv_pool_bytes", 1024 * MIB),
    ("llamacpp", "llm_load_tensors:      Metal buffer size = 10769.63 MiB", "model_buffer_bytes", round(10769.63 * MIB)),
    ("llamacpp", 'time=2025 level=INFO source=memory.go msg="offload to cuda" memory.required.kv="896.0 MiB" memory.graph.full="506.0 MiB"', "kv_pool_bytes",
     896 * MIB),
    ("lmdeploy", "[TM][WARNING] `session_len` truncated to 4928 due to limited KV cache memory", "kv_tokens", 4928),
    ("lmdeploy", "lmdeploy build CacheEngine with config: CacheConfig(max_batches=128, block_size=64, num_cpu_blocks=0, num_gpu_blocks=7521, window_size=-1)",
     "num_blocks", 7521),
    ("torch", "Tried to allocate 150.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which 146.44 MiB is free", "tried_bytes", 150 * MIB),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[1]}-{len(c[3])}")
def test_every_engine_is_read_to_its_figures(case: tuple[str, str, str | None, dict[str, Any], list[str]]) -> None:
    text, engine, version, figures, refusals = case
    log = read_log(text)
    assert (log.engine, log.version) == (engine, version)
    assert {name: log.value(name) for name in figures} == figures
    assert [r.code for r in log.refusals] == refusals


@pytest.mark.parametrize("case", SENTENCES, ids=lambda c: c[1][:40])
def test_one_sentence_is_enough(case: tuple[str, str, str, Any]) -> None:
    engine, text, name, value = case
    log = read_log(text)
    assert (log.engine, log.value(name)) == (engine, value)


@pytest.mark.parametrize("text", [
    "Available KV cache memory: none yet", "GPU KV cache size: many tokens", "# GPU blocks: , # CPU blocks:", "Model loading took GiB",
    "Maximum concurrency for tokens per request: x", "KV Cache is allocated. #tokens: , K size: GB", "llama_kv_cache: size = MiB ( cells,  layers)",
])  # fmt: skip
def test_a_sentence_without_its_figure_gives_none(text: str) -> None:
    assert read_log(text).figures == ()


FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (logs.VLLM_V1, {"model": "meta-llama/Llama-3.1-8B", "max_model_len": 8192, "memory_fraction": 0.9, "prefix_caching": False, "tp": 1, "dtype":
                    "torch.bfloat16", "enforce_eager": False}),
    (logs.SGLANG, {"model": "Qwen/Qwen3-8B", "tp": 1, "memory_fraction": 0.85, "max_num_batched_tokens": 8192, "no_prefix_caching": False}),
    ("$ vllm serve Qwen/Qwen3-8B --max-model-len 32768 --gpu-memory-utilization=0.92 --tensor-parallel-size 2 --enforce-eager --kv-cache-dtype fp8",
     {"max_model_len": 32_768, "memory_fraction": 0.92, "tp": 2, "enforce_eager": True, "kv_dtype": "fp8"}),
    ("INFO api_server.py:1] args: Namespace(host=None, port=8000, max_model_len=4096, tensor_parallel_size=4, kv_cache_dtype='auto', block_size=None)",
     {"max_model_len": 4096, "tp": 4, "kv_dtype": "auto"}),
    ("llama-server -m model.gguf -c 65536 -np 4 -ctk q8_0 -ctv q8_0 -ngl 20 -ub 1024",
     {"max_model_len": 65_536, "parallel": 4, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "n_gpu_layers": 20, "n_ubatch": 1024}),
)  # fmt: skip


@pytest.mark.parametrize("case", FLAGS, ids=lambda c: c[0][:24])
def test_flags_are_read_from_every_form(case: tuple[str, dict[str, Any]]) -> None:
    flags = read_log(case[0]).flags
    assert {name: flags[name].value for name in case[1]} == case[1]


def test_words_that_only_look_like_flags_are_none() -> None:
    assert read_log("INFO max model len 4096 and tp 8 were chosen; block_size of 16").flags == {}


# -- whatever stands around or in the lines --------------------------------------------------------------------------------


def figures(text: bytes | str) -> set[tuple[str, Any]]:
    return {(f.name, f.value) for f in read_log(text).figures}


def lined(text: str, change: Any) -> str:
    return "\n".join(change(line) for line in text.splitlines())


WRAPPERS: tuple[tuple[str, Any], ...] = (
    ("docker compose", lambda t: lined(t, lambda x: "vllm-1  | " + x)),
    ("kubectl", lambda t: lined(t, lambda x: "[pod/llm-0/main] 2026-05-02T10:00:00.123456789Z stdout F " + x)),
    ("colours", lambda t: lined(t, lambda x: "\x1b[36m(core)\x1b[0;0m " + x.replace("GiB", "\x1b[1mGiB\x1b[0m"))),
    ("colours as letters", lambda t: lined(t, lambda x: "^[[1;36m" + x + "^[[0m")),
    ("windows lines", lambda t: t.replace("\n", "\r\n")),
    ("json lines", lambda t: lined(t, lambda x: json.dumps({"log": x + "\n", "stream": "stderr", "time": "2026"}))),
    ("utf-16", lambda t: t.encode("utf-16")),
    ("utf-16 without mark", lambda t: t.encode("utf-16-le")),
    ("bom", lambda t: b"\xef\xbb\xbf" + t.encode()),
    ("full-width colons", lambda t: t.replace(": ", "\uff1a ")),
    ("mpi", lambda t: lined(t, lambda x: "[1,0]<stdout>:" + x)),
)


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w[0])
def test_prefixes_colours_and_encodings_do_no_harm(wrapper: tuple[str, Any]) -> None:
    assert figures(wrapper[1](logs.VLLM_V1)) == figures(logs.VLLM_V1)


def test_wrapped_lines_are_read_as_one() -> None:
    """At blanks, as an editor does; and in the middle of words, as a terminal of 100 columns does."""
    soft = "\n".join(part for line in logs.VLLM_V1.splitlines() for part in _soft(line, 80))
    hard = "\n".join(line[i : i + 100] for line in logs.VLLM_V1.splitlines() for i in range(0, len(line), 100))
    assert figures(soft) >= {x for x in figures(logs.VLLM_V1) if x[0] != "source_line"}
    assert figures(hard) >= {x for x in figures(logs.VLLM_V1) if x[0] != "source_line"}


def _soft(line: str, width: int) -> list[str]:
    out, rest = [], line
    while len(rest) > width:
        cut = rest.rfind(" ", 0, width)
        cut = cut if cut > 0 else width
        out.append(rest[:cut])
        rest = rest[cut + 1 :]
    return [*out, rest]


def test_separators_of_other_languages() -> None:
    for printed in ("324.976", "324'976", "324\u00a0976", "324\u202f976", "\uff13\uff12\uff14976"):
        assert read_log(f"GPU KV cache size: {printed} tokens").value("kv_tokens") == 324_976, printed
    assert read_log("Available KV cache memory: 19,84 GiB").value("available_kv_bytes") == round(19.84 * GIB)


def test_numbers() -> None:
    assert [whole(t) for t in ("1,277,184", "12", "-5", "8192.0", "1,2", "", "9" * 25)] == [1_277_184, 12, -5, 8192, None, None, None]
    assert [real(t) for t in ("13.1", "79,19", "1,234.5", "x", "")] == [(13.1, 1), (79.19, 2), (1234.5, 1), None, None]


def test_figures_know_their_line_and_rank() -> None:
    found = read_log("\n\n" + logs.VLLM_RANKS).all("available_kv_bytes")
    assert [(f.line, f.rank) for f in found] == [(3, "TP0"), (4, "TP1")]
    assert read_log(logs.VLLM_RANKS).one("available_kv_bytes") == read_log(logs.VLLM_RANKS).all("available_kv_bytes")[1]


def test_the_last_start_of_a_log_counts() -> None:
    again = logs.VLLM_V1 + logs.VLLM_V1.replace("442,528", "442,512").replace("54.02 GiB", "54.01 GiB")
    assert read_log(again).value("available_kv_bytes") == round(54.01 * GIB)


def test_every_figure_and_refusal_of_the_table_has_its_words() -> None:
    for row in table().rows:
        assert all(name == "_" or f"log.figure.{name}" in TEXT for name, _ in row.figures), row.key
        assert row.refusal is None or f"log.refusal.{row.refusal}" in TEXT
        assert row.key.isprintable()
        assert len(row.key) >= 4, row.key

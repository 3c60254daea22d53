"""Figures, flags, versions and refusals of every engine's log, literally; and the same whatever stands around or in the lines."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from planner.enginelogs import read_log
from planner.enginelogs.numbers import real, sized, whole
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
    # blocks of any device; the CPU's own executor prints only its own
    ("vllm", "INFO executor_base.py:112] # neuron blocks: 6, # CPU blocks: 0", "num_blocks", 6),
    ("vllm", "INFO executor_base.py:112] # cpu blocks: 5120, # CPU blocks: 0", "num_blocks", 5120),
    ("vllm", "INFO cpu_executor.py:212] # CPU blocks: 3300", "num_blocks", 3300),
    ("vllm", "INFO [cpu_worker.py:255] Explicitly set (0.5/64.0) GiB for KV cache on node 0.", "available_kv_bytes", GIB // 2),
    # TPU, Gaudi, Ascend
    ("vllm", "INFO [tpu_worker.py:557] Memory statistics | total_hbm_limit_gb=32.0GiB | total_hbm_used_gb=9.5GiB | total_hbm_avail_gb=19.25GiB",
     "available_kv_bytes", round(19.25 * GIB)),
    ("vllm", "INFO [tpu_worker.py:557] Memory statistics | total_hbm_limit_gb=32.0GiB | total_hbm_used_gb=9.5GiB", "total_memory_bytes", 32 * GIB),
    ("vllm", "tpu_runner.py Hybrid KV cache: setting num_gpu_blocks_override=640 to align the pool", "num_blocks", 640),
    ("vllm", "INFO hpu_worker.py:158] Free device memory: 80.5 GiB, 40.25 GiB usable (gpu_memory_utilization=0.5), 512 MiB reserved for HPUGraphs, "
     "24.5 GiB reserved for KV cache", "cuda_graphs_bytes", 512 * MIB),
    ("vllm", "INFO hpu_worker.py:158] Free device memory: 80.5 GiB, 40.25 GiB usable (gpu_memory_utilization=0.5)", "memory_fraction", 0.5),
    ("vllm", "Actual usage: 1.25 GiB for weights, 0.25 GiB for peak activation, 0.5 GiB for NPU graph memory.", "weights_bytes", round(1.25 * GIB)),
    ("vllm", "Actual usage: 1.25 GiB for weights, 0.25 GiB for peak activation, 0.5 GiB for NPU graph memory.", "cuda_graphs_bytes", GIB // 2),
    ("vllm", "or `--kv-cache-memory=60000000000` (55.88 GiB) to fully utilize NPU free memory. Current KV cache memory: 50.0 GiB.", "kv_to_fill_bytes",
     60_000_000_000),
    ("vllm", "CUDA graph pool memory: 0.75 GiB (actual: 0.5 GiB captured + 0.25 GiB retained by profiling), 0.7 GiB (estimated)", "cuda_graphs_bytes",
     round(0.75 * GIB)),
    # SGLang writes the window pools with a small letter too
    ("sglang", "[2026-01-31 TP0] Use sliding window memory pool. full_layer_tokens=300000, swa_layer_tokens=240000", "full_tokens", 300_000),
    # llama.cpp: devices over the network and of a meta backend, versions of every age
    ("llamacpp", "llama_kv_cache: RPC[127.0.0.1:50052] KV buffer size =   640.00 MiB", "kv_buffer_bytes", 640 * MIB),
    ("llamacpp", "load_tensors:       Meta() model buffer size =  6400.00 MiB", "model_buffer_bytes", 6400 * MIB),
    ("llamacpp", "llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers), K (f16):  512.00 MiB, V (f16):  512.00 MiB", "k_bytes", 512 * MIB),
    ("llamacpp", "llama_model_load_internal: n_layer    = 26", "n_layer", 26),
    ("llamacpp", "llama_new_context_with_model: total VRAM used: 1900.50 MiB (model: 1700.00 MiB)", "vram_used_bytes", round(1900.5 * MIB)),
    ("llamacpp", "llama_context: n_ctx = 16384\nslot load_model: id  0 | task -1 | new slot, n_ctx = 4096", "n_ctx", 16_384),
    # ollama prints each size in the unit that suits it
    ("llamacpp", 'source=memory.go msg=offload layers.model=33 layers.offload=20 memory.required.kv="1.5 GiB"', "gpu_layers", 20),
    ("llamacpp", 'source=memory.go memory.required.kv="1.5 GiB" memory.weights.total="640.0 MiB" memory.graph.full="2.5 GiB"', "weights_bytes", 640 * MIB),
    ("llamacpp", 'source=memory.go memory.required.kv="1.5 GiB" memory.graph.full="2.5 GiB"', "compute_buffer_bytes", round(2.5 * GIB)),
    ("llamacpp", 'source=device.go:262 msg="compute graph" device=Metal size="2.5 GiB"', "compute_buffer_bytes", round(2.5 * GIB)),
    ("llamacpp", 'source=device.go:240 msg="model weights" device=CUDA0 size="760.5 MiB"', "model_buffer_bytes", round(760.5 * MIB)),
    ("llamacpp", 'source=runner.go msg=load request="{Parallel:2 BatchSize:512 FlashAttention:Enabled KvSize:8192 KvCacheType:q8_0}"', "n_ctx", 8192),
    ("torch", "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 44.50 GiB total capacity; 27.90 GiB already allocated; 565.25 MiB free; 27.93 GiB "
     "reserved in total by PyTorch)", "free_at_failure_bytes", round(565.25 * MIB)),
    ("torch", "Tried to allocate 150.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which 146.44 MiB is free", "tried_bytes", 150 * MIB),
)  # fmt: skip


# (refusal, its sentence)
REFUSED = (
    ("no_memory_for_blocks", "text_generation_server RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch`"),
    ("no_memory_for_blocks", "text_generation_client: Not enough memory to handle 16000 total tokens with 2 prefill tokens. You need to decrease it"),
    ("no_memory_for_blocks", "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88."),
    ("out_of_memory", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 44.50 GiB total capacity)"),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c[1][:40])
def test_refusals_are_known_by_their_sentence(case: tuple[str, str]) -> None:
    assert [r.code for r in read_log(case[1]).refusals] == [case[0]]


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
    ("docker run --gpus all vllm/vllm-openai:v0.11.0 \\\n Qwen/Qwen3-8B \\\n --enable-expert-parallel \\\n --tensor-parallel-size 4 \\\n --max-num-seqs 32\n",
     {"model": "Qwen/Qwen3-8B", "expert_parallel": True, "tp": 4, "max_num_seqs": 32}),
    ("image: vllm/vllm-openai:v0.11.0\ncommand: >\n  /model\n  --kv-cache-dtype fp8\n  --block-size 256\n", {"kv_dtype": "fp8", "block_size": 256}),
    ('args:\n  - "--model"\n  - "Qwen/Qwen3-8B"\n  - "--max-model-len"\n  - "8192"\n  - --gpu-memory-utilization=0.8', {"model": "Qwen/Qwen3-8B",
     "max_model_len": 8192, "memory_fraction": 0.8}),
    ('args: ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2"]', {"model": "Qwen/Qwen3-8B", "tp": 2}),
    ("vllm serve Qwen/Qwen3-8B --max-model-len 32K", {"model": "Qwen/Qwen3-8B", "max_model_len": 32_768}),
    ("vllm serve Qwen/Qwen3-8B --max-model-len 25.6k", {"max_model_len": 25_600}),
    ("text_generation_launcher: Args { num_shard: Some(\n    2,\n), max_total_tokens: Some(4096), quantize: None }", {"tp": 2, "max_model_len": 4096}),
    ('source=server.go msg="starting llama server" cmd="/usr/bin/ollama runner --ctx-size 8192 --parallel 4"', {"max_model_len": 8192, "parallel": 4}),
)  # fmt: skip


@pytest.mark.parametrize("case", FLAGS, ids=lambda c: c[0][:24])
def test_flags_are_read_from_every_form(case: tuple[str, dict[str, Any]]) -> None:
    flags = read_log(case[0]).flags
    assert {name: flags[name].value for name in case[1]} == case[1]


@pytest.mark.parametrize("text", ["image: vllm/vllm-openai:v0.26.0\nports:\n  - 8000", "I tried vllm serve with other settings", "vllm-openai:latest is old"])
def test_words_after_a_command_are_no_model(text: str) -> None:
    assert "model" not in read_log(text).flags


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
    ("colours as octals", lambda t: lined(t, lambda x: "#033[1;36m" + x + "#033[0m")),
    ("windows lines", lambda t: t.replace("\n", "\r\n")),
    ("json lines", lambda t: lined(t, lambda x: json.dumps({"log": x + "\n", "stream": "stderr", "time": "2026"}))),
    ("utf-16", lambda t: t.encode("utf-16")),
    ("utf-16 without mark", lambda t: t.encode("utf-16-le")),
    ("bom", lambda t: b"\xef\xbb\xbf" + t.encode()),
    ("full-width colons", lambda t: t.replace(": ", "\uff1a ")),
    ("quote", lambda t: lined(t, lambda x: "> " + x)),
    ("quotes in a quote", lambda t: lined(t, lambda x: ">> " + x)),
    ("journal", lambda t: lined(t, lambda x: "May 02 10:00:00 gpu01 vllm[1234]: " + x)),
    ("container's own lines", lambda t: lined(t, lambda x: "2026-05-02T10:00:00.123456789Z stdout F " + x)),
    ("cloud console", lambda t: lined(t, lambda x: "INFO 2026-05-02T10:00:00.096Z [resource.labels.containerName: vllm] " + x)),
    ("a box", lambda t: lined(t, lambda x: "\u2502 " + x + "  \u2502")),
    ("entities", html.escape),
    ("breaks of a cell", lambda t: t.replace("\n", "<br>\n")),
    ("a string of a program", lambda t: '"' + t.replace("\n", "\\n") + '"'),
    ("mpi", lambda t: lined(t, lambda x: "[1,0]<stdout>:" + x)),
)


@pytest.mark.parametrize("wrapper", [w for w in WRAPPERS if w[0] not in ("mpi", "colours")], ids=lambda w: w[0])  # those two name a rank
def test_what_goes_on_in_the_next_line_is_read_through_what_stands_around(wrapper: tuple[str, Any]) -> None:
    """A command over several lines, and a refusal broken by an editor."""
    text = "vllm serve Qwen/Qwen3-8B \\\n  --tensor-parallel-size 4 \\\n  --max-model-len 8192\n" + logs.VLLM_V1
    broken = logs.VLLM_REFUSED.replace(" GiB KV cache is needed", "\nGiB KV cache is\nneeded")
    log = read_log(wrapper[1]("x\n" + broken))
    assert figures(wrapper[1](text)) == figures(logs.VLLM_V1)
    assert (log.value("kv_needed_bytes"), [r.code for r in log.refusals]) == (16 * GIB, ["needs_more_kv"])


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w[0])
def test_prefixes_colours_and_encodings_do_no_harm(wrapper: tuple[str, Any]) -> None:
    assert figures(wrapper[1](logs.VLLM_V1)) == figures(logs.VLLM_V1)


def test_wrapped_lines_are_read_as_one() -> None:
    """At blanks, as an editor does; and in the middle of words, as a terminal of 100 columns does."""
    soft = "\n".join(part for line in logs.VLLM_V1.splitlines() for part in _soft(line, 80))
    hard = "\n".join(line[i : i + 100] for line in logs.VLLM_V1.splitlines() for i in range(0, len(line), 100))
    assert figures(soft) >= {x for x in figures(logs.VLLM_V1) if x[0] != "source_line"}
    assert figures(hard) >= {x for x in figures(logs.VLLM_V1) if x[0] != "source_line"}


def test_lines_of_one_length_are_not_glued_together() -> None:
    """Records of one form are as long as each other; and an editor may fill three lines to the same column by chance."""
    same = "\n".join(f"1725340818{n:03} [TP{n}] Use sliding window memory pool. full_layer_tokens=300000, swa_layer_tokens=24000{n}" for n in range(4))
    assert [f.value for f in read_log(same).all("swa_tokens")] == [240_000, 240_001, 240_002, 240_003]
    chance = ("Desired GPU memory utilization is (0.9, 172.5 GiB). Actual usage is 2.0 GiB for", "consumed memory (weights + non-torch), and 5.5 GiB for. "
              "Current kv cache memory", "in use is 155.0 GiB.")  # fmt: skip
    assert len(chance[0]) == len(chance[1])
    assert read_log("\n".join(chance)).value("available_kv_bytes") == 155 * GIB


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
    assert [sized(t) for t in ("411.0 MiB", "2.1 GB", "512MiB", "0 B", "77 bytes")] == [("411.0", "MiB"), ("2.1", "GiB"), ("512", "MiB"), ("0", "bytes"),
                                                                                        ("77", "bytes")]  # fmt: skip
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

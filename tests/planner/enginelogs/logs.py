# ruff: noqa: E501
"""Small start-up logs, written by hand: the engines' sentences with figures of our own that fit together. Formats are facts."""

from __future__ import annotations

# 0.9 x 79.19 = 71.27; 15 + 2 + 0.25 = 17.25; 71.27 - 17.25 = 54.02 GiB = 27,658 blocks of 2 MiB = 442,528 tokens; / 8,192 = 54.02
VLLM_V1 = """\
(APIServer pid=1) INFO 05-02 10:00:00 [utils.py:233] non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'max_model_len': 8192, 'gpu_memory_utilization': 0.9, 'enable_prefix_caching': False}
(EngineCore pid=7) INFO 05-02 10:00:05 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='meta-llama/Llama-3.1-8B', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto
(EngineCore pid=7) INFO 05-02 10:00:09 [gpu_model_runner.py:4820] Model loading took 15.0 GiB memory and 9.8 seconds
(EngineCore pid=7) DEBUG 05-02 10:00:20 [gpu_worker.py:435] Memory profiling takes 9.00 seconds. Total non KV cache memory: 17.25GiB; torch peak memory increase: 2.0GiB; non-torch forward increase memory: 0.25GiB; weights memory: 15.0GiB.
(EngineCore pid=7) INFO 05-02 10:00:20 [gpu_worker.py:436] Available KV cache memory: 54.02 GiB
(EngineCore pid=7) INFO 05-02 10:00:20 [kv_cache_utils.py:1319] GPU KV cache size: 442,528 tokens
(EngineCore pid=7) INFO 05-02 10:00:20 [kv_cache_utils.py:1324] Maximum concurrency for 8,192 tokens per request: 54.02x
(EngineCore pid=7) INFO 05-02 10:00:25 [gpu_model_runner.py:6046] Graph capturing finished in 3 secs, took 0.90 GiB
(EngineCore pid=7) DEBUG 05-02 10:00:25 [gpu_worker.py:661] Free memory on device (78.6/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 15.0 GiB for weight, 2.0 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.9 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=56876104417` (52.97 GiB) to fit into requested memory, or `--kv-cache-memory=64746631987` (60.3 GiB) to fully utilize gpu memory. Current kv cache memory in use is 54.02 GiB.
(APIServer pid=1) DEBUG 05-02 10:00:26 [loggers.py:273] Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 27658
"""

# 24 x 0.9 = 21.6; 15 + 0.1 + 1.5 leaves 5.0 GiB = 2,560 blocks; 4 GiB of swap are 2,048 blocks; 2,560 x 16 / 4,096 = 10.0
VLLM_V0 = """\
INFO 03-13 08:56:39 [model_runner.py:1146] Model loading took 15.0000 GB and 0.7 seconds
INFO 03-13 08:56:40 [worker.py:267] Memory profiling takes 0.60 seconds
INFO 03-13 08:56:40 [worker.py:267] the current vLLM instance can use total_gpu_memory (24.00GiB) x gpu_memory_utilization (0.90) = 21.60GiB
INFO 03-13 08:56:40 [worker.py:267] model weights take 15.00GiB; non_torch_memory takes 0.10GiB; PyTorch activation peak memory takes 1.50GiB; the rest of the memory reserved for KV Cache is 5.00GiB.
INFO 03-13 08:56:40 [executor_base.py:111] # cuda blocks: 2560, # CPU blocks: 2048
INFO 03-13 08:56:40 [executor_base.py:116] Maximum concurrency for 4096 tokens per request: 10.00x
"""

VLLM_REFUSED = """\
(EngineCore pid=4) ERROR 09-01 19:53:44 [core.py:1346] ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (8.0 GiB). Based on the available memory, the estimated maximum model length is 65536. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.
"""

# two ranks, the second poorer: 40.00 against 39.50 GiB; one KV head each of 2 (64 KiB a token and rank)
VLLM_RANKS = """\
(Worker_TP0 pid=11) INFO 06-01 10:00:00 [gpu_worker.py:480] Available KV cache memory: 40.0 GiB
(Worker_TP1 pid=12) INFO 06-01 10:00:00 [gpu_worker.py:480] Available KV cache memory: 39.5 GiB
(EngineCore pid=9) INFO 06-01 10:00:01 [kv_cache_utils.py:1744] GPU KV cache size: 647,168 tokens
(EngineCore pid=9) INFO 06-01 10:00:01 [kv_cache_utils.py:1745] Maximum concurrency for 131,072 tokens per request: 4.94x
"""

# 70 - 54 = 16 GiB of weights; K = V = 20 GiB for 327,680 tokens (128 KiB each); 14 - 13.2 = 0.8 GiB of graphs
SGLANG = """\
[2026-03-08 12:29:12] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, mem_fraction_static=0.85, chunked_prefill_size=8192, context_length=None, disable_radix_cache=False)
[2026-03-08 12:29:13 TP0] Load weight begin. avail mem=70.00 GB
[2026-03-08 12:29:21 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=54.00 GB, mem usage=16.00 GB.
[2026-03-08 12:29:21 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 327680, K size: 20.00 GB, V size: 20.00 GB
[2026-03-08 12:29:21 TP0] Memory pool end. avail mem=14.00 GB
[2026-03-08 12:29:21 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=14.00 GB
[2026-03-08 12:29:28 TP0] Capture cuda graph end. Time elapsed: 7.23 s. avail mem=13.20 GB. mem usage=0.80 GB.
[2026-03-08 12:29:29 TP0] max_total_num_tokens=327680, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=131072
"""

SGLANG_NEW = """\
[2026-10-10 11:59:36] Load weight end. elapsed=329.53 s, type=SomeHybridForCausalLM, quant=fp8, fmt=e4m3, avail mem=29.67 GB, mem usage=80.31 GB.
[2026-10-10 11:59:39] Mamba Cache is allocated. max_mamba_cache_size: 117, conv_state size: 0.28GB, ssm_state size: 8.07GB intermediate_ssm_state_cache size: 2.25GB
[2026-10-10 11:59:41] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1226984, KV size: 9.21 GB
[2026-10-10 11:59:51] Capture target decode CUDA graph end. elapsed=10.10 s, mem usage=0.79 GB, avail mem=10.39 GB.
[2026-10-10 11:59:51] SWAKVPool mem usage: 36.69 GB, swa size: 171008, full size: 213761
[2026-10-10 11:59:51] max_total_num_tokens=1226984, chunked_prefill_size=8192, context_len=262144, available_gpu_mem=10.39 GB
"""

# 3,445 blocks x 64 = 220,480 tokens; 0.85 x (139.81 - 91.46) = 41.10
TRTLLM = """\
[TensorRT-LLM] TensorRT-LLM version: 1.0.0
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 63.62 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 3445
[TensorRT-LLM][INFO] Number of blocks in KV cache secondary pool: 0, onboard blocks to primary memory before reuse: true
[TensorRT-LLM][INFO] Max KV cache pages per sequence: 2048
[TensorRT-LLM][INFO] Number of tokens per block: 64.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).
[02/14/2025-09:38:53] [TRT-LLM] [I] max_seq_len=131072, max_num_requests=2048, max_num_tokens=8192
"""

TRTLLM_TORCH = """\
[01/16/2026-06:20:15] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 63.52 GiB
[01/16/2026-06:20:15] [TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 0.85 GiB
[01/16/2026-06:20:15] [TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 27.09 GiB
[01/16/2026-06:20:17] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache memory when calculating max tokens: 41.10 GiB, fraction is set 0.85, kv size is 35136. device total memory 139.81 GiB
"""

# 8 heads of 128 in f16: 16,384 cells x 32 layers x 1,024 x 2 bytes = 1,024 MiB each; 1,280 + 768 = 2,048
LLAMACPP = """\
build: 4937 (30c42ef5) with cc (Debian 12.2.0) for x86_64-linux-gnu
print_info: arch             = llama
print_info: n_layer          = 32
print_info: n_head_kv        = 8
print_info: n_embd_head_k    = 128
print_info: file size   = 7.95 GiB (8.50 BPW)
load_tensors: offloaded 20/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  5000.00 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 16384
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = 0
llama_kv_cache_unified:      CUDA0 KV buffer size =  1280.00 MiB
llama_kv_cache_unified:        CPU KV buffer size =   768.00 MiB
llama_kv_cache_unified: size = 2048.00 MiB ( 16384 cells,  32 layers,  1/ 1 seqs), K (f16): 1024.00 MiB, V (f16): 1024.00 MiB
llama_context:      CUDA0 compute buffer size =   560.00 MiB
"""

# windows: 4 layers of 1,024 cells beside 2 layers of 8,192, 512 wide, q8_0 (34 bytes for 32): 1.0625 bytes an element
LLAMACPP_WINDOWS = """\
llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells
llama_kv_cache: size =   17.00 MiB (  8192 cells,   2 layers,  1/1 seqs), K (q8_0):    8.50 MiB, V (q8_0):    8.50 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache: size =    4.25 MiB (  1024 cells,   4 layers,  1/1 seqs), K (q8_0):    2.12 MiB, V (q8_0):    2.12 MiB
llama_memory_recurrent: size =   75.38 MiB (     1 cells,  48 layers,  1 seqs), R (f32):    3.38 MiB, S (f32):   72.00 MiB
"""

TGI = """\
2024-09-03T04:40:18.377577Z  INFO text_generation_launcher: KV-cache blocks: 123449, size: 1
2024-09-03T04:40:19.370247Z  INFO text_generation_router::server: router/src/server.rs:1651: Setting max batch total tokens to 123449
"""

LMDEPLOY = """\
[TM][WARNING] [TM] `max_context_token_num` is not set, default to 202752.
[TM][INFO] [BlockManager] block_size = 8.000 MB
[TM][INFO] [BlockManager] max_block_count = 6214
"""

MLC = """\
[02:19:06] /x/mlc-llm/cpp/serve/config.cc:879: The actual engine mode is "server". So max batch size is 128, max KV cache token capacity is 120261, prefill chunk size is 4096.
[02:19:06] /x/mlc-llm/cpp/serve/config.cc:884: Estimated total single GPU memory usage: 5736.325 MB (Parameters: 4308.133 MB. KVCache: 1092.267 MB. Temporary buffer: 335.925 MB).
"""

LIGHTLLM = """\
INFO 01-01 00:00:00 [mem_manager.py:80] lightllm: 0.125 MB is the size of one token kv cache
INFO 01-01 00:00:00 [mem_manager.py:84] 294912 is the profiled max_total_token_num with the mem_fraction 0.9
"""

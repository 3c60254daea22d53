"""The arithmetic of SGLang, TensorRT-LLM, TGI and MLC-LLM."""

from __future__ import annotations

from typing import Any

from planner.enginelogs.intervals import Interval
from planner.enginelogs.rules.base import ROUND, Rule, Values
from planner.notes import cite
from planner.units import GIB, MIB


def _tokens_again(v: Values, around: Any) -> list[Interval]:
    pools = [f for f in around.scope.get("kv_tokens", ()) if f.said == "KV Cache is allocated"]
    return [v["kv_tokens"]] if len({f.value for f in pools}) == 1 and around.target.said == "max_total_num_tokens=" else []


def _pool_fits(v: Values, around: Any) -> list[Interval]:
    if len(around.scope.get("k_bytes", ())) > 1:
        return []
    return [Interval(-float("inf"), (v["avail_after_weights_bytes"] - v["k_bytes"] - v["v_bytes"]).high)]


def _alike(v: Values, around: Any) -> list[Interval]:
    """Head sizes of K and V are equal, or 192 and 128 (MiMo, expanded latents)."""
    return [v["k_bytes"] * share for share in (1.0, 2 / 3, 1.5)]


def _sglang_graphs(v: Values, around: Any) -> list[Interval]:
    return [v["avail_before_graphs_bytes"] - v["avail_after_graphs_bytes"]] if len(around.scope.get("avail_before_graphs_bytes", ())) == 1 else []


def _whole_tokens(v: Values, around: Any) -> list[Interval]:
    """TensorRT-LLM divides its bytes by the bytes of a token; exact bytes are a whole number of them."""
    tokens, whole = around.target.value, v["available_kv_bytes"].low
    if tokens <= 0 or whole != v["available_kv_bytes"].high:
        return []
    each = max(1, round(whole / tokens))
    return [Interval(whole / each, whole / each)]


def _trt_budget(v: Values, around: Any) -> list[Interval]:
    spare = around.scope.get("profiling_kv_bytes")
    extra = Interval(spare[-1].value - spare[-1].off, spare[-1].value + spare[-1].off) if spare else Interval(0, 0)
    return [(v["total_memory_bytes"] - v["non_kv_bytes"] + extra) * v["memory_fraction"]]


def _blocks_of_length(v: Values, around: Any) -> list[Interval]:
    blocks = -(-int(v["max_model_len"].low) // max(1, int(v["block_size"].low)))
    return [Interval(blocks, blocks + 1)]


_SGL, _TRT = cite("SGLang srt/model_executor/model_runner.py"), cite("TensorRT-LLM cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp")
OTHERS = (
    Rule(code="weights", engine="sglang", target="weights_bytes", needs=("avail_before_weights_bytes", "avail_after_weights_bytes"), slack=0.006 * GIB,
         earlier=True, predict=lambda v, a: [v["avail_before_weights_bytes"] - v["avail_after_weights_bytes"]], source=_SGL),
    Rule(code="tokens_again", engine="sglang", target="kv_tokens", needs=("kv_tokens",), earlier=True, predict=_tokens_again, source=_SGL),
    Rule(code="pool_fits", engine="sglang", target="avail_after_pool_bytes", needs=("avail_after_weights_bytes", "k_bytes", "v_bytes"), slack=0.1 * GIB,
         predict=_pool_fits, source=_SGL),
    Rule(code="k_and_v_alike", engine="sglang", target="v_bytes", needs=("k_bytes",), scope="line", predict=_alike,
         source=cite("SGLang srt/mem_cache/memory_pool.py")),
    Rule(code="graphs", engine="sglang", target="cuda_graphs_bytes", needs=("avail_before_graphs_bytes", "avail_after_graphs_bytes"), slack=0.006 * GIB,
         predict=_sglang_graphs, source=_SGL),
    Rule(code="tokens_of_blocks", engine="trtllm", target="kv_tokens", needs=("num_blocks", "block_size"), scope="start",
         predict=lambda v, a: [v["num_blocks"] * v["block_size"]], source=_TRT),
    Rule(code="whole_tokens", engine="trtllm", target="kv_tokens", needs=("available_kv_bytes",), scope="start", predict=_whole_tokens, source=_TRT),
    Rule(code="blocks_of_length", engine="trtllm", target="blocks_per_request", needs=("max_model_len", "block_size"), scope="start",
         predict=_blocks_of_length, source=_TRT),
    Rule(code="non_kv", engine="trtllm", target="non_kv_bytes", needs=("weights_bytes", "activation_bytes", "non_torch_bytes"), slack=ROUND,
         predict=lambda v, a: [v["weights_bytes"] + v["activation_bytes"] + v["non_torch_bytes"]], source=cite("TensorRT-LLM _torch/pyexecutor/_util.py")),
    Rule(code="budget", engine="trtllm", target="available_kv_bytes", needs=("total_memory_bytes", "non_kv_bytes", "memory_fraction"), scope="line",
         slack=ROUND, predict=_trt_budget, source=cite("TensorRT-LLM _torch/pyexecutor/_util.py")),
    Rule(code="tokens_of_blocks", engine="tgi", target="kv_tokens", needs=("num_blocks", "block_size"), scope="start",
         predict=lambda v, a: [v["num_blocks"] * v["block_size"]], source=cite("TGI server/text_generation_server/models/flash_causal_lm.py")),
    Rule(code="non_kv", engine="mlc", target="non_kv_bytes", needs=("weights_bytes", "available_kv_bytes", "activation_bytes"), scope="line",
         slack=0.01 * MIB, predict=lambda v, a: [v["weights_bytes"] + v["available_kv_bytes"] + v["activation_bytes"]],
         source=cite("mlc-llm cpp/serve/config.cc")),
)  # fmt: skip

"""vLLM's arithmetic: budget, pool, tokens, concurrency, advice, refusals."""

from __future__ import annotations

from math import floor
from typing import Any

from planner.enginelogs.intervals import Interval
from planner.enginelogs.rules.base import ROUND, Predict, Rule, Values
from planner.engines.shared import version_tuple
from planner.notes import cite
from planner.units import GIB, MIB

BLOCK = 16  # vLLM's default block on CUDA
REDUNDANCY = 150 * MIB  # what vLLM keeps back in its advice (v1/worker/gpu_worker.py redundancy_buffer_memory)
SWAP = 4 * GIB  # V0's default swap space a GPU
MOST_GROUPS = 64


def _sum_rest(whole: str, *parts: str) -> Predict:
    """`whole` less its parts; also less the estimated graphs where the log says that they are inside the budget (0.21 and newer)."""

    def predict(v: Values, around: Any) -> list[Interval]:
        rest = v[whole]
        for part in parts:
            rest = rest - v[part]
        graphs = around.scope.get("cuda_graphs_estimated_bytes")
        out = [rest]
        if graphs:
            g = graphs[-1]
            out.append(rest - Interval(g.value - g.off, g.value + g.off))
        return out

    return predict


def _advice(whole: str, *parts: str) -> Predict:
    def predict(v: Values, around: Any) -> list[Interval]:
        rest = v[whole] - float(REDUNDANCY)
        for part in parts:
            rest = rest - v[part]
        return [rest]

    return predict


def _concurrency(v: Values, around: Any) -> list[Interval]:
    """Tokens / length; where the figure is blocks / groups x block size, whole blocks were cut off it, and a window takes a block more."""
    tokens, longest = v["kv_tokens"], v["concurrency_tokens"]
    if longest.low <= 0:
        return []
    out = [tokens / longest]
    if tokens.low > 0 and not _one_group(tokens, around):
        out.append(Interval(tokens.low / (longest.low + BLOCK), (tokens.low + BLOCK) / longest.low))
    return out


def _one_group(tokens: Interval, around: Any) -> bool:
    """Whether the token figure is for certain that of a single group of layers, or of concurrency x length."""
    blocks, size = around.count("num_blocks"), around.count("block_size") or around.flag("block_size") or BLOCK
    newer = around.log.release is not None and version_tuple(around.log.release) >= (0, 22)
    return tokens.low % BLOCK != 0 or newer or (blocks is not None and blocks * size == tokens.low)


def _grouped(v: Values, seen: Interval, around: Any) -> bool:
    """Before 0.22 the token figure was that of one group of layers: with several groups it is smaller than concurrency x length, or larger
    by the one block more that each window takes. A figure that is no whole number of blocks is never such a one."""
    tokens, longest = v["kv_tokens"].low, v["concurrency_tokens"].low
    if tokens <= 0 or _one_group(v["kv_tokens"], around):
        return False
    if any(around.has(name) for name in ("padding_layers", "mamba_padding_percent")):
        return True
    ratio = seen.middle * longest / tokens
    return ratio > 1.02 and around.count("num_blocks") is None


def _tokens_of_blocks(v: Values, around: Any) -> list[Interval]:
    blocks, size = int(v["num_blocks"].low), around.count("block_size") or around.flag("block_size") or BLOCK
    if blocks <= 0:
        return [Interval(blocks * size, blocks * size)]
    most = 1 if around.has("cpu_blocks") else MOST_GROUPS  # V0, which prints CPU blocks, knew no groups
    return [Interval(n, n) for groups in range(1, most + 1) if (n := blocks // groups * size)]


def _blocks_unsure(v: Values, seen: Interval, around: Any) -> bool:
    """Whether another block size, which the log does not print, gives the figure; or the newer token figure, which is a share of a request."""
    if around.count("block_size") or around.flag("block_size"):
        return False
    blocks = v["num_blocks"].low
    other_size = seen.low % blocks == 0 and seen.low // blocks in (8, 32, 64, 128, 256) if blocks > 0 else False
    return other_size or (blocks > 0 and seen.low % BLOCK != 0 and not around.has("cpu_blocks"))


def _concurrency_of_blocks(v: Values, around: Any) -> list[Interval]:
    if around.scope.get("kv_tokens"):
        return []
    size = around.count("block_size") or around.flag("block_size") or BLOCK
    return [v["num_blocks"] * size / v["concurrency_tokens"]] if v["concurrency_tokens"].low > 0 else []


def _concurrency_unsure(v: Values, seen: Interval, around: Any) -> bool:
    if around.count("block_size") or around.flag("block_size"):
        return False
    blocks, longest = v["num_blocks"].low, v["concurrency_tokens"].low
    if blocks <= 0:
        return False
    least, most = seen.low * longest / blocks, seen.high * longest / blocks
    return floor(most / 8) * 8 >= max(8, least)  # Gaudi has 128, Neuron one block a request, hybrid models multiples of 16


def _pool_of_swap(v: Values, around: Any) -> list[Interval]:
    """V0: CPU blocks share out the swap space, so they tell the bytes of a block."""
    swap = (around.flag("swap_space") or SWAP / GIB) * GIB
    cpu, gpu = v["cpu_blocks"].low, v["num_blocks"].low
    if cpu <= 0 or gpu <= 0:
        return []
    return [Interval(swap / (cpu + 1) * gpu, swap / cpu * (gpu + 1))]


def _advised_fraction(v: Values, around: Any) -> list[Interval]:
    return [v["memory_fraction"] * 2 - v["fraction_with_graphs"]]


def _without_graphs(v: Values, around: Any) -> list[Interval]:
    return [v["memory_fraction"] - v["cuda_graphs_estimated_bytes"] / v["total_memory_bytes"]]


def _length_bound(v: Values, around: Any) -> list[Interval]:
    """What a request needs grows with its length at most in proportion, so the longest that fits is at most length x available / needed."""
    if v["kv_needed_bytes"].low <= 0 or v["available_kv_bytes"].high <= 0:
        return []
    most = v["max_model_len"] * v["available_kv_bytes"] / v["kv_needed_bytes"]
    return [Interval(0, min(most.high + BLOCK, v["max_model_len"].high))]


def _needs_more(v: Values, around: Any) -> list[Interval]:
    return [Interval(v["available_kv_bytes"].low, float("inf"))]


def _same(name: str) -> Predict:
    return lambda v, around: [v[name]]


_V1 = cite("vLLM v1/worker/gpu_worker.py")
_V0 = cite("vLLM 0.6 worker/worker.py")
_KV = cite("vLLM v1/core/kv_cache_utils.py")
VLLM = (
    Rule(code="concurrency", engine="vllm", target="max_concurrency", needs=("kv_tokens", "concurrency_tokens"), predict=_concurrency, source=_KV,
         uncertain=_grouped),
    Rule(code="tokens_of_blocks", engine="vllm", nearest=True, target="kv_tokens", needs=("num_blocks",), predict=_tokens_of_blocks, source=_KV, scope="start",
         uncertain=_blocks_unsure),
    Rule(code="concurrency", engine="vllm", target="max_concurrency", needs=("num_blocks", "concurrency_tokens"), predict=_concurrency_of_blocks, source=_V0,
         uncertain=_concurrency_unsure),
    Rule(code="requested", engine="vllm", target="requested_bytes", needs=("memory_fraction", "total_memory_bytes"), scope="line",
         predict=lambda v, a: [v["memory_fraction"] * v["total_memory_bytes"]], source=_V1),
    Rule(code="non_kv", engine="vllm", target="non_kv_bytes", needs=("weights_bytes", "activation_bytes", "non_torch_bytes"), scope="line", slack=ROUND,
         predict=lambda v, a: [v["weights_bytes"] + v["activation_bytes"] + v["non_torch_bytes"]], source=_V1),
    Rule(code="budget", engine="vllm", target="available_kv_bytes", needs=("requested_bytes", "non_kv_bytes"), slack=ROUND,
         predict=_sum_rest("requested_bytes", "non_kv_bytes"), source=_V1),
    Rule(code="budget", engine="vllm", target="available_kv_bytes", needs=("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes"),
         scope="line", slack=ROUND, predict=_sum_rest("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes"), source=_V1),
    Rule(code="budget", engine="vllm", target="available_kv_bytes", needs=("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes"),
         slack=ROUND, predict=_sum_rest("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes"), source=_V1),
    Rule(code="budget", engine="vllm", target="available_kv_bytes", needs=("requested_bytes", "consumed_bytes", "activation_bytes"), slack=ROUND,
         predict=_sum_rest("requested_bytes", "consumed_bytes", "activation_bytes"), source=_V1),
    Rule(code="budget", engine="vllm", target="available_kv_bytes", needs=("total_memory_bytes", "memory_fraction", "peak_torch_bytes", "non_torch_bytes"),
         scope="line", slack=ROUND, source=_V0,
         predict=lambda v, a: [v["total_memory_bytes"] * v["memory_fraction"].middle - v["peak_torch_bytes"] - v["non_torch_bytes"]]),
    Rule(code="advice", engine="vllm", target="kv_to_fit_bytes", needs=("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes",
         "cuda_graphs_bytes"), scope="line", slack=ROUND, source=_V1,
         predict=_advice("requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes", "cuda_graphs_bytes")),
    Rule(code="advice", engine="vllm", target="kv_to_fill_bytes", needs=("free_memory_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes",
         "cuda_graphs_bytes"), scope="line", slack=ROUND, source=_V1,
         predict=_advice("free_memory_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes", "cuda_graphs_bytes")),
    Rule(code="advice", engine="vllm", target="kv_to_fit_bytes", needs=("requested_bytes", "consumed_bytes", "activation_bytes", "cuda_graphs_bytes"),
         scope="line", slack=ROUND, predict=_advice("requested_bytes", "consumed_bytes", "activation_bytes", "cuda_graphs_bytes"), source=_V1),
    Rule(code="advice", engine="vllm", target="kv_to_fill_bytes", needs=("free_memory_bytes", "consumed_bytes", "activation_bytes", "cuda_graphs_bytes"),
         scope="line", slack=ROUND, predict=_advice("free_memory_bytes", "consumed_bytes", "activation_bytes", "cuda_graphs_bytes"), source=_V1),
    Rule(code="said_twice", engine="vllm", target="kv_to_fit_printed_bytes", needs=("kv_to_fit_bytes",), scope="line", predict=_same("kv_to_fit_bytes"),
         source=_V1),
    Rule(code="said_twice", engine="vllm", target="kv_to_fill_printed_bytes", needs=("kv_to_fill_bytes",), scope="line", predict=_same("kv_to_fill_bytes"),
         source=_V1),
    Rule(code="swap", engine="vllm", target="available_kv_bytes", needs=("num_blocks", "cpu_blocks"), predict=_pool_of_swap, source=_V0, scope="start"),
    Rule(code="fractions", engine="vllm", target="fraction_without_graphs", needs=("memory_fraction", "fraction_with_graphs"), scope="line", slack=1e-4,
         predict=_advised_fraction, source=_V1),
    Rule(code="fractions", engine="vllm", target="fraction_without_graphs", needs=("memory_fraction", "cuda_graphs_estimated_bytes", "total_memory_bytes"),
         slack=1e-4, predict=_without_graphs, source=_V1),
    Rule(code="length_bound", engine="vllm", target="estimated_max_len", needs=("max_model_len", "kv_needed_bytes", "available_kv_bytes"), scope="line",
         predict=_length_bound, source=_KV),
    Rule(code="needs_more", engine="vllm", target="kv_needed_bytes", needs=("available_kv_bytes",), scope="line", predict=_needs_more, source=_KV),
    *(
        Rule(code="said_twice", engine="vllm", target=name, needs=(name,), earlier=True, slack=0.006 * GIB, predict=_same(name), source=_V1)
        for name in ("available_kv_bytes", "total_memory_bytes", "requested_bytes", "activation_bytes", "non_torch_bytes", "weights_bytes", "cuda_graphs_bytes",
                     "cuda_graphs_estimated_bytes", "free_memory_bytes")
    ),
)  # fmt: skip

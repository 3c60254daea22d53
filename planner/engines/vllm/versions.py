"""What differs between releases of vLLM, newest first. Everything else is taken by the rules of 0.33, with a note.

A row is what a release is known by: its code (0.33.0 wheel), a merged change, or a public start-up log that only one rule explains.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from planner.engines.shared import nearest, version_tuple
from planner.model import ModelSpec
from planner.notes import Note, cite, note

NEWEST = "0.33.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`memory_fraction`: gpu_memory_utilization. `all_in_flight`: a window reserves the tokens of all batches that may be in flight, not
    of one. `printed_by_concurrency`: "GPU KV cache size" is concurrency x length, not blocks / groups x block size. `hybrid_manager`:
    windowed layers give blocks back. `latent`: MLA layers keep the latent, not expanded heads.

    Of the budget (vllm/budget.py): `graphs_inside`: CUDA graphs are estimated before the pool is sized. `others_outside`: what others hold
    is looked at once, before the start, and not charged to the pool. `sampler`: how the warm-up of the sampler filters. `workspace_kept`: the
    experts' workspace stays for the life of the process. `comms`: the communicators of that release (vllm/overhead.py). `all_consumed`:
    all that a process took before the profile counts, not the weights alone. `largest_tier`: devices of 160 GiB batch 16,384 tokens by default; `packed_price`:
    what a block of DeepSeek-V4 costs (vllm/packed.py). `small_gb10`, `small_a100`: these devices take the defaults of small ones."""

    memory_fraction: float = 0.92
    all_in_flight: bool = True
    printed_by_concurrency: bool = True
    hybrid_manager: bool = True
    latent: bool = True
    graphs_inside: bool = True
    others_outside: bool = True
    sampler: str = "flashinfer"
    workspace_kept: bool = True
    comms: str = "fused"
    all_consumed: bool = True
    largest_tier: bool = True
    packed_price: str = "stride"
    small_gb10: bool = True
    small_a100: bool = True


# (first release with the rule, the rule, its value before that release, where it is known from)
CHANGES: tuple[tuple[tuple[int, ...], str, object, str], ...] = (
    ((0, 26), "all_in_flight", False, cite("wheels of 0.25.1 and 0.26.0: v1/kv_cache_interface.py, config/vllm.py max_in_flight_tokens")),
    ((0, 33), "small_gb10", False, cite("wheels of 0.31 and 0.33: engine/arg_utils.py get_batch_defaults")),
    ((0, 27), "all_consumed", False, cite("wheels of 0.25 and 0.27: utils/mem_utils.py memory_profiling total_consumed")),
    ((0, 27), "packed_price", "buckets", cite("wheels of 0.26 and 0.27: v1/core/kv_cache_utils.py _pool_bytes_per_block")),
    ((0, 23), "packed_price", "tuples", cite("wheels of 0.22 and 0.23: v1/core/kv_cache_utils.py _pool_bytes_per_block")),
    ((0, 28), "largest_tier", False, cite("wheels of 0.27 and 0.28: engine/arg_utils.py get_batch_defaults")),
    (
        (0, 20, 2),
        "printed_by_concurrency",
        False,
        cite("wheels of 0.20.0 and 0.20.2: v1/core/kv_cache_utils.py _report_kv_cache_config"),
    ),
    ((0, 22), "memory_fraction", 0.90, cite("vLLM config/cache.py")),
    ((0, 21), "sampler", "triton", cite("wheels of 0.19 to 0.21: envs.py VLLM_USE_FLASHINFER_SAMPLER; v1/sample/ops/topk_topp_sampler.py")),
    ((0, 20), "graphs_inside", False, cite("wheels of 0.19 and 0.20: envs.py VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")),
    ((0, 18), "comms", "snapshot", cite("one model over releases: non-torch 0.13 GiB up to 0.17, 0.25 from 0.18 on (llm-d-planner accuracy report)")),
    ((0, 17), "sampler", "sort", cite("wheels of 0.15 and 0.17: v1/sample/ops/topk_topp_sampler.py; activation 5.64 GiB, then 2.23")),
    ((0, 15), "workspace_kept", False, cite("wheels of 0.11 and 0.15: v1/worker/workspace.py")),
    ((0, 10), "hybrid_manager", False, cite("log of 0.8, Gemma-3-27B: 153,200 tokens as full layers")),
    ((0, 11), "comms", "early", cite("wheels of 0.9.2 and 0.11: v1/worker/gpu_worker.py takes its snapshot before, then after the communicators")),
    ((0, 9, 1), "others_outside", False, cite("wheels of 0.9.0 and 0.9.1: v1/worker/gpu_worker.py init_snapshot")),
    ((0, 9), "small_a100", False, cite("wheels of 0.8.5 and 0.9.0: engine/arg_utils.py")),
    ((0, 7, 1), "latent", False, cite("log of December 2024, DeepSeek-V2-Lite: 85,968 tokens as 16 heads of 256")),
)


def rules_of(asked: str | None) -> tuple[Rules, tuple[Note, ...]]:
    """The rules of a release (None: the newest), and what was taken from which source."""
    version = version_tuple(asked or NEWEST)
    older = {name: (before, source) for since, name, before, source in CHANGES if version < since}
    values = {f.name: older[f.name][0] if f.name in older else f.default for f in fields(Rules)}
    notes: tuple[Note, ...] = ()
    if version[:2] != version_tuple(NEWEST)[:2]:
        notes = (nearest(str(asked), NEWEST, len(older)),)
        notes += tuple(note("derived", "engine_version_rule", rule=name, value=str(before), source=source) for name, (before, source) in older.items())
    return Rules(**values), notes  # type: ignore[arg-type]


# Model runner V2, the default by family before 0.29 (wheels of 0.22, 0.23, 0.25, 0.27, 0.29: config/vllm.py use_v2_model_runner).
V2_CLASSES = {(0, 23): frozenset(("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM")), (0, 22): frozenset(("Qwen3ForCausalLM",))}
V2_MOE = frozenset(("DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM"))  # from 0.25 on
V2_ALL, V2_DENSE = (0, 29), (0, 25)


def runner(model: ModelSpec, asked: str | None) -> tuple[int, bool, bool]:
    """(generation of the model runner, whether it estimates its graphs before the pool is sized, whether its warm-up of the sampler
    filters): the first is 2 for all models from 0.29 on, for dense ones from 0.25 on, before that for a few classes."""
    version, name = version_tuple(asked or NEWEST), model.architecture
    if version >= V2_ALL:
        return 2, True, version >= (0, 33)
    if version >= V2_DENSE:
        second = not model.has_experts() or name in V2_MOE
    else:
        classes = next((names for since, names in V2_CLASSES.items() if version >= since), frozenset())
        second = name in classes and not model.has_experts() and model.quantization is None
    return (2, False, False) if second else (1, rules_of(asked)[0].graphs_inside, True)


STATES_REFUSED = (0, 20)
"""From here on a start with more slots than blocks for states is refused. Merged on 2026-03-31 (pull request 38270); 0.19.0 still captured
its graphs there (vllm-project/recipes 551), the first public refusals are of May 2026."""


def state_slots(asked: str | None, slots: int, blocks: int) -> tuple[Note, ...]:
    """Of a model with states whose decoding steps are captured as graphs: each sequence of the largest one takes a block of the pool
    (config/compilation.py). Before 0.20 the sizes of all graphs were capped at the blocks, silently, so that larger steps ran without."""
    if slots <= blocks:
        return ()
    refused = version_tuple(asked or NEWEST) >= STATES_REFUSED
    code = "state_slots_refused" if refused else "state_slots_capped"
    return (note("warning", code, field="max_num_seqs", slots=slots, blocks=blocks, source=cite("vLLM pull request 38270 (read)")),)


def printed_tokens(rules: Rules, blocks: int, blocks_per_request: int, max_model_len: int, groups: int, block_size: int) -> int:
    """ "GPU KV cache size: N tokens" of the start-up log. `block_size`: the smallest of all groups, tokens."""
    if not rules.printed_by_concurrency:
        return blocks // max(1, groups) * block_size
    return int(blocks / blocks_per_request * max_model_len) if blocks_per_request else 0

"""vLLM 0.33: its defaults for a device, and the pool that its planner makes of a model's layers.

Layer specs (vllm/specs.py) -> groups of equal size (vllm/groups.py) -> one pool of blocks, whose ids cost the same for every group;
DeepSeek-V4's packed pages in vllm/packed.py. Sources: engine/arg_utils.py, config/, v1/core/kv_cache_planning.py of the vllm 0.33.0 wheel.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Pool, Rows
from planner.dtypes import DTYPES, PACKED, kv_layout
from planner.engines.settings import Allocation, Setting, kv_dtype, model_dtype, parallel
from planner.engines.vllm import versions
from planner.engines.vllm.groups import SpecGroup, group
from planner.engines.vllm.packed import is_packed, older_price, packed_groups
from planner.engines.vllm.specs import has_windows, is_sparse, layer_specs
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import GIB

NAME, VERSION = "vllm", versions.NEWEST
DEFAULT_BLOCK_SIZE = 16
HIGH_FRACTION = 0.95  # above it, what a long run fragments and what others take has been seen to end in out-of-memory errors
# Families that this release no longer builds, and the last one that did (model_executor/models/registry.py).
DROPPED = {
    "bamba": "0.23.0", "minimax": "0.23.0", "minimax_m1": "0.23.0", "minimax_text_01": "0.23.0", "dots1": "0.23.0", "mpt": "0.28.0",
    "mllama_text_model": "0.10.2", "bart": "0.10.2", "mbart": "0.10.2", "t5": "none", "mt5": "none", "umt5": "none", "longt5": "none",
}  # fmt: skip
KV_DTYPES = frozenset("bf16 fp16 fp32 fp8 fp8_e4m3 fp8_e5m2 fp8_per_token_head int8_per_token_head int4_per_token_head nvfp4".split())


# -- defaults ----------------------------------------------------------------------------------------------------------


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    """vLLM's own defaults for this device (engine/arg_utils.py get_batch_defaults: the API server's)."""
    notes: list[Note] = []
    rules, older = versions.rules_of(s.engine_version)
    notes += older
    memory = hardware.memory_bytes if hardware else 80 * GIB
    small = hardware is not None and (("A100" in hardware.name and rules.small_a100) or ("GB10" in hardware.name and rules.small_gb10))
    large = memory >= 70 * GIB and not small
    batched = 16384 if memory >= 160 * GIB and rules.largest_tier else 8192 if large else 2048
    p = parallel(s)
    own = model_dtype(model, s)
    if own.name == "fp32" and s.dtype is None and s.kv_dtype == "auto":
        own = DTYPES["bf16"]  # float32 "auto" is run in half precision (config/model.py)
        notes.append(note("derived", "fp32_run_in_half", source=cite("vLLM 0.33 config/model.py")))
    kv = kv_dtype(model, s, follow_checkpoint=True, own=own)
    if kv.name == PACKED and not (is_packed(model) or is_sparse(model)):
        raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=kv.name, engine=NAME, known=", ".join(sorted(KV_DTYPES)))
    if "vllm_ignores_kv_dtype" in model.quirks and kv.name != own.name:  # models/falcon.py passes its attention no cache config
        kv = kv_layout(own.name)
        notes.append(note("warning", "engine_ignores_kv_dtype", field="kv_dtype", model_type=model.model_type, engine=NAME, kv_dtype=kv.name,
                          source=cite("vLLM model_executor/models/falcon.py")))  # fmt: skip
    major = hardware.compute_capability[0] if hardware and hardware.compute_capability else None
    if is_packed(model):
        if s.kv_dtype not in ("auto", "fp8", "fp8_e4m3", PACKED):
            raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=s.kv_dtype, engine=NAME, known=f"auto, fp8, {PACKED}")
        kv = kv_layout("fp8")
        notes.append(note("derived", "packed_rows", source=cite("vLLM 0.33 models/deepseek_v4/attention.py")))
    elif is_sparse(model):
        if s.kv_dtype == "auto" and model.kv_dtype_wish and major == 9:  # executed: no attention backend takes fp8_e4m3 of a checkpoint there
            raise UnsupportedModel("no_backend_for_wish", field="kv_dtype", kv_dtype=model.kv_dtype_wish, engine=NAME)
        if s.kv_dtype == "auto" and model.model_type == "glm_moe_dsa" and major == 10:
            kv = kv_layout("fp8_e4m3")  # model_executor/models/config.py
            notes.append(note("derived", "kv_dtype_by_device", kv_dtype=kv.name, source=cite("vLLM 0.33 model_executor/models/config.py")))
    if kv.name not in KV_DTYPES and kv.name != PACKED:
        raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=kv.name, engine=NAME, known=", ".join(sorted(KV_DTYPES)))
    longest = s.max_model_len or model.max_context_tokens
    if longest is None:
        longest = s.tokens
        notes.append(note("assumed", "no_context_limit", tokens=s.tokens))
    if s.memory_fraction and s.memory_fraction > HIGH_FRACTION:
        notes.append(note("warning", "memory_fraction_high", field="memory_fraction", fraction=s.memory_fraction, source=cite("vLLM issues 153 and 2248")))
    batches = (2 if p.pipeline == 1 else p.pipeline + 1) if s.async_scheduling else p.pipeline
    return Setting(
        engine=NAME,
        version=VERSION,
        parallel=p,
        kv=kv,
        model_dtype=own,
        block_size=s.block_size,
        max_model_len=longest,
        max_num_seqs=s.max_num_seqs or (1024 if large else 256),
        max_num_batched_tokens=s.max_num_batched_tokens or batched,
        max_concurrent_batches=batches if rules.all_in_flight else 1,
        latent=rules.latent,
        asked_version=s.engine_version,
        prints_concurrency=rules.printed_by_concurrency,
        prefix_caching=s.prefix_caching,
        hybrid_manager=s.hybrid_kv_cache_manager and (rules.hybrid_manager or not has_windows(model)),
        memory_fraction=s.memory_fraction or rules.memory_fraction,
        capability=hardware.compute_capability if hardware else None,
        encoder_tokens=s.encoder_tokens or 0,
        draft_tokens=s.num_speculative_tokens,
        notes=tuple(notes),
    )


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    """Groups over all layers of the model, then projected to each pipeline stage. Raises what vLLM itself refuses."""
    check_heads(model, setting.parallel)
    if "not_causal" in model.quirks:  # built as an encoder (model_executor/models/adapters.py): it keeps no KV cache at all
        raise UnsupportedModel("encoder_only", field="is_causal", engine=NAME)
    if "vllm_refuses_window_mix" in model.quirks:  # model_executor/models/qwen2.py
        raise UnsupportedModel("window_mix", field="max_window_layers", engine=NAME)
    notes: list[Note] = []
    if model.model_type in DROPPED:
        notes.append(note("warning", "engine_dropped_model", model_type=model.model_type, engine=NAME, last=DROPPED[model.model_type]))
    if is_packed(model):
        groups = packed_groups(model, setting)
    else:
        specs = layer_specs(model, setting, notes)
        if not specs:
            raise UnsupportedModel("nothing_cached", field="engine", engine=NAME)
        groups = group(specs)
        notes += _padding(groups)
    stages = tuple((_pool(groups, layers, setting, is_packed(model)),) for layers in setting.parallel.stage_layers(len(model.layers), model.drafts))
    return Allocation(stages=stages, notes=tuple(notes))


def _pool(groups: list[SpecGroup], layers: range, setting: Setting, packed: bool = False) -> Pool:
    sizes = [g.spec.block_size for g in groups if g.spec.type in ("full", "window", "chunk")]
    pool = Pool(name="kv", groups=tuple(g.on(layers, setting) for g in groups), priced="pooled", null_blocks=1,
                block_bytes=max(g.page_bytes(layers) for g in groups), block_size=min(sizes, default=None))  # fmt: skip
    rule = versions.rules_of(setting.asked_version)[0].packed_price
    if not packed or rule == "stride":
        return pool
    price, weights, weight = older_price(groups, layers, rule)
    return replace(pool, block_bytes=price, printed_weights=weights, printed_weight=weight) if weight else pool


def _padding(groups: list[SpecGroup]) -> list[Note]:
    if len(groups) < 2:
        return []
    longest = max(len(g.members) for g in groups)
    padded = sum(longest - len(g.members) for g in groups)
    return [note("info", "vllm_groups", groups=len(groups), padded=padded, source=cite("vLLM 0.33 v1/core/kv_cache_planning.py"))]


def check_heads(model: ModelSpec, p: Parallel) -> None:
    """vLLM's own refusals (config/model.py verify_with_parallel_config; the attention modules' assertions)."""
    padded = -(-model.vocab_size // 64) * 64
    if padded % p.tensor:  # VocabParallelEmbedding (model_executor/layers/vocab_parallel_embedding.py) pads to 64, then divides
        raise InvalidInput("vocab_not_divisible", field="tp", vocab=padded, tp=p.tensor)
    for layer, _ in model.layer_groups():
        width = layer.mlp.width if layer.mlp else 0
        if width % p.tensor:  # MergedColumnParallelLinear (model_executor/layers/linear.py divide)
            raise InvalidInput("mlp_not_divisible", field="tp", width=width, tp=p.tensor)
        a = layer.attention
        if a is None:
            continue
        if a.q_heads % p.attention_ranks:
            raise InvalidInput("heads_not_divisible", field="tp", heads=a.q_heads, tp=p.attention_ranks)
        small, big = sorted((a.kv_heads, p.attention_ranks))
        if a.kv_rank is None and big % small:
            raise InvalidInput("kv_heads_not_divisible", field="tp", kv_heads=a.kv_heads, tp=p.attention_ranks)
        if p.context > 1 and a.kv_rank is None and (a.kv_heads * p.context > p.attention_ranks or a.q_heads // a.kv_heads % p.context):
            raise InvalidInput("context_ranks_gqa", field="dcp", dcp=p.context, tp=p.attention_ranks, kv_heads=a.kv_heads, q_heads=a.q_heads)
    if p.context > 1 and any(isinstance(k, Rows) and k.limit_tokens is not None for k, _ in model.cache_groups()):
        raise InvalidInput("context_ranks_window", field="dcp", dcp=p.context)


def printed_tokens(setting: Setting, pool: Pool, blocks: int, blocks_per_request: int) -> int:
    """ "GPU KV cache size: N tokens" as the start-up log of this release prints it."""
    rules, _ = versions.rules_of(setting.asked_version)
    return versions.printed_tokens(rules, blocks, blocks_per_request, setting.max_model_len, len(pool.groups), pool.block_size or setting.max_model_len)

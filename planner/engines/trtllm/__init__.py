"""TensorRT-LLM 1.2, and what older C++ engines do otherwise: its defaults, and the pools that it makes of the layers.

One pool of blocks for all layers of one window; states in slots of their own, taken whole for max_batch_size requests; in old releases a
pool of cross rows. How many bytes each pool gets: trtllm/sizes.py. Every rule here was read in the public repository, none was run: a note
says so on each plan. From the free bytes on, public start-up logs show the same figures (tests/planner/test_trtllm.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Cross, Group, Pool, Rows, State, Term
from planner.dtypes import DTYPES, kv_layout
from planner.engines.settings import Allocation, Setting, kv_dtype, model_dtype, parallel
from planner.engines.trtllm.models import NATIVE, STATES, VERSION, class_of, rules_of
from planner.engines.trtllm.rows import Charge, charges, cross_charges, state_bytes, state_slots
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.hardware import Hardware
from planner.messages import Word
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario

__all__ = ["VERSION", "allocate", "settle"]
NAME = "trtllm"
SOURCE = cite("TensorRT-LLM _torch/pyexecutor/_util.py, resource_manager.py, batch_manager/kvCacheManager.cpp (read)")
KV_DTYPES = frozenset(("bf16", "fp16", "fp32", "fp8", "fp8_e4m3", "nvfp4"))
DEFAULT_FRACTION = 0.9  # KvCacheConfig.free_gpu_memory_fraction (llmapi/llm_args.py)
MAX_BATCH_SIZE, MAX_NUM_TOKENS = 2048, 8192  # BuildConfig (llmapi/llm_args.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """TensorRT-LLM's own settings. `window_pools`: max_attention_window holds each layer's own window. `whole_block_up`: the pool's last
    block is rounded up (C++ engines). `prints_blocks`: the log's tokens are those of whole blocks. `cross_fraction`: share of the blocks that
    cross rows get, None without them."""

    window_pools: bool = False
    whole_block_up: bool = False
    prints_blocks: bool = True
    cross_fraction: float | None = None


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    """Raises for what TensorRT-LLM refuses, and for what these rules do not cover."""
    rules, older = rules_of(s.engine_version)
    notes: list[Note] = [*older, note("assumed", "trtllm_read", source=SOURCE)]
    p = replace(parallel(s), remainder_first=rules.pytorch)
    cross = any(isinstance(k, Cross) for k, _ in model.cache_groups())
    check(model, s, p, rules.pytorch, cross)
    own = model_dtype(model, s)
    if own.name == "fp32" and s.dtype is None and s.kv_dtype == "auto":  # pyexecutor/model_loader.py: float32 is run in bfloat16
        own = DTYPES["bf16"]
        notes.append(note("derived", "fp32_run_in_half", source=SOURCE))
    known = KV_DTYPES if rules.pytorch else KV_DTYPES - {"nvfp4"} | {"int8"}
    kv = kv_dtype(model, s, follow_checkpoint=True, own=own)
    if kv.name not in known and s.kv_dtype == "auto":
        kv = kv_layout(own.name)
    if kv.name not in known:
        raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=kv.name, engine=NAME, known=", ".join(sorted(known)))
    block = s.block_size or rules.tokens_per_block
    if block < 2 or block & (block - 1):  # docs/source/features/kvcache.md: a power of two greater than one
        raise InvalidInput("block_power_of_two", field="block_size", value=block, engine=NAME)
    if s.memory_fraction is not None and s.memory_fraction >= 1:  # both managers assert so
        raise InvalidInput("fraction_below_one", field="memory_fraction", value=s.memory_fraction, engine=NAME)
    return Setting(
        engine=NAME,
        version=VERSION if rules.pytorch else "0.x",
        asked_version=s.engine_version,
        parallel=p,
        kv=kv,
        model_dtype=own,
        block_size=block,
        max_model_len=s.max_model_len or model.max_context_tokens or s.tokens,
        max_num_seqs=s.max_num_seqs or MAX_BATCH_SIZE,
        max_num_batched_tokens=s.max_num_batched_tokens or MAX_NUM_TOKENS,
        prefix_caching=s.prefix_caching,
        memory_fraction=s.memory_fraction or DEFAULT_FRACTION,
        capability=hardware.compute_capability if hardware else None,
        encoder_tokens=s.encoder_tokens or 0,
        draft_tokens=s.num_speculative_tokens,
        own=Values(
            window_pools=s.window_pools,
            whole_block_up=rules.whole_block_up,
            prints_blocks=rules.prints_blocks,
            cross_fraction=s.cross_kv_cache_fraction if cross else None,
        ),
        notes=tuple(notes),
    )


def check(model: ModelSpec, s: Scenario, p: Parallel, pytorch: bool, cross: bool) -> None:
    """Refusals, each under the option or key that it hangs on."""
    states = any(isinstance(k, State) for k, _ in model.cache_groups())
    if p.context > 1:
        raise UnsupportedValue("option_not_covered", field="dcp", value=p.context, engine=NAME)
    if p.attention_data not in (1, p.tensor):  # enable_attention_dp: all ranks or none
        raise InvalidInput("attention_dp_all_ranks", field="dp_attention", value=p.attention_data, tp=p.tensor, engine=NAME)
    if not pytorch and (p.attention_data > 1 or s.num_speculative_tokens or states):
        field = "dp_attention" if p.attention_data > 1 else "num_speculative_tokens" if s.num_speculative_tokens else "engine_version"
        raise UnsupportedValue("option_not_covered", field=field, value=str(getattr(s, field)), engine=NAME)
    if states and s.num_speculative_tokens:  # states of every drafted token beside the slots
        raise UnsupportedValue("option_not_covered", field="num_speculative_tokens", value=s.num_speculative_tokens, engine=NAME)
    if not pytorch and p.pipeline > 1 and (len(model.layers) - model.drafts) % p.pipeline:  # mapping.py: layers // pp_size each
        raise InvalidInput("degree_not_dividing", field="pp", value=p.pipeline, whole=len(model.layers), name=Word("layers", "word.layers"))
    for layer, _ in model.layer_groups():
        a = layer.attention
        if a is None:
            continue
        if a.q_heads % p.attention_ranks:
            raise InvalidInput("query_heads_no_split", field="tp", heads=a.q_heads, tp=p.attention_ranks, engine=NAME)
        small, big = sorted((a.kv_heads, p.attention_ranks))
        if a.kv_rank is None and small and big % small:
            raise InvalidInput("kv_heads_no_split", field="tp", kv_heads=a.kv_heads, tp=p.attention_ranks, engine=NAME)
    if cross and pytorch:
        raise UnsupportedModel("cross_by_version", field="engine_version", engine=NAME, version=VERSION)
    if cross and s.cross_kv_cache_fraction is None:  # batch_manager/trtGptModelInflightBatching.cpp: must be set
        raise InvalidInput("option_missing", field="cross_kv_cache_fraction")
    if s.window_pools and (states or cross or s.kv_dtype == "nvfp4" or p.pipeline > 1 or s.num_speculative_tokens):
        raise UnsupportedValue("option_not_covered", field="window_pools", value="true", engine=NAME)
    if states and class_of(model) not in STATES:
        raise UnsupportedModel("no_class", field="architectures", architecture=class_of(model) or model.model_type, engine=NAME, version=VERSION)


# -- pools -------------------------------------------------------------------------------------------------------------


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    """The pools of one rank, windows smallest first as they are sized. Raises what the managers cannot hold."""
    v: Values = setting.own
    priced = charges(model, setting, v.window_pools)
    crossed = cross_charges(model, setting)
    if not priced and not any(isinstance(k, State) for k, _ in model.cache_groups()):
        raise UnsupportedModel("nothing_cached", field="engine", engine=NAME)
    stages = []
    for layers in setting.parallel.stage_layers(len(model.layers), model.drafts):
        pools = [_token_pool(window, [c for c in priced if c.window == window], layers, setting) for window in _windows(priced)]
        if crossed:
            pools.append(_cross_pool(crossed, setting))
        state = state_bytes(model, setting, layers)
        if state:
            pools.append(_state_pool(model, state, layers))
        held = tuple(p for p in pools if p.groups)
        if not held:
            raise UnsupportedValue("option_not_covered", field="pp", value=setting.parallel.pipeline, engine=NAME)
        stages.append(held)
    return Allocation(stages=tuple(stages), notes=tuple(_notes(model, setting, priced)))


def _windows(priced: tuple[Charge, ...]) -> list[int | None]:
    return sorted({c.window for c in priced}, key=lambda w: (w is None, w or 0))


def _token_pool(window: int | None, priced: list[Charge], layers: range, setting: Setting) -> Pool:
    """Blocks of all layers with this window. While it decodes, a sequence lets a block go once a whole one lies behind the window
    (kvCacheManager.cpp adjustBlocksIfNeeded); the prompt itself is held whole until it is computed."""
    unit, groups = setting.block_size or 1, []
    for c in priced:
        here = tuple(i for i in c.layers if i in layers)
        if here:
            full = Term(unit_bytes=unit * c.row_bytes, unit_tokens=unit)
            held = replace(full, cap_tokens=window + unit - 1) if window else full
            groups.append(Group(kind=c.kind if window or not c.limit_tokens else "full", layers=here, admission=full, resident=held,
                                content_bytes=len(here) * unit * c.row_bytes, limit_tokens=c.limit_tokens))  # fmt: skip
    name = f"window_{window}" if window else "full"
    return Pool(name=name, groups=tuple(groups), block_size=unit, block_bytes=sum(g.bytes_per_unit() for g in groups))


def _cross_pool(crossed: tuple[tuple[Cross, Charge], ...], setting: Setting) -> Pool:
    unit, groups = setting.block_size or 1, []
    for kind, c in crossed:
        blocks = -(-(kind.source_tokens or setting.encoder_tokens) // unit)
        term = Term(unit_bytes=unit * c.row_bytes, unit_tokens=None, extra_units=blocks)
        groups.append(Group(kind="cross", layers=c.layers, admission=term, resident=term))
    return Pool(name="cross", groups=tuple(groups), block_size=unit, block_bytes=sum(g.bytes_per_unit() for g in groups))


def _state_pool(model: ModelSpec, size: int, layers: range) -> Pool:
    """Slots of all state layers of a stage together (mamba_cache_manager.py: tensors of max_batch_size slots)."""
    here = tuple(i for i in layers if any(isinstance(k, State) for k in model.layers[i].caches))
    term = Term(unit_bytes=size // len(here), unit_tokens=None, extra_units=1)
    group = Group(kind="state", layers=here, admission=term, resident=term, content_bytes=size)
    return Pool(name="state", groups=(group,), priced="pooled", block_bytes=size)


def _notes(model: ModelSpec, setting: Setting, priced: tuple[Charge, ...]) -> list[Note]:
    notes, p = [], setting.parallel
    pytorch = setting.version == VERSION
    if pytorch and class_of(model) not in NATIVE:
        notes.append(note("warning", "trtllm_no_class", field="architectures", architecture=class_of(model) or model.model_type, source=SOURCE))
    full = sum(len(c.layers) for c in priced if c.limit_tokens and not c.window)
    if full:
        notes.append(note("info", "trtllm_windows_full", field="window_pools", layers=full, source=SOURCE))
    if any(c.window for c in priced):
        notes.append(note("assumed", "trtllm_window_pools", field="window_pools", source=SOURCE))
    if any(isinstance(k, Rows) and k.shard == "heads" and k.heads < p.attention_ranks for k, _ in model.cache_groups()) and pytorch:
        notes.append(note("assumed", "trtllm_replicated", field="tp", source=SOURCE))
    if setting.draft_tokens:
        notes.append(note("assumed", "trtllm_drafts", field="num_speculative_tokens", tokens=setting.draft_tokens, source=SOURCE))
    if any(isinstance(k, State) for k, _ in model.cache_groups()):
        notes.append(note("assumed", "trtllm_states", field="max_num_seqs", slots=state_slots(setting), source=SOURCE))
    return notes

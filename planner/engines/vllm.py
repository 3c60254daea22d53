"""vLLM 0.33: layer specs -> page unification -> groups of equal size -> one pool of blocks, whose ids cost the same for every group.

Sources (vllm 0.33.0 wheel): v1/kv_cache_interface.py (pages, admission), v1/core/kv_cache_planning.py (grouping), platforms/interface.py
(hybrid block size), engine/arg_utils.py (defaults). Checked against the planner's own code run on real configs.
This version covers full, windowed, chunked and latent attention and gated delta net states; it refuses what it does not.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from planner.cache import Group, Kind, Pool, Rows, State, Term
from planner.dtypes import DTYPES, DType
from planner.engines.architecture import state_bytes
from planner.engines.settings import Allocation, Setting, kv_dtype, model_dtype, parallel
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import GIB

NAME, VERSION = "vllm", "0.33.0"
DEFAULT_BLOCK_SIZE = 16
# gpu_memory_utilization by release, newest first (vLLM config/cache.py).
MEMORY_FRACTIONS = (((0, 22), 0.92), ((0, 0), 0.90))
KV_DTYPES = frozenset("bf16 fp16 fp32 fp8 fp8_e4m3 fp8_e5m2 fp8_per_token_head int8_per_token_head int4_per_token_head nvfp4".split())


# -- defaults ----------------------------------------------------------------------------------------------------------


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    """vLLM's own defaults for this device (engine/arg_utils.py get_batch_defaults: the API server's)."""
    memory = hardware.memory_bytes if hardware else 80 * GIB
    large = memory >= 70 * GIB and not (hardware and "A100" in hardware.name)
    batched = 16384 if memory >= 160 * GIB else 8192 if large else 2048
    notes: list[Note] = []
    version = version_tuple(s.engine_version or VERSION)
    if version[:2] != (0, 33):
        notes.append(note("warning", "engine_version_nearest", asked=s.engine_version or "", used=VERSION))
    p = parallel(s)
    own = model_dtype(model, s)
    if own.name == "fp32" and s.dtype is None and s.kv_dtype == "auto":
        own = DTYPES["bf16"]  # float32 "auto" is run in half precision (config/model.py)
        notes.append(note("derived", "fp32_run_in_half", source=cite("vLLM 0.33 config/model.py")))
    kv = kv_dtype(model, s, follow_checkpoint=True, own=own)
    if kv.name not in KV_DTYPES:
        raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=kv.name, engine=NAME, known=", ".join(sorted(KV_DTYPES)))
    longest = s.max_model_len or model.max_context_tokens
    if longest is None:
        longest = s.tokens
        notes.append(note("assumed", "no_context_limit", tokens=s.tokens))
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
        max_concurrent_batches=(2 if p.pipeline == 1 else p.pipeline + 1) if s.async_scheduling else p.pipeline,
        prefix_caching=s.prefix_caching,
        hybrid_manager=s.hybrid_kv_cache_manager,
        memory_fraction=s.memory_fraction or next(f for v, f in MEMORY_FRACTIONS if version[:2] >= v),
        capability=hardware.compute_capability if hardware else None,
        encoder_tokens=s.encoder_tokens or 0,
        draft_tokens=s.num_speculative_tokens,
        notes=tuple(notes),
    )


def version_tuple(text: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", text.strip())
    if not match:
        raise InvalidInput("version_unreadable", field="engine_version", value=text[:40])
    return tuple(int(p or 0) for p in match.groups())


# -- specs: one cache of one layer, as this engine pages it ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """`page_bytes` for `block_size` tokens on one rank (a state: for one slot, padded to the page). Specs group by equality."""

    kind: str
    block_size: int
    page_bytes: int
    window: int | None = None
    chunk: int | None = None
    state_blocks: int = 0

    def admission(self, setting: Setting) -> Term:
        """Blocks that a request of the largest length reserves (v1/kv_cache_interface.py max_memory_usage_bytes)."""
        in_flight = setting.max_in_flight_tokens
        if self.state_blocks:
            return Term(unit_bytes=self.page_bytes, unit_tokens=None, extra_units=self.state_blocks)
        if self.window:
            # The window need not begin at a block's edge: one block more than its tokens fill.
            return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=self.window - 1 + in_flight, extra_units=1)
        if self.chunk:
            return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=self.chunk + in_flight)
        return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size)

    def resident(self) -> Term:
        """Blocks that a decoding sequence holds: of a window, those that cover the last W - 1 tokens, wherever their edges lie."""
        if self.state_blocks:
            return Term(unit_bytes=self.page_bytes, unit_tokens=None, extra_units=self.state_blocks)
        cap = self.window - 1 + self.block_size if self.window else self.chunk
        return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=cap)


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    """Groups over all layers of the model, then projected to each pipeline stage."""
    check_heads(model, setting.parallel)
    if "not_causal" in model.quirks:  # built as an encoder (model_executor/models/adapters.py): it keeps no KV cache at all
        raise UnsupportedModel("encoder_only", field="is_causal", engine=NAME)
    if "vllm_refuses_window_mix" in model.quirks:  # model_executor/models/qwen2.py
        raise UnsupportedModel("window_mix", field="max_window_layers", engine=NAME)
    notes: list[Note] = []
    specs = layer_specs(model, setting, notes)
    grouped = group(specs)
    stages = []
    for layers in setting.parallel.stage_layers(len(model.layers), model.drafts):
        groups = []
        for spec, where in grouped:
            here = tuple(i for i in where if i in layers)
            groups.append(Group(kind=spec.kind, layers=here, admission=spec.admission(setting), resident=spec.resident()))
        block_bytes = max((len(g.layers) * g.resident.unit_bytes for g in groups), default=0)
        if len(grouped) == 1:  # its layers' pages may differ in size (a summed page: v1/core/kv_cache_planning.py)
            block_bytes = sum(spec.page_bytes for spec, i in specs if i in layers)
        sizes = {spec.block_size for spec, _ in grouped if not spec.state_blocks}
        pool = Pool(name="kv", groups=tuple(groups), priced="pooled", block_bytes=block_bytes, null_blocks=1, block_size=min(sizes, default=None))
        stages.append((pool,))
    if len(grouped) > 1:
        longest = max(len(where) for _, where in grouped)
        padding = sum(longest - len(where) for _, where in grouped)
        notes.append(note("info", "vllm_groups", groups=len(grouped), padded=padding, source=cite("vLLM 0.33 v1/core/kv_cache_planning.py")))
    return Allocation(stages=tuple(stages), notes=tuple(notes))


def check_heads(model: ModelSpec, p: Parallel) -> None:
    """vLLM's own refusals (config/model.py verify_with_parallel_config; the attention modules' assertions)."""
    for layer, _ in model.layer_groups():
        a = layer.attention
        if a is None:
            continue
        if a.q_heads % p.attention_ranks:
            raise InvalidInput("heads_not_divisible", field="tp", heads=a.q_heads, tp=p.attention_ranks)
        small, big = sorted((a.kv_heads, p.attention_ranks))
        if a.kv_rank is None and big % small:
            raise InvalidInput("kv_heads_not_divisible", field="tp", kv_heads=a.kv_heads, tp=p.attention_ranks)


def layer_specs(model: ModelSpec, setting: Setting, notes: list[Note]) -> list[tuple[Spec, int]]:
    """(spec, layer index) of every cache, before pages are unified."""
    has_full = any(isinstance(k, Rows) and k.limit_tokens is None for k, _ in model.cache_groups())
    states = [k for k, _ in model.cache_groups() if isinstance(k, State)]
    if states and not setting.hybrid_manager:
        raise UnsupportedValue("hybrid_manager_needed", field="hybrid_kv_cache_manager", engine=NAME)
    block, page = block_size(model, setting, notes), 0
    if states:
        block, page = hybrid_block(model, setting, states, block)
        notes.append(note("derived", "hybrid_block", block=block, page=page, source=cite("vLLM 0.33 platforms/interface.py")))
    out: list[tuple[Spec, int]] = []
    for kind, where in model.cache_groups():
        spec = _spec(kind, model, where[0], setting, block, page)
        if not setting.hybrid_manager and has_full and (spec.window or spec.chunk):
            spec = replace(spec, kind="full", window=None, chunk=None)
        out += [(spec, i) for i in where]
    return sorted(out, key=lambda pair: pair[1])


def _spec(kind: Kind, model: ModelSpec, layer: int, setting: Setting, block: int, page: int) -> Spec:
    p = setting.parallel
    if isinstance(kind, State):
        return Spec(kind="state", block_size=block, page_bytes=page, state_blocks=state_blocks(setting))
    if not isinstance(kind, Rows) or kind.format != "kv" or kind.ratio != 1:
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind.kind, engine=NAME, version=VERSION)
    heads, k_dim, v_dim = p.heads_on_rank(kind.heads), kind.k_dim, kind.v_dim
    if kind.shard == "copy":
        heads = kind.heads
        attention = model.layers[layer].attention
        if attention is not None and "vllm_expands_latent" in model.quirks:
            heads, k_dim, v_dim = p.heads_on_rank(attention.q_heads), attention.qk_dim, attention.qk_dim
    elif setting.kv.element.block_bytes < 2 * setting.kv.element.block_elements and k_dim % 16:
        raise UnsupportedModel("head_dim_not_in_engine", field="head_dim", head_dim=k_dim, kv_dtype=setting.kv.name, engine=NAME)
    row = setting.kv.row_bytes(heads, k_dim, v_dim)
    window = kind.window + 1 if kind.window and "vllm_window_plus_one" in model.quirks else kind.window  # models/commandr.py
    return Spec(kind=kind.kind, block_size=block, page_bytes=block * row, window=window, chunk=kind.chunk)


# -- block sizes -------------------------------------------------------------------------------------------------------


def is_latent(model: ModelSpec) -> bool:
    return "vllm_expands_latent" not in model.quirks and any(k.kind == "latent" for k, _ in model.cache_groups())


def block_size(model: ModelSpec, setting: Setting, notes: list[Note]) -> int:
    """The user's block size, else the backend's: MLA takes 16 on SM8.0 / 9.0 (64 with an fp8 cache on Hopper: FlashMLA), 32 on SM10.0."""
    smallest = DEFAULT_BLOCK_SIZE
    if is_latent(model):
        major = setting.capability[0] if setting.capability else None
        if major is None:
            notes.append(note("assumed", "mla_block_by_device", block=smallest))
        elif major >= 10:
            smallest = 32
        elif major == 9 and setting.kv.element.block_bytes == 1:
            smallest = 64
    wide = max((k.k_dim for k, _ in model.cache_groups() if isinstance(k, Rows) and k.shard == "heads"), default=0)
    if wide > 256 and setting.kv.element.block_bytes == 1:  # FlashAttention has no such heads in fp8; Triton's blocks are wider (executed on SM9.0)
        if setting.capability is None or setting.capability[0] != 9:
            raise UnsupportedModel("head_dim_not_in_engine", field="head_dim", head_dim=wide, kv_dtype=setting.kv.name, engine=NAME)
        smallest = 64
    asked = setting.block_size or smallest
    if asked % smallest:
        raise InvalidInput("block_size_multiple", field="block_size", value=asked, multiple=smallest)
    return asked


def state_blocks(setting: Setting) -> int:
    """State slots of one request: 1 without prefix caching, 2 with it ("align" mode), 3 where the gated-delta prefill kernel of
    Hopper keeps a checkpoint."""
    if not setting.prefix_caching:
        return 1
    return 3 if setting.capability and setting.capability[0] == 9 else 2


def hybrid_block(model: ModelSpec, setting: Setting, states: list[State], smallest: int) -> tuple[int, int]:
    """(block size, page) of a model with states: the attention block is raised until its page holds a whole state."""
    rows = [k for k, _ in model.cache_groups() if isinstance(k, Rows)]
    if "gated_delta_net" not in model.quirks or not rows:
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind="state", engine=NAME, version=VERSION)
    major = setting.capability[0] if setting.capability else None
    if major not in (8, 9):
        raise UnsupportedModel("hybrid_on_device", field="gpu", engine=NAME, version=VERSION)
    row = max(setting.kv.row_bytes(setting.parallel.heads_on_rank(k.heads), k.k_dim, k.v_dim) for k in rows)
    own: DType = setting.model_dtype
    # "auto" keeps the recurrent matrix in the model's dtype here, where transformers and SGLang keep fp32.
    half = [replace(s, tensors=tuple(replace(t, dtype=None) for t in s.tensors)) for s in states]
    state = max(state_bytes(s, own, setting.parallel) for s in half)
    align = smallest
    if setting.prefix_caching and major == 9:
        align = math.lcm(align, 64)  # chunk of the prefill kernel, at which checkpoints are taken
    block = align * -(-state // (align * row))
    return block, block * row


# -- grouping ----------------------------------------------------------------------------------------------------------


def group(specs: list[tuple[Spec, int]]) -> list[tuple[Spec, tuple[int, ...]]]:
    """Equal specs in one bucket; every bucket is cut into groups of one size, so that any block id can serve any group.

    Group size: the fewest layers of any bucket, or the most where that is less than 1.5 times as many (v1/core/kv_cache_planning.py).
    """
    if all(spec.kind == "full" for spec, _ in specs):  # layers of one kind make one group, also where their pages differ in size
        return [(max((spec for spec, _ in specs), key=lambda x: x.page_bytes), tuple(layer for _, layer in specs))]
    buckets: dict[Spec, list[int]] = {}
    for spec, layer in unify_pages(specs):
        buckets.setdefault(spec, []).append(layer)
    if len(buckets) == 1:
        return [(spec, tuple(where)) for spec, where in buckets.items()]
    counts = [len(where) for where in buckets.values()]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    out = []
    for spec, where in buckets.items():
        number = -(-len(where) // size)
        # Layers are dealt out in turn, so that every pipeline stage gets its share of each group.
        out += [(spec, tuple(where[k::number])) for k in range(number)]
    return out


def unify_pages(specs: list[tuple[Spec, int]]) -> list[tuple[Spec, int]]:
    """All pages as large as the largest: a smaller one takes that many times more tokens where it divides, else it is padded."""
    largest = max(spec.page_bytes for spec, _ in specs)
    out = []
    for spec, layer in specs:
        factor, rest = divmod(largest, spec.page_bytes)
        if spec.state_blocks or rest:
            spec = replace(spec, page_bytes=largest)
        elif factor > 1:
            spec = replace(spec, page_bytes=largest, block_size=spec.block_size * factor)
        out.append((spec, layer))
    return out


# -- what stays outside the KV pool ------------------------------------------------------------------------------------


def printed_tokens(num_blocks: int, blocks_per_request: int, max_model_len: int) -> int:
    """ "GPU KV cache size: N tokens" of 0.33: the concurrency at the largest length, times that length."""
    return int(num_blocks / blocks_per_request * max_model_len) if blocks_per_request else 0

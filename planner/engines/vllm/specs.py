"""vLLM 0.33: what one cache of one layer is to its planner: a page of so many bytes for so many tokens, and how many a request takes.

Sources (vllm 0.33.0 wheel): v1/kv_cache_interface.py (pages, admission), platforms/interface.py (hybrid block size),
model_executor/models/config.py (state dtypes), model_executor/layers/attention/mla_attention.py (packed rows). Checked against the
planner's own code run on real configs; what was not run there says so in a note.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from planner.cache import Cross, Kind, Rows, State, StateTensor, Term
from planner.engines.settings import Setting
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.messages import Word, state_word
from planner.model import ModelSpec
from planner.notes import Note, cite, note

ENGINE = "vllm"
SOURCE = cite("vLLM 0.33 platforms/interface.py")
DEFAULT_BLOCK_SIZE = 16
EXPANDED_DIM = 256
DSA_BLOCK, MINIMAX_SPARSE_BLOCK, MLA_HYBRID_ALIGN = 64, 128, 128
Type = Literal["full", "window", "chunk", "state", "cross"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """`page_bytes` for `block_size` tokens on one rank (a state: one slot). `type`: what can share a group; `kind`: what it holds.
    `admission_units`, `resident_units`: fixed counts (states, an encoder's rows); the others follow from the tokens.
    `content_bytes`: what a full page holds, padding apart."""

    type: Type
    kind: str
    block_size: int
    page_bytes: int
    content_bytes: int = 0
    window: int | None = None
    chunk: int | None = None
    admission_units: int = 0
    resident_units: int = 0

    def admission(self, setting: Setting) -> Term:
        """Blocks that a request of the largest length reserves (v1/kv_cache_interface.py max_memory_usage_bytes)."""
        in_flight = setting.max_in_flight_tokens
        if self.type in ("state", "cross"):
            return Term(unit_bytes=self.page_bytes, unit_tokens=None, extra_units=self.admission_units)
        if self.window:
            # The window need not begin at a block's edge: one block more than its tokens fill.
            return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=self.window - 1 + setting.draft_tokens + in_flight, extra_units=1)
        if self.chunk:
            return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=self.chunk + in_flight)
        return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size)

    def resident(self) -> Term:
        """Blocks that a decoding sequence holds: of a window, those that cover the last W - 1 tokens, wherever their edges lie."""
        if self.type in ("state", "cross"):
            return Term(unit_bytes=self.page_bytes, unit_tokens=None, extra_units=self.resident_units)
        cap = self.window - 1 + self.block_size if self.window else self.chunk
        return Term(unit_bytes=self.page_bytes, unit_tokens=self.block_size, cap_tokens=cap)


Member = tuple[Spec, int]  # a spec and the index of its layer


def layer_specs(model: ModelSpec, setting: Setting, notes: list[Note]) -> list[Member]:
    """(spec, layer index) of every cache, before pages are unified. Raises what vLLM refuses, and what these rules do not cover."""
    kinds = [k for k, _ in model.cache_groups()]
    states = [k for k in kinds if isinstance(k, State)]
    has_full = any(isinstance(k, Rows) and k.limit_tokens is None for k in kinds)
    if states and not setting.hybrid_manager:
        raise UnsupportedValue("hybrid_manager_needed", field="hybrid_kv_cache_manager", engine=ENGINE)
    if is_latent(model) and has_windows(model):
        raise UnsupportedModel("latent_with_windows", field="engine", engine=ENGINE)
    block, page = block_size(model, setting, notes), 0
    if states:
        block, page = hybrid_block(model, setting, states, block, notes)
    out: list[Member] = []
    for kind, where in model.cache_groups():
        spec = _spec(kind, model, where[0], setting, block, page)
        if not setting.hybrid_manager and has_full and spec.type in ("window", "chunk"):
            spec = replace(spec, type="full", kind="full", window=None, chunk=None)
        out += [(spec, i) for i in where]
    return sorted(out, key=lambda pair: pair[1])


def _spec(kind: Kind, model: ModelSpec, layer: int, setting: Setting, block: int, page: int) -> Spec:
    p = setting.parallel
    if isinstance(kind, State):
        rows = any(isinstance(k, Rows) for k, _ in model.cache_groups())
        slots = state_slots(kernel_of(kind, model), setting, rows)
        state = rank_state_bytes(kind, setting)
        return Spec(type="state", kind="state", block_size=block, page_bytes=page or state, content_bytes=state, admission_units=slots,
                    resident_units=slots)  # fmt: skip
    if isinstance(kind, Cross):
        row = setting.kv.row_bytes(p.heads_on_rank(kind.heads), kind.k_dim, kind.v_dim)
        held = kind.source_tokens or setting.encoder_tokens
        # CrossAttentionSpec reserves max_num_encoder_input_tokens, which equals the batched tokens (config/scheduler.py).
        reserved = -(-setting.max_num_batched_tokens // block)
        return Spec(type="cross", kind="cross", block_size=block, page_bytes=block * row, content_bytes=block * row, admission_units=reserved,
                    resident_units=-(-held // block))  # fmt: skip
    if kind.ratio != 1:
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=Word("compressed", "word.cache.compressed"), engine=ENGINE, version=setting.version)
    window = kind.window + 1 if kind.window and "vllm_window_plus_one" in model.quirks else kind.window  # models/commandr.py
    spans = block * (setting.context_ranks if kind.limit_tokens is None else 1)
    type_: Type = "window" if window else "chunk" if kind.chunk else "full"
    page = block * row_bytes(kind, model, layer, setting)
    return Spec(type=type_, kind=kind.kind, block_size=spans, page_bytes=page, content_bytes=page, window=window, chunk=kind.chunk)


# -- rows --------------------------------------------------------------------------------------------------------------


def is_latent(model: ModelSpec) -> bool:
    return "vllm_expands_latent" not in model.quirks and any(k.kind == "latent" for k, _ in model.cache_groups())


def has_windows(model: ModelSpec) -> bool:
    return any(isinstance(k, Rows) and k.limit_tokens is not None for k, _ in model.cache_groups())


def is_sparse(model: ModelSpec) -> bool:
    """Latent rows with index keys beside them (DeepSeek sparse attention)."""
    return is_latent(model) and any(k.kind == "index" for k, _ in model.cache_groups())


def row_bytes(kind: Rows, model: ModelSpec, layer: int, setting: Setting) -> int:
    """Bytes of one token in one layer on one rank."""
    attention = model.layers[layer].attention
    if kind.format == "index":
        # DSA: fp8 keys and one fp32 scale for each 128 values, whatever the KV dtype (models/deepseek_v2.py); MiniMax-M3: the model's dtype.
        return kind.k_dim + 4 * -(-kind.k_dim // 128) if is_latent(model) else setting.model_dtype.nbytes(kind.heads * kind.k_dim)
    if kind.shard == "heads":
        return setting.kv.row_bytes(setting.parallel.heads_on_rank(kind.heads), kind.k_dim, kind.v_dim)
    if attention is not None and not setting.latent:  # before MLA came, heads were padded to FlashAttention's 256
        return setting.kv.row_bytes(setting.parallel.heads_on_rank(attention.q_heads), EXPANDED_DIM, EXPANDED_DIM)
    if attention is not None and "vllm_expands_latent" in model.quirks:
        return setting.kv.row_bytes(setting.parallel.heads_on_rank(attention.q_heads), attention.qk_dim, attention.qk_dim)
    if is_sparse(model) and setting.kv.element.block_bytes == 1 and attention is not None and attention.kv_rank and major(setting) != 10:
        # fp8_ds_mla: fp8 latent, an fp32 scale for each 128, RoPE part in two bytes (656 for 512 + 64).
        return attention.kv_rank + 4 * -(-attention.kv_rank // 128) + 2 * attention.rope_dim
    return setting.kv.row_bytes(kind.heads, kind.k_dim, kind.v_dim)


# -- block sizes -------------------------------------------------------------------------------------------------------


def major(setting: Setting) -> int | None:
    return setting.capability[0] if setting.capability else None


def block_size(model: ModelSpec, setting: Setting, notes: list[Note]) -> int:
    """The user's block size, else the backend's smallest: MLA takes 16 on SM8.0 / 9.0 (64 with an fp8 cache on Hopper: FlashMLA), 32 on
    SM10.0, sparse MLA 64, MiniMax-M3's sparse attention 128."""
    smallest, device = DEFAULT_BLOCK_SIZE, major(setting)
    one_byte = setting.kv.element.block_bytes == 1
    if is_sparse(model):
        if device is not None and device < 9:
            raise UnsupportedModel("no_backend", field="gpu", engine=ENGINE, what="sparse MLA", needs="9.0")
        smallest = DSA_BLOCK
    elif any(k.kind == "index" for k, _ in model.cache_groups()):
        smallest = MINIMAX_SPARSE_BLOCK
    elif is_latent(model):
        if device is None:
            notes.append(note("assumed", "mla_block_by_device", block=smallest))
        elif device >= 10:
            smallest = 32
        elif device == 9 and one_byte:
            smallest = 64
    wide = max((k.k_dim for k, _ in model.cache_groups() if isinstance(k, Rows) and k.shard == "heads"), default=0)
    if wide > 256 and one_byte:  # FlashAttention has no such heads in fp8; Triton's blocks are wider (executed on SM9.0)
        if device != 9:
            raise UnsupportedModel("head_dim_not_in_engine", field="head_dim", head_dim=wide, kv_dtype=setting.kv.name, engine=ENGINE)
        smallest = 64
    asked = setting.block_size or smallest
    if asked % smallest:
        raise InvalidInput("block_size_multiple", field="block_size", value=asked, multiple=smallest)
    return asked


# -- states ------------------------------------------------------------------------------------------------------------

CHECKPOINTS = {"mamba2": (8, 9, 10, 12), "gated_delta_net": (9,), "kda of kimi_k3": (9,)}  # by compute capability: prefill kernels that keep a checkpoint
EXECUTED = {"mamba1": (8, 9), "mamba2": (8, 9), "gated_delta_net": (8, 9), "short_conv": (8, 9), "kda of kimi_k3": (9,)}
GDN_CHECKPOINT_TOKENS = 64  # FlashInfer's gated delta prefill on SM9.0


def kernel_of(kind: State, model: ModelSpec) -> str:
    """The mechanism, with the model where one has kernels of its own (models/kimi_k3/nvidia/kda.py)."""
    return "kda of kimi_k3" if kind.mechanism == "kda" and model.model_type.startswith("kimi_k3") else kind.mechanism


def state_slots(kernel: str, setting: Setting, with_rows: bool) -> int:
    """State slots of one request: 1, with prefix caching ("align" mode) 2, and one more where the prefill kernel keeps a checkpoint;
    each drafted token takes one more. A model without attention has no prefix caching."""
    if not setting.prefix_caching or not with_rows:
        return 1 + setting.draft_tokens
    checkpoint = (major(setting) or 9) in CHECKPOINTS.get(kernel, ())
    return 2 + setting.draft_tokens + checkpoint


def rank_state_bytes(kind: State, setting: Setting) -> int:
    """Bytes of one slot on one rank: K - 1 convolution columns (one more for each drafted token), and the recurrent part in the dtype
    that the file asks for, else in the model's, where transformers and SGLang keep fp32."""

    def kept(t: StateTensor) -> StateTensor:
        return replace(t, dtype=t.asked)

    mine = replace(kind, tensors=tuple(kept(t) for t in kind.tensors))
    return mine.bytes_per_sequence(setting.model_dtype, 1 - setting.draft_tokens, setting.parallel.attention_ranks)


def hybrid_block(model: ModelSpec, setting: Setting, states: list[State], smallest: int, notes: list[Note]) -> tuple[int, int]:
    """(block size, page) of a model with states: the attention block is raised until its page holds a whole state. Without attention:
    (the largest length, 0), each state a page of its own."""
    for s in states:
        if not s.mechanism or s.mechanism in ("rwkv", "gla", "mlstm"):
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=state_word(s.mechanism), engine=ENGINE, version=setting.version)
        if major(setting) not in EXECUTED.get(kernel_of(s, model), ()):
            notes.append(note("assumed", "state_rule_not_run", mechanism=s.mechanism, engine=ENGINE, source=SOURCE))
    rows = [(k, where[0]) for k, where in model.cache_groups() if isinstance(k, Rows)]
    if not rows:
        return setting.max_model_len, 0
    row = max(row_bytes(k, model, layer, setting) for k, layer in rows)
    state = max(rank_state_bytes(s, setting) for s in states)
    align = max(smallest, MLA_HYBRID_ALIGN) if is_latent(model) else smallest
    if setting.prefix_caching and any(s.mechanism == "gated_delta_net" for s in states) and (major(setting) or 9) == 9:
        align = math.lcm(align, GDN_CHECKPOINT_TOKENS)
    block = align * -(-state // (align * row))
    notes.append(note("derived", "hybrid_block", block=block, page=block * row, source=SOURCE))
    return block, block * row

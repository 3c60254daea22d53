"""Llama and the families that share its block: Mistral, Mixtral, Qwen2, Qwen3 (dense and MoE), Phi-3."""

from __future__ import annotations

from dataclasses import dataclass

from planner.model import Attention, LayerSpec, Mlp, ModelSpec
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields

FULL, WINDOW = "full_attention", "sliding_attention"
_TYPES = {FULL: FULL, WINDOW: WINDOW}
QWEN2_WINDOW = 4096  # what Qwen2's and Qwen3's classes fill in where a file switches windows on and leaves the size out


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a family of the Llama block differs from it: biases, per-head query/key norms, where windows apply, tied by default."""

    qkv_bias: bool | None = None  # None: the file's attention_bias decides
    o_bias: bool | None = None
    head_norms: bool = False
    windows: str = "all"  # all: a set window counts on every layer | switch: use_sliding_window, and then the late layers
    tied: bool = False
    head_dim_default: int | None = None


def window_by_layer(f: Fields, layers: int, rule: str) -> tuple[list[int | None], tuple[Note, ...]]:
    """The window of each layer, None for full attention.

    all: a window without layer_types holds on every layer (Mistral-7B-v0.1, Phi-3; transformers cache_utils, vLLM config/model.py).
    Their classes know no `use_sliding_window`: transformers and vLLM window such a file all the same (an EAGLE-3 draft, measured).
    switch: `use_sliding_window` must be true; then layers from `max_window_layers` on (Qwen2 configuration).
    """
    window = f.optional_int("sliding_window", low=0, high=MAX_TOKENS) or None
    types = shapes.layer_types(f, layers, _TYPES)
    first = f.optional_int("max_window_layers", low=0)
    said: tuple[Note, ...] = ()
    if rule == "switch" and not f.flag("use_sliding_window"):
        said = (note("info", "window_switched_off", field="use_sliding_window", window=window),) if window else ()
        if types is not None and WINDOW in types and window:
            said += (note("warning", "layer_types_overruled", field="layer_types"),)
        return [None] * layers, said
    if rule == "switch" and "sliding_window" not in f.raw:
        window, source = QWEN2_WINDOW, cite("transformers 5.24 models/qwen2, class default")
        said = (note("derived", "class_default", field=f.name("sliding_window"), value=window, source=source),)
    if window is None:
        return [None] * layers, ()
    if types is None:
        start = (28 if first is None else first) if rule == "switch" else 0
        types = [WINDOW if i >= start else FULL for i in range(layers)]
        said += (note("derived", "window_on_layers", field="sliding_window", window=window, layers=types.count(WINDOW)),)
    return [window if t == WINDOW else None for t in types], said


def read(f: Fields, d: Dialect) -> ModelSpec:
    """A decoder of Llama blocks; MoE where the file names experts."""
    layers = f.layers("num_hidden_layers")
    hidden = f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    explicit = f.size("head_dim")
    dim = explicit or d.head_dim_default or shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    bias = f.flag("attention_bias")
    qkv_bias = bias if d.qkv_bias is None else d.qkv_bias
    o_bias = bias if d.o_bias is None else d.o_bias
    attention = shapes.gqa(hidden, a, qkv_bias, o_bias) + (shapes.norms(dim, 2, name="head_norm") if d.head_norms else ())
    windows, notes = window_by_layer(f, layers, d.windows)
    if explicit and hidden % q == 0 and explicit != hidden // q:
        notes += (note("info", "head_dim_explicit", field=f.name("head_dim"), head_dim=explicit, divided=hidden // q),)
    mlps = _mlps(f, layers)
    mlp_bias = f.flag("mlp_bias")

    def build(i: int) -> LayerSpec:
        m = mlps[i]
        weights = attention + shapes.mlp(hidden, m, mlp_bias, shared_gate=bool(m.shared_width)) + shapes.norms(hidden, 2)
        return LayerSpec(caches=(shapes.rows_of(a, windows[i]),), attention=a, mlp=m, weights=weights)

    mixed = d.windows == "switch" and any(windows) and not all(windows)
    quirks = frozenset({"vllm_refuses_window_mix"}) if mixed else frozenset()
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=d.tied, notes=notes, quirks=quirks)


def _mlps(f: Fields, layers: int) -> list[Mlp]:
    """One Mlp a layer. Mixtral: `num_local_experts` of the dense width; Qwen MoE: `num_experts` of `moe_intermediate_size` on every
    `decoder_sparse_step`-th layer that `mlp_only_layers` does not name."""
    experts = f.optional_int("num_local_experts", "num_experts", low=0, high=65_536) or 0
    if not experts:
        f.ignore("num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers")
        return [Mlp(width=f.need_int("intermediate_size"))] * layers
    expert_width = f.optional_int("moe_intermediate_size") or f.need_int("intermediate_size")
    sparse = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=expert_width,
                 shared_width=f.int_or(0, "shared_expert_intermediate_size", low=0))  # fmt: skip
    only_dense = set(f.list_of("mlp_only_layers", int) or ())
    step = f.int_or(1, "decoder_sparse_step")
    is_sparse = [i not in only_dense and (i + 1) % step == 0 for i in range(layers)]
    dense = sparse if all(is_sparse) else Mlp(width=f.need_int("intermediate_size"))
    return [sparse if s else dense for s in is_sparse]


def llama(f: Fields) -> ModelSpec:
    """A stray `sliding_window` counts here too: transformers' cache and vLLM's planner window by the key, not by the family."""
    return read(f, Dialect())


def mistral(f: Fields) -> ModelSpec:
    return read(f, Dialect(qkv_bias=False, o_bias=False))


def mixtral(f: Fields) -> ModelSpec:
    return read(f, Dialect(qkv_bias=False, o_bias=False))


def qwen2(f: Fields) -> ModelSpec:
    return read(f, Dialect(qkv_bias=True, o_bias=False, windows="switch"))


def qwen3(f: Fields) -> ModelSpec:
    return read(f, Dialect(head_norms=True, windows="switch", head_dim_default=128))


def qwen3_moe(f: Fields) -> ModelSpec:
    return read(f, Dialect(head_norms=True, windows="switch"))


def phi3(f: Fields) -> ModelSpec:
    """q, k, v and gate, up are fused in Phi-3: the same numbers of elements. A window holds on every layer, also one wider than
    the context (kv-cache facts: executed by vLLM 0.33)."""
    return read(f, Dialect(qkv_bias=False, o_bias=False))

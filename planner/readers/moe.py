"""Families whose layers differ by position: gpt-oss (alternating windows), Llama-4 (chunks)."""

from __future__ import annotations

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW

CHUNK = "chunked_attention"


def gpt_oss(f: Fields) -> ModelSpec:
    """Window and full layers alternate, the first windowed. Attention sinks are learned logits: nothing is stored for them."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 64
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    window = f.need_int("sliding_window", high=MAX_TOKENS)
    types = shapes.layer_types(f, layers, {FULL: FULL, WINDOW: WINDOW}) or [FULL if i % 2 else WINDOW for i in range(layers)]
    bias = f.flag("attention_bias", True)
    m = Mlp(experts=f.need_int("num_local_experts", "num_experts", high=65_536), top_k=f.need_int("num_experts_per_tok", "experts_per_token", high=65_536),
            expert_width=f.need_int("intermediate_size"))  # fmt: skip
    weights = (
        shapes.gqa(hidden, a, bias, bias)
        + (Weight(name="sinks", shape=(q,), role="attention", parts=q),)
        + shapes.mlp(hidden, m, router_bias=True, expert_bias=True)
        + shapes.norms(hidden, 2)
    )
    return model(
        f,
        shapes.stack(layers, lambda i: LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=m, weights=weights)),
        hidden=hidden,
        vocab=f.need_int("vocab_size"),
        tied_default=False,
    )


def llama4(f: Fields) -> ModelSpec:
    """Llama-4's text part. A layer with RoPE is chunked where a chunk size is set: `no_rope_layers[i]` = 1 means *has* RoPE (the key's
    name reads backwards); without the list every fourth layer has none (transformers 5.24 models/llama4)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    chunk = f.optional_int("attention_chunk_size", high=MAX_TOKENS)
    types = shapes.layer_types(f, layers, {FULL: FULL, CHUNK: CHUNK})
    rope = f.list_of("no_rope_layers", int)
    step = f.int_or(4, "no_rope_layer_interval")
    if types is None:
        if rope and len(rope) != layers:
            raise UnsupportedValue("list_length", field=f.name("no_rope_layers"), got=len(rope), want=layers)
        types = [CHUNK if (rope[i] if rope else (i + 1) % step) else FULL for i in range(layers)]
    experts = f.need_int("num_local_experts", high=65_536)
    wide, every = f.need_int("intermediate_size"), f.int_or(1, "interleave_moe_layer_step")
    named = f.list_of("moe_layers", int)
    sparse_at = set(range(every - 1, layers, every)) if named is None else set(named)
    sparse = Mlp(experts=experts, top_k=f.int_or(1, "num_experts_per_tok"), expert_width=wide, shared_width=wide)
    dense = Mlp(width=f.optional_int("intermediate_size_mlp") or wide)
    attention = shapes.gqa(hidden, a, f.flag("attention_bias"), f.flag("attention_bias"))

    def build(i: int) -> LayerSpec:
        m = sparse if i in sparse_at else dense
        return LayerSpec(caches=(shapes.rows_of(a, chunk=chunk if types[i] == CHUNK else None),), attention=a, mlp=m,
                         weights=attention + shapes.mlp(hidden, m) + shapes.norms(hidden, 2))  # fmt: skip

    chunked = types.count(CHUNK) if chunk else 0
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False,
                 notes=(note("derived", "chunked_layers", field=f.name("attention_chunk_size"), layers=chunked, chunk=chunk or 0,
                             source=cite("transformers 5.24 models/llama4")),))  # fmt: skip

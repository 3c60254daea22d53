"""Families whose layers differ by position: gpt-oss (alternating windows), Llama-4 (chunks), Qwen3-Next (gated delta net)."""

from __future__ import annotations

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW

CHUNK, LINEAR = "chunked_attention", "linear_attention"


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


def qwen3_next(f: Fields) -> ModelSpec:
    """Gated delta net layers with a state of constant size, every fourth layer full attention with an output gate.

    conv state: 2 x k_heads x k_dim + v_heads x v_dim channels of the kernel's width; recurrent state: v_heads x k_dim x v_dim, fp32 in
    transformers. (transformers 5.24 models/qwen3_next; vLLM 0.33 model_executor/layers/mamba/mamba_utils.py)
    """
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 256
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    k_heads, v_heads = f.need_int("linear_num_key_heads"), f.need_int("linear_num_value_heads")
    k_dim, v_dim, width = f.need_int("linear_key_head_dim"), f.need_int("linear_value_head_dim"), f.need_int("linear_conv_kernel_dim")
    interval = f.int_or(4, "full_attention_interval")
    types = shapes.layer_types(f, layers, {FULL: FULL, LINEAR: LINEAR}) or [LINEAR if (i + 1) % interval else FULL for i in range(layers)]
    channels, values = 2 * k_heads * k_dim + v_heads * v_dim, v_heads * v_dim
    state = State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=channels * width, columns=width),
            StateTensor(name="recurrent", role="recurrent", elements=v_heads * k_dim * v_dim, dtype=DTYPES["fp32"]),
        )
    )
    linear = (
        *shapes.column("in_proj_qkvz", channels + values, hidden, "state", k_heads),
        *shapes.column("in_proj_ba", 2 * v_heads, hidden, "state", k_heads),
        Weight(name="conv1d", shape=(channels, 1, width), role="state", parts=k_heads),
        Weight(name="dt_bias_and_A_log", shape=(2, v_heads), role="state", parts=v_heads),
        *shapes.norms(v_dim, 1, name="gated_norm"),
        *shapes.row("out_proj", hidden, values, "state", v_heads),
    )
    bias = f.flag("attention_bias")
    full = shapes.gqa(hidden, a, bias, bias, q_factor=2) + shapes.norms(dim, 2, name="head_norm")
    only_dense, step = set(f.list_of("mlp_only_layers", int) or ()), f.int_or(1, "decoder_sparse_step")
    experts = f.optional_int("num_experts", low=0, high=65_536) or 0
    dense = Mlp(width=f.need_int("intermediate_size"))
    sparse = dense
    if experts:
        sparse = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=f.need_int("moe_intermediate_size"),
                     shared_width=f.need_int("shared_expert_intermediate_size"))  # fmt: skip

    def build(i: int) -> LayerSpec:
        m = sparse if experts and i not in only_dense and (i + 1) % step == 0 else dense
        rest = shapes.mlp(hidden, m, shared_gate=True) + shapes.norms(hidden, 2)
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=full + rest)
        return LayerSpec(caches=(state,), mlp=m, weights=linear + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, quirks=frozenset({"gated_delta_net"}))

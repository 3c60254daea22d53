"""LFM2 and LFM3: short convolutions beside attention. A convolution's state is its last columns; there is no recurrent part."""

from __future__ import annotations

from planner.cache import State, StateTensor
from planner.errors import UnsupportedValue
from planner.model import LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.hybrid import attention_of

FULL, WINDOW, CONV = "full_attention", "sliding_attention", "conv"


def lfm2(f: Fields) -> ModelSpec:
    """Dense. `block_auto_adjust_ff_dim` cuts the width to two thirds and rounds it up. The convolution runs over the hidden size."""
    wide = f.need_int("block_ff_dim", "intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", True):
        wide = 2 * wide // 3
        factor = f.value("block_ffn_dim_multiplier")[1]
        if factor is None or (isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < 100):
            multiple = f.int_or(256, "block_multiple_of")
            wide = multiple * -(-int((1.0 if factor is None else factor) * wide) // multiple)
        else:
            raise UnsupportedValue("only_value", field=f.name("block_ffn_dim_multiplier"), value=repr(factor)[:40], want="a positive number")
    layers = f.layers("num_hidden_layers")
    return _read(f, [Mlp(width=wide)] * layers)


def lfm2_moe(f: Fields) -> ModelSpec:
    """Experts after `num_dense_layers` dense ones; no shared expert, and the router's correction bias is a buffer."""
    layers, first = f.layers("num_hidden_layers"), f.int_or(2, "num_dense_layers", low=0)
    dense = Mlp(width=f.need_int("intermediate_size"))
    sparse = Mlp(
        experts=f.need_int("num_experts", high=65_536), top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=f.need_int("moe_intermediate_size")
    )
    return _read(f, [dense if i < first else sparse for i in range(layers)])


def lfm3(f: Fields) -> ModelSpec:
    """Windows, full attention and convolutions in turn, a gate a query head, norms before and after both halves of a layer."""
    layers = f.layers("num_hidden_layers")
    types = [FULL if i % 4 == 2 else WINDOW if i % 4 == 0 and i else CONV for i in range(layers)]
    return _read(f, [Mlp(width=f.need_int("intermediate_size"))] * layers, types, 4 if f.flag("use_sandwich_norm", True) else 2)


def _read(f: Fields, mlps: list[Mlp], default: list[str] | None = None, layer_norms: int = 2) -> ModelSpec:
    """`default`: LFM3's types where the file names none; without it LFM2's rule holds."""
    layers, hidden = len(mlps), f.need_int("hidden_size")
    a = attention_of(f, hidden, "head_dim")
    types = shapes.layer_types(f, layers, {FULL: FULL, CONV: CONV} | ({WINDOW: WINDOW} if default else {})) or default
    at = f.list_of("full_attn_idxs", int)
    if types is None:
        types = [FULL if at is None or i in at else CONV for i in range(layers)]
    width, bias = f.int_or(7 if default else 3, "conv_L_cache"), f.flag("conv_bias")
    window = f.need_int("sliding_window", high=MAX_TOKENS) if WINDOW in types else None
    if (other := f.optional_int("conv_dim")) not in (None, hidden):
        raise UnsupportedValue("only_value", field=f.name("conv_dim"), value=other, want=hidden)
    state = State(tensors=(StateTensor(name="conv", role="conv", elements=hidden * width, columns=width),), mechanism="short_conv")
    conv = (
        Weight(name="conv", shape=(hidden, 1, width + bias), role="state", parts=hidden),
        *shapes.column("in_proj", 3 * hidden, hidden, "state", hidden, bias),
        *shapes.row("out_proj", hidden, hidden, "state", hidden, bias),
    )
    qkv = f.flag("attention_bias") if default else False
    full = shapes.gqa(hidden, a, qkv, qkv) + shapes.norms(a.qk_dim, 2, name="head_norm")
    if default and f.flag("use_attention_gate", True):
        full += shapes.column("g_proj", a.q_heads, hidden, "attention", a.q_heads)

    def build(i: int) -> LayerSpec:
        rest = shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, layer_norms)
        if types[i] != CONV:
            return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=mlps[i], weights=full + rest)
        return LayerSpec(caches=(state,), mlp=mlps[i], weights=conv + rest)

    tied = f.flag("tie_embedding", True)
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=tied)

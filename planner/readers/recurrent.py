"""Recurrent stacks with vectors or matrices of their own: RecurrentGemma (RG-LRU), RWKV-4 to 6, GLA, xLSTM."""

from __future__ import annotations

from typing import Any

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields


def recurrent_gemma(f: Fields) -> ModelSpec:
    """Two RG-LRU layers to one of local attention: a convolution and one fp32 value a channel. Biases almost everywhere;
    `intermediate_size` counts gate and up together."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    cycle = f.list_of("block_types", str) or f.list_of("_block_types", str) or ["recurrent", "recurrent", "attention"]
    if (unknown := next((t for t in cycle if t not in ("recurrent", "attention")), None)) is not None:
        raise UnsupportedValue("unknown_layer_type", field=f.name("block_types"), value=unknown[:60], known="recurrent, attention")
    lru, width = f.int_or(hidden, "lru_width"), f.int_or(4, "conv1d_width")
    block = lru // q
    m = Mlp(width=f.need_int("intermediate_size") // 2)
    rest = shapes.mlp(hidden, m, True) + shapes.norms(hidden, 2)
    bias = f.flag("attention_bias")
    full = LayerSpec(caches=(shapes.rows_of(a, f.int_or(2048, "attention_window_size", high=MAX_TOKENS)),), attention=a, mlp=m,
                     weights=shapes.gqa(hidden, a, bias, True) + rest)  # fmt: skip
    recurrent = (
        *shapes.column("linear_xy", 2 * lru, hidden, "state", q, True),
        *shapes.row("linear_out", hidden, lru, "state", q, True),
        Weight(name="conv_1d", shape=(lru, 1, width + 1), role="state", parts=q),
        Weight(name="rg_lru.gates", shape=(2 * q, block, block + 1), role="state", parts=q),
        Weight(name="rg_lru.recurrent_param", shape=(lru,), role="state", parts=q),
    )
    # transformers keeps width - 1 columns here, in its modules, unlike other convolutions: nothing is to be dropped.
    held = StateTensor(name="conv", role="recurrent", elements=lru * (width - 1))
    kept = State(tensors=(held, StateTensor(name="rg_lru", role="recurrent", elements=lru, dtype=DTYPES["fp32"])), mechanism="rg_lru")
    state = LayerSpec(caches=(kept,), mlp=m, weights=recurrent + rest)
    stack = tuple(full if cycle[i % len(cycle)] == "attention" else state for i in range(layers))
    return model(f, stack, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True)


def rwkv(f: Fields) -> ModelSpec:
    """RWKV-4: two shifted vectors in the model's dtype, and numerator, denominator and maximum of the time mix in fp32."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    inner, wide = f.int_or(hidden, "attention_hidden_size"), f.int_or(4 * hidden, "intermediate_size")
    state = _shifted(hidden, StateTensor(name="wkv", role="recurrent", elements=3 * inner, dtype=DTYPES["fp32"]))
    attention = (
        *shapes.column("key_value_receptance", 3 * inner, hidden, "state", inner),
        *shapes.row("output", hidden, inner, "state", inner),
        Weight(name="time_decay_first", shape=(2, inner), role="state", parts=inner),
        Weight(name="time_mix", shape=(5, hidden), role="state"),
    )
    m = Mlp(width=wide, gated=False)
    weights = attention + shapes.mlp(hidden, m) + shapes.whole("receptance", hidden, hidden, "mlp") + shapes.norms(hidden, 2, bias=True)
    layer = LayerSpec(caches=(state,), mlp=m, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, extra=shapes.norms(hidden, 1, bias=True),
                 final_norm=shapes.norms(hidden, 1, bias=True))  # fmt: skip


def rwkv5(f: Fields) -> ModelSpec:
    """RWKV-5 and 6: two shifted vectors, and one fp32 matrix of head size squared a head (published code; MLC)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    inner, size = f.int_or(hidden, "attention_hidden_size"), f.int_or(64, "head_size")
    if inner % size:
        raise UnsupportedValue("heads_not_dividing", field=f.name("head_size"), hidden=inner, q_heads=size)
    state = _shifted(hidden, StateTensor(name="wkv", role="recurrent", elements=inner * size, dtype=DTYPES["fp32"]))
    m = Mlp(width=f.int_or(7 * hidden // 2 // 32 * 32, "intermediate_size"), gated=False)
    attention = (
        *shapes.column("key_value_receptance_gate", 4 * inner, hidden, "state", inner // size),
        *shapes.row("output", hidden, inner, "state", inner // size),
    )
    weights = attention + shapes.mlp(hidden, m) + shapes.whole("receptance", hidden, hidden, "mlp") + shapes.norms(hidden, 2, bias=True)
    layer = LayerSpec(caches=(state,), mlp=m, weights=weights)
    low_rank = Doubt(code="doubt_small_parts", more=layers * 512 * hidden)  # RWKV-6 mixes its inputs by matrices of rank 32 and 64
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=False, doubts=(low_rank,))


def _shifted(hidden: int, wkv: StateTensor) -> State:
    return State(tensors=(StateTensor(name="token_shift", role="recurrent", elements=2 * hidden), wkv), mechanism="rwkv")


def gla(f: Fields) -> ModelSpec:
    """Gated linear attention (flash-linear-attention): an fp32 matrix a head, for all heads even where fewer project keys."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    if f.value("attn")[1] is not None:
        raise UnsupportedValue("only_value", field=f.name("attn"), value=repr(f.raw["attn"])[:40], want="null")
    heads, kv = shapes.heads(f, ("num_heads",), ("num_kv_heads",))
    groups = heads // kv
    keys, values = (_portion(f, key, default, hidden, 1) for key, default in (("expand_k", 0.5), ("expand_v", 1.0)))
    tensors: tuple[StateTensor, ...] = (StateTensor(name="recurrent", role="recurrent", elements=keys * values // heads, dtype=DTYPES["fp32"]),)
    if f.flag("use_short_conv"):
        width = f.int_or(4, "conv_size")
        channels = keys + (keys + values) // groups
        tensors += (StateTensor(name="conv", role="conv", elements=channels * width, columns=width),)
    m = Mlp(width=f.optional_int("intermediate_size") or 256 * -(-int(hidden * f.int_or(4, "hidden_ratio") * 2 / 3) // 256))
    weights = (
        *shapes.column("q_k_proj", keys + keys // groups, hidden, "state", heads),
        *shapes.column("v_g_proj", values + values // groups, hidden, "state", heads),
        *shapes.row("o_proj", hidden, values, "state", heads),
        *shapes.mlp(hidden, m),
        *shapes.norms(hidden, 2),
    )
    layer = LayerSpec(caches=(State(tensors=tensors, mechanism="gla"),), mlp=m, weights=weights)
    low_rank = Doubt(code="doubt_small_parts", more=layers * 16 * (hidden + keys))  # the gate's two matrices (gate_low_rank_dim)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=False, doubts=(low_rank,))


def xlstm(f: Fields) -> ModelSpec:
    """xLSTM-7B: a matrix of query/key size x value size a head, its normaliser and one maximum, all in the model's dtype."""
    layers, hidden = f.layers("num_hidden_layers", "num_blocks"), f.need_int("hidden_size", "embedding_dim")
    f.ignore("num_blocks", "embedding_dim")
    heads = f.int_or(8, "num_heads")
    qk, v = (_portion(f, key, default, hidden) for key, default in (("qk_dim_factor", 0.5), ("v_dim_factor", 1.0)))
    qk_dim, v_dim = qk // heads, v // heads
    state = State(tensors=(StateTensor(name="matrix_normaliser_maximum", role="recurrent", elements=heads * (qk_dim * v_dim + qk_dim + 1)),), mechanism="mlstm")
    bias = f.flag("use_bias")
    wide = _portion(f, "ffn_proj_factor", 2.667, hidden, f.int_or(64, "ffn_round_up_to_multiple_of"))
    m = Mlp(width=wide)
    weights = (
        *shapes.column("qk", 2 * qk, hidden, "state", heads, bias),
        *shapes.column("v_ogate", 2 * v, hidden, "state", heads, bias),
        *shapes.column("if_gates", 2 * heads, hidden, "state", heads, True),
        *shapes.norms(v, 1, bias, name="multihead_norm"),
        *shapes.row("out_proj", hidden, v, "state", heads, bias),
        *shapes.mlp(hidden, m, bias),
        *shapes.norms(hidden, 2, bias),
    )
    layer = LayerSpec(caches=(state,), mlp=m, weights=weights)
    notes: tuple[Note, ...] = (note("info", "position_counter", bytes=8),)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes, quirks=frozenset({"position_counter"}))


def _portion(f: Fields, key: str, default: float, hidden: int, multiple: int = 64) -> int:
    """hidden x a factor, rounded up to a multiple."""
    factor: Any = f.value(key)[1]
    factor = default if factor is None else factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 100:
        raise UnsupportedValue("only_value", field=f.name(key), value=repr(factor)[:40], want="a positive number")
    return multiple * -(-int(hidden * factor) // multiple)

"""Kimi delta attention (KDA) beside latent attention: Kimi-Linear and Ling / Ring 3 (bailing_hybrid).

A KDA layer keeps a convolution over queries, keys and values, and a matrix of head size squared a head in fp32 (transformers 5.24, run).
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.deepseek import attention_of, mlps_of
from planner.readers.delta import LINEAR, TYPES
from planner.readers.fields import MAX_LAYERS, Fields
from planner.readers.llama import FULL


def kda_state(heads: int, dim: int, width: int) -> State:
    return State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=3 * heads * dim * width, columns=width),
            StateTensor(name="recurrent", role="recurrent", elements=heads * dim * dim, dtype=DTYPES["fp32"], asked=DTYPES["fp32"]),
        ),
        mechanism="kda",
    )


def kda_weights(hidden: int, heads: int, dim: int, width: int) -> tuple[Weight, ...]:
    """A KDA layer with low-rank forget and output gates, as in Kimi-Linear."""
    inner = heads * dim
    return (
        *shapes.column("qkv_proj", 3 * inner, hidden, "state", heads),
        Weight(name="conv1d", shape=(3 * inner, 1, width), role="state", parts=heads),
        *shapes.whole("f_a_proj", dim, hidden, "state"),
        *shapes.column("f_b_proj", inner, dim, "state", heads),
        Weight(name="dt_bias", shape=(inner,), role="state", parts=heads),
        Weight(name="A_log", shape=(heads,), role="state", parts=heads),
        *shapes.column("b_proj", heads, hidden, "state", heads),
        *shapes.whole("g_a_proj", dim, hidden, "state"),
        *shapes.column("g_b_proj", inner, dim, "state", heads),
        *shapes.norms(dim, 1, name="gated_norm"),
        *shapes.row("o_proj", hidden, inner, "state", heads),
    )


def kimi_linear(f: Fields) -> ModelSpec:
    """KDA layers beside latent ones. `linear_attn_config` counts layers from 1. The RoPE part of a latent row is stored even where
    the model does not rotate it (`mla_use_nope`)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    f.ignore("mla_use_nope", "moe_layer_freq")
    a = attention_of(f)
    linear = f.section("linear_attn_config")
    part = linear or f
    heads, dim = part.need_int("num_heads", "linear_num_heads"), part.need_int("head_dim" if linear else "linear_head_dim", high=65_536)
    width = part.int_or(4, "short_conv_kernel_size", "linear_conv_kernel_dim")
    types = shapes.layer_types(f, layers, TYPES)
    notes: tuple[Note, ...] = ()
    if types is None and linear is not None and linear.has("kda_layers"):
        types = _listed(linear, layers)
    if types is None:
        types = [FULL if i and i % 4 == 0 else LINEAR for i in range(layers)]
        notes = (note("derived", "class_default", field=f.name("layer_types"), value=f"{types.count(FULL)} x {FULL}",
                      source=cite("transformers 5.24 models/kimi_linear")),)  # fmt: skip
    state, kda = kda_state(heads, dim, width), kda_weights(hidden, heads, dim, width)
    mlps, doubts = mlps_of(f, layers, dense_default=1)
    latent = shapes.mla(hidden, a, f.flag("attention_bias"))

    narrow, normed = f.optional_int("routed_expert_hidden_size"), f.flag("latent_moe_use_norm")
    doubts += _open_parts(f, part, a, types, hidden, heads * dim)

    def build(i: int) -> LayerSpec:
        rest = (_narrow_experts(hidden, mlps[i], narrow, normed) if narrow else shapes.mlp(hidden, mlps[i])) + shapes.norms(hidden, 2)
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=mlps[i], weights=latent + rest)
        return LayerSpec(caches=(state,), mlp=mlps[i], weights=kda + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes, doubts=doubts)


def _narrow_experts(hidden: int, m: Mlp, narrow: int, normed: bool) -> tuple[Weight, ...]:
    """Kimi-K3's feed-forward part: the routed experts work on a narrower state (`routed_expert_hidden_size`), between two projections; the
    router and the shared experts see the whole one."""
    if not m.experts:
        return shapes.mlp(hidden, m)
    return (
        Weight(name="router", shape=(m.experts, hidden), role="router"),
        *(w for w in shapes.mlp(narrow, replace(m, shared_width=0)) if w.role == "expert"),
        *(shapes.mlp(hidden, Mlp(width=m.shared_width)) if m.shared_width else ()),
        *shapes.whole("latent_down", narrow, hidden, "mlp"),
        *shapes.whole("latent_up", hidden, narrow, "mlp"),
        *(shapes.norms(narrow, 1, name="latent_norm") if normed else ()),
    )


def _open_parts(f: Fields, linear: Fields, a: Attention, types: list[str], hidden: int, inner: int) -> tuple[Doubt, ...]:
    """Switches of Kimi-K3 whose weights its file does not size: an output gate on latent layers (a number a head, or an element), KDA's
    output gate without its low rank, residuals over blocks of layers (vectors). No public class was read for them."""
    full = types.count(FULL)
    doubts: tuple[Doubt, ...] = ()
    if f.flag("mla_use_output_gate"):
        doubts += (Doubt(code="doubt_open_parts", field=f.name("mla_use_output_gate"), more=full * hidden * a.q_heads * a.v_dim),)
    if linear.flag("use_full_rank_gate"):
        doubts += (Doubt(code="doubt_open_parts", field=linear.name("use_full_rank_gate"), more=(len(types) - full) * hidden * inner),)
    if f.optional_int("attn_res_block_size", low=0):
        doubts += (Doubt(code="doubt_open_parts", field=f.name("attn_res_block_size"), more=8 * hidden * len(types)),)
    return doubts


def _listed(linear: Fields, layers: int) -> list[str]:
    """Types from the two lists of layers, counted from 1; together they must name every layer once."""
    kda = linear.list_of("kda_layers", int) or []
    full = linear.list_of("full_attn_layers", int) or []
    if sorted(kda + full) != list(range(1, min(layers, MAX_LAYERS) + 1)):
        raise UnsupportedValue("list_length", field=linear.name("kda_layers"), got=len(kda) + len(full), want=layers)
    return [FULL if i + 1 in set(full) else LINEAR for i in range(layers)]


def bailing_hybrid(f: Fields) -> ModelSpec:
    """Ling and Ring 3: every `layer_group_size`-th layer is latent, with a gate a head. Files without `short_conv_kernel_size` are of the
    older kind (lightning attention) and are refused."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    # A file that transformers wrote again has the RoPE size in `head_dim`, and the linear layers' own size beside it.
    heads, dim = f.need_int("linear_num_heads", "num_attention_heads"), f.need_int("linear_head_dim", "head_dim")
    width = f.need_int("short_conv_kernel_size", "linear_conv_kernel_dim")
    a = attention_of(f)
    group = f.int_or(6, "layer_group_size")
    types = shapes.layer_types(f, layers, TYPES) or [LINEAR if (i + 1) % group else FULL for i in range(layers)]
    inner, state = heads * dim, kda_state(heads, dim, width)
    kda = (
        *shapes.column("qkv_proj", 3 * inner, hidden, "state", heads),
        Weight(name="conv1d", shape=(3 * inner, 1, width), role="state", parts=heads),
        *shapes.column("f_g_proj", 2 * inner, hidden, "state", heads),
        Weight(name="dt_bias", shape=(inner,), role="state", parts=heads),
        Weight(name="A_log", shape=(heads,), role="state", parts=heads),
        *shapes.column("b_proj", heads, hidden, "state", heads),
        *shapes.norms(dim, 1, name="gated_norm"),
        *shapes.row("o_proj", hidden, inner, "state", heads),
    )
    mlps, doubts = mlps_of(f, layers, dense_default=2)
    latent = shapes.mla(hidden, a, f.flag("attention_bias")) + shapes.column("g_proj", heads, hidden, "attention", heads)

    def build(i: int) -> LayerSpec:
        rest = shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, 2)
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=mlps[i], weights=latent + rest)
        return LayerSpec(caches=(state,), mlp=mlps[i], weights=kda + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, doubts=doubts)

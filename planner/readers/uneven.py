"""Families whose layers differ in heads: OpenELM's lists, Nemotron-NAS blocks, DeciLM's list."""

from __future__ import annotations

from typing import Any

from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import guard
from planner.readers.build import model
from planner.readers.doubts import elements
from planner.readers.fields import MAX_TOKENS, Fields


def refuse(f: Fields, key: str, value: Any) -> UnsupportedValue:
    return UnsupportedValue("foreign_key", field=f.name(key), value=repr(value)[:60])


def openelm(f: Fields) -> ModelSpec:
    """OpenELM: query and KV heads layer by layer, a feed-forward width by multiplier, rounded to `ffn_dim_divisor`."""
    layers, hidden, dim = f.layers("num_transformer_layers"), f.need_int("model_dim"), f.need_int("head_dim")
    q, kv = f.list_of("num_query_heads", int, layers), f.list_of("num_kv_heads", int, layers)
    times, step = f.raw.get("ffn_multipliers"), f.int_or(256, "ffn_dim_divisor")
    if q is None or kv is None or any(b < 1 or a % b for a, b in zip(q, kv, strict=True)):
        raise refuse(f, "num_kv_heads", kv)
    unsaid, times = times is None, [2.0] * layers if times is None else times
    if not isinstance(times, list) or len(times) != layers or not all(isinstance(t, int | float) and 0 < t < 1_000 for t in times):
        raise refuse(f, "ffn_multipliers", times)
    gated = f.flag("ffn_with_glu", True)
    normed = f.flag("normalize_qk_projections", True)

    def build(i: int) -> LayerSpec:
        a = Attention(q_heads=q[i], kv_heads=kv[i], qk_dim=dim, v_dim=dim)
        raw = times[i] * hidden
        width = max(step, int(raw + step / 2) // step * step)
        m = Mlp(width=width + step if width < 0.9 * raw else width, gated=gated)
        weights = shapes.gqa(hidden, a) + (shapes.norms(dim, 2, name="head_norm") if normed else ()) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
        return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)

    stack = shapes.stack(layers, build)
    wide = elements(w for layer in stack for w in layer.weights if w.role == "mlp")
    doubts = (Doubt(code="doubt_width", field=f.name("ffn_multipliers"), fewer=wide * 3 // 4, more=wide),) if unsaid else ()  # published: 0.5 to 4
    return model(f, stack, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=f.flag("share_input_output_layers", True), exact=False,
                 doubts=doubts)  # fmt: skip


def nemotron_nas(f: Fields) -> ModelSpec:
    """Llama-Nemotron (DeciLM): `block_configs` says for each block whether it attends, with how many heads a KV head, and how wide its
    feed-forward layer is. Blocks that skip attention, or put a linear layer in its place, keep nothing (vLLM models/nemotron_nas.py)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q = f.need_int("num_attention_heads", high=65_536)
    dim, bias = shapes.head_dim(f, hidden, q), f.flag("attention_bias")
    blocks = f.list_of("block_configs", dict, layers)
    if blocks is None:
        raise refuse(f, "block_configs", None)
    pairs = [_parts(f, i, b) for i, b in enumerate(blocks)]

    def build(i: int) -> LayerSpec:
        attn, ffn = pairs[i]
        weights: tuple[Weight, ...] = ()
        a: Attention | None = None
        m: Mlp | None = None
        window = attn.optional_int("window_length", high=MAX_TOKENS)
        for key in ("sparsify", "num_sink_tokens", "unshifted_sink"):
            if attn.raw.get(key):
                raise refuse(attn, key, attn.raw[key])
        if attn.flag("replace_with_linear"):
            weights += shapes.column("linear_attn", hidden, hidden, "attention", hidden) + shapes.norms(hidden, 1)
        elif not attn.flag("no_op"):
            group = attn.need_int("n_heads_in_group", high=65_536)
            if q % group:
                raise UnsupportedValue("kv_heads_not_dividing", field=attn.name("n_heads_in_group"), q_heads=q, kv_heads=group)
            a = Attention(q_heads=q, kv_heads=q // group, qk_dim=dim, v_dim=dim)
            weights += shapes.gqa(hidden, a, bias, bias) + shapes.norms(hidden, 1)
        if ffn.flag("replace_with_linear"):
            weights += shapes.column("linear_mlp", hidden, hidden, "mlp", hidden) + shapes.norms(hidden, 1)
        elif not ffn.flag("no_op"):
            m = Mlp(width=_nas_width(ffn, hidden))
            weights += shapes.mlp(hidden, m, f.flag("mlp_bias")) + shapes.norms(hidden, 1)
        return LayerSpec(caches=(shapes.rows_of(a, window),) if a else (), attention=a, mlp=m, weights=weights)

    f.ignore("num_key_value_heads")
    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)
    guard(f)
    return spec


def _parts(f: Fields, i: int, block: dict[str, Any]) -> tuple[Fields, Fields]:
    """The attention and the feed-forward section of block `i`."""
    here = Fields(block, f"{f.name('block_configs')}[{i}]", f)
    attn, ffn = here.section("attention"), here.section("ffn")
    if attn is None or ffn is None or here.raw.get("parallel_blocks"):
        raise refuse(f, "block_configs", block)
    return attn, ffn


def _nas_width(ffn: Fields, hidden: int) -> int:
    width = ffn.optional_int("intermediate_size")
    if width:
        return width
    times = ffn.raw.get("ffn_mult")
    if isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times < 1_000:
        raise refuse(ffn, "ffn_mult", times)
    return -(-int(2 * times * hidden / 3) // 256) * 256


def deci(f: Fields) -> ModelSpec:
    """DeciLM-7B: Llama's block with `num_key_value_heads_per_layer`."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = f.need_int("num_attention_heads", high=65_536), f.list_of("num_key_value_heads_per_layer", int, layers)
    if f.raw.get("block_configs") is not None:
        return nemotron_nas(f)
    if kv is None or any(h < 1 or q % h for h in kv):
        raise refuse(f, "num_key_value_heads_per_layer", kv)
    dim, m = shapes.head_dim(f, hidden, q), Mlp(width=f.need_int("intermediate_size"))
    f.ignore("num_key_value_heads")

    def build(i: int) -> LayerSpec:
        a = Attention(q_heads=q, kv_heads=kv[i], qk_dim=dim, v_dim=dim)
        return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=shapes.gqa(hidden, a) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2))

    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=False)
    guard(f)
    return spec

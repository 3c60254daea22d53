"""Families of latent attention that change the block itself: A.X-K2 and Hunyuan-4 (gates, indexers), Mistral Large 4
(shared rows), LongCat-Flash (two attentions a layer)."""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Kind
from planner.errors import UnsupportedValue
from planner.model import LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.deepseek import attention_of, choosing, index_of, indexers, mlps_of
from planner.readers.doubts import between
from planner.readers.fields import Fields


def axk2(f: Fields) -> ModelSpec:
    """A.X-K2: an indexer on every layer, queries and output gate from one projection, and norms with a low-rank gate."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    f.ignore("num_nextn_predict_layers")
    a = choosing(f, attention_of(f))
    rank = f.need_int("q_lora_rank")
    key, index = index_of(f, hidden, a)
    mlps, doubts = mlps_of(f, layers, dense_default=1)
    bias = f.flag("attention_bias")
    attention = tuple(w for w in shapes.mla(hidden, a, bias) if w.name != "q_b_proj")
    attention += shapes.column("q_gate_proj", a.q_heads * (a.qk_dim + a.v_dim), 2 * rank, "attention", a.q_heads) + index
    gate = (Weight(name="norm_gate", shape=(2, f.int_or(16, "gated_norm_rank"), hidden), role="norm"),)

    def build(i: int) -> LayerSpec:
        weights = attention + shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, 2) + gate * (2 if mlps[i].experts else 1)
        return LayerSpec(caches=(shapes.rows_of(a), key), attention=a, mlp=mlps[i], weights=weights)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, doubts=doubts)


def hy_v4(f: Fields) -> ModelSpec:
    """Hunyuan-4: an indexer on layer 0 and on every fourth from layer 1, an output gate, learned sinks, several residual streams."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = choosing(f, attention_of(f))
    key, index = index_of(f, hidden, a)
    named = f.has("indexer_types") or f.has("index_topk_pattern")
    owners = indexers(f, layers) if named else [i == 0 or (i - 1) % 4 == 0 for i in range(layers)]
    notes = () if named else (note("derived", "class_default", field=f.name("indexer_types"), value=f"{sum(owners)} of {layers}",
                                   source=cite("transformers 5.24 models/hy_v4")),)  # fmt: skip
    mlps, doubts = mlps_of(f, layers, dense_default=1, fixed=True)
    copies = f.int_or(4, "hc_mult")
    attention = (
        *shapes.mla(hidden, a, f.flag("attention_bias")),
        *shapes.column("gate_proj", a.q_heads * a.v_dim, hidden, "attention", a.q_heads),
        Weight(name="sinks", shape=(a.q_heads,), role="attention", parts=a.q_heads),
        Weight(name="hyper_connection", shape=(2 * copies, copies * hidden + 1), role="norm", copies=2),
        Weight(name="hc_scale", shape=(4,), role="norm"),
        *shapes.norms(hidden, 2),
    )
    head = (Weight(name="hyper_head", shape=(copies, copies * hidden + 1), role="norm"), Weight(name="hyper_head_scale", shape=(1,), role="norm"))

    def build(i: int) -> LayerSpec:
        caches: tuple[Kind, ...] = (shapes.rows_of(a), key) if owners[i] else (shapes.rows_of(a),)
        weights = attention + shapes.mlp(hidden, mlps[i]) + (index if owners[i] else ())
        return LayerSpec(caches=caches, attention=a, mlp=mlps[i], weights=weights)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, extra=head, notes=notes, doubts=doubts)


def longcat_flash(f: Fields) -> ModelSpec:
    """LongCat-Flash: `num_layers` layers of two attentions and two dense feed-forward parts each, so twice as many caches, and one set of
    experts a layer, some of which compute nothing. The experts' weights stand with the first half."""
    count = f.optional_int("num_layers", high=2048)
    halves = 2 * count if count is not None else f.layers("num_hidden_layers") // 2 * 2
    f.ignore("num_hidden_layers")
    hidden = f.need_int("hidden_size")
    a = attention_of(f)
    experts, width = f.need_int("n_routed_experts", high=65_536), f.need_int("expert_ffn_hidden_size")
    moe = Mlp(experts=experts, top_k=f.need_int("moe_topk", "num_experts_per_tok", high=65_536), expert_width=width)
    dense = Mlp(width=f.need_int("ffn_hidden_size", "intermediate_size"))
    half = shapes.mla(hidden, a, f.flag("attention_bias")) + shapes.mlp(hidden, dense) + shapes.norms(hidden, 2)
    none = f.int_or(0, "zero_expert_num", low=0)
    idle = Weight(name="router.idle", shape=(none, hidden), role="router")
    # transformers 5.24 makes room in its stacked matrices for the experts that compute nothing; no checkpoint has them.
    doubts = between("doubt_idle_experts", 0, halves // 2 * none * 2 * width * hidden, f.name("zero_expert_num"))
    first = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=moe, weights=(*half, *shapes.mlp(hidden, moe), idle))
    second = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=dense, weights=half)
    return model(f, (first, second) * (halves // 2), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, doubts=doubts)


def mistral_large4(f: Fields) -> ModelSpec:
    """Mistral Large 4: no query rank; every fourth layer rotates nothing and keeps no RoPE key; a layer that names another in
    `kv_source_layers` keeps no latent row, but still its index key where it owns an indexer."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = replace(choosing(f, attention_of(f)), q_rank=None)
    bare = replace(a, nope_dim=a.nope_dim + a.rope_dim, rope_dim=0)
    step = f.int_or(4, "no_rope_layer_interval")
    rope = f.list_of("no_rope_layers", int, layers) or [int((i + 1) % step != 0) for i in range(layers)]
    source = f.list_of("kv_source_layers", int, layers) or list(range(layers))
    for i, s in enumerate(source):
        if not 0 <= s <= i or source[s] != s:
            raise UnsupportedValue("out_of_range", field=f.name("kv_source_layers"), value=str(s)[:40], low=0, high=i)
    key, index = index_of(f, hidden, a)
    n = f.need_int("index_n_heads")
    index += (*shapes.norms(hidden, 1, bias=True, name="indexer.q_norm"), Weight(name="indexer.scaling", shape=(2, n), role="attention"))
    owners = indexers(f, layers)
    mlps, doubts = mlps_of(f, layers, dense_default=1)
    scaling = (Weight(name="softmax_scaling", shape=(2, a.q_heads), role="attention"),)

    def build(i: int) -> LayerSpec:
        here = a if rope[i] else bare
        owns = source[i] == i
        attention = shapes.mla(hidden, here, f.flag("attention_bias")) + scaling
        if not owns:
            attention = tuple(w for w in attention if not w.name.startswith("kv_a_"))
        caches: tuple[Kind, ...] = ((shapes.rows_of(here),) if owns else ()) + ((key,) if owners[i] else ())
        weights = attention + shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, 2) + (index if owners[i] else ())
        return LayerSpec(caches=caches, attention=here, mlp=mlps[i], weights=weights, shares_with=None if owns else source[i])

    alpha = (Weight(name="rotary.alpha", shape=(a.rope_dim // 2,), role="position"),)
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, extra=alpha, doubts=doubts)

"""MiMo-V2 and Step: windowed layers have heads of their own, beside full layers with others."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import guard
from planner.readers.build import model
from planner.readers.doubts import between, elements
from planner.readers.experts import Experts, mlps
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW
from planner.readers.uneven import refuse
from planner.readers.windows import TYPES


def mimo_v2(f: Fields) -> ModelSpec:
    """MiMo-V2: K wider than V; windowed layers with KV heads of their own (twice as many where the file does not say). The file's
    `attention_chunk_size` is not used. transformers windows one token more where `sliding_window_size` is set."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv, k_dim, v_dim = (
        f.need_int("num_attention_heads", high=65_536),
        f.need_int("num_key_value_heads", high=65_536),
        f.need_int("head_dim"),
        f.need_int("v_head_dim"),
    )
    full = Attention(q_heads=q, kv_heads=kv, qk_dim=k_dim, v_dim=v_dim)
    near = Attention(q_heads=f.int_or(q, "swa_num_attention_heads", high=65_536), kv_heads=f.int_or(2 * kv, "swa_num_key_value_heads", high=65_536),
                     qk_dim=f.int_or(k_dim, "swa_head_dim"), v_dim=f.int_or(v_dim, "swa_v_head_dim"))  # fmt: skip
    for a in (full, near):
        if a.q_heads % a.kv_heads:
            raise UnsupportedValue("kv_heads_not_dividing", field=f.name("num_key_value_heads"), q_heads=a.q_heads, kv_heads=a.kv_heads)
    window = f.need_int("sliding_window", high=MAX_TOKENS)
    marks, types = f.list_of("hybrid_layer_pattern", int, layers), shapes.layer_types(f, layers, TYPES)
    if types is None:
        if marks is None or set(marks) - {0, 1}:
            raise refuse(f, "hybrid_layer_pattern", marks)
        types = [WINDOW if m else FULL for m in marks]
    sparse = f.list_of("moe_layer_freq", int, layers)
    raw = {**f.raw, "mlp_layer_types": ["sparse" if s else "dense" for s in sparse]} if sparse and f.raw.get("mlp_layer_types") is None else f.raw
    e = Experts(count=("n_routed_experts",), shared="n_shared_experts", first_dense_default=1)
    each, bias = mlps(f.variant(raw), layers, e), f.flag("attention_bias")
    sinks = {WINDOW: f.flag("add_swa_attention_sink_bias", True), FULL: f.flag("add_full_attention_sink_bias")}

    def build(i: int) -> LayerSpec:
        a = near if types[i] == WINDOW else full
        weights = shapes.gqa(hidden, a, bias) + shapes.mlp(hidden, each[i]) + shapes.norms(hidden, 2)
        if sinks[types[i]]:
            weights += (Weight(name="sinks", shape=(a.q_heads,), role="attention", parts=a.q_heads),)
        return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=each[i], weights=weights)

    read = sum(elements(w for w in build(i).weights if w.role != "norm" and w.name != "sinks") for i in range(layers))
    doubts = _mimo_class(f, hidden, full, each, types, read)
    f.ignore("attention_chunk_size")
    quirks = frozenset({"transformers_window_plus_one"}) if f.optional_int("sliding_window_size", high=MAX_TOKENS) else frozenset()
    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, quirks=quirks, doubts=doubts)
    guard(f)
    return spec


def _mimo_class(f: Fields, hidden: int, full: Attention, each: list[Mlp], types: list[str], read: int) -> tuple[Doubt, ...]:
    """What transformers' class would make: layer 0 and every sixth full and layer 0 dense unless `layer_types` and `mlp_layer_types` say
    otherwise, windowed layers with twice the KV heads and the other sizes of the full ones."""
    n = len(types)
    kinds = types if f.raw.get("layer_types") is not None else [FULL if i == 0 or (i + 1) % 6 == 0 else WINDOW for i in range(n)]
    sparse, dense = next((m for m in each if m.experts), each[0]), next((m for m in each if not m.experts), each[0])
    parts = each if f.raw.get("mlp_layer_types") is not None else [dense, *[sparse] * (n - 1)]
    near = replace(full, kv_heads=2 * full.kv_heads)
    bias = f.flag("attention_bias")
    made = sum(elements(shapes.gqa(hidden, near if k == WINDOW else full, bias)) + elements(shapes.mlp(hidden, m)) for k, m in zip(kinds, parts, strict=True))
    return between("doubt_class_differs", read, made, f.name("swa_num_key_value_heads"))


def step3(f: Fields) -> ModelSpec:
    """Step-3.5 and 3.7: full and windowed layers, the latter with the heads of `attention_other_setting`. Lists may be longer by the draft
    layers (`num_nextn_predict_layers`), which cache only while speculation is on."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    drafts = f.int_or(0, "num_nextn_predict_layers", low=0)
    q, dim = f.need_int("num_attention_heads", high=65_536), f.need_int("head_dim")
    kv = f.need_int("num_key_value_heads", "num_attention_groups", high=65_536)
    other = f.section("attention_other_setting")
    kind = other.text("attention_type") if other else None
    if kind not in (None, WINDOW):
        raise refuse(f, "attention_other_setting", kind)
    full = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    near = full
    if other:
        d = other.int_or(dim, "head_dim")
        near = Attention(q_heads=other.int_or(q, "num_attention_heads", high=65_536), qk_dim=d, v_dim=d,
                         kv_heads=other.int_or(kv, "num_attention_groups", "num_key_value_heads", high=65_536))  # fmt: skip
    types = f.list_of("layer_types", str)
    if types is None or len(types) not in (layers, layers + drafts) or set(types) - {FULL, WINDOW}:
        raise refuse(f, "layer_types", types)
    window = f.need_int("sliding_window", high=MAX_TOKENS) if WINDOW in types[:layers] else None
    named = f.raw.get("moe_layers_enum")
    f.ignore("moe_layers_enum", "num_attention_groups", "num_key_value_heads")
    listed = named.split(",") if isinstance(named, str) else named
    sparse = (
        {int(x) for x in listed if str(x).strip().isdigit()} if isinstance(listed, list) else set(range(f.int_or(3, "first_k_dense_replace", low=0), layers))
    )
    e = Experts(count=("moe_num_experts", "n_routed_experts", "num_experts"), top_k=("moe_top_k", "num_experts_per_tok"), shared_width="share_expert_dim")
    raw = {**f.raw, "mlp_layer_types": ["sparse" if i in sparse else "dense" for i in range(layers)]}
    each = mlps(f.variant(raw), layers, e)

    def build(i: int) -> LayerSpec:
        a = near if types[i] == WINDOW else full
        weights = shapes.gqa(hidden, a) + shapes.norms(dim, 2, name="head_norm") + shapes.column("g_proj", a.q_heads, hidden, "attention", a.q_heads)
        weights += shapes.mlp(hidden, each[i]) + shapes.norms(hidden, 2)
        return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=each[i], weights=weights)

    # transformers' class takes nothing but the query heads from the other setting.
    each_made, each_read = (elements(shapes.gqa(hidden, a)) for a in (replace(full, q_heads=near.q_heads), near))
    windowed = sum(t == WINDOW for t in types[:layers])
    doubts = between("doubt_class_differs", windowed * each_read, windowed * each_made, f.name("attention_other_setting"))
    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, doubts=doubts)
    guard(f)
    return spec

"""Attention and short convolutions in the same layer: Inkling (four streams, in fp32) and ZAYA; stacks run more than once: HRM-Text."""

from __future__ import annotations

from dataclasses import replace

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields

FULL, WINDOW = "hybrid", "hybrid_sliding"
TYPES = {FULL: FULL, WINDOW: WINDOW}


def inkling(f: Fields) -> ModelSpec:
    """Keys, values and both outputs of a layer pass a short convolution; window layers have heads of their own."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    types = shapes.layer_types(f, layers, TYPES)
    local = f.list_of("local_layer_ids", int)
    if types is None:
        types = [(WINDOW if i in local else FULL) if local is not None else (WINDOW if (i + 1) % 6 else FULL) for i in range(layers)]
    first = f.text("model_type") == "inkling_text"
    return _inkling(f, layers, hidden, types, list(range(layers)), second=not first)


def inkling_loop(f: Fields) -> ModelSpec:
    """The middle layers run `loop_num_passes` times with the same weights, and each pass keeps caches of its own."""
    unique, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    loop = f.section("loop_config") or f
    start = loop.need_int("core_start", "loop_layer_index_start")
    end = loop.need_int("core_end", "loop_layer_index_end", high=unique)
    passes = loop.need_int("num_passes", "loop_num_passes", high=64)
    if start > end:
        raise UnsupportedValue("out_of_range", field=f.name("loop_layer_index_start"), value=str(start), low=1, high=end)
    types = shapes.layer_types(f, unique, TYPES) or [WINDOW if (i + 1) % 6 else FULL for i in range(unique)]
    order = [*range(end), *list(range(start, end)) * (passes - 1), *range(end, unique)]
    rank = loop.int_or(64, "gate_rank", "loop_gate_rank")
    return _inkling(f, unique, hidden, types, order, second=True, gated=range(start, end), rank=rank)


def _inkling(f: Fields, unique: int, hidden: int, types: list[str], order: list[int], second: bool, gated: range = range(0), rank: int = 0) -> ModelSpec:
    """`order`: which layer runs when; a layer that runs again brings no weights. `second`: the weights of Inkling 2, with scales, gates and
    attention over earlier layers in each layer, and in those of `gated` four gates of `rank` for what an earlier run left."""
    window = f.need_int("sliding_window_size", "sliding_window", high=MAX_TOKENS)
    width = f.int_or(4, "conv_kernel_size", "sconv_kernel_size")
    dense_width = f.optional_int("dense_intermediate_size")
    moe = f.optional_int("moe_intermediate_size") or f.need_int("intermediate_size")
    if dense_width:
        moe = f.need_int("intermediate_size")
    experts = f.need_int("n_routed_experts", high=65_536)
    sparse = Mlp(
        experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=moe, shared_width=moe * f.int_or(0, "n_shared_experts", low=0)
    )
    mlp_types = f.list_of("mlp_layer_types", str, unique)
    dense_to = f.int_or(0, "dense_mlp_idx", low=0)
    dense = [t == "dense" for t in mlp_types] if mlp_types else [i < dense_to for i in range(unique)]
    other = Mlp(width=dense_width or f.need_int("intermediate_size")) if any(dense) else sparse
    rel = f.int_or(16, "d_rel")
    f.ignore("num_mtp_layers", "mtp_local_layer_ids")
    sink = f.int_or(0, "n_shared_experts", low=0)  # the router has a row for each shared expert too
    seen: set[int] = set()

    def second_weights(i: int, a: Attention, m: Mlp, streams: tuple[tuple[str, int], ...]) -> tuple[Weight, ...]:
        q, full = a.q_heads, types[i] == FULL
        extent = f.int_or(1024, "rel_extent") if full else window
        return (
            *shapes.gqa(hidden, a),
            *shapes.column("gate_proj", q * a.v_dim, hidden, "attention", q),
            *shapes.column("sink_proj", q, hidden, "attention", q),
            *shapes.column("r_proj", q * rel, hidden, "attention", q),
            Weight(name="rel_logits", shape=(rel, extent), role="attention"),
            Weight(name="scales", shape=(q, a.qk_dim + rel), role="norm", parts=q),
            *(Weight(name=f"{n}_sconv", shape=(c, 1, width), role="state") for n, c in streams),
            *(shapes.column("sconv_weight_proj", 2 * a.kv_heads * width, hidden, "state", a.kv_heads) if full else ()),
            *shapes.mlp(hidden, m),
            *shapes.norms(hidden, 4 if full else 2),
            Weight(name="residual_queries", shape=(1 + ((3 if full else 1) if i else 0), hidden), role="norm"),
            *(shapes.whole("message_gates", 4 * 4 * rank, hidden, "state") if i in gated else ()),
        )

    def build(i: int) -> LayerSpec:
        prefix = "swa_" if types[i] == WINDOW else ""
        q, kv, dim = (f.need_int(f"{prefix}{key}") for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        if q % kv:
            raise UnsupportedValue("kv_heads_not_dividing", field=f.name(f"{prefix}num_key_value_heads"), q_heads=q, kv_heads=kv)
        a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
        streams = (("k", kv * dim), ("v", kv * dim), ("attention", hidden), ("mlp", hidden))
        state = State(tensors=tuple(StateTensor(name=n, role="conv", elements=c * width, columns=width, dtype=DTYPES["fp32"]) for n, c in streams))
        m = other if dense[i] else sparse
        weights: tuple[Weight, ...] = ()
        if i not in seen and second:
            weights = second_weights(i, a, m, streams)
        elif i not in seen:
            weights = (
                Weight(name="global_scale", shape=(1 + sink * hidden,) if m.experts else (1,), role="router"),
                *shapes.gqa(hidden, a),
                *shapes.column("r_proj", q * rel, hidden, "attention", q),
                Weight(name="rel_logits", shape=(rel, window if prefix else f.int_or(1024, "rel_extent")), role="attention"),
                *shapes.norms(dim, 2, name="head_norm"),
                *(Weight(name=f"{n}_sconv", shape=(c, 1, width), role="state") for n, c in streams),
                *shapes.mlp(hidden, m),
                *shapes.norms(hidden, 2),
            )
        seen.add(i)
        return LayerSpec(caches=(shapes.rows_of(a, window if prefix else None), state), attention=a, mlp=m, weights=weights)

    stack = [build(i) for i in order]
    vocab = f.need_int("vocab_size")
    extra = shapes.norms(hidden, 1, name="embed_norm")
    if second:
        extra += (Weight(name="final_query", shape=(1 + 4 * len(gated), hidden), role="norm"),)
    spec = model(f, shapes.stack(len(stack), lambda k: stack[k]), hidden=hidden, vocab=vocab, tied_default=False, extra=extra)
    rows = f.int_or(200_058, "unpadded_vocab_size") if second else vocab  # the head has no row for the padding of the embedding
    return replace(spec, weights=tuple(replace(w, shape=(rows, hidden), parts=rows) if w.role == "lm_head" else w for w in spec.weights))


def zaya(f: Fields) -> ModelSpec:
    """ZAYA: queries and keys pass two convolutions of `cca_time0` and `cca_time1`; half of the values come one token late."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.need_int("head_dim")
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    types = shapes.layer_types(f, layers, TYPES) or [FULL] * layers
    window = f.need_int("sliding_window", high=MAX_TOKENS) if WINDOW in types else None
    first, second, channels = f.int_or(2, "cca_time0"), f.int_or(2, "cca_time1"), (q + kv) * dim
    # Not the usual convolution: the columns kept are exactly those needed, so none is dropped anywhere.
    state = State(
        tensors=(
            StateTensor(name="conv", role="recurrent", elements=channels * (first + second - 2)),
            StateTensor(name="delayed_value", role="recurrent", elements=kv * dim // 2),
        )
    )
    experts, moe = f.need_int("num_experts", high=65_536), f.need_int("moe_intermediate_size")
    m = Mlp(experts=experts, top_k=f.int_or(1, "num_experts_per_tok", high=65_536), expert_width=moe)
    bias, router = f.flag("attention_bias"), f.int_or(256, "router_hidden_size")
    shared = (
        *shapes.gqa(hidden, a, bias, bias),
        Weight(name="conv_qk_depthwise", shape=(channels, first + 1), role="state", parts=kv),
        Weight(name="conv_qk_grouped", shape=(channels, dim * second + 1), role="state", parts=kv),
        Weight(name="qk_norm.temp", shape=(kv,), role="norm"),
        *shapes.mlp(hidden, m)[1:],
        *shapes.whole("router.down_proj", router, hidden, "router", True),
        *shapes.whole("router.fc1", router, router, "router", True),
        *shapes.whole("router.fc2", router, router, "router", True),
        *shapes.whole("router.out_proj", experts + 1, router, "router"),
        *shapes.norms(router, 1, name="router.norm"),
        Weight(name="residual_scaling", shape=(8, hidden), role="norm"),
        *shapes.norms(hidden, 2),
    )

    def build(i: int) -> LayerSpec:
        weights = shared + ((Weight(name="router_states_scale", shape=(router,), role="router"),) if i else ())
        return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None), state), attention=a, mlp=m, weights=weights)

    vocab = f.need_int("vocab_size")
    head: tuple[Weight, ...] = (Weight(name="input_scaling", shape=(2, hidden), role="norm"),)
    if f.flag("lm_head_bias"):
        head += (Weight(name="lm_head.bias", shape=(vocab,), role="lm_head", parts=vocab),)
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=vocab, tied_default=True, extra=head)


def hrm_text(f: Fields) -> ModelSpec:
    """HRM-Text: a high and a low stack run in cycles, H x (L + 1) times in all, and every run of a layer keeps K and V of its own.
    `num_hidden_layers` counts the runs where `num_layers_per_stack` is given, else the layers of one stack."""
    counted = f.layers("num_hidden_layers")
    stack = f.optional_int("num_layers_per_stack") or counted
    runs = f.int_or(2, "H_cycles", high=64) * (f.int_or(3, "L_cycles", high=64) + 1)
    if stack * runs > 65_536 or (f.has("num_layers_per_stack") and stack * runs != counted):
        raise UnsupportedValue("only_value", field=f.name("num_hidden_layers"), value=counted, want=stack * runs)
    hidden = f.need_int("hidden_size")
    q, _ = shapes.heads(f)
    dim = f.size("head_dim") or hidden // q
    a = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim)
    m = Mlp(width=f.need_int("intermediate_size"))
    bias = f.flag("attention_bias")
    weights = (
        *shapes.gqa(hidden, a, bias, bias),
        *shapes.column("gate_proj", q * dim, hidden, "attention", q, bias),
        *shapes.mlp(hidden, m, f.flag("mlp_bias")),
    )
    first = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    again = replace(first, weights=())
    layers = (first,) * (2 * stack) + (again,) * (stack * (runs - 2))
    return model(f, layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, final_norm=(),
                 extra=(Weight(name="z_L_init", shape=(hidden,), role="state"),))  # fmt: skip

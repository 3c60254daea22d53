"""Attention layers among Mamba layers: Jamba, Bamba, Granite-4, Nemotron-H; Falcon-H1 has both in every layer."""

from __future__ import annotations

from planner.dtypes import dtype
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import between
from planner.readers.fields import MAX_LAYERS, Fields
from planner.readers.mamba import Mamba1, Mamba2, prefixed, rank_of

ATTENTION, STATE, MOE, MLP = "attention", "mamba", "moe", "mlp"
NAMES = {"attention": ATTENTION, "full_attention": ATTENTION, "mamba": STATE, "mamba2": STATE, "linear_attention": STATE}


def attention_of(f: Fields, hidden: int, *dim_keys: str) -> Attention:
    q, kv = shapes.heads(f)
    dim = (f.size(*dim_keys) if dim_keys else None) or shapes.head_dim(f, hidden, q)
    return Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)


def listed(f: Fields, layers: int | None, known: dict[str, str]) -> list[str] | None:
    """`layers_block_type` or `layer_types`, by transformers' old names or its new ones."""
    key = "layers_block_type" if f.has("layers_block_type") else "layer_types"
    f.ignore("layer_types", "layers_block_type")
    types = f.list_of(key, str, layers)
    if types is None:
        return None
    if (unknown := next((t for t in types if t not in known), None)) is not None:
        raise UnsupportedValue("unknown_layer_type", field=f.name(key), value=unknown[:60], known=", ".join(sorted(known)))
    return [known[t] for t in types]


def jamba(f: Fields) -> ModelSpec:
    """Layer i attends where i % period = offset; experts likewise. Norms on the time step and on B and C."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = attention_of(f, hidden)
    m = Mamba1(inner=f.int_or(2, "mamba_expand") * hidden, state=f.int_or(16, "mamba_d_state"), width=f.int_or(4, "mamba_d_conv"),
               rank=rank_of(f, hidden, "mamba_dt_rank"), bias=f.flag("mamba_proj_bias"), conv_bias=f.flag("mamba_conv_bias", True))  # fmt: skip
    period, offset = f.int_or(8, "attn_layer_period"), f.int_or(4, "attn_layer_offset", low=0)
    types = listed(f, layers, NAMES) or [ATTENTION if i % period == offset else STATE for i in range(layers)]
    experts, width = f.int_or(16, "num_experts", high=65_536), f.need_int("intermediate_size")
    every, first = f.int_or(2, "expert_layer_period"), f.int_or(1, "expert_layer_offset", low=0)
    dense = Mlp(width=width)
    sparse = Mlp(experts=experts, top_k=f.int_or(2, "num_experts_per_tok", high=65_536), expert_width=width) if experts > 1 else dense
    state = m.weights(hidden) + shapes.norms(m.rank, 1, name="dt_norm") + shapes.norms(m.state, 2, name="b_c_norm")

    def build(i: int) -> LayerSpec:
        mlp = sparse if i % every == first else dense
        rest = shapes.mlp(hidden, mlp) + shapes.norms(hidden, 2)
        if types[i] == ATTENTION:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=mlp, weights=shapes.gqa(hidden, a) + rest)
        return LayerSpec(caches=(m.cache(),), mlp=mlp, weights=state + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


def bamba(f: Fields) -> ModelSpec:
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    at = set(f.list_of("attn_layer_indices", int) or ())
    types = listed(f, layers, NAMES) or [ATTENTION if i in at else STATE for i in range(layers)]
    bias = f.flag("attention_bias")
    return _alternating(f, types, hidden, Mlp(width=f.need_int("intermediate_size")), bias, f.flag("mlp_bias"))


def granite_hybrid(f: Fields) -> ModelSpec:
    """Granite 4: a shared feed-forward layer on every layer, experts beside it where the file names any. Dense files attend only."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    types = listed(f, layers, NAMES)
    notes: tuple[Note, ...] = ()
    if types is None:
        types = [STATE] * layers
        notes = (note("derived", "class_default", field=f.name("layer_types"), value=STATE, source=cite("transformers 5.24 models/granitemoehybrid")),)
    shared, experts = f.int_or(1024, "shared_intermediate_size"), f.int_or(8, "num_local_experts", low=0, high=65_536)
    mlp = Mlp(width=shared)
    if experts:
        mlp = Mlp(experts=experts, top_k=f.int_or(2, "num_experts_per_tok", high=65_536), expert_width=f.need_int("intermediate_size"), shared_width=shared)
    return _alternating(f, types, hidden, mlp, f.flag("attention_bias"), False, notes=notes)


def _alternating(f: Fields, types: list[str], hidden: int, mlp: Mlp, bias: bool, mlp_bias: bool, notes: tuple[Note, ...] = ()) -> ModelSpec:
    """Each layer attends or keeps a Mamba-2 state, and all have the same feed-forward part."""
    rest = shapes.mlp(hidden, mlp, mlp_bias) + shapes.norms(hidden, 2)
    a = attention_of(f, hidden)
    full = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=mlp, weights=shapes.gqa(hidden, a, bias, bias) + rest)
    m = prefixed(f, hidden) if STATE in types else None
    state = LayerSpec(caches=(m.cache(),), mlp=mlp, weights=m.weights(hidden) + rest) if m else full
    return model(f, tuple(full if t == ATTENTION else state for t in types), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes)


def falcon_h1(f: Fields) -> ModelSpec:
    """Attention and state side by side in every layer; the inner width is `mamba_d_ssm` where the file gives it."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = attention_of(f, hidden)
    base = prefixed(f, hidden, f.optional_int("mamba_d_ssm"))
    m = Mamba2(heads=base.heads, head_dim=base.head_dim, groups=base.groups, state=base.state, width=base.width, bias=f.flag("mamba_proj_bias"),
               out_bias=f.flag("projectors_bias"), conv_bias=base.conv_bias, norm=f.flag("mamba_rms_norm"))  # fmt: skip
    mlp, bias = Mlp(width=f.need_int("intermediate_size")), f.flag("attention_bias")
    weights = shapes.gqa(hidden, a, bias, bias) + m.weights(hidden) + shapes.mlp(hidden, mlp, f.flag("mlp_bias")) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a), m.cache()), attention=a, mlp=mlp, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


LETTERS = {"M": STATE, "*": ATTENTION, "-": MLP, "E": MOE}


def nemotron_h(f: Fields) -> ModelSpec:
    """Nemotron-H and Nemotron-3: a layer is one block of four kinds, and the pattern's length is the layer count, whatever
    num_hidden_layers says. Feed-forward layers are not gated. The state's inner width is heads x head size, never expand x hidden."""
    hidden = f.need_int("hidden_size")
    _, pattern = f.value("hybrid_override_pattern")
    if pattern is not None and not (isinstance(pattern, str) and len(pattern) <= MAX_LAYERS):
        raise UnsupportedValue("not_a_text", field=f.name("hybrid_override_pattern"), value=repr(pattern)[:60])
    types = listed(f, None, NAMES | {MOE: MOE, MLP: MLP})
    f.ignore("num_hidden_layers", "num_nextn_predict_layers", "expand", "mamba_expand")
    if types is None:
        text = pattern or ""
        if not text or (unknown := next((c for c in text if c not in LETTERS), None)) is not None:
            raise UnsupportedValue("unknown_layer_type", field=f.name("hybrid_override_pattern"), value=unknown if text else "", known="M * - E")
        types = [LETTERS[c] for c in text]
    if not 0 < len(types) <= MAX_LAYERS:
        raise UnsupportedValue("out_of_range", field=f.name("layers_block_type"), value=str(len(types)), low=1, high=MAX_LAYERS)
    a = attention_of(f, hidden, "head_dim", "attention_head_dim") if ATTENTION in types else None
    # transformers' and vLLM's classes know `head_dim` alone, 128 by default; the published code reads `attention_head_dim`.
    a_unit = 2 * hidden * (a.q_heads + a.kv_heads) * types.count(ATTENTION) if a else 0  # elements for each unit of the head size
    doubts = between("doubt_class_differs", a.qk_dim * a_unit, 128 * a_unit, f.name("attention_head_dim")) if a and not f.size("head_dim") else ()
    bias = f.flag("use_bias")
    m = Mamba2(heads=f.need_int("mamba_num_heads"), head_dim=f.need_int("mamba_head_dim"), groups=f.int_or(8, "mamba_n_groups", "n_groups"),
               state=f.int_or(128, "ssm_state_size"), width=f.int_or(4, "mamba_d_conv", "conv_kernel"), bias=bias, out_bias=bias,
               conv_bias=f.flag("mamba_conv_bias", f.flag("use_conv_bias", True)))  # fmt: skip
    norm, mlp_bias = shapes.norms(hidden, 1), f.flag("mlp_bias")
    asked = dtype(f.text("mamba_ssm_cache_dtype") or "float32", f.name("mamba_ssm_cache_dtype"))
    blocks: dict[str, LayerSpec] = {STATE: LayerSpec(caches=(m.cache(asked),), weights=m.weights(hidden) + norm)}
    if a:
        blocks[ATTENTION] = LayerSpec(caches=(shapes.rows_of(a),), attention=a, weights=shapes.gqa(hidden, a) + norm)
    if MLP in types:
        dense = Mlp(width=f.need_int("intermediate_size"), gated=False)
        blocks[MLP] = LayerSpec(caches=(), mlp=dense, weights=shapes.mlp(hidden, dense, mlp_bias) + norm)
    if MOE in types:
        sparse, weights = _latent_experts(f, hidden, mlp_bias)
        blocks[MOE] = LayerSpec(caches=(), mlp=sparse, weights=weights + norm)
    return model(f, tuple(blocks[t] for t in types), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, doubts=doubts)


def _latent_experts(f: Fields, hidden: int, bias: bool) -> tuple[Mlp, tuple[Weight, ...]]:
    """Experts on the hidden state or, with `moe_latent_size`, on a narrower one that two projections lead into and out of."""
    latent, width = f.optional_int("moe_latent_size"), f.need_int("moe_intermediate_size")
    experts, into = f.need_int("n_routed_experts", high=65_536), latent or hidden
    shared = f.int_or(width, "moe_shared_expert_intermediate_size") * (1 if f.int_or(1, "n_shared_experts", low=0) else 0)
    m = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=width, shared_width=shared, gated=False)
    weights: tuple[Weight, ...] = (
        Weight(name="router", shape=(experts, hidden), role="router"),
        *shapes.column("experts.up", width, into, "expert", width, copies=experts),
        *shapes.row("experts.down", into, width, "expert", width, copies=experts),
    )
    if shared:
        weights += shapes.mlp(hidden, Mlp(width=shared, gated=False), bias)
    if latent:
        weights += shapes.whole("fc1_latent_proj", latent, hidden, "mlp", bias) + shapes.whole("fc2_latent_proj", hidden, latent, "mlp", bias)
    return m, weights

"""MiniMax: Text-01 and M1 alternate lightning attention (one matrix a head) with full; M3 adds an index key a token on sparse layers."""

from __future__ import annotations

from planner.cache import Kind, Rows, State, StateTensor
from planner.errors import UnsupportedValue
from planner.model import LayerSpec, Mlp, ModelSpec
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import between
from planner.readers.fields import Fields
from planner.readers.hybrid import attention_of

FULL, LINEAR, SPARSE = "full_attention", "linear_attention", "minimax_m3_sparse"


def minimax(f: Fields) -> ModelSpec:
    """Text-01, M1: `attn_type_list` has 1 for full attention and 0 for lightning, whose state is heads x head size squared in the model's dtype (measured)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = attention_of(f, hidden, "head_dim")
    types = shapes.layer_types(f, layers, {FULL: FULL, LINEAR: LINEAR, "attention": FULL})
    ones = f.list_of("attn_type_list", int)
    notes: tuple[Note, ...] = ()
    if types is None and ones is not None:
        types = _by_flags(f, "attn_type_list", ones, layers, FULL, LINEAR)
    if types is None:
        types = [LINEAR if i % 2 else FULL for i in range(layers)]
        notes = (
            note("derived", "class_default", field=f.name("layer_types"), value=f"{types.count(FULL)} x {FULL}", source=cite("transformers 5.24 minimax")),
        )
    inner = a.q_heads * a.qk_dim
    state = State(tensors=(StateTensor(name="recurrent", role="recurrent", elements=inner * a.qk_dim),), mechanism="lightning")
    m = Mlp(
        experts=f.need_int("num_local_experts", high=65_536), top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=f.need_int("intermediate_size")
    )
    rest = shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    linear = (
        *shapes.column("qkv_proj", 3 * inner, hidden, "state", a.q_heads),
        *shapes.column("output_gate", inner, hidden, "state", a.q_heads),
        *shapes.row("out_proj", hidden, inner, "state", a.q_heads),
        *shapes.norms(inner, 1, name="state_norm"),
    )

    def build(i: int) -> LayerSpec:
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=shapes.gqa(hidden, a) + rest)
        return LayerSpec(caches=(state,), mlp=m, weights=linear + rest)

    # vLLM's class has a shared feed-forward part under a gate where the file asks for it; transformers' has none.
    beside = 3 * hidden * (f.optional_int("shared_intermediate_size", low=0) or 0)
    doubts = between("doubt_class_differs", 0, layers * (beside + hidden) if beside else 0, f.name("shared_intermediate_size"))
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes, doubts=doubts)


def minimax_m3(f: Fields) -> ModelSpec:
    """M3: grouped K and V on every layer; on those that `sparse_attention_freq` marks, an index key beside them, on every rank."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = attention_of(f, hidden, "head_dim")
    sparse = f.section("sparse_attention_config")
    at = (sparse.list_of("sparse_attention_freq", int) if sparse else None) or None
    types = shapes.layer_types(f, layers, {FULL: FULL, SPARSE: SPARSE})
    if types is None:
        types = _by_flags(sparse or f, "sparse_attention_freq", at, layers, SPARSE, FULL) if at else [FULL] * layers
    n = (sparse.optional_int("sparse_num_index_heads") if sparse else None) or f.int_or(4, "index_n_heads")
    dim = (sparse.optional_int("sparse_index_dim") if sparse else None) or f.int_or(128, "index_head_dim")
    index = (
        *shapes.whole("indexer.q_proj", n * dim, hidden, "attention"),
        *shapes.whole("indexer.k_proj", dim, hidden, "attention"),
        *shapes.norms(dim, 2, name="indexer.norm"),
    )
    key = Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", format="index")
    freq, mlp_types = f.list_of("moe_layer_freq", int), f.list_of("mlp_layer_types", str, layers)
    has_experts = [t == "sparse" for t in mlp_types] if mlp_types else [True] * layers
    if mlp_types is None and freq is not None:
        has_experts = [t == SPARSE for t in _by_flags(f, "moe_layer_freq", freq, layers, SPARSE, FULL)]
    moe = Mlp(experts=f.need_int("num_local_experts", high=65_536), top_k=f.need_int("num_experts_per_tok", high=65_536),
              expert_width=f.need_int("intermediate_size"), shared_width=f.need_int("shared_intermediate_size"))  # fmt: skip
    dense = moe if all(has_experts) else Mlp(width=f.need_int("dense_intermediate_size"))
    f.ignore("num_mtp_modules", "num_nextn_predict_layers", "moe_intermediate_size", "n_shared_experts")

    def build(i: int) -> LayerSpec:
        m = moe if has_experts[i] else dense
        caches: tuple[Kind, ...] = (shapes.rows_of(a),)
        weights = shapes.gqa(hidden, a) + shapes.norms(a.qk_dim, 2, name="head_norm") + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
        if types[i] == SPARSE:
            caches, weights = (*caches, key), weights + index
        return LayerSpec(caches=caches, attention=a, mlp=m, weights=weights)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


def _by_flags(f: Fields, key: str, flags: list[int], layers: int, one: str, zero: str) -> list[str]:
    if len(flags) != layers:
        raise UnsupportedValue("list_length", field=f.name(key), got=len(flags), want=layers)
    if (other := next((v for v in flags if v not in (0, 1)), None)) is not None:
        raise UnsupportedValue("out_of_range", field=f.name(key), value=str(other)[:40], low=0, high=1)
    return [one if v else zero for v in flags]

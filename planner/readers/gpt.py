"""The GPT-2 line and its relatives with LayerNorm and biases: GPT-2, GPT-BigCode, OPT, BLOOM, GPT-NeoX, Falcon."""

from __future__ import annotations

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields


def _uniform(
    f: Fields,
    a: Attention,
    m: Mlp,
    *,
    layers: int,
    hidden: int,
    qkv_bias: bool = True,
    o_bias: bool = True,
    mlp_bias: bool = True,
    layer_norms: int = 2,
    norm_bias: bool = True,
    final_norms: int = 1,
    tied: bool = True,
    embed_width: int | None = None,
    positions: int = 0,
    extra: tuple[Weight, ...] = (),
    quirks: frozenset[str] = frozenset(),
    notes: tuple[Note, ...] = (),
    context_default: int | None = None,
) -> ModelSpec:
    weights = shapes.gqa(hidden, a, qkv_bias, o_bias) + shapes.mlp(hidden, m, mlp_bias) + shapes.norms(hidden, layer_norms, norm_bias)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    final = shapes.norms(hidden, final_norms, norm_bias) if final_norms else ()
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=tied, positions=positions,
                 embed_width=embed_width, final_norm=final, extra=extra, quirks=quirks, notes=notes, context_default=context_default)  # fmt: skip


def _mha(f: Fields, hidden: int, q: int, kv: int | None = None) -> Attention:
    dim = shapes.head_dim(f, hidden, q)
    return Attention(q_heads=q, kv_heads=kv or q, qk_dim=dim, v_dim=dim)


def gpt2(f: Fields) -> ModelSpec:
    hidden, q = f.need_int("n_embd", "hidden_size"), f.need_int("n_head", "num_attention_heads", high=65_536)
    if f.flag("add_cross_attention"):
        raise UnsupportedValue("not_a_plain_decoder", field="add_cross_attention", value="true")
    m = Mlp(width=f.int_or(4 * hidden, "n_inner"), gated=False)
    return _uniform(f, _mha(f, hidden, q), m, layers=f.layers("n_layer", "num_hidden_layers"), hidden=hidden,
                    positions=f.need_int("n_positions", "n_ctx", "max_position_embeddings"))  # fmt: skip


def gpt_bigcode(f: Fields) -> ModelSpec:
    """`multi_query` (default true in the class, always written in files) makes one KV head of all."""
    hidden, q = f.need_int("n_embd", "hidden_size"), f.need_int("n_head", "num_attention_heads", high=65_536)
    m = Mlp(width=f.int_or(4 * hidden, "n_inner"), gated=False)
    kv = 1 if f.flag("multi_query", True) else q
    return _uniform(f, _mha(f, hidden, q, kv), m, layers=f.layers("n_layer", "num_hidden_layers"), hidden=hidden,
                    positions=f.need_int("n_positions", "n_ctx", "max_position_embeddings"),
                    notes=(note("derived", "multi_query", field="multi_query", kv_heads=kv),))  # fmt: skip


def opt(f: Fields) -> ModelSpec:
    """Learned positions with two rows of offset; a projection where the embedding is narrower than the layers (OPT-350M)."""
    hidden, q = f.need_int("hidden_size"), f.need_int("num_attention_heads", high=65_536)
    bias, affine = f.flag("enable_bias", True), f.flag("layer_norm_elementwise_affine", True)
    narrow = f.int_or(hidden, "word_embed_proj_dim")
    m = Mlp(width=f.need_int("ffn_dim", "intermediate_size"), gated=False)
    extra: tuple[Weight, ...] = ()
    if narrow != hidden:
        extra = shapes.whole("project_in", hidden, narrow, "embedding") + shapes.whole("project_out", narrow, hidden, "lm_head")
    final = f.flag("do_layer_norm_before", True) and not f.flag("_remove_final_layer_norm")
    return _uniform(f, _mha(f, hidden, q), m, layers=f.layers("num_hidden_layers"), hidden=hidden, qkv_bias=bias, o_bias=bias, mlp_bias=bias,
                    layer_norms=2 if affine else 0, final_norms=int(final and affine), embed_width=narrow, extra=extra,
                    positions=f.need_int("max_position_embeddings") + 2)  # fmt: skip


def bloom(f: Fields) -> ModelSpec:
    """ALiBi: no positions stored; a LayerNorm behind the embedding."""
    hidden, q = f.need_int("hidden_size", "n_embed", "n_embd"), f.need_int("n_head", "num_attention_heads", high=65_536)
    return _uniform(f, _mha(f, hidden, q), Mlp(width=4 * hidden, gated=False), layers=f.layers("n_layer", "num_hidden_layers"), hidden=hidden,
                    extra=shapes.norms(hidden, 1, bias=True, name="embed_norm"))  # fmt: skip


def gpt_neox(f: Fields) -> ModelSpec:
    hidden, q = f.need_int("hidden_size"), f.need_int("num_attention_heads", high=65_536)
    bias = f.flag("attention_bias", True)
    return _uniform(f, _mha(f, hidden, q), Mlp(width=f.need_int("intermediate_size"), gated=False), layers=f.layers("num_hidden_layers"),
                    hidden=hidden, qkv_bias=bias, o_bias=bias, tied=False)  # fmt: skip


def falcon(f: Fields) -> ModelSpec:
    """Both dialects. The new architecture has `num_kv_heads`; the old one is MQA where `multi_query` is true, else MHA.

    transformers repeats K and V to all query heads *before* caching them in the new architecture; engines do not. (transformers
    5.24 models/falcon, measured; kv-cache facts A1)
    """
    hidden, q = f.need_int("hidden_size"), f.need_int("num_attention_heads", "n_head", high=65_536)
    new = f.flag("new_decoder_architecture")
    if new:
        kv = f.int_or(q, "num_kv_heads", "n_head_kv", high=65_536)
        f.ignore("multi_query")
    else:
        kv = 1 if f.flag("multi_query", True) else q
        f.ignore("num_kv_heads", "n_head_kv")
    if q % kv:
        raise UnsupportedValue("kv_heads_not_dividing", field="num_kv_heads", q_heads=q, kv_heads=kv)
    bias, parallel = f.flag("bias"), f.flag("parallel_attn", True)
    layer_norms = f.int_or(2, "num_ln_in_parallel_attn") if new else (1 if parallel else 2)
    quirks = frozenset({"vllm_ignores_kv_dtype"}) | ({"transformers_caches_query_heads"} if new and kv != q else set())
    key = "new_decoder_architecture" if new else "multi_query"
    notes = (note("derived", "multi_query", field=key, kv_heads=kv, source=cite("transformers 5.24 models/falcon")),)
    return _uniform(f, _mha(f, hidden, q, kv), Mlp(width=f.int_or(4 * hidden, "ffn_hidden_size"), gated=False),
                    layers=f.layers("num_hidden_layers", "n_layer"), hidden=hidden, qkv_bias=bias, o_bias=bias, mlp_bias=bias,
                    layer_norms=layer_norms, quirks=quirks, notes=notes, context_default=2048)  # fmt: skip

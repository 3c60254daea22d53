"""More families of remote code, read from what engines do with them. Parameter counts are formulas.

Sources: vLLM model_executor/models (step3_text.py, bailing_moe.py, arctic.py, grok1.py, plamo3.py, molmo.py, phi4flash.py, 2025 and 2026),
each family's published modeling file.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Kind
from planner.errors import UnsupportedValue
from planner.messages import type_word
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import Block, guard, read, reader
from planner.readers.build import model
from planner.readers.experts import Experts, mlps
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.legacy import GPT
from planner.readers.mamba import Mamba1, rank_of
from planner.readers.remote import internlm2
from planner.readers.windows import Windows, switch

# -- dense -----------------------------------------------------------------------------------------------------------------------------
# Cerebras' GPT: ALiBi or learned positions, a gated feed-forward, biases everywhere. BTLM is the same code.
jais = reader(Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv="mha", width=("n_inner",), width_times=4, qkv_bias=True,
                    o_bias=True, mlp_bias=True, norm_bias=True, tied=True, exact=False))  # fmt: skip


def gpt_refact(f: Fields) -> ModelSpec:
    """Refact-1.6B: ALiBi, one KV head for all queries whatever the file says beside it."""
    inner = f.variant({**f.raw, "kv": 1})
    return read(inner, Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv_heads=("kv",), width=("n_inner",), width_times=4,
                             ignore=("multi_query", "num_key_value_heads"), tied=True, exact=False))  # fmt: skip


def molmo(f: Fields) -> ModelSpec:
    """Molmo: `intermediate_size` counts gate and up together; rows for image tokens beside the embedding. What sees is not counted."""
    hidden, rows = f.need_int("hidden_size"), f.int_or(128, "additional_vocab_size", low=0)
    width = f.need_int("intermediate_size")
    if width % 2:
        raise UnsupportedValue("out_of_range", field=f.name("intermediate_size"), value=width, low=2, high=width - 1)
    raw = {**f.raw, "intermediate_size": width // 2, "tie_word_embeddings": f.raw.get("weight_tying", f.raw.get("tie_word_embeddings"))}
    for key in ("moe_num_experts", "num_experts"):
        if f.raw.get(key):
            raise UnsupportedValue("foreign_key", field=f.name(key), value=str(f.raw[key])[:40])
    spec = read(f.variant(raw), Block(qkv_bias=("qkv_bias", False), o_bias=False, head_norms=("attention_layer_norm", False), norm_per_head=True,
                                      vocab=("embedding_size", "vocab_size"), exact=False))  # fmt: skip
    extra = Weight(name="new_embedding", shape=(rows, hidden), role="embedding")
    return replace(spec, weights=(*spec.weights, extra))


def hf_olmo(f: Fields) -> ModelSpec:
    """OLMo before it was in transformers: `mlp_hidden_size` counts gate and up together, `mlp_ratio` times the width where it is null."""
    hidden, q = f.need_int("d_model"), f.need_int("n_heads", high=65_536)
    kv = f.optional_int("n_kv_heads", high=65_536) or (1 if f.flag("multi_query_attention") else q)
    both = f.optional_int("mlp_hidden_size", low=2) or f.int_or(4, "mlp_ratio", high=1024) * hidden
    raw = {**f.raw, "kv": kv, "width": both // 2, "tie_word_embeddings": f.raw.get("weight_tying", True)}
    block = Block(layers=("n_layers",), hidden=("d_model",), q_heads=("n_heads",), kv_heads=("kv",), width=("width",), vocab=("embedding_size", "vocab_size"),
                  qkv_bias=False, o_bias=False, norms=0, final_norm=False, exact=False, ignore=("multi_query_attention",))  # fmt: skip
    return read(f.variant(raw), block)


def plamo3(f: Fields) -> ModelSpec:
    """PLaMo 3: windows layer by layer, as a list in the file. Four norms a layer, one a head over queries and keys."""

    def rule(g: Fields, layers: int) -> Windows:
        key = "interleaved_sliding_window" if isinstance(g.raw.get("interleaved_sliding_window"), list) else "sliding_window"
        found = g.raw.get(key)
        g.ignore("interleaved_sliding_window", "sliding_window", "sliding_window_pattern", "window_size", "layer_types")
        if not isinstance(found, list) or len(found) != layers:
            raise UnsupportedValue("not_a_list", field=g.name(key), value=repr(found)[:60], kind=type_word("int"))
        return [Fields({key: w}).optional_int(key, low=0, high=MAX_TOKENS) or None for w in found], ()

    return read(f, Block(kv="need", qkv_bias=False, o_bias=False, head_norms=True, norms=4, windows=rule, exact=False))


def xcomposer(f: Fields) -> ModelSpec:
    """InternLM-XComposer 2: InternLM2's block; the adapters that image tokens pass (rank 256) are not counted."""
    spec = internlm2(f)
    more = sum(256 * sum(w.shape) for layer in spec.layers for w in layer.weights if w.quantizable) + 4 * spec.hidden_size**2
    return replace(spec, doubts=(*spec.doubts, Doubt(code="doubt_beside", field="model_type", more=more)))


# -- experts ---------------------------------------------------------------------------------------------------------------------------
def bailing_moe(f: Fields) -> ModelSpec:
    """Ling and Ring 1 and 2: plain rows; from 2 on a norm over queries and keys and a dense first layer. Draft layers cache only while
    speculation is on."""
    bias = f.flag("use_bias") or f.flag("use_qkv_bias")
    e = Experts(count=("num_experts",), shared="num_shared_experts", first_dense=("first_k_dense_replace",))
    return read(f, Block(kv="need", qkv_bias=bias, o_bias=("use_bias", False), mlp_bias=("use_bias", False), head_norms=("use_qk_norm", False), experts=e,
                         windows=switch, ignore=("num_nextn_predict_layers",), exact=False))  # fmt: skip


def arctic(f: Fields) -> ModelSpec:
    """Snowflake Arctic: beside the experts of a layer a dense part as wide as the hidden state."""
    step = f.int_or(2, "moe_layer_frequency")
    hidden = f.need_int("hidden_size")
    raw = {**f.raw, "decoder_sparse_step": step, "beside": hidden if f.flag("parallel_attn_mlp_res") else 0}
    e = Experts(count=("num_local_experts",), top_k=("num_experts_per_tok",), width=("intermediate_size",), shared_width="beside")
    return read(f.variant(raw), Block(kv="need", qkv_bias=False, o_bias=False, norms=3, experts=e, exact=False))


def grok(f: Fields) -> ModelSpec:
    """Grok 1 and 2: four norms a layer; with `residual_moe` a dense part beside the experts. Windows are switched off in published files."""
    for key, off in (("sliding_window_size", (-1, 0)), ("global_attn_every_n", (0, 1))):
        if f.raw.get(key) not in (None, *off):
            raise UnsupportedValue("foreign_key", field=f.name(key), value=str(f.raw[key])[:40])
    raw = {**f.raw, "beside": f.need_int("intermediate_size") if f.flag("residual_moe") else 0}
    e = Experts(count=("num_local_experts", "num_experts"), width=("moe_intermediate_size", "intermediate_size"), shared_width="beside")
    return read(f.variant(raw), Block(kv="need", qkv_bias=False, o_bias=False, norms=4, tied=True, experts=e, exact=False))


def step3_text(f: Fields) -> ModelSpec:
    """Step-3: queries come from a shared narrow state (`share_q_dim`); all of them read one K and one V head (multi-matrix factorization
    attention). All layers but the first have experts where the file does not list them."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, dim = f.need_int("num_attention_heads", high=65_536), f.need_int("head_dim")
    if (groups := f.int_or(1, "num_attention_groups", "num_key_value_heads", high=65_536)) != 1:
        raise UnsupportedValue("only_value", field=f.name("num_attention_groups"), value=groups, want=1)
    a, narrow = Attention(q_heads=q, kv_heads=1, qk_dim=dim, v_dim=dim), f.int_or(dim, "share_q_dim")
    named = f.raw.get("moe_layers_enum")
    f.ignore("moe_layers_enum")
    listed = named.split(",") if isinstance(named, str) else named if isinstance(named, list) else range(1, layers)
    sparse = {int(x) for x in listed if str(x).strip().isdigit()}
    e = Experts(count=("moe_num_experts",), top_k=("moe_top_k",), shared_width="share_expert_dim")
    each = mlps(f.variant({**f.raw, "mlp_layer_types": ["sparse" if i in sparse else "dense" for i in range(layers)]}), layers, e)
    attention = (
        *shapes.whole("q_a_proj", narrow, hidden, "attention"),
        *shapes.norms(narrow, 1, name="inter_norm"),
        *shapes.column("wq", q * dim, narrow, "attention", q),
        *shapes.whole("k_v_proj", 2 * dim, hidden, "attention"),
        *shapes.row("o_proj", hidden, q * dim, "attention", q),
    )

    def build(i: int) -> LayerSpec:
        weights = attention + shapes.mlp(hidden, each[i]) + shapes.norms(hidden, 2)
        return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=each[i], weights=weights)

    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=False)
    guard(f)
    return spec


# -- a decoder for a decoder -----------------------------------------------------------------------------------------------------------
def phi4flash(f: Fields) -> ModelSpec:
    """Phi-4-mini-flash (SambaY): Mamba and windowed attention take turns in the first half; layer L/2 is the last state, layer L/2 + 1
    the one full cache, which every attention behind it reads (arXiv 2507.06607)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    if f.int_or(2, "mb_per_layer") != 2 or layers % 4:
        raise UnsupportedValue("only_value", field=f.name("mb_per_layer"), value=str(f.raw.get("mb_per_layer"))[:40], want=2)
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a, m = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim), Mlp(width=f.need_int("intermediate_size"))
    half, windows = layers // 2, _near(f, layers)
    s = Mamba1(inner=f.int_or(2, "mamba_expand") * hidden, state=f.int_or(16, "mamba_d_state"), width=f.int_or(4, "mamba_d_conv"),
               rank=rank_of(f, hidden, "mamba_dt_rank"))  # fmt: skip
    rest = shapes.mlp(hidden, m) + shapes.norms(hidden, 2, bias=True)
    difference = (Weight(name="lambdas_and_subln", shape=(6, dim), role="attention"),)
    query = shapes.column("q_proj", q * dim, hidden, "attention", q, True) + shapes.row("o_proj", hidden, q * dim, "attention", q, True)
    gate = shapes.column("in_proj", s.inner, hidden, "state", s.inner) + shapes.row("out_proj", hidden, s.inner, "state", s.inner)

    def build(i: int) -> LayerSpec:
        late = i >= half + 2
        if i % 2 == 0:
            return LayerSpec(caches=() if late else (s.cache(),), mlp=m, weights=(gate if late else s.weights(hidden)) + rest)
        rows: tuple[Kind, ...] = () if late else (shapes.rows_of(a, windows[i]),)
        weights = (query if late else shapes.gqa(hidden, a, True, True)) + difference + rest
        return LayerSpec(caches=rows, attention=a, mlp=m, weights=weights, shares_with=half + 1 if late else None)

    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, exact=False,
                 final_norm=shapes.norms(hidden, 1, bias=True))  # fmt: skip
    types = f.list_of("layer_types", str, layers)
    if types is not None and any((types[i] == "sliding_attention") != (windows[i] is not None) for i in range(1, layers, 2)):
        raise UnsupportedValue("foreign_key", field=f.name("layer_types"), value=repr(types)[:60])
    guard(f)
    return spec


def _near(f: Fields, layers: int) -> list[int | None]:
    """The windows of the first half's attention; a file holds them as one number or as a list over all layers."""
    found: object = f.raw.get("sliding_window")
    f.ignore("sliding_window")
    near = [i % 2 == 1 and i < layers // 2 for i in range(layers)]
    if isinstance(found, list):
        if len(found) != layers or any((w is not None) != n for w, n in zip(found, near, strict=True)):
            raise UnsupportedValue("not_a_list", field=f.name("sliding_window"), value=repr(found)[:60], kind=type_word("int"))
        return [Fields({"sliding_window": w}).optional_int("sliding_window", high=MAX_TOKENS) for w in found]
    window = f.need_int("sliding_window", high=MAX_TOKENS)
    return [window if n else None for n in near]


def ouro(f: Fields) -> ModelSpec:
    """Ouro: the whole stack runs `total_ut_steps` times over the same weights, and each run keeps K and V of its own (vLLM models/ouro.py)."""
    steps = f.int_or(4, "total_ut_steps", high=64)
    once = read(f, Block(kv="need", qkv_bias=False, o_bias=False, norms=4, exact=False, windows=switch))
    again = tuple(replace(layer, weights=()) for layer in once.layers)
    gate = Weight(name="early_exit_gate", shape=(1, once.hidden_size + 1), role="router")
    return replace(once, layers=once.layers + again * (steps - 1), weights=(*once.weights, gate))

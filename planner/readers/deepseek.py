"""Multi-head latent attention: DeepSeek-V2, V3, V3.2 and the many that share their block. One latent row and one small RoPE key a layer
and token; with an indexer one key more, on the layers that own one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Kind, Rows
from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import between, elements
from planner.readers.fields import Fields

# Hugging Face's key first, then those of DeepSeek's inference files and of openPangu.
LAYERS, HIDDEN, HEADS = ("num_hidden_layers", "n_layers"), ("hidden_size", "dim"), ("num_attention_heads", "n_heads")
RANK, Q_RANK = ("kv_lora_rank", "attention_kv_lora_dim"), ("q_lora_rank", "attention_q_lora_dim")
NOPE, ROPE, V_DIM = ("qk_nope_head_dim", "attention_qk_dim"), ("qk_rope_head_dim", "attention_qk_rope_dim"), ("v_head_dim", "attention_v_dim")
WIDTH, EXPERT_WIDTH = ("intermediate_size", "inter_dim", "hidden_dim"), ("moe_intermediate_size", "moe_inter_dim", "expert_hidden_dim")
EXPERTS, TOP_K = (
    ("n_routed_experts", "num_routed_experts", "num_experts", "num_local_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "n_activated_experts"),
)
SHARED, DENSE = ("n_shared_experts", "num_shared_experts"), ("first_k_dense_replace", "num_dense_layers", "n_dense_layers")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a family of the DeepSeek block differs from it."""

    indexer: bool = False
    dense_default: int = 0
    dense_fixed: bool = False  # the class does not read how many layers are dense
    mlp_norms: int = 0  # norms more in a layer with experts
    layer_norms: int = 2
    mlp_bias: bool = False
    tied: bool = False
    exact: bool = True


def attention_of(f: Fields, v_dim: int | None = None) -> Attention:
    """From raw keys alone: transformers writes `head_dim` = the RoPE size and KV heads = all heads, which describe nothing cached."""
    f.ignore("head_dim", "num_key_value_heads", "qk_head_dim")
    q = f.need_int(*HEADS, high=65_536)
    nope, rope = f.need_int(*NOPE), f.need_int(*ROPE, low=0)
    return Attention(q_heads=q, kv_heads=q, qk_dim=nope + rope, v_dim=v_dim or f.need_int(*V_DIM), q_rank=f.optional_int(*Q_RANK, low=0) or None,
                     kv_rank=f.need_int(*RANK), nope_dim=nope, rope_dim=rope)  # fmt: skip


def deepseek_v2(f: Fields) -> ModelSpec:
    """DeepSeek-V2: V3's block, with biases in the feed-forward parts where the file asks for them."""
    return read(f, Variant(mlp_bias=f.flag("mlp_bias")))


def deepseek(f: Fields) -> ModelSpec:
    """DeepSeek-V3 / Kimi-K2: dense layers first, then experts with shared ones. The router's correction bias is a buffer."""
    return read(f, Variant())


def deepseek_v32(f: Fields) -> ModelSpec:
    """DeepSeek-V3.2: every layer owns an indexer."""
    return read(f, Variant(indexer=True))


def glm_moe_dsa(f: Fields) -> ModelSpec:
    """GLM-5: an indexer on the layers that `indexer_types` (or the pattern, or frequency and offset) calls full; the others reuse it."""
    return read(f, Variant(indexer=True, dense_default=3))


def glm4_moe_lite(f: Fields) -> ModelSpec:
    """GLM-4.7-Flash: one dense layer first."""
    return read(f, Variant(dense_default=1, dense_fixed=True))


def axk1(f: Fields) -> ModelSpec:
    """A.X-K1: one norm more after each layer's experts."""
    return read(f, Variant(mlp_norms=1, dense_default=1))


def pangu_ultra_moe(f: Fields) -> ModelSpec:
    """openPangu-Ultra-MoE under its own key names, with norms before and after both halves of a layer."""
    return read(f, Variant(layer_norms=4 if f.flag("sandwich_norm") else 2, exact=False))


def youtu(f: Fields) -> ModelSpec:
    """Youtu-LLM: the block without experts, its embeddings tied."""
    return read(f, Variant(tied=True))


def mistral4(f: Fields) -> ModelSpec:
    """Mistral's latent attention, on DeepSeek-V3's block."""
    return read(f, Variant())


def read(f: Fields, d: Variant) -> ModelSpec:
    layers, hidden = f.layers(*LAYERS), f.need_int(*HIDDEN)
    a = choosing(f, attention_of(f)) if d.indexer else attention_of(f)
    f.ignore("num_nextn_predict_layers", "num_mtp_layers")  # MTP layers cache only while speculation is on, and are no part of the stack
    # Published V2-Lite files write `q_lora_rank: null`, a plain query projection; without the key the class would put 1536 there.
    named = any(key in f.raw for key in Q_RANK)
    notes: tuple[Note, ...] = () if named else (note("assumed", "no_query_rank", field=f.name("q_lora_rank")),)
    attention = shapes.mla(hidden, a, f.flag("attention_bias"))
    mlps, doubts = mlps_of(f, layers, d.dense_default, d.dense_fixed)
    owners = indexers(f, layers) if d.indexer else [False] * layers
    key, index = index_of(f, hidden, a) if d.indexer else (None, ())

    def build(i: int) -> LayerSpec:
        caches: tuple[Kind, ...] = (shapes.rows_of(a),)
        weights = attention + shapes.mlp(hidden, mlps[i], d.mlp_bias) + shapes.norms(hidden, d.layer_norms + (d.mlp_norms if mlps[i].experts else 0))
        if key is not None and owners[i]:
            caches, weights = (*caches, key), weights + index
        return LayerSpec(caches=caches, attention=a, mlp=mlps[i], weights=weights)

    if d.indexer and not all(owners):
        notes += (note("derived", "indexer_on_layers", field=f.name("indexer_types"), layers=sum(owners), of=layers),)
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=d.tied, exact=d.exact, doubts=doubts, notes=notes)


def mlps_of(f: Fields, layers: int, dense_default: int = 0, fixed: bool = False) -> tuple[list[Mlp], tuple[Doubt, ...]]:
    """The feed-forward part of each layer, and what is open about it. `mlp_layer_types` wins over the first dense layers.

    transformers' classes know no `moe_layer_freq` (every later layer is sparse there), and some (`fixed`) take the number of dense layers
    from the class alone; vLLM reads both keys. Where the readings differ the count is an estimate.
    """
    experts = f.optional_int(*EXPERTS, low=0, high=65_536) or 0
    if not experts:
        f.ignore(*EXPERT_WIDTH, *TOP_K, *SHARED, *DENSE)
        return [Mlp(width=f.need_int(*WIDTH))] * layers, ()
    width = f.need_int(*EXPERT_WIDTH)
    sparse = Mlp(experts=experts, top_k=f.need_int(*TOP_K, high=65_536), expert_width=width, shared_width=width * f.int_or(0, *SHARED, low=0))
    types = f.list_of("mlp_layer_types", str, layers)
    first, step = f.int_or(dense_default, *DENSE, low=0), f.int_or(1, "moe_layer_freq")
    other = types
    if types is None:
        types = ["sparse" if i >= first and i % step == 0 else "dense" for i in range(layers)]
        other = ["sparse" if i >= (dense_default if fixed else first) else "dense" for i in range(layers)]
    if (unknown := next((t for t in types if t not in ("dense", "sparse")), None)) is not None:
        raise UnsupportedValue("unknown_layer_type", field=f.name("mlp_layer_types"), value=unknown[:60], known="dense, sparse")
    dense = Mlp(width=f.need_int(*WIDTH)) if "dense" in types or (other and "dense" in other) else sparse
    hidden, key = f.need_int(*HIDDEN), DENSE[0] if step == 1 else "moe_layer_freq"
    each = {"sparse": elements(shapes.mlp(hidden, sparse)), "dense": elements(shapes.mlp(hidden, dense))}
    open_ = between("doubt_expert_layers", sum(each[t] for t in types), sum(each[t] for t in other or types), f.name(key))
    return [sparse if t == "sparse" else dense for t in types], open_


# -- the indexer -------------------------------------------------------------------------------------------------------


def choosing(f: Fields, a: Attention) -> Attention:
    """An attention over the `index_topk` rows that an indexer picks for each token."""
    return replace(a, chosen_rows=f.optional_int("index_topk"))


def index_of(f: Fields, hidden: int, a: Attention) -> tuple[Rows, tuple[Weight, ...]]:
    """The indexer's key, one a token for all its heads and on every rank, and its weights (transformers 5.24 models/deepseek_v32)."""
    n, dim = f.need_int("index_n_heads"), f.need_int("index_head_dim")
    weights = (
        *shapes.whole("indexer.wq_b", n * dim, a.q_rank or hidden, "attention"),
        *shapes.whole("indexer.wk", dim, hidden, "attention"),
        *shapes.norms(dim, 1, bias=True, name="indexer.k_norm"),
        *shapes.whole("indexer.weights_proj", n, hidden, "attention"),
    )
    return Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", format="index"), weights


def indexers(f: Fields, layers: int) -> list[bool]:
    """Which layers own an indexer: a list, a pattern of F and S, or layer i where max(i - offset + 1, 0) is a multiple of the frequency."""
    letters = {"F": True, "S": False, "full": True, "shared": False}
    types, pattern = f.list_of("indexer_types", str, layers), f.value("index_topk_pattern")[1]
    if types is None and pattern is not None:
        types = list(pattern) if isinstance(pattern, str) else f.list_of("index_topk_pattern", str)
    key = "indexer_types" if f.raw.get("indexer_types") is not None else "index_topk_pattern"
    if types is None:
        freq, offset = f.int_or(1, "index_topk_freq"), f.int_or(2, "index_skip_topk_offset", low=0)
        return [max(i - offset + 1, 0) % freq == 0 for i in range(layers)]
    if len(types) != layers:
        raise UnsupportedValue("list_length", field=f.name(key), got=len(types), want=layers)
    if (unknown := next((t for t in types if t not in letters), None)) is not None:
        raise UnsupportedValue("unknown_layer_type", field=f.name(key), value=unknown[:60], known="F, S, full, shared")
    return [letters[t] for t in types]


def minicpm3(f: Fields) -> ModelSpec:
    """MiniCPM3: MLA with dense layers; V's head size is hidden / heads where the file leaves it out. vLLM 0.33 caches expanded K and V
    of this family, both padded to the query's head size (model_executor/models/minicpm3.py)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q = f.need_int("num_attention_heads", high=65_536)
    a = attention_of(f, f.optional_int("v_head_dim") or hidden // q)
    m = Mlp(width=f.need_int("intermediate_size"))
    weights = shapes.mla(hidden, a, f.flag("attention_bias")) + shapes.mlp(hidden, m, f.flag("mlp_bias")) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, quirks=frozenset({"vllm_expands_latent"}))

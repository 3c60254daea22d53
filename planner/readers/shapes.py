"""Small helpers that families share: weights of the usual blocks, uniform layers, layer-type lists. No base class.

Weight shapes are those of the transformers 5.24 module of the family (``[out, in]``), so their sum equals the built model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.cache import Rows
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, Role, Weight
from planner.readers.fields import Fields

# Names of layer types in files that older releases wrote -> today's (transformers 5.24 configuration_utils, `_LEGACY_LAYER_TYPE_REMAP`).
LEGACY_TYPES = {
    "mamba": "linear_attention", "attention": "full_attention", "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}  # fmt: skip


def column(name: str, out: int, into: int, role: Role, parts: int, bias: bool = False, copies: int = 1) -> tuple[Weight, ...]:
    """A linear layer whose outputs are split over ranks (its bias with them): ``[out, into]``."""
    w = Weight(name=name, shape=(out, into), role=role, parts=parts, quantizable=True, copies=copies)
    return (w, Weight(name=f"{name}.bias", shape=(out,), role=role, parts=parts, copies=copies)) if bias else (w,)


def row(name: str, out: int, into: int, role: Role, parts: int, bias: bool = False, copies: int = 1) -> tuple[Weight, ...]:
    """A linear layer whose inputs are split over ranks; its bias is on every rank: ``[out, into]``."""
    w = Weight(name=name, shape=(out, into), role=role, parts=parts, quantizable=True, copies=copies)
    return (w, Weight(name=f"{name}.bias", shape=(out,), role=role, copies=copies)) if bias else (w,)


def whole(name: str, out: int, into: int, role: Role, bias: bool = False) -> tuple[Weight, ...]:
    """A linear layer that every rank holds whole (MLA's down-projections)."""
    w = Weight(name=name, shape=(out, into), role=role, quantizable=True)
    return (w, Weight(name=f"{name}.bias", shape=(out,), role=role)) if bias else (w,)


def norms(width: int, count: int, bias: bool = False, name: str = "norm") -> tuple[Weight, ...]:
    """`count` norms of `width`, with a bias each for LayerNorm."""
    return (Weight(name=name, shape=(width,), role="norm", copies=count * (2 if bias else 1)),)


def gqa(hidden: int, a: Attention, qkv_bias: bool = False, o_bias: bool = False, q_factor: int = 1) -> tuple[Weight, ...]:
    """q, k, v, o of MHA / GQA / MQA. `q_factor` 2: the query projection also makes an output gate."""
    return (
        *column("q_proj", a.q_heads * a.qk_dim * q_factor, hidden, "attention", a.q_heads, qkv_bias),
        *column("k_proj", a.kv_heads * a.qk_dim, hidden, "attention", a.kv_heads, qkv_bias),
        *column("v_proj", a.kv_heads * a.v_dim, hidden, "attention", a.kv_heads, qkv_bias),
        *row("o_proj", hidden, a.q_heads * a.v_dim, "attention", a.q_heads, o_bias),
    )


def mla(hidden: int, a: Attention, bias: bool = False) -> tuple[Weight, ...]:
    """DeepSeek's attention: (q_a, q_a norm, q_b | q), kv_a with the RoPE key, its norm, kv_b, o (arXiv 2405.04434)."""
    assert a.kv_rank is not None
    q_out = a.q_heads * a.qk_dim
    if a.q_rank:
        q = (*whole("q_a_proj", a.q_rank, hidden, "attention", bias), *norms(a.q_rank, 1, name="q_a_norm"),
             *column("q_b_proj", q_out, a.q_rank, "attention", a.q_heads))  # fmt: skip
    else:
        q = column("q_proj", q_out, hidden, "attention", a.q_heads)
    return (
        *q,
        *whole("kv_a_proj", a.kv_rank + a.rope_dim, hidden, "attention", bias),
        *norms(a.kv_rank, 1, name="kv_a_norm"),
        *column("kv_b_proj", a.q_heads * (a.nope_dim + a.v_dim), a.kv_rank, "attention", a.q_heads),
        *row("o_proj", hidden, a.q_heads * a.v_dim, "attention", a.q_heads, bias),
    )


def mlp(hidden: int, m: Mlp, bias: bool = False, router_bias: bool = False, expert_bias: bool = False, shared_gate: bool = False) -> tuple[Weight, ...]:
    """A dense feed-forward layer (gated: gate, up, down; else up, down), or router, experts and shared expert."""
    if not m.experts:
        return _dense(hidden, m.width, m.gated, "mlp", bias, 1, "mlp")
    out = (
        Weight(name="router", shape=(m.experts, hidden), role="router"),
        *_dense(hidden, m.expert_width, m.gated, "expert", expert_bias, m.experts, "experts"),
    )
    if router_bias:
        out += (Weight(name="router.bias", shape=(m.experts,), role="router"),)
    if m.shared_width:
        out += _dense(hidden, m.shared_width, m.gated, "mlp", bias, 1, "shared_expert")
        if shared_gate:
            out += (Weight(name="shared_expert_gate", shape=(1, hidden), role="router"),)
    return out


def _dense(hidden: int, width: int, gated: bool, role: Role, bias: bool, copies: int, name: str) -> tuple[Weight, ...]:
    ins = ("gate", "up") if gated else ("up",)
    up = tuple(w for n in ins for w in column(f"{name}.{n}", width, hidden, role, width, bias, copies))
    return up + row(f"{name}.down", hidden, width, role, width, bias, copies)


def embeddings(vocab: int, hidden: int, tied: bool, positions: tuple[int, int] = (0, 0)) -> tuple[Weight, ...]:
    """Token embedding, learned positions where there are any, and the output head unless it is the embedding."""
    out: tuple[Weight, ...] = (Weight(name="embed_tokens", shape=(vocab, hidden), role="embedding", parts=vocab),)
    if positions[0]:
        out += (Weight(name="embed_positions", shape=positions, role="position"),)
    if not tied:
        out += (Weight(name="lm_head", shape=(vocab, hidden), role="lm_head", parts=vocab),)
    return out


def rows_of(a: Attention, window: int | None = None, chunk: int | None = None) -> Rows:
    """The cache of one attention: K and V a KV head, or MLA's one latent row."""
    if a.kv_rank is not None:
        return Rows(heads=1, k_dim=a.kv_rank + a.rope_dim, v_dim=0, shard="copy", window=window)
    return Rows(heads=a.kv_heads, k_dim=a.qk_dim, v_dim=a.v_dim, window=window, chunk=chunk)


def heads(f: Fields, q_keys: Sequence[str] = ("num_attention_heads",), kv_keys: Sequence[str] = ("num_key_value_heads",)) -> tuple[int, int]:
    """(query heads, KV heads): KV heads default to the query heads; they must divide them."""
    q = f.need_int(*q_keys, high=65_536)
    key, _ = f.value(*kv_keys)
    kv = f.int_or(q, *kv_keys, high=65_536)
    if q % kv:
        raise UnsupportedValue("kv_heads_not_dividing", field=f.name(key), q_heads=q, kv_heads=kv)
    return q, kv


def head_dim(f: Fields, hidden: int, q_heads: int, hidden_key: str = "hidden_size") -> int:
    """The file's head_dim, else hidden / heads, which must come out whole."""
    explicit = f.size("head_dim")
    if explicit:
        return explicit
    if hidden % q_heads:
        raise UnsupportedValue("heads_not_dividing", field=f.name("num_attention_heads"), hidden=hidden, q_heads=q_heads)
    return hidden // q_heads


def layer_types(f: Fields, layers: int, known: dict[str, str]) -> list[str] | None:
    """The file's `layer_types`, each mapped by `known`; None where the file has none. An unknown type is refused."""
    types = f.list_of("layer_types", str, layers)
    if types is None:
        return None
    types = [t if t in known else LEGACY_TYPES.get(t, t) for t in types]
    for t in types:
        if t not in known:
            raise UnsupportedValue("unknown_layer_type", field=f.name("layer_types"), value=t[:60], known=", ".join(sorted(known)))
    return [known[t] for t in types]


def stack(count: int, build: Callable[[int], LayerSpec]) -> tuple[LayerSpec, ...]:
    """`count` layers; equal ones are one object, so that grouping them is cheap."""
    pool: dict[LayerSpec, LayerSpec] = {}
    return tuple(pool.setdefault(layer, layer) for layer in (build(i) for i in range(count)))

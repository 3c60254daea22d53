"""A decoder of one kind of block, described by a record: how a family differs from Llama in names, biases, norms, windows, experts.

A family whose block is new in another way gets a reader of its own; `guard` refuses keys that belong to other families' caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from planner.errors import UnsupportedModel, UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.experts import Experts, mlps
from planner.readers.fields import Fields
from planner.readers.windows import Rule, by_key

Flag = bool | tuple[str, bool]  # fixed by the class, or a key of the file with the class default
BIAS: Flag = ("attention_bias", False)

# Keys by which other families change what is kept. A file that sets one where the family's reader has not read it is refused.
SHAPING = frozenset(
    """
    kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim index_topk index_n_heads compress_ratios
    sliding_window sliding_window_pattern _sliding_window_pattern attention_chunk_size interleaved_sliding_window layer_types
    attention_types window_size swa_num_key_value_heads swa_head_dim hybrid_layer_pattern global_attn_every_n_layers
    layers_block_type hybrid_override_pattern attn_type_list attn_layer_period attn_layer_indices full_attention_interval
    mamba_d_state ssm_state_size state_size linear_attn_config linear_num_key_heads linear_key_head_dim conv_L_cache
    num_kv_shared_layers use_cla block_configs per_layer_config attn_config multi_query multi_query_attention multi_query_group_num
    num_kv_heads n_head_kv kv_n_heads num_attention_groups num_query_groups num_global_key_value_heads global_head_dim
    attention_other_setting sparse_attention_config sparse_config cross_attention_layers add_cross_attention is_encoder_decoder
    kv_channels attention_head_dim head_dim num_key_value_heads
    """.split()
)
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")  # in a dense family: the count is an estimate


@dataclass(frozen=True, kw_only=True)
class Block:
    """One family. Defaults are Llama's block."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    hidden: tuple[str, ...] = ("hidden_size",)
    q_heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    kv: Literal["same", "need", "mha"] = "same"  # KV heads left out: as many as query heads | refused | the family has no such key
    head_dim: tuple[str, ...] = ("head_dim",)
    head_dim_default: int | None = None
    floor: bool = False  # hidden / heads is rounded down, as the class does, where it does not come out whole
    width: tuple[str, ...] = ("intermediate_size",)
    width_times: int | None = None  # the feed-forward width as a multiple of the hidden size where the file leaves it out
    vocab: tuple[str, ...] = ("vocab_size",)
    qkv_bias: Flag = BIAS
    o_bias: Flag = BIAS
    mlp_bias: Flag = False
    gated: bool = True
    norms: int | Callable[[Fields], int] = 2
    norm_bias: bool = False
    final_norm: bool = True
    head_norms: Flag = False
    norm_per_head: bool = False  # a norm for every head (or one over all of them): q + kv heads wide, not one head
    gate: Literal["", "head", "full"] = ""  # an output gate beside q: a number a head, or one an element
    sinks: bool = False
    lm_head_bias: Flag = False
    tied: bool = False
    windows: Rule = by_key
    experts: Experts | None = None
    extra: Callable[[int, Attention, Mlp], tuple[Weight, ...]] | None = None  # more weights of a layer
    outer: Callable[[Fields, int, int], tuple[Weight, ...]] | None = None  # more weights of the model (hidden, vocab)
    positions: int | None = None  # learned positions: so many rows more than the context
    ignore: tuple[str, ...] = ()  # keys read on purpose: they do not touch the cache in this family
    quirks: frozenset[str] = frozenset()
    exact: bool = True


def flag(f: Fields, value: Flag) -> bool:
    return value if isinstance(value, bool) else f.flag(*value)


def attention(f: Fields, b: Block, hidden: int) -> tuple[Attention, tuple[Note, ...]]:
    q = f.need_int(*b.q_heads, high=65_536)
    if b.kv == "mha":
        kv = q
        f.ignore("num_key_value_heads")
        if f.raw.get("num_key_value_heads") not in (None, q):
            raise UnsupportedValue("foreign_key", field=f.name("num_key_value_heads"), value=str(f.raw["num_key_value_heads"])[:40])
    elif b.kv == "need":
        kv = f.need_int(*b.kv_heads, high=65_536)
    else:
        kv = f.int_or(q, *b.kv_heads, high=65_536)
    if q % kv:
        raise UnsupportedValue("kv_heads_not_dividing", field=f.name(b.kv_heads[0]), q_heads=q, kv_heads=kv)
    explicit, notes = f.size(*b.head_dim), tuple[Note, ...]()
    default = None if any(k in f.raw for k in b.head_dim) else b.head_dim_default  # null in the file: hidden / heads
    if explicit is None and default:
        notes = (note("derived", "class_default", field=f.name(b.head_dim[0]), value=default, source=cite("transformers 5.24, class default")),)
    elif explicit is None and hidden % q and not b.floor:
        raise UnsupportedValue("heads_not_dividing", field=f.name(b.q_heads[0]), hidden=hidden, q_heads=q)
    elif explicit and hidden % q == 0 and explicit != hidden // q:
        notes = (note("info", "head_dim_explicit", field=f.name(b.head_dim[0]), head_dim=explicit, divided=hidden // q),)
    dim = explicit or default or hidden // q
    return Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim), notes


def attention_weights(f: Fields, b: Block, hidden: int, a: Attention) -> tuple[Weight, ...]:
    out = shapes.gqa(hidden, a, flag(f, b.qkv_bias), flag(f, b.o_bias))
    if flag(f, b.head_norms):
        wide = (a.q_heads + a.kv_heads) * a.qk_dim if b.norm_per_head else 2 * a.qk_dim
        out += shapes.norms(wide, 1, b.norm_bias and not b.norm_per_head, name="head_norm")
    if b.gate:
        out += shapes.column("gate_proj", a.q_heads * (a.v_dim if b.gate == "full" else 1), hidden, "attention", a.q_heads)
    return out + ((Weight(name="sinks", shape=(a.q_heads,), role="attention", parts=a.q_heads),) if b.sinks else ())


def read(f: Fields, b: Block) -> ModelSpec:
    layers, hidden = f.layers(*b.layers), f.need_int(*b.hidden)
    a, notes = attention(f, b, hidden)
    windows, said = b.windows(f, layers)
    if b.experts is not None:
        each = mlps(f, layers, b.experts, b.width)
    else:
        width = f.need_int(*b.width) if b.width_times is None else f.int_or(b.width_times * hidden, *b.width)
        each = [Mlp(width=width, gated=b.gated)] * layers
    biased, e = flag(f, b.mlp_bias), b.experts or Experts()
    first = attention_weights(f, b, hidden, a) + shapes.norms(hidden, b.norms if isinstance(b.norms, int) else b.norms(f), b.norm_bias)

    def build(i: int) -> LayerSpec:
        m = each[i]
        weights = first + shapes.mlp(hidden, m, biased, router_bias=e.router_bias, shared_gate=e.shared_gate and bool(m.shared_width))
        weights += b.extra(hidden, a, m) if b.extra else ()
        return LayerSpec(caches=(shapes.rows_of(a, windows[i]),), attention=a, mlp=m, weights=weights)

    vocab = f.need_int(*b.vocab)
    outer = b.outer(f, hidden, vocab) if b.outer else ()
    if flag(f, b.lm_head_bias):
        outer += (Weight(name="lm_head.bias", shape=(vocab,), role="lm_head", parts=vocab),)
    spec = model(
        f,
        shapes.stack(layers, build),
        hidden=hidden,
        vocab=vocab,
        tied_default=b.tied,
        final_norm=shapes.norms(hidden, 1, b.norm_bias) if b.final_norm else (),
        positions=f.need_int("max_position_embeddings", "n_positions", "n_ctx") + b.positions if b.positions is not None else 0,
        extra=outer,
        notes=notes + said,
        quirks=b.quirks,
        exact=b.exact,
        doubts=() if b.experts else unknown_experts(f, hidden, each, b.ignore),
    )
    f.ignore(*b.ignore)
    guard(f)
    return spec


def unknown_experts(f: Fields, hidden: int, each: list[Mlp], known: tuple[str, ...]) -> tuple[Doubt, ...]:
    """A dense family's file that counts experts: each feed-forward part may be that many, under a router."""
    counts = {k: f.raw[k] for k in EXPERT_KEYS if k not in known and f.raw.get(k) not in (None, 0, 1)}
    if not counts:
        return ()
    key = next(iter(counts))
    n = f.need_int(key, high=65_536)
    width = f.optional_int("moe_intermediate_size") or 0
    more = sum(n * (3 * hidden * max(width, m.width) + hidden) for m in each)
    return (Doubt(code="doubt_experts_unread", field=f.name(key), fewer=sum(3 * hidden * m.width for m in each), more=more),)


def guard(f: Fields) -> None:
    """Refuse a set key that changes the cache in some family and that this family's reader has not read."""
    for key, value in f.unread().items():
        if key in SHAPING and value not in (None, False, 0, "", [], {}):
            text = repr(value)
            raise UnsupportedModel("foreign_key", field=f.name(key), value=text if len(text) <= 60 else text[:57] + "...")


def reader(b: Block) -> Callable[[Fields], ModelSpec]:
    return partial(read, b=b)

"""Zamba and Zamba-2: Mamba layers, some of them led by a transformer block whose weights they share. The weights are shared, the caches
are not: each such layer keeps K and V of its own beside its state. The block attends to [hidden, embedding], twice the width."""

from __future__ import annotations

from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import between, elements
from planner.readers.fields import Fields
from planner.readers.hybrid import STATE, listed
from planner.readers.mamba import Mamba2, rank_of, state_of

HYBRID = "hybrid"
NAMES = {"hybrid": HYBRID, "mamba": STATE, "mamba2": STATE, "linear_attention": STATE, "m": STATE, "g": HYBRID}


def _shared(f: Fields, hidden: int) -> tuple[Attention, Mlp, tuple[Weight, ...], int]:
    """The transformer block: its attention, its feed-forward part, its weights, and the width that it attends to."""
    wide = f.int_or(2 * hidden, "attention_hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("attention_head_dim") or 2 * hidden // q
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    m = Mlp(width=f.int_or(4 * hidden, "intermediate_size", "ffn_hidden_size"))
    weights = (*shapes.gqa(wide, a)[:3], *shapes.row("o_proj", hidden, q * dim, "attention", q))
    return a, m, weights + shapes.norms(wide, 1) + shapes.norms(hidden, 1), wide


def zamba(f: Fields) -> ModelSpec:
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a, m, block, _ = _shared(f, hidden)
    block += shapes.mlp(hidden, m)
    period, offset = f.int_or(6, "attn_layer_period"), f.int_or(4, "attn_layer_offset", low=0)
    types = listed(f, layers, NAMES) or ([STATE, STATE, HYBRID] + [HYBRID if i % period == offset else STATE for i in range(layers - 3)])[:layers]
    inner, state, width = f.int_or(2, "mamba_expand") * hidden, f.int_or(16, "mamba_d_state"), f.int_or(4, "mamba_d_conv")
    rank, heads, bias = rank_of(f, hidden, "mamba_dt_rank"), f.int_or(2, "n_mamba_heads"), f.flag("mamba_proj_bias")
    cache = state_of("mamba1", inner, width, inner * state)
    weights = (
        *shapes.column("in_proj", 2 * inner, hidden, "state", heads, bias),
        Weight(name="conv1d", shape=(inner, 1, width + f.flag("mamba_conv_bias", True)), role="state", parts=heads),
        Weight(name="x_proj", shape=(rank + 2 * state, inner), role="state", parts=heads, quantizable=True),
        Weight(name="dt_proj", shape=(inner, rank + 1), role="state", parts=heads, quantizable=True),
        Weight(name="A_log_and_D", shape=(inner, state + 1), role="state", parts=heads),
        *shapes.row("out_proj", hidden, inner, "state", heads, bias),
        *shapes.norms(hidden, 1),
    )
    linear = shapes.whole("linear", hidden, hidden, "mlp")

    def build(i: int) -> LayerSpec:
        if types[i] == HYBRID:
            return LayerSpec(caches=(shapes.rows_of(a), cache), attention=a, mlp=m, weights=weights + linear)
        return LayerSpec(caches=(cache,), weights=weights)

    # transformers ties the copies of the block by the switch that ties the embeddings: without it every layer gets one of its own.
    apart = 0 if f.flag("tie_word_embeddings", True) else max(0, types.count(HYBRID) - 1)
    doubts = between("doubt_class_differs", 0, apart * elements(block), f.name("tie_word_embeddings"))
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, doubts=doubts,
                 extra=block if HYBRID in types else ())  # fmt: skip


def zamba2(f: Fields) -> ModelSpec:
    """Several shared blocks (`num_mem_blocks`) take turns; each hybrid layer adapts its block by a low-rank pair of its own."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a, m, block, wide = _shared(f, hidden)
    bias = f.flag("add_bias_linear")
    block += shapes.mlp(hidden, m, bias)
    f.ignore("kv_channels", "num_query_groups")  # published files carry them from training; the attention's own keys count
    types = listed(f, layers, NAMES)
    notes: tuple[Note, ...] = ()
    if types is None:
        at = {6 * k for k in range(1, 8)} | {47, 51} if layers == 54 else set(f.list_of("hybrid_layer_ids", int) or ())
        types = [HYBRID if i in at else STATE for i in range(layers)]
        notes = (note("derived", "class_default", field=f.name("layers_block_type"), value=f"{types.count(HYBRID)} x {HYBRID}",
                      source=cite("transformers 5.24 models/zamba2")),)  # fmt: skip
    heads = f.int_or(8, "n_mamba_heads")
    inner = f.int_or(2, "mamba_expand") * hidden
    s = Mamba2(heads=heads, head_dim=inner // heads, groups=f.int_or(1, "mamba_ngroups"), state=f.int_or(64, "mamba_d_state"),
               width=f.int_or(4, "mamba_d_conv"), bias=bias, out_bias=bias)  # fmt: skip
    weights = s.weights(hidden) + shapes.norms(hidden, 1)
    rank = f.int_or(128, "adapter_rank")
    adapter: tuple[Weight, ...] = (
        Weight(name="adapter.up", shape=(rank, hidden), role="mlp"),
        Weight(name="adapter.down", shape=(2 * m.width, rank), role="mlp"),
    )
    if f.flag("use_shared_attention_adapter"):
        adapter += (Weight(name="attention_adapter", shape=(rank, wide), role="attention", copies=6),)
    adapter += shapes.whole("linear", hidden, hidden, "mlp")
    shared = block * min(f.int_or(1, "num_mem_blocks"), types.count(HYBRID))

    def build(i: int) -> LayerSpec:
        if types[i] == HYBRID:
            return LayerSpec(caches=(shapes.rows_of(a), s.cache()), attention=a, mlp=m, weights=weights + adapter)
        return LayerSpec(caches=(s.cache(),), weights=weights)

    apart = 0 if f.flag("tie_word_embeddings", True) else types.count(HYBRID)  # see zamba
    doubts = between("doubt_class_differs", 0, apart * elements(block), f.name("tie_word_embeddings"))
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, doubts=doubts, extra=shared, notes=notes)

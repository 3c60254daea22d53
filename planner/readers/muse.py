"""Muse-Spark: experts on a narrower state between two projections, windows counted back from the last layer."""

from __future__ import annotations

from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import guard
from planner.readers.build import model
from planner.readers.experts import Experts, sparse_layers
from planner.readers.fields import Fields
from planner.readers.windows import counted_back, pattern


def muse_spark(f: Fields) -> ModelSpec:
    """Afmoe's gated attention without norm weights; a learned gate on each residual (transformers 5.24 models/muse_spark)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 64
    a, bias = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim), f.flag("attention_bias")
    windows, notes = pattern(2048, counted_back)(f, layers)
    where = sparse_layers(f, layers, Experts())
    width, into = f.need_int("moe_intermediate_size"), f.int_or(4096, "moe_hidden_size")
    experts = f.need_int("num_local_experts", high=65_536)
    sparse = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=width)
    dense = sparse if all(where) else Mlp(width=f.need_int("intermediate_size"))
    routed = (
        Weight(name="router", shape=(experts, hidden), role="router"),
        *shapes.mlp(into, sparse)[1:],
        *shapes.whole("pre_expert_proj", into, hidden, "mlp"),
        *shapes.whole("post_expert_proj", hidden, into, "mlp"),
        *shapes.norms(into, 2, name="expert_norm"),
    )
    f.ignore("intermediate_size")
    block = (
        *shapes.gqa(hidden, a, bias, bias),
        *shapes.column("gate_proj", q * dim, hidden, "attention", q),
        *shapes.norms(hidden, 3),
        Weight(name="residual_gates", shape=(2, hidden), role="norm"),
    )

    def build(i: int) -> LayerSpec:
        m = sparse if where[i] else dense
        return LayerSpec(caches=(shapes.rows_of(a, windows[i]),), attention=a, mlp=m, weights=block + (routed if where[i] else shapes.mlp(hidden, m)))

    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes)
    guard(f)
    return spec

"""Dory: a stack whose middle runs more than once over the same weights (transformers 5.24 models/dory)."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields
from planner.readers.llama import FULL, WINDOW
from planner.readers.windows import TYPES, window_of

MODES = ("per_loop", "last_loop")


def dory(f: Fields) -> ModelSpec:
    """Input layers, recurrent layers run `n_recurrent_loops` times, output layers. Each run keeps K and V of its own ("per_loop"), or the
    last one alone does ("last_loop"). Released files list attention and feed-forward as blocks of their own, so every count is twice
    that of the layers. Norms have no weights."""
    blocks, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    listed = f.list_of("layer_types", str, blocks)
    step = 2 if listed and "mlp" in listed else 1
    if step == 2 and (blocks % 2 or set(listed[1::2]) != {"mlp"}):  # type: ignore[index]
        raise UnsupportedValue("foreign_key", field=f.name("layer_types"), value=repr(listed)[:60])
    layers = blocks // step
    known = shapes.layer_types(f.variant({**f.raw, "layer_types": listed[::step] if listed else None}), layers, TYPES)
    types = known or [FULL if (i + 1) % 4 == 0 else WINDOW for i in range(layers)]
    first, last = f.int_or(8, "n_input_layers", low=0) // step, f.int_or(8, "n_output_layers", low=0) // step
    given = f.optional_int("n_recurrent_layers", low=0)
    middle = layers - first - last if given is None else given // step
    if middle < 0 or first + middle + last != layers:
        raise UnsupportedValue("only_value", field=f.name("n_recurrent_layers"), value=given or 0, want=(layers - first - last) * step)
    loops, mode = f.int_or(2, "n_recurrent_loops", high=64), f.text("recurrent_kv_cache_mode") or MODES[0]
    if mode not in MODES:
        raise UnsupportedValue("only_value", field=f.name("recurrent_kv_cache_mode"), value=mode[:60], want=", ".join(MODES))
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 256
    window, notes = window_of(f, 1024)
    a, m, bias = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim), Mlp(width=f.need_int("intermediate_size")), f.flag("attention_bias")
    weights = (
        *shapes.gqa(hidden, a, bias, bias),
        *shapes.column("gate_proj", q * dim, hidden, "attention", q),
        Weight(name="sqk_and_s_gate", shape=(2, q * dim), role="attention", parts=q),
        *shapes.mlp(hidden, m, f.flag("mlp_bias")),
        Weight(name="suv", shape=(2, m.width), role="mlp", parts=m.width),
        Weight(name="lambdas", shape=(2, hidden), role="norm"),
    )

    def build(i: int) -> LayerSpec:
        return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=m, weights=weights)

    stack = [build(i) for i in range(layers)]
    again = [replace(layer, weights=()) for layer in stack[first : first + middle]] * (loops - 1 if mode == MODES[0] else 0)
    run = stack[: first + middle] + again + stack[first + middle :]
    vocab = f.need_int("vocab_size")
    return model(f, shapes.stack(len(run), lambda i: run[i]), hidden=hidden, vocab=vocab, tied_default=False, final_norm=(), notes=notes,
                 extra=(Weight(name="logit_scale", shape=(vocab,), role="lm_head", parts=vocab),))  # fmt: skip

"""A model described layer by layer, by hand: what the layer editor writes, and what it reads back from a plan file or a paste.

    {"model_type": "kvledger_layers", "hidden_size": 4096, "vocab_size": 32000, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
     "parameters": 7000000000, "layer_rows": [{"layers": 5, "kind": "window", "kv_heads": 8, "k_dim": 128, "v_dim": 128, "window": 1024},
                                              {"layers": 1, "kind": "full", "kv_heads": 8, "k_dim": 128, "v_dim": 128}]}

Rows follow each other from layer 0; `repeat` says how often the whole list of rows is gone through. Weights are the number given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.cache import Kind, Rows, State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, ModelSpec, Weight
from planner.notes import Note, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_LAYERS, MAX_TOKENS, Fields

MODEL_TYPE = "kvledger_layers"
KINDS = ("full", "window", "chunk", "latent", "state", "none")
MAX_ROWS = 1024
MOST = 10**15  # parameters that may be given


def described(f: Fields) -> ModelSpec:
    """Raises UnsupportedValue with the row and key (``layer_rows[2].window``)."""
    hidden, vocab = f.need_int("hidden_size"), f.need_int("vocab_size")
    rows = f.list_of("layer_rows", dict)
    if not rows or len(rows) > MAX_ROWS:
        raise UnsupportedValue("layer_rows", field="layer_rows", limit=MAX_ROWS)
    layers: list[LayerSpec] = []
    for i, raw in enumerate(rows):
        row = Fields(raw, f"layer_rows[{i}]", f)
        layers += [_layer(row)] * row.int_or(1, "layers", high=MAX_LAYERS)
        _nothing_else(row)
    layers *= f.int_or(1, "repeat", high=MAX_LAYERS)
    if len(layers) > MAX_LAYERS:
        raise UnsupportedValue("out_of_range", field="layer_rows", value=len(layers), low=1, high=MAX_LAYERS)
    given = f.optional_int("parameters", high=MOST)
    # One lump: the number is the user's, its shapes are unknown. It is split evenly over ranks.
    lump = () if given is None else (Weight(name="all", shape=(given,), role="mlp", parts=given, quantizable=True),)
    notes: tuple[Note, ...] = (note("assumed", "described_by_hand", field="layer_rows"),)
    if given is None:
        notes += (note("warning", "no_parameters", field="parameters"),)
    doubts = (Doubt(code="doubt_by_hand", field="parameters", more=MOST if given is None else 0),)
    spec = model(f, shapes.stack(len(layers), layers.__getitem__), hidden=hidden, vocab=vocab, tied_default=True, notes=notes, doubts=doubts,
                 final_norm=(), extra=lump)  # fmt: skip
    return replace(spec, weights=lump, verified=False)


def _layer(row: Fields) -> LayerSpec:
    kind = row.text("kind") or "full"
    if kind not in KINDS:
        raise UnsupportedValue("unknown_layer_type", field=row.name("kind"), value=kind[:60], known=", ".join(KINDS))
    if kind == "none":
        return LayerSpec(caches=())
    if kind == "state":
        size = row.need_int("state_bytes", high=10**12)
        one: Kind = State(tensors=(StateTensor(name="state", role="recurrent", elements=size, dtype=DTYPES["int8"]),))
        return LayerSpec(caches=(one,))
    if kind == "latent":
        rank, rope = row.need_int("k_dim"), row.int_or(0, "v_dim", low=0)
        heads = row.int_or(1, "q_heads", high=65_536)
        latent = Attention(q_heads=heads, kv_heads=heads, qk_dim=rank + rope, v_dim=rank, kv_rank=rank, nope_dim=rank, rope_dim=rope)
        return LayerSpec(caches=(shapes.rows_of(latent),), attention=latent)
    heads, k_dim = row.need_int("kv_heads", high=65_536), row.need_int("k_dim")
    limit = row.need_int("window", high=MAX_TOKENS) if kind in ("window", "chunk") else None
    rows = Rows(heads=heads, k_dim=k_dim, v_dim=row.int_or(k_dim, "v_dim"), window=limit if kind == "window" else None,
                chunk=limit if kind == "chunk" else None)  # fmt: skip
    q_heads = row.int_or(heads, "q_heads", high=65_536)
    return LayerSpec(caches=(rows,), attention=Attention(q_heads=q_heads, kv_heads=heads, qk_dim=k_dim, v_dim=rows.v_dim))


def _nothing_else(row: Fields) -> None:
    row.ignore("kind", "layers", "kv_heads", "q_heads", "k_dim", "v_dim", "window", "state_bytes")
    unknown: dict[str, Any] = row.unread()
    if unknown:
        key = next(iter(unknown))
        raise UnsupportedValue("row_key_unknown", field=row.name(str(key)[:40]))

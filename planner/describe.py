"""A model's layers as rows that can be edited, and back: what the layer editor works on. Reading them is readers/described.py."""

from __future__ import annotations

from typing import Any

from planner.cache import Rows, State
from planner.engines.architecture import ALONE, state_bytes
from planner.errors import UnsupportedModel
from planner.model import LayerSpec, ModelSpec
from planner.readers.described import MODEL_TYPE
from planner.weights import parameters

COLUMNS = ("layers", "kind", "kv_heads", "q_heads", "k_dim", "v_dim", "window", "state_bytes")
Row = dict[str, Any]


def rows_of(model: ModelSpec) -> list[Row]:
    """Runs of equal layers, from layer 0. Raises UnsupportedModel where a layer keeps more than one cache: rows hold one."""
    out: list[Row] = []
    for i, layer in enumerate(model.layers):
        row = _row(model, layer, i)
        if out and {**out[-1], "layers": 1} == {**row, "layers": 1}:
            out[-1]["layers"] += 1
        else:
            out.append(row)
    return out


def _row(model: ModelSpec, layer: LayerSpec, index: int) -> Row:
    if len(layer.caches) > 1:
        raise UnsupportedModel("layer_not_a_row", field=f"layers[{index}]", layer=index, count=len(layer.caches))
    q_heads = layer.attention.q_heads if layer.attention else 1
    if not layer.caches:
        return {"layers": 1, "kind": "none"}
    kind = layer.caches[0]
    if isinstance(kind, State):
        return {"layers": 1, "kind": "state", "state_bytes": state_bytes(kind, model.dtype, ALONE)}
    if not isinstance(kind, Rows) or kind.ratio != 1 or kind.format != "kv":
        raise UnsupportedModel("layer_not_a_row", field=f"layers[{index}]", layer=index, count=1)
    if kind.kind == "latent" and layer.attention and layer.attention.kv_rank:
        return {"layers": 1, "kind": "latent", "q_heads": q_heads, "k_dim": layer.attention.kv_rank, "v_dim": layer.attention.rope_dim}
    row = {"layers": 1, "kind": kind.kind, "kv_heads": kind.heads, "q_heads": q_heads, "k_dim": kind.k_dim, "v_dim": kind.v_dim}
    return row | ({"window": kind.limit_tokens} if kind.limit_tokens else {})


def config_of(model: ModelSpec, rows: list[Row]) -> dict[str, Any]:
    """A config that a reader takes: `rows` with the model's other facts. Empty cells are left out."""
    return {
        "model_type": MODEL_TYPE,
        "_name_or_path": f"{model.name} (edited)"[:200],
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_context_tokens,
        "torch_dtype": model.dtype.name,
        "parameters": parameters(model).total or None,
        "layer_rows": [{k: v for k, v in row.items() if k in COLUMNS and v is not None and v == v} for row in rows],
    }


def by_rule(model: ModelSpec, every: int, window: int) -> list[Row]:
    """The same layers with every `every`-th one full and the rest windowed. Shapes are those of the first layer with K and V rows."""
    shape = next((r for r in rows_of(model) if r["kind"] in ("full", "window", "chunk")), None)
    if shape is None:
        raise UnsupportedModel("rule_needs_rows", field="layers")
    full = {k: v for k, v in shape.items() if k != "window"} | {"kind": "full"}
    cut = full | {"kind": "window", "window": window}
    out: list[Row] = []
    for i in range(len(model.layers)):
        row = full if (i + 1) % every == 0 else cut
        if out and out[-1]["kind"] == row["kind"]:
            out[-1]["layers"] += 1
        else:
            out.append({**row, "layers": 1})
    return out

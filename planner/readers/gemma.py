"""Gemma 1, 2 and 3 (text and nested): explicit head dims, tied embeddings, windows by pattern."""

from __future__ import annotations

from planner.model import Attention, LayerSpec, Mlp, ModelSpec
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW

_TYPES = {FULL: FULL, WINDOW: WINDOW}


def gemma(f: Fields) -> ModelSpec:
    return _read(f, norms_a_layer=2, head_norms=False, pattern=None, head_dim=256)


def gemma2(f: Fields) -> ModelSpec:
    """Layer 0 windowed, then alternating (transformers 5.24 models/gemma2)."""
    return _read(f, norms_a_layer=4, head_norms=False, pattern=2, window=4096, head_dim=256)


def gemma3(f: Fields) -> ModelSpec:
    """Every sixth layer full. Published files leave out what equals the class default; those defaults stand here, each with a note."""
    return _read(f, norms_a_layer=4, head_norms=True, pattern=6, window=4096, head_dim=256, heads=8, kv_heads=4, vocab=262_208, context=131_072)


def _read(
    f: Fields,
    *,
    norms_a_layer: int,
    head_norms: bool,
    pattern: int | None,
    head_dim: int,
    window: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    vocab: int | None = None,
    context: int | None = None,
) -> ModelSpec:
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    notes: tuple[Note, ...] = ()

    def default(key: str, value: int | None) -> int | None:
        """The file's value; a class default only for the keys that published files of the family leave out."""
        nonlocal notes
        found = f.optional_int(key)
        if found is None and value is not None:
            notes += (note("derived", "class_default", field=f.name(key), value=value, source=cite(f"transformers 5.24 {f.raw.get('model_type')}")),)
        return value if found is None else found

    q = default("num_attention_heads", heads) or f.need_int("num_attention_heads")
    kv = default("num_key_value_heads", kv_heads)
    a_q, a_kv = (q, kv) if kv and "num_attention_heads" not in f.raw else shapes.heads(f) if kv is None or f.has("num_key_value_heads") else (q, kv)
    dim = default("head_dim", head_dim) or head_dim
    a = Attention(q_heads=a_q, kv_heads=a_kv, qk_dim=dim, v_dim=dim)
    windows: list[int | None] = [None] * layers
    if pattern:
        width = f.optional_int("sliding_window", low=0, high=MAX_TOKENS) if "sliding_window" in f.raw else default("sliding_window", window)
        types = shapes.layer_types(f, layers, _TYPES)
        if types is None:
            step = f.optional_int("sliding_window_pattern", "_sliding_window_pattern") or pattern
            types = [WINDOW if (i + 1) % step else FULL for i in range(layers)]
            notes += (note("derived", "window_pattern", field="sliding_window_pattern", step=step, layers=types.count(WINDOW), window=width or 0),)
        else:
            f.ignore("sliding_window_pattern", "_sliding_window_pattern")
        if width and f.value("use_bidirectional_attention")[1] in (True, "all"):
            width = width // 2 + 1
        windows = [width or None if t == WINDOW else None for t in types]
    m = Mlp(width=f.need_int("intermediate_size"))
    bias = f.flag("attention_bias")
    weights = (
        shapes.gqa(hidden, a, bias, bias)
        + (shapes.norms(dim, 2, name="head_norm") if head_norms else ())
        + shapes.mlp(hidden, m)
        + shapes.norms(hidden, norms_a_layer)
    )
    return model(
        f,
        shapes.stack(layers, lambda i: LayerSpec(caches=(shapes.rows_of(a, windows[i]),), attention=a, mlp=m, weights=weights)),
        hidden=hidden,
        vocab=default("vocab_size", vocab) or f.need_int("vocab_size"),
        tied_default=True,
        notes=notes,
        context_default=context,
    )

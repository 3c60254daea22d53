"""A GGUF header (planner/sources/gguf.py) -> ModelSpec: its architecture's row in gguf/table.py, its keys in the words of that family's
config, and the family's own reader, so that windows, latent rows, states and experts stay one truth.

A GGUF is read as llama.cpp keeps it: head counts, head sizes and windows layer by layer by its rules. Weights and the parameter count are
those of the tensor table, and the table's K and V widths must agree with what was read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.cache import Rows
from planner.errors import ConfigError, NotAConfig, UnsupportedModel, UnsupportedValue
from planner.model import Doubt, LayerSpec, ModelSpec
from planner.notes import Note, cite, note
from planner.readers import doubts, shapes
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.gguf import parts
from planner.readers.gguf.head import SOURCE, Head, by_layer, head_of
from planner.readers.gguf.table import ARCHITECTURES, HARMLESS, NO_CACHE
from planner.readers.gguf.tensors import check, main_types, mlp_of, plain, table_of, weights_of

PLAIN_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
NOT_QUANTIZED = frozenset((*PLAIN_TYPES, "F64", "I8", "I16", "I32", "I64"))
# What the readers' own keys are called in the metadata, for messages.
_NAMES = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length", "intermediate_size": "feed_forward_length",
    "vocab_size": "vocab_size", "max_position_embeddings": "context_length", "sliding_window": "attention.sliding_window",
    "layer_types": "attention.sliding_window_pattern", "kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count", "v_head_dim": "attention.value_length",
}  # fmt: skip


def gguf(f: Fields) -> ModelSpec:
    """A GGUF header, by llama.cpp's rules for its architecture. Raises ConfigError subclasses naming the metadata's key."""
    f.ignore("gguf_version", "_name_or_path")
    section = f.section("metadata")
    if section is None:
        raise NotAConfig("gguf_no_metadata", field="metadata")
    meta = Fields(section.raw)
    arch = meta.text("general.architecture")
    kind = meta.text("general.type") or "model"
    if kind != "model" or arch == "clip":
        raise UnsupportedModel("gguf_not_a_model", field="general.type", kind=plain(kind if kind != "model" else arch))
    if arch is None:
        part = meta.optional_int("split.no", low=0)
        raise NotAConfig("gguf_later_part" if part else "gguf_no_architecture", field="general.architecture", part=(part or 0) + 1)
    row = ARCHITECTURES.get(arch)
    if arch in NO_CACHE or meta.value(f"{arch}.attention.causal")[1] is False:
        raise UnsupportedModel("gguf_no_cache", field="general.architecture", architecture=plain(arch))
    if row is None:
        raise UnsupportedModel("gguf_architecture", field="general.architecture", architecture=plain(arch))
    table = table_of(f, meta.optional_int("split.tensors.count", low=0))
    h = head_of(meta, arch, row, table)
    config, names, dtype_notes = _config(h)
    afters = [after for name in row.also if (after := getattr(parts, name)(h, config)) is not None]
    _refuse_unknown(h)
    spec = _read(config, names)
    notes = h.notes + dtype_notes + tuple(_renamed(n, names) for n in spec.notes)
    spec = replace(_as_kept(spec, h), notes=notes, model_type=row.type or spec.model_type, architecture=arch)
    for after in afters:
        spec = after(spec)
    check(spec, table, h.key("attention.head_count_kv"))
    return _weighed(spec, h)


# -- the config that the family's reader gets --------------------------------------------------------------------------


def _config(h: Head) -> tuple[dict[str, Any], dict[str, str], tuple[Note, ...]]:
    """(config, the reader's key -> the metadata's key, notes on the dtype)."""
    dtype, notes = _dtype(h)
    names = {k: h.key(v) for k, v in _NAMES.items()}
    config: dict[str, Any] = {
        "model_type": h.row.reader, "_name_or_path": h.meta.raw.get("general.name"), "num_hidden_layers": h.layers, "hidden_size": h.hidden,
        "vocab_size": _vocabulary(h), "max_position_embeddings": h.maybe("context_length", low=1, high=MAX_TOKENS), "torch_dtype": dtype,
        "tie_word_embeddings": "output.weight" not in h.table.outer if h.table.complete else None,
    }  # fmt: skip
    if h.some(h.q):
        config |= {"num_attention_heads": h.some(h.q), "num_key_value_heads": h.some(h.kv) or h.some(h.q), "head_dim": h.full[0]}
    if h.some(h.ff):
        config["intermediate_size"] = h.some(h.ff)
    if h.row.windows is not None:
        here = "chunked_attention" if h.row.windows.chunk else "sliding_attention"
        config["layer_types"] = [here if w else "full_attention" for w in h.windowed]
        config["attention_chunk_size" if h.row.windows.chunk else "sliding_window"] = h.window
    if h.row.zero not in ("nothing", "all"):
        full = "attention" if h.row.zero == "mamba" else "full_attention"
        config["layer_types"] = [full if kv else h.row.zero for kv in h.kv]
    config |= h.row.fixed
    for suffix, key in h.row.keys.items():
        found = h.maybe(suffix)
        if found is not None and key:
            config[key], names[key] = found, h.key(suffix)
    if not config.get("moe_intermediate_size", 1):
        del config["moe_intermediate_size"]
    return config, names, notes


def _vocabulary(h: Head) -> int:
    """Rows of the embedding; without its tensor the key, else the number of tokens."""
    shape = h.table.outer.get("token_embd.weight")
    if shape and len(shape) == 2:
        if shape[0] != h.hidden:
            raise UnsupportedValue("gguf_contradiction", field=h.key("embedding_length"), tensor="token_embd.weight", header=h.hidden, table=shape[0])
        return shape[1]
    tokens = h.meta.raw.get("tokenizer.ggml.tokens")
    length = tokens.get("length") if isinstance(tokens, dict) else None
    return h.maybe("vocab_size", low=1) or (length if isinstance(length, int) and 0 < length < 10**8 else h.need("vocab_size"))


def _dtype(h: Head) -> tuple[str, tuple[Note, ...]]:
    """What a cache is kept in where nothing else is asked for: the stored type of plain weights; of quantized ones f16, as llama.cpp
    does (the cache never follows the weights' blocks)."""
    stored = main_types(h.table.elements)
    if stored and stored[0] in PLAIN_TYPES:
        return PLAIN_TYPES[stored[0]], ()
    quantized = ", ".join(t for t in stored if t not in NOT_QUANTIZED)[:60] or "?"
    return "float16", (note("derived", "gguf_dtype", field="general.file_type", stored=quantized, source=cite("llama.cpp common: type_k, type_v")),)


def _refuse_unknown(h: Head) -> None:
    """Every key after the architecture's prefix is used, known to leave the caches alone, or refused."""
    prefix = f"{h.arch}."
    h.meta.ignore(h.key("vocab_size"), h.key("context_length"))
    for key, value in h.meta.unread().items():
        suffix = key.removeprefix(prefix)
        if suffix == key or suffix in HARMLESS or suffix.split(".")[0] in HARMLESS or suffix.startswith("expert_"):
            continue
        if isinstance(value, str | float) or value in (None, False, 0):
            continue
        raise UnsupportedModel("gguf_unknown_key", field=plain(key), architecture=h.arch, value=plain(value))


def _read(config: dict[str, Any], names: dict[str, str]) -> ModelSpec:
    """The family's own reader; what it refuses is told under the metadata's keys."""
    from planner.readers import READERS

    try:
        return READERS[config["model_type"]](Fields(config))
    except ConfigError as e:
        field = names.get(e.field, e.field)
        raise type(e)(e.code, **{**e.args_by_name, "field": field, **({"tried": field} if "tried" in e.args_by_name else {})}) from e


def _renamed(n: Note, names: dict[str, str]) -> Note:
    return replace(n, field=names.get(n.field, n.field))


# -- layer by layer ----------------------------------------------------------------------------------------------------


def _as_kept(spec: ModelSpec, h: Head) -> ModelSpec:
    """Each layer's heads, head sizes and window from the metadata; states, latent rows, index keys and lenders as the family has them."""
    chunk = h.row.windows is not None and h.row.windows.chunk

    def layer(i: int) -> LayerSpec:
        found = spec.layers[i]
        a = found.attention
        k, v = h.near if h.windowed[i] else h.full
        limit = h.window if h.windowed[i] else None
        if a is None or a.kv_rank is not None or "shared_kv_rows" in spec.quirks:
            return found
        if not h.kv[i]:
            return found if h.row.zero != "nothing" else replace(found, caches=(), attention=None, shares_with=None)
        rows = Rows(heads=h.kv[i], k_dim=k, v_dim=v, window=None if chunk else limit, chunk=limit if chunk else None)
        caches = tuple(rows if isinstance(c, Rows) and c.format == "kv" else c for c in found.caches)
        return replace(found, caches=caches, attention=replace(a, q_heads=h.q[i], kv_heads=h.kv[i], qk_dim=k, v_dim=v))

    return replace(spec, layers=shapes.stack(h.layers, layer))


def _weighed(spec: ModelSpec, h: Head) -> ModelSpec:
    """The same layers with the weights of the tensor table, each as it is stored. Where parts of a split file are missing, the family's shapes stand in."""
    stored = [t for t in main_types(h.table.elements) if t not in NOT_QUANTIZED]
    spec = replace(spec, quantization=", ".join(stored[:4]) or None)
    read = note("info", "gguf_read", field="general.architecture", architecture=h.arch, source=SOURCE)
    if not h.table.complete:
        counted = doubts.total(spec)
        there = sum(h.table.elements.values())
        open_ = Doubt(code="doubt_gguf_part", field="split.tensors.count", fewer=max(0, counted - there), more=counted)
        return replace(spec, doubts=(*spec.doubts, open_), storage="unknown" if stored else "exact", notes=(read, *spec.notes))
    used = by_layer(h.meta, h.key("expert_used_count"), h.layers + h.drafts, 65_536) or [0] * h.layers

    def layer(i: int) -> LayerSpec:
        found, tensors = spec.layers[i], h.table.layers.get(i, {})
        return replace(found, weights=weights_of(h.table, i, found), mlp=mlp_of(tensors, max(1, used[i])))

    outer = weights_of(h.table, -1)
    for i in range(h.layers, h.layers + h.drafts):
        outer += weights_of(h.table, i)
    return replace(spec, layers=shapes.stack(h.layers, layer), weights=outer, doubts=(), notes=(read, *spec.notes))

"""Indexers beside windows or states: dots3-note, GLM-5.3-Flash (glm5_next) and Qwen4-Exp.

An index key chooses which rows are read. Where the family pools keys, an engine needs one row a pool; transformers 5.24 keeps every
token's (quirks `transformers_index_*`, applied in engines/transformers/; run on small models).
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.cache import Kind, Rows, State, StateTensor
from planner.dtypes import DTYPES
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.deepseek import attention_of, choosing, index_of, indexers, mlps_of
from planner.readers.delta import gated, sparse
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.kda import kda_state, kda_weights
from planner.readers.llama import FULL, WINDOW

INDEXED, LINEAR = "indexed_attention", "linear_attention"


def dots3_note(f: Fields) -> ModelSpec:
    """dots3-note: latent attention everywhere, indexed on layers 0, 1 and every fourth, windowed with a latent of its own on the others
    (`swa_*` keys as published, `per_layer_config` as transformers writes it). A gate a head, a norm over the RoPE key."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = choosing(f, attention_of(f))
    types = shapes.layer_types(f, layers, {FULL: INDEXED, INDEXED: INDEXED, WINDOW: WINDOW})
    if f.raw.get("use_dsa") is False or f.raw.get("use_sliding_window") is False:
        raise UnsupportedValue("foreign_key", field=f.name("use_dsa"), value="false")
    f.ignore("use_dsa", "use_sliding_window", "num_nextn_predict_layers")
    notes: tuple[Note, ...] = ()
    if types is None:
        types = [INDEXED if i < 2 or i % 4 == 1 else WINDOW for i in range(layers)]
        notes = (note("derived", "class_default", field=f.name("layer_types"), value=f"{types.count(INDEXED)} x {INDEXED}",
                      source=cite("transformers 5.24 models/dots3_note")),)  # fmt: skip
    window = f.int_or(512, "sliding_window", "sliding_window_size", high=MAX_TOKENS)
    near = _near(f, a, types)
    key, index = index_of(f, hidden, a)
    experts = f
    if isinstance(f.raw.get("moe_layer_freq"), list):  # which layers have experts, one entry a layer
        marks, first = f.list_of("moe_layer_freq", int, layers) or [], f.int_or(1, "first_k_dense_replace", low=0)
        kinds = ["sparse" if m and i >= first else "dense" for i, m in enumerate(marks)]
        experts = f.variant({**f.raw, "moe_layer_freq": None, "mlp_layer_types": f.raw.get("mlp_layer_types") or kinds})
    mlps, doubts = mlps_of(experts, layers, dense_default=1)
    width = f.int_or(1536, "shared_experts_intermediate_size", "moe_shared_expert_intermediate_size")
    shared = width * f.int_or(1, "n_shared_experts", low=0)
    mlps = [replace(m, shared_width=shared) if m.experts else m for m in mlps]
    bias = f.flag("attention_bias")

    def build(i: int) -> LayerSpec:
        here, windowed = (near, window) if types[i] == WINDOW else (a, None)
        caches: tuple[Kind, ...] = (shapes.rows_of(here, windowed),) + (() if windowed else (key,))
        weights = shapes.mla(hidden, here, bias) + shapes.norms(here.rope_dim, 1) + shapes.column("g_proj", here.q_heads, hidden, "attention", here.q_heads)
        weights += (() if windowed else index) + shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, 2)
        return LayerSpec(caches=caches, attention=here, mlp=mlps[i], weights=weights)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes,
                 doubts=doubts, quirks=frozenset({"transformers_index_fp32"}))  # fmt: skip


def _near(f: Fields, a: Attention, types: list[str]) -> Attention:
    """The latent of the windowed layers: one for all of them, else refused. Class defaults as in transformers 5.24 models/dots3_note."""
    section = f.section("per_layer_config")
    if section is not None:
        windowed = [i for i, t in enumerate(types) if t == WINDOW]
        entries = {int(k): v for k, v in section.raw.items() if isinstance(k, str) and k.isdigit() and len(k) < 6}
        own = entries.get(windowed[0]) if windowed else {}
        if not isinstance(own, dict) or sorted(entries) != windowed or len(entries) != len(section.raw) or any(v != own for v in entries.values()):
            raise UnsupportedValue("foreign_key", field=f.name("per_layer_config"), value=repr(section.raw)[:60])
        part = Fields({**f.raw, **own}, f.name("per_layer_config"), f.parent)
        q = part.need_int("num_attention_heads", high=65_536)
        nope, rope = part.need_int("qk_nope_head_dim"), part.need_int("qk_rope_head_dim", low=0)
        return replace(a, q_heads=q, kv_heads=q, qk_dim=nope + rope, nope_dim=nope, rope_dim=rope, v_dim=part.need_int("v_head_dim"),
                       q_rank=part.optional_int("q_lora_rank", low=0) or None, kv_rank=part.need_int("kv_lora_rank"))  # fmt: skip
    q, dim, nope = f.int_or(64, "swa_num_attention_heads", high=65_536), f.int_or(256, "swa_head_dim"), f.int_or(192, "swa_qk_nope_head_dim")
    rope = f.int_or(max(dim - nope, 0), "swa_qk_rope_head_dim", low=0)
    f.ignore("swa_num_key_value_heads")
    return replace(a, q_heads=q, kv_heads=q, qk_dim=nope + rope, nope_dim=nope, rope_dim=rope, v_dim=f.int_or(128, "swa_v_head_dim"),
                   q_rank=f.int_or(1024, "swa_q_lora_rank"), kv_rank=f.int_or(1024, "swa_kv_lora_rank"))  # fmt: skip


def glm5_next(f: Fields) -> ModelSpec:
    """GLM-5.3-Flash: three KDA layers to one of latent attention without RoPE, whose indexer pools the keys of `index_kpool` tokens;
    several residual streams. An engine keeps one pooled key a pool (vLLM 0.33 models/glm5next/common/attention.py)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = choosing(f, attention_of(f))
    types = shapes.layer_types(f, layers, {FULL: INDEXED, INDEXED: INDEXED, LINEAR: LINEAR})
    notes: tuple[Note, ...] = ()
    if types is None:
        types = [INDEXED if i % 4 == 3 else LINEAR for i in range(layers)]
        notes = (note("derived", "class_default", field=f.name("layer_types"), value=f"{types.count(INDEXED)} x {INDEXED}",
                      source=cite("transformers 5.24 models/glm5_next")),)  # fmt: skip
    linear = f.section("linear_attn_config")
    if linear is not None:
        linear.ignore("kda_layers", "full_attn_layers")
        if types != [INDEXED if i + 1 in set(linear.raw.get("full_attn_layers") or [i + 1 for i, t in enumerate(types) if t == INDEXED]) else LINEAR
                     for i in range(layers)]:  # fmt: skip
            raise UnsupportedValue("foreign_key", field=linear.name("full_attn_layers"), value=repr(linear.raw.get("full_attn_layers"))[:60])
    part = linear or f
    heads, dim = part.int_or(64, "num_heads", "linear_num_heads", high=65_536), part.int_or(128, "head_dim" if linear else "linear_head_dim", high=65_536)
    width = part.int_or(4, "short_conv_kernel_size", "linear_conv_kernel_dim")
    pool = f.int_or(16, "index_kpool")
    key, index = index_of(f, hidden, a)
    key = replace(key, ratio=pool)
    index += (Weight(name="indexer.pool", shape=(pool + hidden, key.k_dim), role="attention"),)
    owners = indexers(f, layers)
    mlps, doubts = mlps_of(f, layers, dense_default=3)
    copies = f.int_or(4, "hc_mult")
    mixes = (2 + copies) * copies
    streams = (Weight(name="hyper_connection", shape=(mixes, copies * hidden + 1), role="norm", copies=2), Weight(name="hc_scale", shape=(6,), role="norm"))
    state, kda = kda_state(heads, dim, width), kda_weights(hidden, heads, dim, width)
    latent = shapes.mla(hidden, a, f.flag("attention_bias"))

    def build(i: int) -> LayerSpec:
        rest = shapes.mlp(hidden, mlps[i]) + shapes.norms(hidden, 2) + streams
        if types[i] == LINEAR:
            return LayerSpec(caches=(state,), mlp=mlps[i], weights=kda + rest)
        caches: tuple[Kind, ...] = (shapes.rows_of(a), key) if owners[i] else (shapes.rows_of(a),)
        return LayerSpec(caches=caches, attention=a, mlp=mlps[i], weights=latent + (index if owners[i] else ()) + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes, doubts=doubts,
                 quirks=frozenset({"transformers_index_gates"}))  # fmt: skip


def qwen4_exp(f: Fields) -> ModelSpec:
    """Qwen4-Exp: gated delta nets, and full layers whose indexer averages the keys of `indexer_compress_ratio` tokens; on the layers of
    `ple_layer_ids` (counted from 1) a dilated convolution over all residual streams and the last n-gram's ids."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    d = f.size("head_dim") or 256
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=d, v_dim=d)
    interval = f.int_or(4, "full_attention_interval")
    types = shapes.layer_types(f, layers, {FULL: INDEXED, INDEXED: INDEXED, LINEAR: LINEAR}) or [
        LINEAR if (i + 1) % interval else INDEXED for i in range(layers)
    ]
    n, dim, ratio = f.need_int("indexer_n_heads"), f.need_int("indexer_head_dim"), f.need_int("indexer_compress_ratio", high=MAX_TOKENS)
    if f.int_or(1, "indexer_kv_heads") != 1:
        raise UnsupportedValue("only_value", field=f.name("indexer_kv_heads"), value=f.raw["indexer_kv_heads"], want=1)
    key = Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", format="index", ratio=ratio)
    heads = f.int_or(16, "linear_num_key_heads"), f.int_or(32, "linear_num_value_heads")
    dims = f.int_or(128, "linear_key_head_dim"), f.int_or(128, "linear_value_head_dim")
    state, linear = gated(f, hidden, heads, dims, f.int_or(4, "linear_conv_kernel_dim"))
    copies, rank, m, bias = f.int_or(4, "hc_count"), f.int_or(320, "hc_lowrank"), sparse(f), f.flag("attention_bias")
    wide = copies * hidden
    mixer = (Weight(name="hyper_connection", shape=(wide, 2 * rank + 1), role="norm"),)
    streams = (Weight(name="hyper_connection", shape=(wide, 2 * rank + copies + 1), role="norm", copies=2),)
    full = (
        *shapes.gqa(hidden, a, bias, bias, q_factor=2),
        *shapes.norms(d, 2, name="head_norm"),
        *shapes.whole("indexer.qk_proj", (n + 1) * dim, hidden, "attention"),
        *shapes.norms(dim, 2, name="indexer.norm"),
    )
    embedded = {i - 1 for i in f.list_of("ple_layer_ids", int) or ()}
    if any(not 0 <= i < layers or types[i] != LINEAR for i in embedded):
        raise UnsupportedValue("cross_layers_unreadable", field=f.name("ple_layer_ids"), value=repr(f.raw["ple_layer_ids"])[:60], layers=layers)
    grams, taps = f.int_or(3, "ngram_size", high=64), f.int_or(4, "ple_conv_kernel_size", high=1024)
    # The columns kept are exactly those that the dilated convolution reaches back to, and the ids are int64: nothing is dropped anywhere.
    more = State(tensors=(*state.tensors, StateTensor(name="ple_conv", role="recurrent", elements=wide * (taps - 1) * grams),
                          StateTensor(name="ngram_ids", role="recurrent", elements=2 * (grams - 1), dtype=DTYPES["int32"])))  # fmt: skip

    ngrams = dict(zip(sorted(embedded), _ngram_weights(f, hidden, wide, grams, taps, len(embedded)), strict=True))

    def build(i: int) -> LayerSpec:
        rest = shapes.mlp(hidden, m, shared_gate=True) + streams + ngrams.get(i, ())
        if types[i] == INDEXED:
            return LayerSpec(caches=(shapes.rows_of(a), key), attention=a, mlp=m, weights=full + rest)
        return LayerSpec(caches=(more if i in embedded else state,), mlp=m, weights=linear + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, final_norm=mixer,
                 quirks=frozenset({"transformers_index_raw", "transformers_index_positions"}))  # fmt: skip


def _ngram_weights(f: Fields, hidden: int, wide: int, grams: int, taps: int, count: int) -> list[tuple[Weight, ...]]:
    """Weights of each per-layer embedding: a table whose heads have the next unused primes above `ngram_vocab_size_base` as their sizes."""
    if not count:
        return []
    heads = (grams - 1) * f.int_or(8, "heads_per_ngram", high=256)
    width, base = f.int_or(hidden, "ple_embed_dim"), f.int_or(20_000_000, "ngram_vocab_size_base", high=100_000_000)
    multiple = f.int_or(128, "make_ngram_vocab_size_divisible_by")
    if not heads or width % heads or heads * count > 1024:
        raise UnsupportedValue("heads_not_dividing", field=f.name("ple_embed_dim"), hidden=width, q_heads=heads)
    primes = _primes_from(base, heads * count)
    out = []
    for k in range(count):
        rows = -(-sum(primes[k * heads : (k + 1) * heads]) // multiple) * multiple
        out.append(
            (
                Weight(name="ple.ngram_embedding", shape=(rows, width // heads), role="embedding", parts=rows),
                *shapes.whole("ple.key_proj", wide, width, "mlp"),
                *shapes.whole("ple.value_proj", hidden, width, "mlp"),
                *shapes.norms(wide, 3, name="ple.norm"),
                Weight(name="ple.conv1d", shape=(wide, 1, taps), role="state"),
            )
        )
    return out


def _primes_from(low: int, count: int) -> list[int]:
    """The first `count` primes that are not below `low`."""
    found: list[int] = []
    n = max(low, 2)
    while len(found) < count:
        if all(n % d for d in range(2, math.isqrt(n) + 1)):
            found.append(n)
        n += 1
    return found

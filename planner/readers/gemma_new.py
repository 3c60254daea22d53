"""Gemma-3n, Gemma-4 and VaultGemma: layers that read the cache of an earlier one, and full layers with heads of their own."""

from __future__ import annotations

from typing import Any

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.block import Block, guard, reader
from planner.readers.build import model
from planner.readers.fields import Fields
from planner.readers.llama import FULL, WINDOW
from planner.readers.windows import TYPES, last_of, pattern, window_of

vaultgemma = reader(Block(kv="need", head_dim_default=256, tied=True, windows=pattern(4096, last_of, 2)))


def lenders(f: Fields, types: list[str], shared: int) -> list[int | None]:
    """For each layer the layer whose cache it reads, None for its own: the last `shared` layers read the last owning layer of their
    type (transformers 5.24 kv_sharing_modes; vLLM models/gemma4.py)."""
    first = len(types) - shared
    last = {t: i for i, t in enumerate(types[: max(first, 0)])}
    if first < 1 or set(types) - set(last):
        raise UnsupportedValue("foreign_key", field=f.name("num_kv_shared_layers"), value=str(shared))
    return [None if i < first else last[t] for i, t in enumerate(types)]


def attention_of(hidden: int, a: Attention, bias: bool, owns: bool, values: bool = True) -> tuple[Weight, ...]:
    """q, o and the query's norm; k, v and the key's norm only where the layer keeps a cache; no v where V is K (`values` False)."""
    gone = set() if owns else {"k_proj", "v_proj"}
    gone |= set() if values else {"v_proj"}
    kept = tuple(w for w in shapes.gqa(hidden, a, bias, bias) if w.name.removesuffix(".bias") not in gone)
    return kept + shapes.norms(a.qk_dim, 2 if owns else 1, name="head_norm")


def per_layer_inputs(f: Fields, hidden: int, layers: int, default: int) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """(weights of a layer, weights of the model) of the per-layer embeddings: weights, never cache."""
    width = f.int_or(default, "hidden_size_per_layer_input", low=0)
    if not width:
        return (), ()
    rows = f.int_or(262_144, "vocab_size_per_layer_input")
    layer = (
        Weight(name="per_layer_input_gate", shape=(width, hidden), role="mlp", quantizable=True),
        Weight(name="per_layer_projection", shape=(hidden, width), role="mlp", quantizable=True),
        *shapes.norms(hidden, 1, name="post_per_layer_input_norm"),
    )
    whole = (
        Weight(name="embed_tokens_per_layer", shape=(rows, layers * width), role="embedding", parts=rows),
        Weight(name="per_layer_model_projection", shape=(layers * width, hidden), role="embedding"),
        *shapes.norms(width, 1, name="per_layer_projection_norm"),
    )
    return layer, whole


def types_of(f: Fields, layers: int, step: int) -> list[str]:
    return shapes.layer_types(f, layers, TYPES) or [WINDOW if (i + 1) % step else FULL for i in range(layers)]


def gemma4(f: Fields, ple_default: int = 256) -> ModelSpec:
    """Gemma-4's text part: full layers have heads of `global_head_dim`, and fewer KV heads where `attention_k_eq_v` is on, which drops
    the value projection but keeps both rows in the cache (transformers 5.24 measured; vLLM 0.33 loads K twice)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = f.need_int("num_attention_heads", high=65_536), f.need_int("num_key_value_heads", high=65_536)
    window, notes = window_of(f, 512)
    if window and f.value("use_bidirectional_attention")[1] == "all":
        window = window // 2 + 1
    types = types_of(f, layers, 6)
    types[-1] = FULL  # the class forces it
    same = f.flag("attention_k_eq_v")
    few = f.optional_int("num_global_key_value_heads", high=65_536)
    dim, wide, said = f.need_int("head_dim"), f.size("global_head_dim"), tuple[Note, ...]()
    own = _overrides(f)
    if wide is None and not own:
        wide, said = 512, (note("derived", "class_default", field=f.name("global_head_dim"), value=512, source=cite("transformers 5.24 gemma4")),)
    lend = lenders(f, types, f.int_or(0, "num_kv_shared_layers", low=0))
    ple, outer = per_layer_inputs(f, hidden, layers, ple_default)
    width, double = f.need_int("intermediate_size"), f.flag("use_double_wide_mlp")
    experts: tuple[int, int, int] | None = None
    if f.flag("enable_moe_block"):
        experts = (
            f.need_int("num_experts", high=65_536),
            f.need_int("top_k_experts", high=65_536),
            f.need_int("moe_intermediate_size", "expert_intermediate_size"),
        )
    bias = f.flag("attention_bias")

    def heads_of(i: int) -> Attention:
        if types[i] != FULL:
            d, h = dim, kv
        elif own:
            d, h = own.get(i, {}).get("head_dim", dim), own.get(i, {}).get("num_key_value_heads", kv)
        else:
            d, h = wide or dim, few if same and few else kv
        if q % h:
            raise UnsupportedValue("kv_heads_not_dividing", field=f.name("num_key_value_heads"), q_heads=q, kv_heads=h)
        return Attention(q_heads=q, kv_heads=h, qk_dim=d, v_dim=d)

    def build(i: int) -> LayerSpec:
        a, owns = heads_of(i), lend[i] is None
        dense = width * (2 if double and not owns else 1)
        m = Mlp(width=dense)
        weights = attention_of(hidden, a, bias, owns, values=not (same and types[i] == FULL)) + shapes.norms(hidden, 4) + ple
        if experts:  # the experts stand beside the dense layer, which every token passes
            m = Mlp(experts=experts[0], top_k=experts[1], expert_width=experts[2], shared_width=dense)
            weights += (Weight(name="router.scales", shape=(hidden + experts[0],), role="router"), *shapes.norms(hidden, 3))
        rows = (shapes.rows_of(a, window if types[i] == WINDOW else None),) if owns else ()
        return LayerSpec(caches=rows, attention=a, mlp=m, weights=weights + shapes.mlp(hidden, m), shares_with=lend[i])

    notes += said + _shared_note(f, lend)
    f.ignore("per_layer_config", "sliding_window_pattern")
    spec = model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, notes=notes, extra=outer)
    guard(f)
    return spec


def gemma4_unified(f: Fields) -> ModelSpec:
    """The unified model's text part has no per-layer embeddings."""
    return gemma4(f, ple_default=0)


def _overrides(f: Fields) -> dict[int, dict[str, int]]:
    """`per_layer_config` as transformers writes it: {"05": {"head_dim": 512}}. Other keys in it are refused."""
    section = f.section("per_layer_config")
    found: dict[int, dict[str, int]] = {}
    for key in section.raw if section else ():
        entry = section.section(key) if section else None
        if not key.isdigit() or len(key) > 6 or entry is None or set(entry.raw) - {"head_dim", "num_key_value_heads"}:
            raise UnsupportedValue("foreign_key", field=f"{f.name('per_layer_config')}.{key[:40]}", value=repr(entry.raw if entry else None)[:60])
        found[int(key)] = {k: entry.need_int(k) for k in entry.raw}
    return found


def _shared_note(f: Fields, lend: list[Any]) -> tuple[Note, ...]:
    shared = sum(x is not None for x in lend)
    return (note("info", "layers_share", field=f.name("num_kv_shared_layers"), layers=shared, own=len(lend) - shared),) if shared else ()


def gemma3n(f: Fields) -> ModelSpec:
    """Gemma-3n's text part: every fifth layer full, the last 15 read earlier caches; AltUp and LAuReL are weights."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 256
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    window, notes = window_of(f, 512)
    types = types_of(f, layers, 5)
    if "num_kv_shared_layers" not in f.raw:
        notes += (note("derived", "class_default", field=f.name("num_kv_shared_layers"), value=15, source=cite("transformers 5.24 gemma3n")),)
    lend = lenders(f, types, f.int_or(15, "num_kv_shared_layers", low=0))
    listed = isinstance(f.raw.get("intermediate_size"), list)
    widths = f.list_of("intermediate_size", int, layers) if listed else None
    each = widths or [f.need_int("intermediate_size")] * layers
    n, rank, bias = f.int_or(4, "altup_num_inputs"), f.int_or(64, "laurel_rank"), f.flag("attention_bias")
    ple, outer = per_layer_inputs(f, hidden, layers, 256)
    side = (
        Weight(name="altup", shape=(n * n + n * n * n + n * hidden + 2 * hidden,), role="mlp"),
        Weight(name="laurel", shape=(2 * rank * hidden,), role="mlp"),
        *shapes.norms(hidden, 5),
        *ple,
    )
    outer += (Weight(name="altup_projections", shape=(hidden, hidden), role="embedding", copies=2 * (n - 1)),)

    def build(i: int) -> LayerSpec:
        m, owns = Mlp(width=each[i]), lend[i] is None
        rows = (shapes.rows_of(a, window if types[i] == WINDOW else None),) if owns else ()
        return LayerSpec(caches=rows, attention=a, mlp=m, weights=attention_of(hidden, a, bias, owns) + shapes.mlp(hidden, m) + side, shares_with=lend[i])

    spec = model(
        f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, extra=outer, notes=notes + _shared_note(f, lend)
    )
    guard(f)
    return spec

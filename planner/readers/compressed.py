"""DeepSeek-V4: a window of one shared K = V row on every layer, compressed rows on most, and an index over the finer ones."""

from __future__ import annotations

from typing import Any

from planner.cache import Kind, Rows
from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import MAX_TOKENS, Fields

WINDOW, FINE, COARSE = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_BY_RATIO = {0: WINDOW, 4: FINE, 128: COARSE}
SOURCE = cite("transformers 5.24 models/deepseek_v4; arXiv: DeepSeek-V4")


def deepseek_v4(f: Fields) -> ModelSpec:
    """Hugging Face keys and those of DeepSeek's own inference files. Ratio 4 chooses rows by an index key every 4 tokens."""
    layers, hidden = f.layers("num_hidden_layers", "n_layers"), f.need_int("hidden_size", "dim")
    q, dim, rank = f.need_int("num_attention_heads", "n_heads", high=65_536), f.need_int("head_dim"), f.need_int("q_lora_rank")
    if (kv := f.int_or(1, "num_key_value_heads")) != 1:
        raise UnsupportedValue("only_value", field=f.name("num_key_value_heads"), value=kv, want=1)
    window = f.need_int("sliding_window", "window_size", high=MAX_TOKENS)
    types, rates, notes = _types(f, layers)
    index_heads, index_dim = f.need_int("index_n_heads"), f.need_int("index_head_dim")
    a = Attention(q_heads=q, kv_heads=1, qk_dim=dim, v_dim=dim, q_rank=rank)
    o_groups, o_rank, copies = f.need_int("o_groups"), f.need_int("o_lora_rank"), f.int_or(4, "hc_mult")
    if (q * dim) % o_groups:
        raise UnsupportedValue("heads_not_dividing", field=f.name("o_groups"), hidden=q * dim, q_heads=o_groups)
    experts = f.need_int("n_routed_experts", high=65_536)
    width = f.need_int("moe_intermediate_size", "moe_inter_dim")
    m = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", "n_activated_experts", high=65_536), expert_width=width,
            shared_width=width)  # fmt: skip
    attention = (
        *shapes.whole("q_a_proj", rank, hidden, "attention"),
        *shapes.norms(rank, 1, name="q_a_norm"),
        *shapes.column("q_b_proj", q * dim, rank, "attention", q),
        *shapes.whole("kv_proj", dim, hidden, "attention"),
        *shapes.norms(dim, 1, name="kv_norm"),
        *shapes.column("o_a_proj", o_groups * o_rank, q * dim // o_groups, "attention", o_groups),
        *shapes.row("o_b_proj", hidden, o_groups * o_rank, "attention", o_groups),
        Weight(name="sinks", shape=(q,), role="attention", parts=q),
    )
    index = (
        *_compressor(hidden, index_dim, rates[FINE], 2, "indexer"),
        *shapes.whole("indexer.q_b_proj", index_heads * index_dim, rank, "attention"),
        *shapes.whole("indexer.weights_proj", index_heads, hidden, "attention"),
    )
    extra = {WINDOW: (), FINE: _compressor(hidden, dim, rates[FINE], 2) + index, COARSE: _compressor(hidden, dim, rates[COARSE], 1)}
    mixes = (2 + copies) * copies
    connection = (Weight(name="hyper_connection", shape=(mixes, copies * hidden + 1), role="norm", copies=2), Weight(name="hc_scale", shape=(6,), role="norm"))
    f.ignore("attention_bias")  # transformers' class has the key and no such bias
    rest = shapes.mlp(hidden, m, f.flag("mlp_bias")) + shapes.norms(hidden, 2) + connection

    def build(i: int) -> LayerSpec:
        row = Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", window=window)
        caches: tuple[Kind, ...] = (row,)
        if types[i] != WINDOW:
            caches += (Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", ratio=rates[types[i]]),)
        if types[i] == FINE:
            caches += (Rows(heads=1, k_dim=index_dim, v_dim=0, shard="copy", format="index", ratio=rates[FINE]),)
        return LayerSpec(caches=caches, attention=a, mlp=m, weights=attention + extra[types[i]] + rest)

    head = (Weight(name="hyper_head", shape=(copies, copies * hidden + 1), role="norm"), Weight(name="hyper_head_scale", shape=(1,), role="norm"))
    f.ignore("qk_rope_head_dim")  # rotated in place: the row is `head_dim` wide in all
    f.ignore("num_nextn_predict_layers", "num_hash_layers", "n_hash_layers")  # MTP layers cache only while speculation is on
    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, extra=head, notes=notes,
                 quirks=frozenset({"shared_kv_rows"}))  # fmt: skip


def _compressor(hidden: int, dim: int, ratio: int, wide: int, name: str = "compressor") -> tuple[Weight, ...]:
    return (
        *shapes.whole(f"{name}.kv_proj", wide * dim, hidden, "attention"),
        *shapes.whole(f"{name}.gate_proj", wide * dim, hidden, "attention"),
        Weight(name=f"{name}.position_bias", shape=(ratio, wide * dim), role="attention"),
        *shapes.norms(dim, 1, name=f"{name}.kv_norm"),
    )


def _types(f: Fields, layers: int) -> tuple[list[str], dict[str, int], tuple[Note, ...]]:
    """Each layer's type and the tokens per row of the two compressed ones. `layer_types` wins, then `compress_ratios`, which is longer
    than the stack where MTP layers follow."""
    rates = {FINE: 4, COARSE: 128}
    section = f.section("compress_rates")
    for name, key in ((FINE, "compress_rate_csa"), (COARSE, "compress_rate_hca")):
        rates[name] = f.int_or((section.int_or(rates[name], name, high=MAX_TOKENS) if section else rates[name]), key, high=MAX_TOKENS)
        if rates[name] < 2:
            raise UnsupportedValue("out_of_range", field=f.name(key), value=str(rates[name]), low=2, high=MAX_TOKENS)
    types = shapes.layer_types(f, layers, {t: t for t in (WINDOW, FINE, COARSE)})
    ratios: list[Any] | None = f.list_of("compress_ratios", int)
    if types is None and ratios is not None:
        if len(ratios) < layers:
            raise UnsupportedValue("list_length", field=f.name("compress_ratios"), got=len(ratios), want=layers)
        for r in ratios[:layers]:
            if r not in _BY_RATIO:
                raise UnsupportedValue("unknown_layer_type", field=f.name("compress_ratios"), value=str(r), known="0, 4, 128")
        return [_BY_RATIO[r] for r in ratios[:layers]], rates, ()
    if types is None:
        types = [COARSE if i < 2 or i % 2 == 0 else FINE for i in range(layers)]
        said = note("derived", "class_default", field=f.name("layer_types"), value=f"{types.count(FINE)} x 1/{rates[FINE]}, {types.count(COARSE)} x "
                    f"1/{rates[COARSE]}", source=SOURCE)  # fmt: skip
        return types, rates, (said,)
    return types, rates, ()

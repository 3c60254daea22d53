"""Encoder-decoders whose decoder shares KV heads or windows its rows: T5Gemma, Moonshine, and speech models on a Parakeet encoder.

Each decoder layer keeps its own rows and, once a request, the encoder's keys and values (transformers 5.24, caches measured).
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.encoder_decoder import cross_of, encoder_notes, times
from planner.readers.fields import Fields
from planner.readers.foreign import refuse_foreign
from planner.readers.generic import left_out, unread_shape_keys
from planner.readers.windows import Rule, Windows, last_of, pattern


def heads(f: Fields, hidden: int, prefix: str = "", fixed_dim: int | None = None) -> Attention:
    """Heads under `prefix`. A class that fixes the head size where the file leaves it out (`fixed_dim`) fixes the KV heads too: those must
    be there. Else KV heads are as many as query heads, and the head size is hidden / heads."""
    q, kv = shapes.heads(f, (f"{prefix}num_attention_heads",), (f"{prefix}num_key_value_heads",))
    if fixed_dim:
        f.need_int(f"{prefix}num_key_value_heads", high=65_536)
    dim = f.size("head_dim") or fixed_dim or shapes.head_dim(f, hidden, q)
    return Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)


def source(f: Fields, width: int, a: Attention, source_width: int, bias: bool = False, o_bias: bool = False) -> tuple[Weight, ...]:
    """q and o on the decoder's width, k and v on the encoder's."""
    return (
        *shapes.column("q_proj", a.q_heads * a.qk_dim, width, "attention", a.q_heads, bias),
        *shapes.column("k_proj", a.kv_heads * a.qk_dim, source_width, "attention", a.kv_heads, bias),
        *shapes.column("v_proj", a.kv_heads * a.v_dim, source_width, "attention", a.kv_heads, bias),
        *shapes.row("o_proj", width, a.q_heads * a.v_dim, "attention", a.q_heads, o_bias),
    )


# -- T5Gemma -----------------------------------------------------------------------------------------------------------


def _section(f: Fields, key: str) -> Fields:
    found = f.section(key)
    if found is None:
        raise UnsupportedValue("no_text_section", field=f.name(key), model_type=str(f.raw.get("model_type"))[:60])
    return found


def told(spec: ModelSpec, f: Fields, notes: tuple[Note, ...] = ()) -> ModelSpec:
    """What is said of the decoder's own section: keys that it leaves out, and keys that nobody read."""
    refuse_foreign(f, spec)
    return replace(spec, notes=(*spec.notes, *notes, *left_out(f), *unread_shape_keys(f)))


def _block(f: Fields, windows: Rule) -> tuple[int, int, Attention, Mlp, Windows, bool]:
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    return layers, hidden, heads(f, hidden, "", 256), Mlp(width=f.need_int("intermediate_size")), windows(f, layers), f.flag("attention_bias")


def t5gemma(f: Fields) -> ModelSpec:
    """Gemma-2's blocks on either side; every other decoder layer windowed, the encoder's keys and values whole."""
    rule = pattern(4096, last_of, 2)
    e, d = _section(f, "encoder"), _section(f, "decoder")
    depth, wide, outer, first, _, e_bias = _block(e, rule)
    layers, hidden, a, m, (windows, notes), bias = _block(d, rule)
    block = shapes.gqa(hidden, a, bias, bias) + source(d, hidden, a, wide, bias, bias) + shapes.mlp(hidden, m) + shapes.norms(hidden, 6)
    extra = times(shapes.gqa(wide, outer, e_bias, e_bias) + shapes.mlp(wide, first) + shapes.norms(wide, 4), depth) + times(shapes.norms(wide, 1), 1)
    vocab = d.need_int("vocab_size")
    extra += (Weight(name="encoder.embed_tokens", shape=(e.int_or(vocab, "vocab_size"), wide), role="embedding", parts=vocab),)

    def build(i: int) -> LayerSpec:
        return LayerSpec(caches=(shapes.rows_of(a, windows[i]), cross_of(a)), attention=a, mlp=m, weights=block)

    spec = model(d, shapes.stack(layers, build), hidden=hidden, vocab=vocab, tied_default=True, extra=extra, notes=encoder_notes(f))
    return told(spec, d, notes)


def t5gemma2(f: Fields) -> ModelSpec:
    """Gemma-3's blocks; a decoder layer reads its own rows and the encoder's through one attention, yet keeps both."""
    rule = pattern(4096, last_of, 6, ("sliding_window_pattern",))
    e, d = _section(_section(f, "encoder"), "text_config"), _section(f, "decoder")
    depth, wide, outer, first, _, e_bias = _block(e, rule)
    layers, hidden, a, m, (windows, notes), bias = _block(d, rule)
    block = shapes.gqa(hidden, a, bias, bias) + shapes.norms(a.qk_dim, 2, name="head_norm") + shapes.mlp(hidden, m) + shapes.norms(hidden, 4)
    side = shapes.gqa(wide, outer, e_bias, e_bias) + shapes.norms(outer.qk_dim, 2, name="head_norm") + shapes.mlp(wide, first) + shapes.norms(wide, 4)
    extra = times(side, depth) + times(shapes.norms(wide, 1), 1) + (Weight(name="end_of_image", shape=(1, hidden), role="position"),)

    def build(i: int) -> LayerSpec:
        return LayerSpec(caches=(shapes.rows_of(a, windows[i]), cross_of(a)), attention=a, mlp=m, weights=block)

    spec = model(d, shapes.stack(layers, build), hidden=hidden, vocab=d.need_int("vocab_size"), tied_default=True, extra=extra, notes=encoder_notes(f))
    if f.raw.get("tie_word_embeddings") is False:  # the encoder has tables of its own as well
        own = Weight(name="encoder.embed_tokens", shape=(spec.vocab_size, wide), role="embedding", parts=spec.vocab_size)
        spec = replace(spec, weights=(*spec.weights, own, Weight(name="encoder.end_of_image", shape=(1, wide), role="position")))
    return told(spec, d, notes)


# -- speech ------------------------------------------------------------------------------------------------------------


def moonshine(f: Fields) -> ModelSpec:
    """Moonshine: keys of either stack by prefix; the decoder's feed-forward part has a gate, the encoder's has none. Three convolutions
    on raw sound."""
    hidden, width, bias = f.need_int("hidden_size"), f.need_int("intermediate_size"), f.flag("attention_bias")
    a, e = heads(f, hidden, "decoder_"), heads(f, hidden, "encoder_")
    m, plain = Mlp(width=width), Mlp(width=width, gated=False)
    attention = shapes.gqa(hidden, a, bias)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m,
                      weights=attention * 2 + shapes.mlp(hidden, m, True) + shapes.norms(hidden, 3))  # fmt: skip
    extra = times(shapes.gqa(hidden, e, bias) + shapes.mlp(hidden, plain, True) + shapes.norms(hidden, 2), f.layers("encoder_num_hidden_layers"))
    extra += times(shapes.norms(hidden, 3), 1)  # of the stack, and the group norm's pair
    extra += (
        Weight(name="encoder.conv1", shape=(hidden, 127), role="mlp"),
        Weight(name="encoder.conv2", shape=(2 * hidden, hidden * 7 + 1), role="mlp"),
        Weight(name="encoder.conv3", shape=(hidden, 2 * hidden * 3 + 1), role="mlp"),
    )
    return model(f, (layer,) * f.layers("decoder_num_hidden_layers"), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, extra=extra,
                 notes=encoder_notes(f))  # fmt: skip


def _speech_decoder(f: Fields, encoder: Fields, *, positions: bool, tied: bool, projection: bool, fixed_dim: int | None = None) -> ModelSpec:
    """A decoder with biases and LayerNorms over a Parakeet encoder: one class in two dialects."""
    hidden, bias = f.need_int("hidden_size"), f.flag("attention_bias", True)
    a, m = heads(f, hidden, "", fixed_dim), Mlp(width=f.need_int("intermediate_size"), gated=False)
    wide, vocab = encoder.need_int("hidden_size"), f.need_int("vocab_size")
    own = shapes.gqa(hidden, a, bias, bias)
    cross = source(f, hidden, a, hidden, bias, bias)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m,
                      weights=own + cross + shapes.mlp(hidden, m, True) + shapes.norms(hidden, 3, True))  # fmt: skip
    extra = parakeet(encoder) + shapes.norms(hidden, 1, True, name="embed_norm")
    extra += (Weight(name="lm_head.bias", shape=(vocab,), role="lm_head", parts=vocab),)
    extra += shapes.whole("proj", hidden, wide, "mlp", bias=True) if projection else ()
    return model(f, (layer,) * f.layers("num_hidden_layers"), hidden=hidden, vocab=vocab, tied_default=tied, extra=extra,
                 final_norm=shapes.norms(hidden, 1, True), notes=encoder_notes(f),
                 positions=f.need_int("max_position_embeddings") if positions else 0)  # fmt: skip


def cohere_asr(f: Fields) -> ModelSpec:
    """Cohere's speech recognition: the encoder's output is projected to the decoder's width first; learned positions."""
    return _speech_decoder(f, _section(f, "encoder_config"), positions=True, tied=False, projection=True)


def canary(f: Fields) -> ModelSpec:
    """NVIDIA Canary: the decoder in a section of its own; positions are computed."""
    d = _section(f, "decoder_config")
    return told(_speech_decoder(d, _section(f, "encoder_config"), positions=False, tied=True, projection=False, fixed_dim=128), d)


def parakeet(f: Fields) -> tuple[Weight, ...]:
    """Weights of a Parakeet (FastConformer) encoder: two half feed-forwards, attention with relative positions, a convolution a layer."""
    hidden, width, q = f.need_int("hidden_size"), f.need_int("intermediate_size"), f.need_int("num_attention_heads", high=65_536)
    bias, conv_bias = f.flag("attention_bias", True), f.flag("convolution_bias", True)
    dim = shapes.head_dim(f, hidden, q)
    a, kernel = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim), f.int_or(9, "conv_kernel_size", high=1024)
    more = int(conv_bias)
    layer = (
        *shapes.mlp(hidden, Mlp(width=width, gated=False), bias) * 2,
        *shapes.gqa(hidden, a, bias, bias),
        *shapes.whole("relative_k_proj", q * dim, hidden, "attention"),
        Weight(name="bias_u_v", shape=(2, q * dim), role="attention"),
        Weight(name="pointwise_conv1", shape=(2 * hidden, hidden + more), role="mlp"),
        Weight(name="depthwise_conv", shape=(hidden, kernel + more), role="mlp"),
        Weight(name="pointwise_conv2", shape=(hidden, hidden + more), role="mlp"),
        *shapes.norms(hidden, 6, True),
    )
    channels, k = f.int_or(256, "subsampling_conv_channels"), f.int_or(3, "subsampling_conv_kernel_size", high=1024)
    stages = f.int_or(8, "subsampling_factor", high=1024).bit_length() - 1
    left = f.int_or(80, "num_mel_bins") // f.int_or(2, "subsampling_conv_stride", high=64) ** stages
    front = (
        Weight(name="subsampling.conv", shape=(channels, k * k + 1), role="mlp"),
        Weight(name="subsampling.stages", shape=(channels, k * k + 1 + channels + 1), role="mlp", copies=max(stages - 1, 0)),
        *shapes.whole("subsampling.linear", hidden, channels * max(left, 1), "mlp", bias=True),
    )
    return times(layer, f.layers("num_hidden_layers")) + tuple(replace(w, name=f"encoder.{w.name}") for w in front)


def dia(f: Fields) -> ModelSpec:
    """Dia: text in, sound out; nine channels of codes share one decoder. Its cross attention has heads of its own on the encoder's width."""
    e, d = _section(f, "encoder_config"), _section(f, "decoder_config")
    hidden, wide = d.need_int("hidden_size"), e.need_int("hidden_size")
    a = heads(d, hidden, "", 128)
    d.need_int("cross_num_key_value_heads")
    q, kv = shapes.heads(d, ("cross_num_attention_heads",), ("cross_num_key_value_heads",))
    dim = d.int_or(128, "cross_head_dim")
    c = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    m = Mlp(width=d.need_int("intermediate_size"))
    block = shapes.gqa(hidden, a) + source(d, hidden, c, d.int_or(wide, "cross_hidden_size")) + shapes.mlp(hidden, m) + shapes.norms(hidden, 3)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(c)), attention=a, mlp=m, weights=block)
    e.need_int("num_key_value_heads")
    outer = heads(e, wide)  # weights only
    extra = times(shapes.gqa(wide, outer) + shapes.mlp(wide, Mlp(width=e.need_int("intermediate_size"))) + shapes.norms(wide, 2), e.layers("num_hidden_layers"))
    extra += times(shapes.norms(wide, 1), 1) + (Weight(name="encoder.embed_tokens", shape=(e.need_int("vocab_size"), wide), role="embedding"),)
    channels, vocab = d.int_or(9, "num_channels", high=4096), d.need_int("vocab_size")
    spec = model(d, (layer,) * d.layers("num_hidden_layers"), hidden=hidden, vocab=channels * vocab, tied_default=False, extra=extra, notes=encoder_notes(f))
    return told(spec, d)

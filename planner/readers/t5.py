"""T5 and its kin, ProphetNet, MusicGen: encoder-decoders with shapes of their own."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import tie
from planner.readers.encoder_decoder import Dialect, attention, cross_of, encoder_notes, refuse_encoders, times, untied
from planner.readers.fields import Fields


def _t5(f: Fields, *, feed_forward: str, bias_on_every_layer: bool = False, encoder: tuple[str, ...] = ()) -> ModelSpec:
    """The inner width is num_heads x d_kv, which need not be d_model (T5-11B: 16,384 against 1,024). A decoder as deep as the encoder
    where the file gives it no depth of its own. An untied head is a checkpoint's own (v1.1, mT5): transformers 5.24 builds it tied."""
    refuse_encoders(f)
    depth, width = f.layers("num_layers"), f.need_int("d_model")
    layers = f.layers("num_decoder_layers") if f.has("num_decoder_layers") else depth
    q, dim = f.need_int("num_heads", high=65_536), f.need_int("d_kv")
    a = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim)
    gated = (f.text("feed_forward_proj") or feed_forward).startswith("gated")
    m = Mlp(width=f.need_int("d_ff"), gated=f.flag("is_gated_act", gated))
    buckets = f.int_or(32, "relative_attention_num_buckets")
    table = Weight(name="relative_attention_bias", shape=(buckets, q), role="position")
    once: tuple[Weight, ...] = () if bias_on_every_layer else (table,)
    each: tuple[Weight, ...] = (table,) if bias_on_every_layer else ()
    block = shapes.gqa(width, a) + shapes.mlp(width, m) + each
    weights = block + shapes.gqa(width, a) + shapes.norms(width, 3)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m, weights=weights)
    first = block + shapes.norms(width, 3 if "norm" in encoder else 2)
    extra = times(first, depth) + (times((table,), 1) if "table" in encoder else ()) + times(once + shapes.norms(width, 1), 1) + once
    vocab = f.need_int("vocab_size")
    doubts = () if f.flag("tie_word_embeddings", True) else tie(False, vocab, width)
    spec = model(f, (layer,) * layers, hidden=width, vocab=vocab, tied_default=True, extra=extra, notes=encoder_notes(f), doubts=doubts)
    return replace(spec, encoder_layers=depth)


def t5(f: Fields) -> ModelSpec:
    return _t5(f, feed_forward="relu")


def mt5(f: Fields) -> ModelSpec:
    return _t5(f, feed_forward="gated-gelu")


def umt5(f: Fields) -> ModelSpec:
    """Every layer has position biases of its own."""
    return _t5(f, feed_forward="gated-gelu", bias_on_every_layer=True)


def longt5(f: Fields) -> ModelSpec:
    """The encoder attends locally, or to summaries with a norm and position biases of their own; the decoder is T5's."""
    summaries = f.text("encoder_attention_type") == "transient-global"
    return _t5(f, feed_forward="relu", encoder=("norm", "table") if summaries else ())


def prophetnet(f: Fields) -> ModelSpec:
    """Each layer keeps the main stream's rows only: the predicting streams are made anew at every step (measured)."""
    refuse_encoders(f)
    layers, width = f.layers("num_decoder_layers"), f.need_int("hidden_size")
    q, e = f.need_int("num_decoder_attention_heads", high=65_536), f.need_int("num_encoder_attention_heads", high=65_536)
    for key, n in (("num_decoder_attention_heads", q), ("num_encoder_attention_heads", e)):
        if width % n:
            raise UnsupportedValue("heads_not_dividing", field=f.name(key), hidden=width, q_heads=n)
    a = Attention(q_heads=q, kv_heads=q, qk_dim=width // q, v_dim=width // q)
    b = Attention(q_heads=e, kv_heads=e, qk_dim=width // e, v_dim=width // e)
    m, d = Mlp(width=f.need_int("decoder_ffn_dim"), gated=False), Dialect()
    limit = f.need_int("max_position_embeddings")
    weights = (
        *attention(width, a, d),
        *attention(width, a, d),
        *shapes.whole("relative_pos_embeddings", f.need_int("num_buckets") * q, width, "attention", bias=True),
        *shapes.mlp(width, m, bias=True),
        *shapes.norms(width, 3, bias=True),
    )
    e_mlp = Mlp(width=f.need_int("encoder_ffn_dim"), gated=False)
    extra = times(attention(width, b, d) + shapes.mlp(width, e_mlp, bias=True) + shapes.norms(width, 2, bias=True), f.layers("num_encoder_layers"))
    extra += untied(f, width)
    extra += (
        *times(shapes.norms(width, 1, bias=True), 1),
        Weight(name="encoder.embed_positions", shape=(limit, width), role="position"),
        Weight(name="ngram_embeddings", shape=(f.need_int("ngram"), width), role="position"),
    )
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m, weights=weights)
    vocab = f.need_int("vocab_size")
    return model(f, (layer,) * layers, hidden=width, vocab=vocab, tied_default=True, positions=limit,
                 final_norm=shapes.norms(width, 1, bias=True), extra=extra, notes=encoder_notes(f))  # fmt: skip


def musicgen_decoder(f: Fields) -> ModelSpec:
    """One embedding (with a row more) and one head a codebook; sinusoidal positions, no biases in attention. The text encoder's keys and values are kept."""
    layers, width, q = f.layers("num_hidden_layers"), f.need_int("hidden_size"), f.need_int("num_attention_heads", high=65_536)
    if width % q:
        raise UnsupportedValue("heads_not_dividing", field=f.name("num_attention_heads"), hidden=width, q_heads=q)
    a = Attention(q_heads=q, kv_heads=q, qk_dim=width // q, v_dim=width // q)
    m, books, vocab = Mlp(width=f.need_int("ffn_dim"), gated=False), f.need_int("num_codebooks"), f.need_int("vocab_size")
    weights = shapes.gqa(width, a) + shapes.gqa(width, a) + shapes.mlp(width, m) + shapes.norms(width, 3, bias=True)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m, weights=weights)
    extra: tuple[Weight, ...] = (Weight(name="start_rows", shape=(books, width), role="embedding"),)
    if books > 1:
        extra += (
            Weight(name="codebooks", shape=(vocab, width), role="embedding", parts=vocab, copies=books - 1),
            Weight(name="codebook_heads", shape=(vocab, width), role="lm_head", parts=vocab, copies=books - 1),
        )
    return model(f, (layer,) * layers, hidden=width, vocab=vocab, tied_default=False, final_norm=shapes.norms(width, 1, bias=True),
                 extra=extra, notes=encoder_notes(f))  # fmt: skip

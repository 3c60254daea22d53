"""More encoder-decoders: LED and Pegasus-X with long encoders, sparse ones (NLLB-MoE, Switch), FSMT, Pix2Struct; and decoders that read
images or sound as plain rows or not at all between steps: Kosmos, MusicGen-Melody, Chameleon, IDEFICS.

(transformers 5.24, caches measured; parameter counts equal the models it builds)
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import Block, reader
from planner.readers.block import read as block_read
from planner.readers.build import model
from planner.readers.encoder_decoder import Dialect, cross_of, encoder_notes, read, times, untied
from planner.readers.fields import Fields
from planner.readers.t5 import musicgen_decoder, t5

# -- BART's line -----------------------------------------------------------------------------------------------------------------------


def led(f: Fields) -> ModelSpec:
    """Longformer's encoder, with projections of their own for global tokens, before BART's decoder."""
    width, layers = f.need_int("d_model"), f.layers("num_hidden_layers", "encoder_layers")
    extra = times(shapes.whole("query_key_value_global", 3 * width, width, "attention", bias=True), layers)
    limits = f.need_int("max_encoder_position_embeddings"), f.need_int("max_decoder_position_embeddings")
    return read(f, Dialect(embedding_norm=True), extra=extra, positions=limits)


def pegasus_x(f: Fields) -> ModelSpec:
    """Local and global attention in the encoder; no biases in attention; positions are computed."""
    width, layers = f.need_int("d_model"), f.layers("num_hidden_layers", "encoder_layers")
    extra = times(shapes.norms(width, 1, True), layers) + (
        Weight(name="encoder.embed_global", shape=(f.int_or(32, "num_global_tokens"), width), role="position"),
    )
    return read(f, Dialect(offset=None, final_norm=True, bias=False), extra=extra)


def fsmt(f: Fields) -> ModelSpec:
    """FSMT: two vocabularies, a head of its own, sines stored as a table."""
    width, source, target = f.need_int("d_model"), f.need_int("src_vocab_size"), f.need_int("tgt_vocab_size")
    f.ignore("vocab_size")
    raw = {**f.raw, "vocab_size": target, "tie_word_embeddings": f.raw.get("tie_word_embeddings", False)}
    extra = (Weight(name="encoder.embed_tokens", shape=(source, width), role="embedding", parts=source),)
    pad = f.int_or(1, "pad_token_id", low=0, high=max(source, target))  # positions are counted from the one after it
    spec = read(f.variant(raw), Dialect(offset=pad + 1), extra=extra)
    own = {"own_embed_tokens", *(("encoder.embed_tokens",) if spec.tied_embeddings else ())}  # then one table for both languages
    return replace(spec, weights=tuple(w for w in spec.weights if w.name not in own))


def nllb_moe(f: Fields) -> ModelSpec:
    """M2M-100 with experts on every `decoder_sparse_step`-th layer of either stack."""
    spec = read(f, Dialect(offset=None, final_norm=True))
    width, n = spec.hidden_size, f.need_int("num_experts", high=65_536)
    routing = f.flag("router_bias")
    steps = {side: f.int_or(4, f"{side}_sparse_step", low=0, high=4096) for side in ("encoder", "decoder")}

    def experts(ffn: int) -> tuple[Weight, ...]:
        return shapes.mlp(width, Mlp(experts=n, top_k=2, expert_width=ffn, gated=False), router_bias=routing, expert_bias=True)

    def changed(i: int) -> LayerSpec:
        layer = spec.layers[i]
        if not steps["decoder"] or (i + 1) % steps["decoder"]:
            return layer
        ffn = f.need_int("decoder_ffn_dim")
        kept = tuple(w for w in layer.weights if not w.name.startswith("mlp."))
        return replace(layer, mlp=Mlp(experts=n, top_k=2, expert_width=ffn, gated=False), weights=kept + experts(ffn))

    ffn, depth = f.need_int("encoder_ffn_dim"), f.layers("num_hidden_layers", "encoder_layers")
    many = depth // steps["encoder"] if steps["encoder"] else 0
    dense = shapes.mlp(width, Mlp(width=ffn, gated=False), bias=True)
    gone = {f"encoder.{w.name}": many * w.copies for w in dense}
    outer = tuple(replace(w, copies=w.copies - gone.get(w.name, 0)) for w in spec.weights) + times(experts(ffn), many)
    return replace(spec, layers=shapes.stack(len(spec.layers), changed), weights=tuple(w for w in outer if w.copies))


# -- T5's line -------------------------------------------------------------------------------------------------------------------------


def switch_transformers(f: Fields) -> ModelSpec:
    """T5 with experts: `num_sparse_*_layers` of them, evenly spread; a layer with experts is one feed-forward part among many."""
    spec = t5(f.variant({**f.raw, "feed_forward_proj": "relu", "is_gated_act": False}))
    width, ffn, n = spec.hidden_size, f.need_int("d_ff"), f.need_int("num_experts", high=65_536)
    sparse = Mlp(experts=n, top_k=1, expert_width=ffn, gated=False)
    own = shapes.mlp(width, sparse, router_bias=f.flag("router_bias"))

    def step(key: str, layers: int) -> int:
        many = f.int_or(3, key, low=0, high=layers)
        return layers // many if many else layers + 1

    depth = f.layers("num_layers")
    every, inside = step("num_sparse_decoder_layers", len(spec.layers)), step("num_sparse_encoder_layers", depth)

    def is_sparse(i: int, every: int) -> bool:
        return i % every == 1 or every == 1

    def changed(i: int) -> LayerSpec:
        layer = spec.layers[i]
        if not is_sparse(i, every):
            return layer
        return replace(layer, mlp=sparse, weights=tuple(w for w in layer.weights if not w.name.startswith("mlp.")) + own)

    many = sum(is_sparse(i, inside) for i in range(depth))
    gone = {f"encoder.{w.name}": many * w.copies for w in shapes.mlp(width, Mlp(width=ffn, gated=False))}
    outer = tuple(replace(w, copies=w.copies - gone.get(w.name, 0)) for w in spec.weights) + times(own, many) + untied(f, width)
    doubts = tuple(d for d in spec.doubts if d.code != "doubt_tie")  # unlike T5's own class, this one builds what the file says
    return replace(spec, layers=shapes.stack(len(spec.layers), changed), weights=tuple(w for w in outer if w.copies), doubts=doubts)


def pop2piano(f: Fields) -> ModelSpec:
    """T5 over a spectrogram, with an embedding of composers and a head of its own."""
    spec = t5(f.variant({**f.raw, "feed_forward_proj": f.raw.get("feed_forward_proj", "gated-gelu"), "tie_word_embeddings": True}))
    width, vocab = spec.hidden_size, spec.vocab_size
    f.ignore("tie_word_embeddings")
    extra = (Weight(name="mel_conditioner", shape=(f.int_or(21, "composer_vocab_size"), width), role="position"),
             Weight(name="lm_head", shape=(vocab, width), role="lm_head", parts=vocab))  # fmt: skip
    return replace(spec, weights=spec.weights + extra, tied_embeddings=False)


def pix2struct(f: Fields) -> ModelSpec:
    """T5's decoder with a gate over an image encoder, whose keys and values arrive with the request. Square projections."""
    layers, width, q = f.layers("num_layers"), f.need_int("hidden_size"), f.need_int("num_heads", high=65_536)
    dim = f.need_int("d_kv")
    if q * dim != width:
        raise UnsupportedValue("heads_not_dividing", field=f.name("num_heads"), hidden=width, q_heads=q)
    a, m = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim), Mlp(width=f.need_int("d_ff"))
    table = Weight(name="relative_attention_bias", shape=(f.int_or(32, "relative_attention_num_buckets"), q), role="position")
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a)), attention=a, mlp=m,
                      weights=shapes.gqa(width, a) * 2 + shapes.mlp(width, m) + shapes.norms(width, 3))  # fmt: skip
    return model(f, (layer,) * layers, hidden=width, vocab=f.need_int("vocab_size"), tied_default=False, extra=(table,), notes=encoder_notes(f))


# -- decoders that read everything as rows ---------------------------------------------------------------------------------------------


def _ffn_norm(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return shapes.norms(m.width, 1, True, name="ffn_norm")


_KOSMOS = Block(layers=("layers",), hidden=("embed_dim",), q_heads=("attention_heads",), kv="mha", width=("ffn_dim",), qkv_bias=True, o_bias=True,
                mlp_bias=True, gated=False, norm_bias=True, norms=3, tied=True, extra=_ffn_norm)  # fmt: skip
kosmos2 = reader(_KOSMOS)


def _segments(f: Fields, hidden: int, vocab: int) -> tuple[Weight, ...]:
    return (Weight(name="segment_embedding", shape=(2, hidden), role="position"),)


kosmos2_5 = reader(replace(_KOSMOS, norms=2, outer=_segments))


def musicgen_melody_decoder(f: Fields) -> ModelSpec:
    """MusicGen's decoder without cross attention: text and melody stand before the codes as rows."""
    spec = musicgen_decoder(f)
    first, width = spec.layers[0], spec.hidden_size
    assert first.attention is not None
    assert first.mlp is not None
    weights = shapes.gqa(width, first.attention) + shapes.mlp(width, first.mlp) + shapes.norms(width, 2, bias=True)
    layer = replace(first, caches=first.caches[:1], weights=weights)
    return replace(spec, layers=(layer,) * len(spec.layers), notes=tuple(n for n in spec.notes if n.code != "cross_by_request"))


def _head_layer_norms(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return shapes.norms((a.q_heads + a.kv_heads) * a.qk_dim, 1, True, name="head_norm")


_CHAMELEON = Block(mlp_bias=("mlp_bias", False), extra=_head_layer_norms)


def chameleon(f: Fields) -> ModelSpec:
    """Images are tokens of the one vocabulary; the network of convolutions that makes them is part of the class, and is bounded."""
    spec = block_read(f, _CHAMELEON)
    vq = f.section("vq_config") or Fields({}, "vq_config", f)
    steps = vq.list_of("channel_multiplier", int) or [1, 1, 2, 2, 4]
    wide = vq.int_or(128, "base_channels") * max(1, *steps)
    blocks = (len(steps) + 1) * (vq.int_or(2, "num_res_blocks", high=64) + 2)
    more = blocks * 18 * wide**2 + vq.int_or(8192, "num_embeddings") * vq.int_or(256, "embed_dim")
    return replace(spec, doubts=(*spec.doubts, Doubt(code="doubt_beside", field=f.name("vq_config"), more=more)))


def idefics(f: Fields) -> ModelSpec:
    """The first IDEFICS: Llama's block with layers between that read the image anew at every step, so that nothing of it is kept
    (transformers 5.24 models/idefics). Those layers and what sees are bounded."""
    rows = f.int_or(0, "additional_vocab_size", low=0)
    f.ignore("num_key_value_heads")
    spec = block_read(f, Block(kv="mha", qkv_bias=False, o_bias=False))
    width, ffn = spec.hidden_size, f.need_int("intermediate_size")
    between = len(spec.layers) // f.int_or(1, "cross_layer_interval") + 1
    more = between * (4 * width**2 + 3 * width * ffn + 6 * width) + 64 * width**2
    eyes = f.section("vision_config") or Fields({}, "vision_config", f)
    wide, inner = eyes.int_or(1280, "embed_dim"), eyes.int_or(5120, "intermediate_size")
    more += eyes.int_or(32, "num_hidden_layers", high=4096) * (4 * wide**2 + 3 * wide * inner) + 64 * (wide**2 + wide * width)
    tables = (Weight(name="additional_embedding", shape=(rows, width), role="embedding", copies=2),) if rows else ()
    return replace(spec, weights=spec.weights + tables, doubts=(*spec.doubts, Doubt(code="doubt_beside", field=f.name("cross_layer_interval"), more=more)))

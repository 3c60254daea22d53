"""Encoder-decoders of the BART line and Whisper: each decoder layer keeps its own rows and, once a request, the encoder's keys and values.

The decoder's keys (`decoder_layers`, `decoder_attention_heads`) count, never `num_hidden_layers`, which names the encoder. (transformers
5.24, caches measured; parameter counts equal the models it builds)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Cross
from planner.errors import UnsupportedModel, UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import Note, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import elements
from planner.readers.fields import Fields


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What differs within the line. `offset`: rows of learned positions beyond the limit; None: positions are computed, not stored."""

    offset: int | None = 0
    embedding_norm: bool = False
    final_norm: bool = False
    bias: bool = True
    key_bias: bool = True
    shared: bool = True  # encoder and decoder embed the same tokens


def cross_of(a: Attention, source_tokens: int | None = None) -> Cross:
    return Cross(heads=a.kv_heads, k_dim=a.qk_dim, v_dim=a.v_dim, source_tokens=source_tokens)


def attention(width: int, a: Attention, d: Dialect, source_width: int | None = None) -> tuple[Weight, ...]:
    """q, k, v, o with the dialect's biases; k and v read the encoder's width where that is another."""
    source = source_width or width
    return (
        *shapes.column("q_proj", a.q_heads * a.qk_dim, width, "attention", a.q_heads, d.bias),
        *shapes.column("k_proj", a.kv_heads * a.qk_dim, source, "attention", a.kv_heads, d.bias and d.key_bias),
        *shapes.column("v_proj", a.kv_heads * a.v_dim, source, "attention", a.kv_heads, d.bias),
        *shapes.row("o_proj", width, a.q_heads * a.v_dim, "attention", a.q_heads, d.bias),
    )


def untied(f: Fields, width: int) -> tuple[Weight, ...]:
    """Where nothing is tied, encoder and decoder have embeddings of their own beside the shared one (transformers 5.24, built)."""
    if f.flag("tie_word_embeddings", True):
        return ()
    vocab = f.need_int("vocab_size")
    return (Weight(name="own_embed_tokens", shape=(vocab, width), role="embedding", parts=vocab, copies=2),)


def times(weights: tuple[Weight, ...], layers: int) -> tuple[Weight, ...]:
    """The weights of `layers` equal encoder layers: they keep no cache, so they are no layers of the model here."""
    return tuple(replace(w, name=f"encoder.{w.name}", copies=w.copies * layers) for w in weights)


def architecture_of(f: Fields) -> str:
    architectures = f.raw.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else ""


def refuse_encoders(f: Fields) -> None:
    """An encoder alone keeps no cache."""
    name = architecture_of(f)
    if name.endswith(("EncoderModel", "Encoder", "ForAudioClassification", "ForTokenClassification")):
        raise UnsupportedModel("encoder_alone", field="architectures", architecture=name)


def encoder_notes(f: Fields, fixed: int | None = None) -> tuple[Note, ...]:
    if fixed is not None:
        return (note("derived", "cross_fixed", field=f.name("max_source_positions"), tokens=fixed),)
    return (note("info", "cross_by_request", field="encoder_tokens"),)


def encoder_left_out(encoder: tuple[Weight, ...]) -> tuple[Doubt, ...]:
    """A class for one task of an encoder-decoder: it may have no encoder, and a small head instead of the output matrix."""
    return (Doubt(code="doubt_task_head", field="architectures", fewer=elements(encoder), more=elements(encoder) // 10),)


def _heads(f: Fields, key: str, width: int) -> Attention:
    q = f.need_int(key, high=65_536)
    if width % q:
        raise UnsupportedValue("heads_not_dividing", field=f.name(key), hidden=width, q_heads=q)
    return Attention(q_heads=q, kv_heads=q, qk_dim=width // q, v_dim=width // q)


def read(f: Fields, d: Dialect, *, fixed: int | None = None, extra: tuple[Weight, ...] = (), positions: tuple[int, int] | None = None,
         encoder: bool = True, source_width: int | None = None) -> ModelSpec:  # fmt: skip
    """`positions`: rows of (encoder, decoder) where they are not `max_position_embeddings`. `encoder` False: a decoder that reads the
    output of an encoder described elsewhere."""
    refuse_encoders(f)
    encoder = encoder and f.path != "decoder"  # the decoder section of a composite model: its encoder is another family's
    layers, width = f.layers("decoder_layers", "num_decoder_layers"), f.need_int("d_model", "hidden_size")
    a = _heads(f, "decoder_attention_heads" if f.has("decoder_attention_heads") else "num_decoder_attention_heads", width)
    m = Mlp(width=f.need_int("decoder_ffn_dim"), gated=False)
    limit = f.need_int("max_position_embeddings") if positions is None else positions[1]
    rows = (limit, limit) if positions is None else positions
    weights = attention(width, a, d) + attention(width, a, d, source_width) + shapes.mlp(width, m, bias=True) + shapes.norms(width, 3, bias=True)
    ends = int(d.embedding_norm) + int(d.final_norm)
    outer = shapes.norms(width, ends, bias=True) if ends else ()
    if encoder:
        e = _heads(f, "encoder_attention_heads" if f.has("encoder_attention_heads") else "num_encoder_attention_heads", width)
        extra += untied(f, width) if d.shared else ()
        # `num_hidden_layers` is another name of the encoder's depth, and where a file has both transformers takes that one.
        e_layers, e_mlp = f.layers("num_hidden_layers", "encoder_layers", "num_encoder_layers"), Mlp(width=f.need_int("encoder_ffn_dim"), gated=False)
        extra += times(attention(width, e, d) + shapes.mlp(width, e_mlp, bias=True) + shapes.norms(width, 2, bias=True), e_layers)
        extra += times(shapes.norms(width, ends, bias=True), 1) if ends else ()
        if d.offset is not None:
            extra += (Weight(name="encoder.embed_positions", shape=(rows[0] + d.offset, width), role="position"),)
    layer = LayerSpec(caches=(shapes.rows_of(a), cross_of(a, fixed)), attention=a, mlp=m, weights=weights)
    whole = encoder and not architecture_of(f).endswith(("ForCausalLM", "ForSequenceClassification", "ForQuestionAnswering"))
    spec = model(f, (layer,) * layers, hidden=width, vocab=f.need_int("vocab_size"), tied_default=True, final_norm=outer, extra=extra,
                 positions=0 if d.offset is None else rows[1] + d.offset, notes=encoder_notes(f, fixed),
                 doubts=() if whole or not encoder else encoder_left_out(extra))  # fmt: skip
    return replace(spec, max_context_tokens=limit)


def bart(f: Fields) -> ModelSpec:
    """Also PLBart and Florence-2's language part: positions with two rows of offset, a norm behind the embedding."""
    return read(f, Dialect(offset=2, embedding_norm=True))


def mvp(f: Fields) -> ModelSpec:
    """BART's block; with `use_prompt` two small networks make prompts for the decoder's attentions (transformers gives the encoder none)."""
    if not f.flag("use_prompt"):
        return bart(f)
    width, length, middle = f.need_int("d_model"), f.int_or(100, "prompt_length"), f.int_or(800, "prompt_mid_dim")
    size = length * width + (width + 1) * middle + (middle + 1) * 2 * f.layers("decoder_layers") * width
    return read(f, Dialect(offset=2, embedding_norm=True), extra=(Weight(name="prompt", shape=(size,), role="mlp", copies=2),))


def mbart(f: Fields) -> ModelSpec:
    """Norms before each block: one more at the end of either stack."""
    return read(f, Dialect(offset=2, embedding_norm=True, final_norm=True))


def blenderbot(f: Fields) -> ModelSpec:
    return read(f, Dialect(final_norm=True))


def blenderbot_small(f: Fields) -> ModelSpec:
    return read(f, Dialect(embedding_norm=True))


def bigbird_pegasus(f: Fields) -> ModelSpec:
    """The encoder's attention is block-sparse; the decoder's cache is BART's."""
    return read(f, Dialect(embedding_norm=True, bias=f.flag("use_bias")))


def pegasus(f: Fields) -> ModelSpec:
    """Sinusoidal positions, which transformers stores as a table."""
    return read(f, Dialect(final_norm=True))


def marian(f: Fields) -> ModelSpec:
    """Two embeddings where the file does not share them."""
    extra: tuple[Weight, ...] = ()
    if not f.flag("share_encoder_decoder_embeddings", True):
        width, vocab = f.need_int("d_model"), f.int_or(f.need_int("vocab_size"), "decoder_vocab_size")
        extra = (Weight(name="decoder.embed_tokens", shape=(vocab, width), role="embedding", parts=vocab),)
    return read(f, Dialect(), extra=extra)


def m2m_100(f: Fields) -> ModelSpec:
    """Also NLLB: sinusoidal positions that are computed, not stored."""
    return read(f, Dialect(offset=None, final_norm=True))


def speech_to_text(f: Fields) -> ModelSpec:
    """The encoder's length follows the recording, which convolutions shorten: each puts out twice what its gate lets through."""
    limit, width = f.need_int("max_target_positions"), f.need_int("d_model")
    sizes, middle = f.list_of("conv_kernel_sizes", int) or [5, 5], f.int_or(1024, "conv_channels")
    ins = [f.int_or(80, "input_feat_per_channel") * f.int_or(1, "input_channels"), *[middle // 2] * (len(sizes) - 1)]
    outs = [*[middle] * (len(sizes) - 1), 2 * width]
    convolutions = tuple(Weight(name=f"encoder.conv{i}", shape=(o, n * k + 1), role="mlp") for i, (n, o, k) in enumerate(zip(ins, outs, sizes, strict=True)))
    return read(f, Dialect(offset=None, final_norm=True, shared=False), positions=(limit, limit), extra=convolutions)


def whisper(f: Fields) -> ModelSpec:
    """30 seconds of sound are padded to `max_source_positions` (1,500) frames for every request. Keys have no bias."""
    frames, width, bins = f.need_int("max_source_positions"), f.need_int("d_model"), f.need_int("num_mel_bins")
    convolutions = (
        Weight(name="encoder.conv1", shape=(width, bins * 3 + 1), role="mlp"),
        Weight(name="encoder.conv2", shape=(width, width * 3 + 1), role="mlp"),
    )
    dialect = Dialect(final_norm=True, key_bias=False, shared=False)
    return read(f, dialect, fixed=frames, extra=convolutions, positions=(frames, f.need_int("max_target_positions")))


def trocr(f: Fields) -> ModelSpec:
    """The decoder alone: the keys and values of the image arrive with the request. Two rows of offset in learned positions."""
    learned = f.flag("use_learned_position_embeddings", True)
    d = Dialect(offset=2 if learned else None, embedding_norm=f.flag("layernorm_embedding", True))
    return read(f, d, encoder=False, source_width=f.optional_int("cross_attention_hidden_size"))

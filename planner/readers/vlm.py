"""Vision, audio and omni models whose language part is not simply another family's section: flat files, and image keys in layers of
their own. Image and sound tokens take ordinary rows; the encoders in front keep no cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.cache import Cross
from planner.errors import UnsupportedValue
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import note
from planner.readers import llama, shapes
from planner.readers.build import model
from planner.readers.encoder_decoder import architecture_of, times
from planner.readers.fields import MAX_TOKENS, Fields

Reader = Callable[[Fields], ModelSpec]


def _minicpm(f: Fields) -> ModelSpec:
    return llama.read(f, llama.Dialect(tied=True))


_LLAVA: dict[str, Reader] = {
    f"Llava{body}ForCausalLM": reader
    for body, reader in (("Llama", llama.llama), ("Mistral", llama.mistral), ("Mixtral", llama.mixtral), ("Phi3", llama.phi3), ("Qwen", llama.qwen2))
}
_MINICPM_V: dict[str, Reader] = {"2.0": _minicpm, "2.5": llama.llama, "2.6": llama.qwen2, "4.0": llama.llama, "4.5": llama.qwen3}
_MINICPM_O: dict[str, Reader] = {"2.6": llama.qwen2, "4.5": llama.qwen3}


def _by(table: dict[str, Reader], f: Fields, key: str, value: str) -> ModelSpec:
    """The body that the value of a key names; a value that is not in the table is refused."""
    reader = table.get(value)
    if reader is None:
        raise UnsupportedValue("only_value", field=f.name(key), value=value[:60], want=", ".join(table))
    return reader(f)


def llava(f: Fields) -> ModelSpec:
    """The original flat dialect (`mm_*` keys): the body is named by the architecture, as in LlavaLlamaForCausalLM."""
    return _by(_LLAVA, f, "architectures", architecture_of(f))


def _version(f: Fields, unsaid: str) -> str:
    """`version` as published: 2.6, 4.0 or 4 by number, or as a text."""
    _, value = f.value("version")
    return unsaid if value is None else str(float(value)) if isinstance(value, int) and abs(value) < 100 else str(value)


def minicpmv(f: Fields) -> ModelSpec:
    """Flat; `version` names the body, and the two files without one are told by their width (vLLM 0.33 models/minicpmv.py)."""
    unsaid = "2.0" if (f.raw.get("hidden_size"), f.raw.get("query_num")) == (2304, 64) else "2.5"
    return _by(_MINICPM_V, f, "version", _version(f, unsaid))


def minicpmo(f: Fields) -> ModelSpec:
    """MiniCPM-o 2.6 speaks through a Qwen2 body, 4.5 through Qwen3's."""
    return _by(_MINICPM_O, f, "version", _version(f, ""))


def phi4mm(f: Fields) -> ModelSpec:
    """A Phi-3 body; what hears and sees stands beside it, and the adapters that the remote code's checkpoints bring (`vision_lora`,
    `speech_lora`) are not counted."""
    spec = llama.phi3(f)
    matrices = [w for layer in spec.layers for w in layer.weights if w.quantizable]
    ranks = [s.int_or(0, "r", low=0, high=65_536) for key in ("vision_lora", "speech_lora") if (s := f.section(key)) is not None]
    more = sum(ranks) * sum(sum(w.shape) for w in matrices) + encoder_bound(f, "vision_config", 1152, 27, 4304) + 4 * spec.hidden_size**2
    more += encoder_bound(f, "audio_config", 1024, 24, 1536) + 4 * spec.hidden_size**2
    return replace(spec, doubts=(*spec.doubts, Doubt(code="doubt_beside", field=f.name("vision_config"), more=more)))


def encoder_bound(f: Fields, key: str, hidden: int, layers: int, width: int) -> int:
    """No encoder of images or sound in use holds more a layer than four squares of its width and eight matrices of its feed-forward part
    (a conformer has two gated ones). The class's sizes stand in for what the file leaves out."""
    s = f.section(key) or Fields({}, key, f)
    h, m = s.int_or(hidden, "hidden_size"), s.int_or(width, "intermediate_size")
    return s.int_or(layers, "num_hidden_layers", "num_blocks", high=4096) * (4 * h * h + 8 * h * m) + 2 * h * h


def git(f: Fields) -> ModelSpec:
    """A BERT-like decoder over image and text tokens alike, with CLIP's image encoder as part of the class: all of it is counted."""
    if architecture_of(f).startswith("Grok"):  # Grok-2's published file says model_type "git"
        from planner.readers.remote_new import grok

        return grok(f)
    hidden, q = f.need_int("hidden_size"), f.need_int("num_attention_heads", high=65_536)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim)
    m = Mlp(width=f.need_int("intermediate_size"), gated=False)
    weights = shapes.gqa(hidden, a, True, True) + shapes.mlp(hidden, m, True) + shapes.norms(hidden, 2, bias=True)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    vocab = f.need_int("vocab_size")
    extra = (*shapes.norms(hidden, 1, True, name="embed_norm"), Weight(name="lm_head.bias", shape=(vocab,), role="lm_head", parts=vocab))
    return model(f, (layer,) * f.layers("num_hidden_layers"), hidden=hidden, vocab=vocab, tied_default=False, final_norm=(),
                 positions=f.need_int("max_position_embeddings"), extra=extra + _clip(f, hidden))  # fmt: skip


def _clip(f: Fields, hidden: int) -> tuple[Weight, ...]:
    """The image encoder and the projection behind it (transformers 5.24 models/git), with the class's sizes where the file has none."""
    s = f.section("vision_config") or Fields({}, f.name("vision_config"), f)
    wide, layers, inner = s.int_or(768, "hidden_size"), s.int_or(12, "num_hidden_layers", high=4096), s.int_or(3072, "intermediate_size")
    patch, colours = s.int_or(16, "patch_size"), s.int_or(3, "num_channels")
    a = Attention(q_heads=1, kv_heads=1, qk_dim=wide, v_dim=wide)
    each = shapes.gqa(wide, a, True, True) + shapes.mlp(wide, Mlp(width=inner, gated=False), True) + shapes.norms(wide, 2, bias=True)
    frames = f.optional_int("num_image_with_embedding", low=0, high=65_536) or 0
    return (
        *times(each, layers),
        Weight(name="vision.embeddings", shape=((s.int_or(224, "image_size") // patch) ** 2 + 2, wide), role="position"),
        Weight(name="vision.patches", shape=(wide, colours * patch * patch), role="mlp"),
        *shapes.norms(wide, 2, bias=True, name="vision.norm"),
        Weight(name="vision.frames", shape=(frames, wide), role="position"),
        *shapes.whole("vision.projection", hidden, wide, "mlp", bias=True),
        *shapes.norms(hidden, 1, bias=True, name="vision.projection_norm"),
    )


def mllama(f: Fields) -> ModelSpec:
    """`cross_attention_layers` keep keys and values of the image and nothing of the text; the other layers are Llama's.

    (transformers 5.24 models/mllama; the embedding has eight rows more than the head)
    """
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    m = Mlp(width=f.need_int("intermediate_size"))
    crossing = f.list_of("cross_attention_layers", int)
    if crossing is None or len(set(crossing)) != len(crossing) or not all(0 <= i < layers for i in crossing):
        raise UnsupportedValue("cross_layers_unreadable", field=f.name("cross_attention_layers"), value=repr(crossing)[:60], layers=layers)
    rest = shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    plain = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=shapes.gqa(hidden, a) + rest)
    gates = (Weight(name="gates", shape=(1,), role="norm", copies=2),)
    image = LayerSpec(caches=(Cross(heads=kv, k_dim=dim, v_dim=dim),), attention=a, mlp=m,
                      weights=shapes.gqa(hidden, a) + shapes.norms(dim, 2, name="head_norm") + gates + rest)  # fmt: skip
    extra = (Weight(name="image_token_rows", shape=(8, hidden), role="embedding"),)
    stack = tuple(image if i in set(crossing) else plain for i in range(layers))
    return model(f, stack, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, extra=extra,
                 notes=(note("info", "cross_by_request", field="encoder_tokens"),))  # fmt: skip


def moshi(f: Fields) -> ModelSpec:
    """Every layer windowed; `ffn_dim` is gate and up together; one row more in the embedding. The depth decoder's small cache, which lasts
    one step, is not counted."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    both = f.need_int("ffn_dim", low=2)
    if both % 2:
        raise UnsupportedValue("out_of_range", field=f.name("ffn_dim"), value=both, low=2, high=both - 1)
    m = Mlp(width=both // 2)
    window = f.need_int("sliding_window", high=MAX_TOKENS)
    weights = shapes.gqa(hidden, a) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a, window),), attention=a, mlp=m, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False,
                 extra=(Weight(name="start_row", shape=(1, hidden), role="embedding"),))  # fmt: skip


def falcon_perception(f: Fields) -> ModelSpec:
    """Early fusion: image patches are ordinary tokens. Keys of its own; the heads for coordinates and masks are not counted."""
    layers, hidden = f.layers("n_layers"), f.need_int("dim")
    q, kv = shapes.heads(f, ("n_heads",), ("n_kv_heads",))
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    m = Mlp(width=f.need_int("ffn_dim"))
    weights = shapes.gqa(hidden, a) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    sizes = [(f.int_or(0, f"{p}_enc_dim", low=0), f.int_or(0, f"{p}_dec_dim", low=0), f.int_or(0, f"{p}_out_dim", low=0)) for p in ("coord", "size")]
    more = sum((e + d) * (hidden + d + out) for e, d, out in sizes) + f.int_or(0, "num_segm_layers", low=0, high=1024) * 8 * hidden**2
    more += f.int_or(3, "channel_size") * f.int_or(16, "spatial_patch_size") ** 2 * hidden
    doubts = (Doubt(code="doubt_beside", field=f.name("coord_dec_dim"), more=more),)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=False, doubts=doubts)


def aria(f: Fields) -> ModelSpec:
    """Llama's attention, experts under keys of their own, shared experts as one wide layer."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    width = f.need_int("moe_intermediate_size", "intermediate_size")
    m = Mlp(experts=f.need_int("moe_num_experts", high=65_536), top_k=f.need_int("moe_topk", high=65_536), expert_width=width,
            shared_width=width * f.need_int("moe_num_shared_experts", high=1024))  # fmt: skip
    bias = f.flag("attention_bias")
    weights = shapes.gqa(hidden, a, bias, bias) + shapes.mlp(hidden, m, f.flag("mlp_bias")) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


def glm4v(f: Fields) -> ModelSpec:
    """Llama's block with biases on q, k, v and two norms more, behind attention and feed-forward."""
    spec = llama.read(f, llama.Dialect(qkv_bias=True, o_bias=False))
    more = shapes.norms(spec.hidden_size, 2, name="post_norm")
    return replace(spec, layers=shapes.stack(len(spec.layers), lambda i: replace(spec.layers[i], weights=spec.layers[i].weights + more)))

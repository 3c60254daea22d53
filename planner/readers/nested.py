"""Where the decoder of a composite model stands in the file: which section, and which family reads it. Vision, audio and omni models.

The sections are tried before the top: a `num_hidden_layers` beside them may belong to nothing. (transformers 5.24 get_text_config;
vLLM 0.33 transformers_utils/config.py)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from planner.cache import Cross, Rows
from planner.errors import UnsupportedModel, UnsupportedValue
from planner.model import Doubt, LayerSpec, ModelSpec
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.doubts import tie
from planner.readers.fields import Fields

# Sections that hold a language part, in the order of trial. `decoder` counts only for the types of DECODER_OF: elsewhere it may be
# the decoder of a codec or of images.
TEXT_SECTIONS = ("thinker_config", "text_config", "llm_config", "language_config", "language_model", "text_model")
DECODER_OF = frozenset({"encoder-decoder", "musicgen", "musicgen_melody", "speech-encoder-decoder", "vision-encoder-decoder"})

# A whole model's type, or the type of its text section -> the family whose reader knows its block. Used where the section leaves its own
# model_type out, where the file is flat, and where the text type is a family's block under another name.
TEXT_PART_OF: dict[str, str] = {
    "aria": "aria_text", "aria_moe_lm": "aria_text",
    "audioflamingo3": "qwen2",
    "aya_vision": "cohere2", "cohere2_vision": "cohere2",
    "blip-2": "opt", "instructblip": "opt", "instructblipvideo": "opt",
    "btlm": "jais", "bailing_moe_v2": "bailing_moe", "grok1": "grok-1",
    "cohere_compass": "cohere_compass_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "deepseek_ocr2": "deepseek", "deepseek_ocr2_text": "deepseek",
    "deepseek_vl": "llama", "deepseek_vl_hybrid": "llama", "deepseek_vl_v2": "deepseek_v2", "multi_modality": "llama", "janus": "llama",
    "dots3_note": "dots3_note_text", "dots_ocr": "qwen2",
    "emu3_text_model": "llama",
    "exaone4_5": "exaone4", "exaone4_5_text": "exaone4",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text", "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
    "florence2": "bart", "florence2_language": "bart",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text",
    "glm5_next": "glm5_next_text", "glm_ocr": "glm_ocr_text",
    "glm4v": "glm4v_text", "glm4v_moe": "glm4_moe", "glm4v_moe_text": "glm4_moe",
    "got_ocr2": "qwen2", "ovis2": "qwen2", "llava_onevision": "qwen2",
    "granite_speech": "granite", "granite4_vision_text": "granite", "granite_docling": "granite", "granite_docling_text": "granite",
    "hunyuan_vl": "hunyuan_v1_dense", "hunyuan_vl_text": "hunyuan_v1_dense", "hy_v4_vl": "hy_v4", "hy_v4_vl_text": "hy_v4",
    "idefics2": "mistral", "idefics3": "llama", "smolvlm": "llama",
    "internvl": "qwen2",
    "Keye": "qwen3", "KeyeVL1_5": "qwen3",
    "kosmos-2": "kosmos_2_text_model", "kosmos-2.5": "kosmos_2_5_text_model",
    "kimi_vl": "deepseek_v3", "kimi_k25": "deepseek_v3", "kimi_k3": "kimi_linear",
    "lfm2_vl": "lfm2",
    "llama4": "llama4_text",
    "llava_llama": "llava", "llava_mistral": "llava", "llava_mixtral": "llava", "llava_qwen": "llava", "llava_phi3": "llava",
    "llava": "llama", "llava_next": "llama", "llava_next_video": "llama", "video_llava": "llama", "vipllava": "llama",
    "minimax_m3_vl": "minimax_m3",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "molmo2": "molmo2_text",
    "muse_glimmer": "muse_glimmer_text", "muse_spark": "muse_spark_text",
    "paddleocr_vl": "ernie4_5", "paddleocr_vl_text": "ernie4_5",
    "paligemma": "gemma",
    "pix2struct": "pix2struct_text_model",
    "perception_lm": "llama", "voxtral": "llama",
    "phi3_v": "phi3",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni": "qwen2", "qwen2_5_omni_thinker": "qwen2", "qwen2_5_omni_text": "qwen2",
    "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3", "qwen3_vl_moe": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen4_exp": "qwen4_exp_text", "step3_vl": "step3_text", "voxtral_realtime": "voxtral_realtime_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_omni_moe": "qwen3_moe", "qwen3_omni_moe_thinker": "qwen3_moe", "qwen3_omni_moe_text": "qwen3_moe",
}  # fmt: skip

# Class defaults of the text part, for composite families whose published files leave keys out that equal them, the layer count
# included: the class of the whole model really builds its text part from these (transformers 5.24, measured on llava-1.5-7b-hf and
# Qwen2-Audio). Each one used is a note.
_LLAMA = {"vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
          "max_position_embeddings": 2048}  # fmt: skip
_QWEN2 = {"vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 32, "max_position_embeddings": 32_768}  # fmt: skip
_MISTRAL = {"vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096}  # fmt: skip
CLASS_DEFAULTS: dict[str, Mapping[str, int]] = {"llama": _LLAMA, "mistral": _MISTRAL, "qwen2": _QWEN2}
LEAVES_OUT = frozenset({
    "idefics2", "idefics3", "llava", "llava_next", "llava_next_video", "multi_modality", "qwen2_audio", "video_llava", "vipllava",
})  # fmt: skip
# Classes of whole models that lay their own sizes under what the text part says (transformers 5.24, each class's __post_init__).
WHOLE_DEFAULTS: dict[str, Mapping[str, int]] = {
    "glmasr": {"vocab_size": 59_264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
               "num_key_value_heads": 4, "max_position_embeddings": 8192},
    "voxtral": {"vocab_size": 131_072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30, "num_attention_heads": 32,
                "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072},
    "voxtral_realtime": {"vocab_size": 131_072, "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26,
                         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192,
                         "max_position_embeddings": 131_072},
}  # fmt: skip

# Where the whole model says nothing, its class's own default decides whether the head is the embedding, whatever the text part says
# (transformers 5.24, each built with either value in the text part). Types that are not here follow their text part.
_TIED_WHOLE = frozenset({
    "aya_vision", "cohere2_vision", "deepseek_vl", "deepseek_vl_hybrid", "ernie4_5_vl_moe", "florence2", "gemma3", "gemma3n", "gemma4", "glmasr",
    "got_ocr2", "granite_docling", "granite_speech", "hunyuan_vl", "internvl", "janus", "kimi_k25", "kosmos-2", "kosmos-2.5", "lfm2_vl",
    "lighton_ocr", "mistral3", "multi_modality", "ovis2", "paddleocr_vl", "paligemma", "qwen3_asr", "t5gemma", "t5gemma2",
})  # fmt: skip
_UNTIED_WHOLE = frozenset({
    "aria", "audioflamingo3", "cosmos3_edge", "fuyu", "glm5_next", "hy_v4_vl", "idefics2", "idefics3", "llava_next", "mllama", "molmo2",
    "muse_glimmer", "muse_spark", "pix2struct", "qwen2_5_omni", "qwen2_5_omni_thinker", "qwen2_audio", "qwen3_omni_moe_thinker", "qwen3_vl",
    "qwen3_vl_moe", "smolvlm", "video_llava", "vipllava", "voxtral",
})  # fmt: skip
# Classes without a tied pair: a file that asks for one gets two matrices all the same.
_NEVER_TIED = frozenset({
    "bailing_hybrid", "glm5_next_text", "kimi_linear", "mistral_large4_text", "molmo2", "molmo2_text", "moshi", "muse_glimmer_text", "musicgen_decoder",
    "musicgen_melody_decoder", "nemotron_h", "rwkv5", "rwkv6", "step3p5", "xlstm",
})  # fmt: skip
# Text parts in files of their own, whose class is the whole model's: it ties them whatever their own file says.
_ALWAYS_TIED = frozenset({"ernie4_5_vl_moe_text", "voxtral_realtime_text"})
# The text part is a model of its own in the whole one, and either of the two ties.
_EITHER_TIES = frozenset({"kosmos-2", "kosmos-2.5"})


def tie_is_open(top: Fields, part: Fields, model_type: str | None, spec: ModelSpec) -> tuple[Doubt, ...]:
    """The checkpoint may differ from what the class builds where the file says less, or something else, than the class needs."""
    said = top.raw.get("tie_word_embeddings") is not None
    whole = {**dict.fromkeys(_TIED_WHOLE, True), **dict.fromkeys(_UNTIED_WHOLE, False)}.get(model_type or "")
    if spec.tied_embeddings and model_type in _NEVER_TIED:
        whole, said = False, False
    tops = top.raw.get("tie_word_embeddings"), part.raw.get("tie_word_embeddings")
    if model_type in _ALWAYS_TIED or (model_type in _EITHER_TIES and tops != (False, False)):
        whole, said = True, False
    if said or whole is None or spec.tied_embeddings == whole:
        return ()
    return tie(spec.tied_embeddings, spec.vocab_size, spec.hidden_size)


def language_part(top: Fields, model_type: str | None, known: Collection[str]) -> tuple[Fields, str | None, tuple[Note, ...]]:
    """The section that describes the decoder (the file itself where it is flat), the family that reads it, and notes on defaults."""
    if model_type in known and model_type not in TEXT_PART_OF and not _holds_its_text(top):
        return top, model_type, ()
    part = _descend(top, model_type)
    if part is not top:
        family = _family(part, known)
        if family is None:
            inner = part.text("model_type") or ""
            raise UnsupportedModel("nested_unknown", field=part.name("model_type"), model_type=model_type or "", part=inner)
        own = WHOLE_DEFAULTS.get(model_type or "") or (CLASS_DEFAULTS.get(family) if model_type in LEAVES_OUT else None)
        if own is not None:
            return _with_defaults(part, family, own)
        if model_type in DECODER_OF:  # said by what holds it; `with_cross` adds what it means
            part = part.variant({k: v for k, v in part.raw.items() if k != "add_cross_attention"})
        return part, family, ()
    if model_type in DECODER_OF:
        raise UnsupportedValue("no_text_section", field="decoder", model_type=model_type)
    if model_type in TEXT_PART_OF and model_type not in known:
        if all(top.raw.get(key) is None for key in ("num_hidden_layers", "n_layer")):
            raise UnsupportedValue("no_text_section", field="text_config", model_type=model_type)
        return top, TEXT_PART_OF[model_type], ()
    return top, model_type, ()


def with_cross(spec: ModelSpec, part: Fields, model_type: str | None) -> ModelSpec:
    """A decoder of a family that also stands alone (BERT's, GPT-2) reads an encoder here: each layer keeps its keys and values as well."""
    if model_type not in DECODER_OF or any(isinstance(kind, Cross) for kind, _ in spec.cache_groups()):
        return spec

    def crossed(layer: LayerSpec) -> LayerSpec:
        own = layer.caches[0] if len(layer.caches) == 1 else None
        if not isinstance(own, Rows) or own.kind != "full":
            raise UnsupportedValue("not_a_plain_decoder", field=part.name("model_type"), value=str(part.raw.get("model_type"))[:60])
        return replace(layer, caches=(own, Cross(heads=own.heads, k_dim=own.k_dim, v_dim=own.v_dim)))

    notes = (*spec.notes, note("info", "cross_by_request", field="encoder_tokens"))
    layers = shapes.stack(len(spec.layers), lambda i: crossed(spec.layers[i]))
    # Queries, keys, values and output as wide as the layer, or as an encoder twice as wide, with biases and a norm: not counted.
    more = len(layers) * (6 * spec.hidden_size**2 + 8 * spec.hidden_size)
    return replace(spec, layers=layers, doubts=(*spec.doubts, Doubt(code="doubt_cross", field=part.path, more=more)), notes=notes)


def _holds_its_text(f: Fields) -> bool:
    """A type whose published files are flat, as a library writes them again: everything in `text_config`, no layers beside it."""
    return isinstance(f.raw.get("text_config"), dict) and all(f.raw.get(key) is None for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))


def _descend(f: Fields, model_type: str | None) -> Fields:
    """The innermost language section below `f`; `f` itself where it has none."""
    for key in TEXT_SECTIONS:
        section = f.section(key) if key.endswith("_config") or isinstance(f.raw.get(key), dict) else None
        if section is not None:
            return _descend(section, section.text("model_type"))
    if model_type in DECODER_OF:
        return f.section("decoder") or f
    return f


def _family(part: Fields, known: Collection[str]) -> str | None:
    """The family of a section: by its own type, else by the type of what holds it, innermost first."""
    inner, holder = part.text("model_type"), part.parent
    while inner is None and holder is not None:
        inner, holder = holder.text("model_type"), holder.parent
    family = family_of(inner, known) or family_of_class(part.raw.get("architectures"), known)
    if family == "deepseek_v2" and part.raw.get("use_mla") is False:  # DeepSeek-VL2-tiny, DeepSeek-OCR: V2's experts under plain attention
        family = "deepseek"
    return family


# How a text part's own type ends: the family is the whole model's without it.
_TEXT_ENDING = re.compile(r"_(text|language)(_model)?$")
_CLASS_ENDING = re.compile(r"(Text)?(ForCausalLM|ForConditionalGeneration|LMHeadModel)$")


def family_of(model_type: str | None, known: Collection[str]) -> str | None:
    """The family that reads a type; that of `x` for an unknown `x_text`, since the text part of a model is its block."""
    for name in (model_type or "", _TEXT_ENDING.sub("", model_type or "")):
        family = TEXT_PART_OF.get(name, name)
        if family in known:
            return family
    return None


def family_of_class(architectures: Any, known: Collection[str]) -> str | None:
    """The family of the class that a file names, for files without a type: `DeepseekV3ForCausalLM` is `deepseek_v3`."""
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(named, str) or not _CLASS_ENDING.search(named):
        return None
    letters = _CLASS_ENDING.sub("", named).lower()
    found = next((t for t in (*known, *TEXT_PART_OF) if t.replace("_", "").replace("-", "") == letters), None)
    return family_of(found, known)


def _with_defaults(part: Fields, family: str, own: Mapping[str, int]) -> tuple[Fields, str, tuple[Note, ...]]:
    missing: dict[str, Any] = {k: v for k, v in own.items() if k not in part.raw}
    source = cite(f"transformers 5.24 models/{family}, class default")
    notes = tuple(note("derived", "class_default", field=part.name(k), value=v, source=source) for k, v in sorted(missing.items()))
    return part.variant({**missing, **part.raw}), family, notes

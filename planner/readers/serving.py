"""What SGLang's defaults hang on beside the shapes of the layers: its own context length, the cache dtype that it honours, the vision part.

Plain looks into the raw file: nothing here changes what the cache holds, and a key that is missing or of the wrong kind is only not known.
"""

from __future__ import annotations

from typing import Any

from planner.model import ServerFacts
from planner.readers.fields import MAX_LAYERS, MAX_TOKENS, MAX_WIDTH, Fields
from planner.readers.vision import vision_part

# sglang 0.5.23 srt/utils/hf_transformers/common.py, CONTEXT_LENGTH_KEYS: the first that is there wins.
CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
VISION_LAYERS, VISION_WIDTH = ("num_hidden_layers", "vt_num_hidden_layers"), ("hidden_size", "vt_hidden_size")
DEFAULT_CONTEXT = 2048
MAX_ROPE_FACTOR = 1024
ROPE_BY_LAYER = ("gemma3", "gemma4")  # their class turns rope_scaling into one entry a layer type, whose factor is not found (run)
OUTER_KEYS = ("quantization_config", "compression_config")


def server_facts(f: Fields, context: int | None) -> ServerFacts:
    """`f`: the section of the language part; `context`: the limit that its reader found."""
    root = f
    while root.parent is not None:
        root = root.parent
    vision = root.raw.get("vision_config")
    return ServerFacts(
        context_tokens=_context(f.raw, context),
        kv_dtype_wish=_wish(f),
        encoder_layers=_count(f.raw.get("encoder_layers"), MAX_LAYERS) or 0,
        vision=(_first(vision, VISION_LAYERS, MAX_LAYERS), _first(vision, VISION_WIDTH, MAX_WIDTH)) if isinstance(vision, dict) else None,
        image_tokens=_image_tokens(root.raw),
        nested=root is not f and root.raw.get("language_model_only") is not True,
        rope_factor=_rope_factor(f.raw),
        images=vision_part(root.raw, _first(f.raw, ("hidden_size", "n_embd", "d_model"), MAX_WIDTH) or 0),
    )


# Tokens of one image by the model's own key (transformers 5.24 configuration_*.py): Gemma 3 and 3n, LLaVA, PaliGemma scale every image to one size.
IMAGE_KEYS = {"gemma3": "mm_tokens_per_image", "gemma3n": "vision_soft_tokens_per_image", "llava": "image_seq_length"}


def _image_tokens(raw: dict[str, Any]) -> int | None:
    """0: the number hangs on the image's size or on the processor's file, which the config is not."""
    vision, model_type = raw.get("vision_config"), str(raw.get("model_type") or "")
    if not isinstance(vision, dict):
        return None
    if model_type == "paligemma":
        return _count(vision.get("num_image_tokens"), MAX_TOKENS) or 0
    found = _count(raw.get(IMAGE_KEYS.get(model_type, "")), MAX_TOKENS)
    if found is None and model_type == "llava":  # (image / patch) squared; the class token is dropped unless `full`
        size, patch = _count(vision.get("image_size"), MAX_WIDTH), _count(vision.get("patch_size"), MAX_WIDTH)
        if size and patch and size % patch == 0:
            found = (size // patch) ** 2 + (raw.get("vision_feature_select_strategy") == "full")
    return found or 0


def _first(section: dict[str, Any], keys: tuple[str, ...], high: int) -> int | None:
    return next((n for n in (_count(section.get(key), high) for key in keys) if n is not None), None)


def _count(value: Any, high: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= high else None


def _context(raw: dict[str, Any], context: int | None) -> int:
    """Times the rope factor, unless the file names the original length or the type is llama3 (the same file, get_context_length)."""
    rope = raw.get("rope_scaling") or raw.get("rope_parameters")
    factor: float = 1
    nested = str(raw.get("model_type") or "").startswith(ROPE_BY_LAYER)
    if isinstance(rope, dict) and not nested and "original_max_position_embeddings" not in rope and (rope.get("rope_type") or rope.get("type")) != "llama3":
        given = rope.get("factor", 1)
        factor = given if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 < given < 1e6 else 1
    found = _first(raw, CONTEXT_KEYS, MAX_TOKENS) or context
    return min(int(factor * (found or DEFAULT_CONTEXT)), MAX_TOKENS)


def _rope_factor(raw: dict[str, Any]) -> int:
    """Of linear and dynamic scaling, whole; of the full layers where the file has one entry a layer type."""
    rope = raw.get("rope_scaling") or raw.get("rope_parameters")
    entry = rope.get("full_attention", rope) if isinstance(rope, dict) else None
    if not isinstance(entry, dict) or (entry.get("rope_type") or entry.get("type")) not in ("linear", "dynamic"):
        return 1
    factor = entry.get("factor")
    return int(factor) if isinstance(factor, (int, float)) and not isinstance(factor, bool) and 1 <= factor <= MAX_ROPE_FACTOR else 1


def _wish(f: Fields) -> str | None:
    """fp8_e4m3 where the checkpoint asks for it in a way that SGLang honours (run on real and synthetic files): compressed-tensors'
    scheme of 8-bit floats; flat ModelOpt keys, under FP8, NVFP4 and MXFP8 weights; the fp8 method's own key. Not NVFP4 caches, and not
    a `quantization` section inside quantization_config. (srt/layers/quantization/modelopt_quant.py, fp8.py, compressed_tensors)"""
    raw: Any = None
    section: Fields | None = f
    while section is not None and raw is None:
        raw = next((v for v in (section.raw.get(key) for key in OUTER_KEYS) if v is not None), None)
        section = section.parent
    if not isinstance(raw, dict):
        return None
    method, scheme, algo = str(raw.get("quant_method") or "").lower(), raw.get("kv_cache_scheme"), raw.get("kv_cache_quant_algo")
    by_algo = isinstance(algo, str) and algo.upper() == "FP8"
    by_scheme = isinstance(scheme, dict) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    if method == "compressed-tensors":
        asked = by_scheme
    elif method in ("fp8", "mxfp8"):
        asked = by_algo
    elif method == "" or method.startswith("modelopt"):
        named = isinstance(scheme, str) and scheme.strip().upper() in ("FP8", "FLOAT8") and "FP4" in str(raw.get("quant_algo"))
        asked = raw.get("quant_algo") is not None and (by_scheme or named or (by_algo and not isinstance(scheme, dict)))
    else:
        asked = False
    return "fp8_e4m3" if asked else None

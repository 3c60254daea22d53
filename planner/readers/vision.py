"""The vision part of a file: how many weights it has, and what one image costs while it is read. Nothing here touches the cache.

A tower is blocks of attention and a two- or three-matrix feed-forward layer over patches, then a projection into the language model's
width (the usual form: ViT, SigLIP, CLIP, Pixtral, Qwen-VL). A file that leaves out the layers, the width or the feed-forward width is not
guessed at: `parameters` is None then.
"""

from __future__ import annotations

from typing import Any

from planner.model import VisionPart
from planner.readers.fields import MAX_LAYERS, MAX_WIDTH

LAYERS, WIDTHS = ("num_hidden_layers", "depth", "vt_num_hidden_layers"), ("embed_dim", "hidden_size", "vt_hidden_size")
FEED, PATCH, MERGE = ("intermediate_size", "vt_intermediate_size"), ("patch_size", "spatial_patch_size"), ("spatial_merge_size", "pooling_kernel_size")
GATED = frozenset(("silu", "swiglu"))
MAX_SIDE = 65_536  # of an image, in pixels
CHANNELS = 3


def vision_part(raw: dict[str, Any], hidden: int) -> VisionPart | None:
    """`raw`: the whole file; `hidden`: the language part's width, where the tower's projection ends. None: no `vision_config`, or switched off."""
    section = raw.get("vision_config")
    if not isinstance(section, dict) or raw.get("language_model_only") is True:
        return None
    layers, width = _first(section, LAYERS, MAX_LAYERS), _first(section, WIDTHS, MAX_WIDTH)
    feed = _first(section, FEED, MAX_WIDTH) or _times(width, section.get("mlp_ratio"))
    patch, side = _first(section, PATCH, MAX_SIDE), _first(section, ("image_size",), MAX_SIDE)
    merge = _first(section, MERGE, 64) or _first(raw, MERGE, 64) or _halved(raw) or _kernel(section) or 1
    pixels, tokens = (patch * merge) ** 2 if patch else None, _first(raw, ("mm_tokens_per_image",), MAX_SIDE)
    if side and tokens:
        pixels = side * side // tokens
    if not (layers and width and feed and patch):
        return VisionPart(width=width, feed=feed, patch=patch, pixels_per_token=pixels)
    matrices = 3 if str(section.get("hidden_act")).lower() in GATED or section.get("model_type") == "pixtral" else 2
    block = 4 * width * width + matrices * width * feed + 9 * width + feed
    places = (side // patch) ** 2 if side else 0
    merged = width * merge * merge
    join = merged * (merged if merge > 1 else 0) + merged * hidden
    return VisionPart(parameters=layers * block + CHANNELS * patch * patch * width + places * width + join, width=width, feed=feed, patch=patch,
                      pixels_per_token=pixels)  # fmt: skip


def _first(section: dict[str, Any], keys: tuple[str, ...], high: int) -> int | None:
    values = (section.get(key) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and 0 < v <= high), None)


def _times(width: int | None, ratio: Any) -> int | None:
    fair = isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 < ratio <= 64
    return round(width * ratio) if width and fair else None


def _halved(raw: dict[str, Any]) -> int | None:
    """InternVL shrinks its grid by `downsample_ratio`."""
    ratio = raw.get("downsample_ratio")
    return round(1 / ratio) if isinstance(ratio, float) and 0.05 <= ratio < 1 else None


def _kernel(section: dict[str, Any]) -> int | None:
    """Kimi merges patches by `merge_kernel_size`, two equal sides."""
    kernel = section.get("merge_kernel_size")
    return _first({"side": kernel[0]}, ("side",), 64) if isinstance(kernel, list) and kernel else None

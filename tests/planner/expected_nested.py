"""What the readers of nested, multimodal and encoder-decoder families must find in tests/configs; the form is that of expected.py.

Encoder-decoders: 6 decoder layers of 8 heads x 64: 2 x 512 x 2 bytes x 3000 x 6 = 36,864,000; without --encoder-tokens the cross caches of
all but Whisper (1,500 frames, fixed) are empty.
"""

from __future__ import annotations

_DECODER = ({"full": 6, "cross": 6}, 36_864_000, 36_864_000)
_LLAMA = ({"full": 8}, 24_576_000, 24_576_000)  # 8 layers x 2 x 4 heads x 64 x 2 bytes x 3000
_TWICE = ({"full": 8}, 49_152_000, 49_152_000)  # the same with heads of 128
_CLASS_DEFAULTS = ({"full": 32}, 1_572_864_000, 1_572_864_000)  # 32 layers x 2 x 32 heads x 128 x 2 bytes x 3000

EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {
    "aria": _LLAMA,
    "bart": _DECODER,
    "bigbird_pegasus": _DECODER,
    "blenderbot": _DECODER,
    "blenderbot_small": _DECODER,
    "falcon_perception": ({"full": 8}, 98_304_000, 98_304_000),  # 8 x 2 x 8 x 128 x 2 x 3000
    "git": ({"full": 8}, 98_304_000, 98_304_000),  # 8 x 2 x 16 x 64 x 2 x 3000
    "glm4v": _LLAMA,
    "internvl_chat": ({"window": 8}, 16_769_024, 16_760_832),  # 8 x 1,024 x 2047 | 2046
    "kimi_vl": ({"latent": 8}, 27_648_000, 27_648_000),
    "llava": _LLAMA,
    "llava_nested": _CLASS_DEFAULTS,
    "longt5": _DECODER,
    "m2m_100": _DECODER,
    "marian": _DECODER,
    "mbart": _DECODER,
    "minicpmo": _LLAMA,  # use_sliding_window is false
    "minicpmv": _TWICE,
    "mllama": ({"full": 6, "cross": 2}, 18_432_000, 18_432_000),  # two of the eight keep image rows only: 6 x 1,024 x 3000
    "moshi": ({"window": 8}, 65_536_000, 65_503_232),  # 8 x 4,096 x 2000 | 1999
    "mt5": _DECODER,
    "musicgen_decoder": _DECODER,
    "mvp": _DECODER,
    "pegasus": _DECODER,
    "phi3_v": ({"window": 8}, 24_576_000, 24_576_000),  # a window wider than the context is still one
    "phi4_multimodal": _LLAMA,
    "phi4mm": ({"window": 8}, 24_576_000, 24_576_000),
    "plbart": _DECODER,
    "prophetnet": _DECODER,
    "qwen2_5_omni": _LLAMA,  # the thinker's text part; the layer count at the top belongs to nothing
    "qwen2_audio": _CLASS_DEFAULTS,
    "qwen2_vl": _LLAMA,
    "qwen3_vl": _TWICE,
    "qwen3_vl_moe": _TWICE,
    "speech_to_text": _DECODER,
    "t5": _DECODER,  # 8 heads x d_kv 64, not d_model 256
    "trocr": ({"full": 6, "cross": 6}, 18_432_000, 18_432_000),  # 4 heads x 64
    "umt5": _DECODER,
    "vision_encoder_decoder": ({"full": 6, "cross": 6}, 18_432_000, 18_432_000),
    "whisper": ({"full": 6, "cross": 6}, 55_296_000, 55_296_000),  # 36,864,000 + 6 x 2,048 x 1500
}

"""What the readers must find in tests/configs, worked out by hand: one row a config."""

from __future__ import annotations

# name: ({kind: layers}, architecture bytes, transformers bytes) at 3,000 tokens, one sequence, bf16.
EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {
    "bloom": ({"full": 8}, 98_304_000, 98_304_000),  # 2 x 8 x 16 x 64 x 3000 x 2
    "deepseek_v2": ({"latent": 8}, 27_648_000, 27_648_000),  # (512 + 64) x 8 x 3000 x 2
    "deepseek_v3": ({"latent": 8}, 27_648_000, 27_648_000),
    "falcon_new": ({"full": 8}, 24_576_000, 98_304_000),  # 4 KV heads; transformers caches them repeated to 16
    "falcon_old": ({"full": 8}, 6_144_000, 6_144_000),  # multi_query: one KV head
    "gemma": ({"full": 8}, 24_576_000, 24_576_000),  # 2 x 8 x 1 x 256 x 3000 x 2
    "gemma2": ({"window": 4, "full": 4}, 65_929_216, 65_912_832),  # 49,152,000 + 4 x 4,096 x 1024 | 1023
    "gemma3": ({"window": 12, "full": 2}, 74_907_648, 74_858_496),  # class defaults: 8 heads, 4 KV heads, 256
    "gemma3_text": ({"window": 12, "full": 2}, 49_741_824, 49_692_672),
    "gpt2": ({"full": 8}, 98_304_000, 98_304_000),
    "gpt_bigcode": ({"full": 8}, 6_144_000, 6_144_000),
    "gpt_neox": ({"full": 8}, 98_304_000, 98_304_000),
    "gpt_oss": ({"window": 4, "full": 4}, 12_812_288, 12_808_192),  # 12,288,000 + 4 x 1,024 x 128 | 127
    "gguf": ({"full": 8}, 24_576_000, 24_576_000),  # Llama, quantized: a cache of f16, and no window in llama.cpp
    "kimi_k2": ({"latent": 8}, 27_648_000, 27_648_000),
    "kvledger_layers": ({"window": 6, "full": 2}, 9_289_728, 9_283_584),  # 2 x 1,024 x 3,000 + 6 x 1,024 x 512 | 511
    "llama": ({"full": 8}, 24_576_000, 24_576_000),  # 2 x 8 x 4 x 64 x 3000 x 2
    "llama4": ({"chunk": 6, "full": 2}, 24_576_000, 24_576_000),  # the chunk of 8,192 is wider than the context
    "minicpm3": ({"latent": 8}, 13_824_000, 13_824_000),  # (256 + 32) x 8 x 3000 x 2
    "mistral": ({"window": 8}, 4_194_304, 4_186_112),  # 8 x 1,024 x 512 | 511
    "mixtral": ({"full": 8}, 24_576_000, 24_576_000),
    "opt": ({"full": 8}, 98_304_000, 98_304_000),
    "phi3": ({"window": 8}, 67_076_096, 67_043_328),  # 8 x 4,096 x 2047 | 2046
    "qwen2": ({"full": 8}, 24_576_000, 24_576_000),  # use_sliding_window is false
    "qwen2_windowed": ({"full": 6, "window": 2}, 22_626_304, 22_624_256),  # layers from max_window_layers on
    "qwen3": ({"full": 8}, 49_152_000, 49_152_000),  # head_dim 128, not 1024 / 16
    "qwen3_moe": ({"full": 8}, 49_152_000, 49_152_000),
    "qwen3_next": ({"state": 6, "full": 2}, 15_507_456, 15_532_032),  # 12,288,000 + 6 x (2048 x 3|4 x 2 + 8 x 128 x 128 x 4)
}

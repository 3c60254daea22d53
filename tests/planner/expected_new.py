"""What the readers of later families must find in tests/configs; the form is that of expected.py.

Above each row its arithmetic; a second line where transformers holds another sum (K columns of a convolution instead of K - 1, W - 1 rows
of a window, every token's index key where an engine needs one a pool). Without encoder tokens cross caches hold nothing.
"""

from __future__ import annotations

EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {
    # 2 x 8 x 4 x 64 x 3000 x 2
    "arctic": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 4 x 64 x 3000 x 2; use_sliding_window is false
    "bailing_moe": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 512 x 2; layer 5 and the last full
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 511 x 2
    "beam": ({"window": 6, "full": 2}, 9_289_728, 9_283_584),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "canary": ({"full": 8, "cross": 8}, 98_304_000, 98_304_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "chameleon": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "cohere_asr": ({"full": 8, "cross": 8}, 98_304_000, 98_304_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1024 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1023 x 2
    "cohere_compass_text": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "cosmos3_edge": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "dia": ({"full": 8, "cross": 8}, 24_576_000, 24_576_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1024 x 2; layers 2 to 4 run twice
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1023 x 2
    "dory": ({"window": 7, "full": 2}, 13_484_032, 13_476_864),
    # (512 + 64) x 3 x 3000 x 2 + (256 + 64) x 5 x 512 x 2 + 128 x 3 x 3000 x 2; layers 0, 1, 5 indexed; transformers keeps index keys in fp32
    # (512 + 64) x 3 x 3000 x 2 + (256 + 64) x 5 x 511 x 2 + 128 x 3 x 3000 x 4
    "dots3_note": ({"latent": 3, "index": 3, "window": 5}, 14_310_400, 16_611_200),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "ernie4_5_vl_moe": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "fsmt": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 512 x 2 x 3000 x 2 + 128 x 2 x 187 x 2 + 6 x (3072 x 3 x 2 + 16 x 64 x 64 x 4); 3000 // 16 pooled keys; transformers keeps every key and gate
    # 512 x 2 x 3000 x 2 + (128 + 128 + 1) x 2 x 3000 x 2 + 6 x (3072 x 4 x 2 + 16 x 64 x 64 x 4)
    "glm5_next": ({"state": 6, "latent": 2, "index": 2}, 7_923_200, 10_948_320),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "glm_ocr": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 1 x 64 x 3000 x 2
    "gpt_refact": ({"full": 8}, 6_144_000, 6_144_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "grok_1": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "hf_olmo": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "idefics": ({"full": 8}, 98_304_000, 98_304_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "internlmxcomposer2": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "jais": ({"full": 8}, 98_304_000, 98_304_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "kosmos_2": ({"full": 8}, 98_304_000, 98_304_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "kosmos_2_5": ({"full": 8}, 98_304_000, 98_304_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 4 x 4 x 64 x 512 x 2 + 4 x (1024 x 3 x 2 + 8 x 64 x 64 x 4)
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 4 x 4 x 64 x 511 x 2 + 4 x (1024 x 4 x 2 + 8 x 64 x 64 x 4)
    "lara_mini": ({"state": 4, "window": 4, "full": 2}, 8_790_016, 8_794_112),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "led": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 8 x (2304 x 3 x 2 + 32 x 64 x 128 x 4)
    # 8 x (2304 x 4 x 2 + 32 x 64 x 128 x 4)
    "mamba_ssm": ({"state": 8}, 8_499_200, 8_536_064),
    # 2 x 3 x 16 x 64 x 3000 x 2 + 2 x 5 x 16 x 64 x 64 x 2; half of local_attention
    # 2 x 3 x 16 x 64 x 3000 x 2 + 2 x 5 x 16 x 64 x 63 x 2
    "modernbert_decoder": ({"window": 5, "full": 3}, 38_174_720, 38_154_240),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "molmo": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "molmo2": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 8 x 16 x 64 x 3000 x 2
    "moonshine": ({"full": 8, "cross": 8}, 98_304_000, 98_304_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1024 x 2; layers 3 and 7 full
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1023 x 2
    "muse_glimmer": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1024 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1023 x 2
    "muse_spark": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),
    # 2 x 8 x 16 x 64 x 3000 x 2; no cross attention
    "musicgen_melody_decoder": ({"full": 8}, 98_304_000, 98_304_000),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "nllb_moe": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 2 x 16 x 4 x 64 x 3000 x 2
    "ouro": ({"full": 16}, 49_152_000, 49_152_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1024 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 6 x 4 x 64 x 1023 x 2
    "params_json": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "pegasus_x": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 2 x 4 x 64 x 512 x 2 + 3 x (2048 x 3 x 2 + 2048 x 16 x 4); layers 6 and 7 read what layers 4 and 5 made
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 2 x 4 x 64 x 511 x 2 + 3 x (2048 x 4 x 2 + 2048 x 16 x 4)
    "phi4flash": ({"state": 3, "window": 2, "full": 1}, 4_550_656, 4_560_896),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "pix2struct": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1024 x 2
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1023 x 2
    "plamo3": ({"window": 7, "full": 1}, 10_412_032, 10_404_864),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "pop2piano": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 64 x 2 x 375 x 2 + 6 x (1024 x 3 x 2 + 8 x 64 x 64 x 4) + 4096 x 9 x 2 + 2 x 8; n-grams on one layer
    # 2 x 2 x 4 x 64 x 3000 x 2 + 64 x 2 x 3000 x 2 + 3 x 3000 x 8 + 6 x (1024 x 4 x 2 + 8 x 64 x 64 x 4) + 4096 x 9 x 2 + 2 x 8
    "qwen4_exp": ({"state": 6, "full": 2, "index": 2}, 7_137_040, 7_893_328),
    # 2 x 8 x 1 x 128 x 3000 x 2; one K and one V head for all
    "step3_text": ({"full": 8}, 12_288_000, 12_288_000),
    # 2 x 6 x 8 x 64 x 3000 x 2
    "switch_transformers": ({"full": 6, "cross": 6}, 36_864_000, 36_864_000),
    # 2 x 4 x 4 x 64 x 3000 x 2 + 2 x 4 x 4 x 64 x 1024 x 2
    # 2 x 4 x 4 x 64 x 3000 x 2 + 2 x 4 x 4 x 64 x 1023 x 2
    "t5gemma": ({"window": 4, "full": 4, "cross": 8}, 16_482_304, 16_478_208),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1024 x 2
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 7 x 4 x 64 x 1023 x 2
    "t5gemma2": ({"window": 7, "full": 1, "cross": 8}, 10_412_032, 10_404_864),
    # 2 x 8 x 4 x 64 x 1024 x 2
    # 2 x 8 x 4 x 64 x 1023 x 2
    "voxtral_realtime": ({"window": 8}, 8_388_608, 8_380_416),
}

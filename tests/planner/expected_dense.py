"""What the readers of dense and MoE attention families must find in tests/configs; the form is that of expected.py.

Most configs have 8 layers of 4 KV heads of 64: 2 x 8 x 4 x 64 x 3000 x 2 = 24,576,000 bytes, one layer 1,024 bytes a token; the families
that know no grouping have 16 heads: 98,304,000. Windowed rows: full layers plus windows, with W - 1 rows in transformers.
"""

from __future__ import annotations

EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {
    "afmoe": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023
    "apertus": ({"full": 8}, 24_576_000, 24_576_000),
    "apertus1p5_text": ({"full": 8}, 24_576_000, 24_576_000),
    "aquila": ({"full": 8}, 24_576_000, 24_576_000),
    "arcee": ({"full": 8}, 24_576_000, 24_576_000),
    "baichuan": ({"full": 8}, 98_304_000, 98_304_000),
    "bert": ({"full": 8}, 98_304_000, 98_304_000),
    "bert_generation": ({"full": 8}, 98_304_000, 98_304_000),
    "biogpt": ({"full": 8}, 98_304_000, 98_304_000),
    "bitnet": ({"full": 8}, 24_576_000, 24_576_000),
    "camembert": ({"full": 8}, 98_304_000, 98_304_000),
    "chatglm": ({"full": 8}, 24_576_000, 24_576_000),
    "codegen": ({"full": 8}, 98_304_000, 98_304_000),
    "codeshell": ({"full": 8}, 24_576_000, 24_576_000),
    "cohere": ({"full": 8}, 24_576_000, 24_576_000),
    "cohere2": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023
    "cohere2_moe": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023; layers 0 and 4 full
    "ctrl": ({"full": 8}, 98_304_000, 98_304_000),
    "cwm": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023
    "data2vec_text": ({"full": 8}, 98_304_000, 98_304_000),
    "dbrx": ({"full": 8}, 24_576_000, 24_576_000),
    "deci": ({"full": 4}, 8_448_000, 8_448_000),  # (4 + 4 + 2 + 1) x 2 x 64 x 3000 x 2
    "deepseek": ({"full": 8}, 24_576_000, 24_576_000),
    "diffllama": ({"full": 8}, 24_576_000, 24_576_000),
    "doge": ({"full": 8}, 24_576_000, 24_576_000),
    "dots1": ({"window": 2, "full": 6}, 20_529_152, 20_527_104),  # 6 x 1,024 x 3000 + 2 x 1,024 x 1024 | 1023; the last two
    "electra": ({"full": 8}, 98_304_000, 98_304_000),
    "ernie": ({"full": 8}, 98_304_000, 98_304_000),
    "ernie4_5": ({"full": 8}, 24_576_000, 24_576_000),
    "ernie4_5_moe": ({"full": 8}, 24_576_000, 24_576_000),
    "exaone": ({"full": 8}, 24_576_000, 24_576_000),
    "exaone4": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023; LLLG
    "exaone_moe": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023
    "flex_olmo": ({"full": 8}, 24_576_000, 24_576_000),
    "flint": ({"window": 4, "full": 4}, 14_389_248, 14_385_152),  # 4 x 1,024 x 3000 + 4 x 1,024 x 513 | 512; layers 0, 1, 5 and the last full
    "gemma3n_text": ({"window": 4, "full": 1}, 5_169_152, 5_165_056),  # 1 x 1,024 x 3000 + 4 x 1,024 x 512 | 511; the rest read these
    "gemma4_moe": ({"window": 5, "full": 1}, 8_765_440, 8_760_320),  # 4 heads of 128: 2,048 x 3000 + 5 x 1,024 x 512 | 511
    "gemma4_text": ({"window": 5, "full": 1}, 5_693_440, 5_688_320),  # 1 x 1,024 x 3000 + 5 x 1,024 x 512 | 511; the rest read these
    "gemma4_unified_text": ({"window": 5, "full": 1}, 8_765_440, 8_760_320),  # per_layer_config: 2,048 x 3000 + 5 x 1,024 x 512 | 511
    "glm": ({"full": 8}, 24_576_000, 24_576_000),
    "glm4": ({"full": 8}, 24_576_000, 24_576_000),
    "glm4_moe": ({"full": 8}, 24_576_000, 24_576_000),
    "gpt_neo": ({"full": 8}, 98_304_000, 98_304_000),
    "gpt_neox_japanese": ({"full": 8}, 98_304_000, 98_304_000),
    "gpt_sw3": ({"full": 8}, 98_304_000, 98_304_000),
    "gptj": ({"full": 8}, 98_304_000, 98_304_000),
    "granite": ({"full": 8}, 24_576_000, 24_576_000),
    "granite_swa": ({"window": 6, "full": 2}, 6_930_432, 6_924_288),  # 2 x 1,024 x 3000 + 6 x 1,024 x 128 | 127; layers 0 and 4 full
    "granitemoe": ({"full": 8}, 24_576_000, 24_576_000),
    "granitemoe_swa": ({"window": 6, "full": 2}, 6_930_432, 6_924_288),  # 2 x 1,024 x 3000 + 6 x 1,024 x 128 | 127
    "granitemoeshared": ({"full": 8}, 24_576_000, 24_576_000),
    "helium": ({"full": 8}, 24_576_000, 24_576_000),
    "hunyuan": ({"full": 8}, 24_576_000, 24_576_000),  # cla_share_factor: engines keep all layers
    "hunyuan_v1_dense": ({"full": 8}, 24_576_000, 24_576_000),
    "hunyuan_v1_moe": ({"full": 8}, 24_576_000, 24_576_000),
    "hy_v3": ({"full": 8}, 24_576_000, 24_576_000),
    "hyperclovax": ({"full": 8}, 24_576_000, 24_576_000),
    "internlm": ({"full": 8}, 98_304_000, 98_304_000),
    "internlm2": ({"full": 8}, 24_576_000, 24_576_000),
    "internlm3": ({"full": 8}, 24_576_000, 24_576_000),
    "iquestcoder": ({"full": 8}, 24_576_000, 24_576_000),
    "jais2": ({"full": 8}, 24_576_000, 24_576_000),
    "jetmoe": ({"full": 8}, 24_576_000, 24_576_000),
    "kolibri1": ({"window": 7, "full": 1}, 6_749_184, 6_742_016),  # 1 x 1,024 x 3000 + 7 x 1,024 x 513 | 512; layer 4 full
    "laguna": ({"window": 6, "full": 2}, 9_289_728, 9_283_584),  # 2 x 1,024 x 3000 + 6 x 1,024 x 512 | 511
    "megatron_bert": ({"full": 8}, 98_304_000, 98_304_000),
    "mellum": ({"window": 4, "full": 4}, 16_482_304, 16_478_208),  # 4 x 1,024 x 3000 + 4 x 1,024 x 1024 | 1023
    "mimo": ({"full": 8}, 24_576_000, 24_576_000),  # use_sliding_window is false
    "mimo_v2_flash": ({"window": 4, "full": 2}, 8_990_720, 8_990_720),  # 2 x 4 x 160 x 2 x 3000 + 4 x 8 x 160 x 2 x 128; transformers windows 129
    "minicpm": ({"full": 8}, 24_576_000, 24_576_000),
    "minimax_m2": ({"full": 8}, 24_576_000, 24_576_000),
    "ministral": ({"window": 8}, 8_388_608, 8_380_416),  # 8 x 1,024 x 1024 | 1023
    "ministral3": ({"full": 8}, 24_576_000, 24_576_000),
    "mpt": ({"full": 8}, 98_304_000, 98_304_000),
    "nanochat": ({"full": 8}, 24_576_000, 24_576_000),
    "nemotron": ({"full": 8}, 24_576_000, 24_576_000),
    "nemotron_nas": ({"full": 3}, 7_680_000, 7_680_000),  # (4 + 2 + 4) x 2 x 64 x 3000 x 2; no_op and linear keep nothing
    "olmo": ({"full": 8}, 24_576_000, 24_576_000),
    "olmo2": ({"full": 8}, 24_576_000, 24_576_000),
    "olmo3": ({"window": 6, "full": 2}, 12_435_456, 12_429_312),  # 2 x 1,024 x 3000 + 6 x 1,024 x 1024 | 1023; every fourth full
    "olmoe": ({"full": 8}, 24_576_000, 24_576_000),
    "openelm": ({"full": 4}, 11_520_000, 11_520_000),  # (3 + 3 + 4 + 5) x 2 x 64 x 3000 x 2
    "orion": ({"full": 8}, 24_576_000, 24_576_000),
    "persimmon": ({"full": 8}, 98_304_000, 98_304_000),
    "phi": ({"full": 8}, 98_304_000, 98_304_000),
    "phi3small": ({"full": 8}, 24_576_000, 24_576_000),
    "phi_msft": ({"full": 8}, 98_304_000, 98_304_000),
    "phimoe": ({"window": 8}, 16_769_024, 16_760_832),  # 8 x 1,024 x 2047 | 2046
    "qwen": ({"full": 8}, 98_304_000, 98_304_000),
    "qwen2_moe": ({"window": 2, "full": 6}, 20_529_152, 20_527_104),  # 6 x 1,024 x 3000 + 2 x 1,024 x 1024 | 1023; layers 0, 2
    "refinedweb": ({"full": 8}, 24_576_000, 98_304_000),  # 4 KV heads; transformers caches them repeated to 16
    "refinedwebmodel": ({"full": 8}, 6_144_000, 6_144_000),  # multi_query: one KV head
    "rembert": ({"full": 8}, 98_304_000, 98_304_000),
    "roberta": ({"full": 8}, 98_304_000, 98_304_000),
    "roberta_prelayernorm": ({"full": 8}, 98_304_000, 98_304_000),
    "roc_bert": ({"full": 8}, 98_304_000, 98_304_000),
    "roformer": ({"full": 8}, 98_304_000, 98_304_000),
    "sarvam_moe": ({"full": 8}, 24_576_000, 24_576_000),
    "seed_oss": ({"full": 8}, 24_576_000, 24_576_000),
    "skywork": ({"full": 8}, 24_576_000, 24_576_000),
    "smollm3": ({"full": 8}, 24_576_000, 24_576_000),
    "solar": ({"full": 8}, 24_576_000, 24_576_000),
    "solar_open": ({"full": 8}, 24_576_000, 24_576_000),
    "stablelm": ({"full": 8}, 24_576_000, 24_576_000),
    "stablelm_epoch": ({"full": 8}, 24_576_000, 24_576_000),
    "starcoder2": ({"full": 8}, 24_576_000, 24_576_000),
    "step3p5": ({"window": 6, "full": 2}, 12_435_456, 12_423_168),  # 2 x 1,024 x 3000 + 6 x 2,048 x 512 | 511; 8 KV heads on windowed layers
    "step3p7": ({"window": 6, "full": 2}, 9_289_728, 9_283_584),  # 2 x 1,024 x 3000 + 6 x 1,024 x 512 | 511
    "telechat": ({"full": 8}, 98_304_000, 98_304_000),
    "vaultgemma": ({"window": 4, "full": 4}, 16_482_304, 16_478_208),  # 4 x 1,024 x 3000 + 4 x 1,024 x 1024 | 1023
    "xglm": ({"full": 8}, 98_304_000, 98_304_000),
    "xlm_roberta": ({"full": 8}, 98_304_000, 98_304_000),
    "xlm_roberta_xl": ({"full": 8}, 98_304_000, 98_304_000),
    "xverse": ({"full": 8}, 24_576_000, 24_576_000),
    "yi": ({"full": 8}, 24_576_000, 24_576_000),
}

"""What the readers of latent, sparse-index and state families must find in tests/configs; the form is that of expected.py.

Above each row its arithmetic: rows x bytes, then states; a second line where transformers holds another sum (K columns of a convolution
instead of K - 1, W - 1 rows of a window, DeepSeek-V4's window rows twice where no compressor is, its buffers and overlaps).
"""

from __future__ import annotations

EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {
    # (512 + 64) x 8 x 3000 x 2
    "axk1": ({"latent": 8}, 27_648_000, 27_648_000),
    # (512 + 64) x 8 x 3000 x 2 + 128 x 8 x 3000 x 2
    "axk2": ({"latent": 8, "index": 8}, 33_792_000, 33_792_000),
    # (512 + 64) x 2 x 3000 x 2 + 6 x (3072 x 3 x 2 + 16 x 64 x 64 x 4)
    # (512 + 64) x 2 x 3000 x 2 + 6 x (3072 x 4 x 2 + 16 x 64 x 64 x 4)
    "bailing_hybrid": ({"state": 6, "latent": 2}, 8_595_456, 8_632_320),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2304 x 3 x 2 + 32 x 64 x 128 x 4)
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2304 x 4 x 2 + 32 x 64 x 128 x 4)
    "bamba": ({"state": 6, "full": 2}, 12_518_400, 12_546_048),
    # (512 + 64) x 8 x 3000 x 2
    "deepseek_reference": ({"latent": 8}, 27_648_000, 27_648_000),
    # (512 + 64) x 8 x 3000 x 2 + 128 x 8 x 3000 x 2
    "deepseek_v32": ({"latent": 8, "index": 8}, 33_792_000, 33_792_000),
    # 512 x 6 x 128 x 2 + 512 x 2 x 750 x 2 + 512 x 2 x 23 x 2 + 128 x 2 x 750 x 2
    # 512 x (4 + 2 x 2) x 127 x 2 + 512 x 2 x 750 x 2 + 512 x 2 x 23 x 2 + 128 x 2 x 750 x 2 + 2 x 512 x 2 x 2 x (3000 % 128) + 2 x 4 x (512 + 128) x (2 + 4)
    "deepseek_v4": ({"window": 6, "latent": 4, "index": 2}, 2_753_536, 3_267_584),
    # 2 x 8 x 4 x 64 x 3000 x 2 + 8 x (1280 x 3 x 2 + 16 x 64 x 128 x 4)
    # 2 x 8 x 4 x 64 x 3000 x 2 + 8 x (1280 x 4 x 2 + 16 x 64 x 128 x 4)
    "falcon_h1": ({"full": 8, "state": 8}, 28_831_744, 28_852_224),
    # 8 x (2048 x 3 x 2 + 2048 x 16 x 4)
    # 8 x (2048 x 4 x 2 + 2048 x 16 x 4)
    "falcon_mamba": ({"state": 8}, 1_146_880, 1_179_648),
    # 8 x 4 x 128 x 256 x 4
    "gla": ({"state": 8}, 4_194_304, 4_194_304),
    # (512 + 64) x 8 x 3000 x 2
    "glm4_moe_lite": ({"latent": 8}, 27_648_000, 27_648_000),
    # (512 + 64) x 8 x 3000 x 2 + 128 x 4 x 3000 x 2
    "glm_moe_dsa": ({"latent": 8, "index": 4}, 30_720_000, 30_720_000),
    # 2 x 8 x 4 x 64 x 3000 x 2
    "granite_dense_hybrid": ({"full": 8}, 24_576_000, 24_576_000),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2304 x 3 x 2 + 32 x 64 x 128 x 4)
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2304 x 4 x 2 + 32 x 64 x 128 x 4)
    "granitemoehybrid": ({"state": 6, "full": 2}, 12_518_400, 12_546_048),
    # 2 x 16 x 16 x 64 x 3000 x 2
    "hrm_text": ({"full": 16}, 196_608_000, 196_608_000),
    # (512 + 64) x 8 x 3000 x 2 + 128 x 3 x 3000 x 2
    "hy_v4": ({"latent": 8, "index": 3}, 29_952_000, 29_952_000),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 9 x 8 x 64 x 512 x 2 + (9 x 3072 + 1 x 2560) x 3 x 4
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 9 x 8 x 64 x 511 x 2 + (9 x 3072 + 1 x 2560) x 4 x 4
    "inkling2_loop_text": ({"window": 9, "full": 1, "state": 10}, 12_871_680, 12_974_080),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 5 x 8 x 64 x 512 x 2 + (5 x 3072 + 1 x 2560) x 3 x 4
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 5 x 8 x 64 x 511 x 2 + (5 x 3072 + 1 x 2560) x 4 x 4
    "inkling2_text": ({"window": 5, "full": 1, "state": 6}, 8_529_920, 8_591_360),
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 5 x 8 x 64 x 512 x 2 + (5 x 3072 + 1 x 2560) x 3 x 4
    # 2 x 1 x 4 x 64 x 3000 x 2 + 2 x 5 x 8 x 64 x 511 x 2 + (5 x 3072 + 1 x 2560) x 4 x 4
    "inkling_text": ({"window": 5, "full": 1, "state": 6}, 8_529_920, 8_591_360),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2048 x 3 x 2 + 2048 x 16 x 4)
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (2048 x 4 x 2 + 2048 x 16 x 4)
    "jamba": ({"state": 6, "full": 2}, 7_004_160, 7_028_736),
    # (512 + 64) x 2 x 3000 x 2 + 6 x (3072 x 3 x 2 + 8 x 128 x 128 x 4)
    # (512 + 64) x 2 x 3000 x 2 + 6 x (3072 x 4 x 2 + 8 x 128 x 128 x 4)
    "kimi_linear": ({"state": 6, "latent": 2}, 10_168_320, 10_205_184),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x 1024 x 2 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x 1024 x 3 x 2
    "lfm2": ({"state": 6, "full": 2}, 6_168_576, 6_180_864),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x 1024 x 2 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x 1024 x 3 x 2
    "lfm2_moe": ({"state": 6, "full": 2}, 6_168_576, 6_180_864),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 1 x 4 x 64 x 256 x 2 + 5 x 1024 x 6 x 2
    # 2 x 2 x 4 x 64 x 3000 x 2 + 2 x 1 x 4 x 64 x 255 x 2 + 5 x 1024 x 7 x 2
    "lfm3": ({"state": 5, "full": 2, "window": 1}, 6_467_584, 6_476_800),
    # (512 + 64) x 8 x 3000 x 2
    "longcat_flash": ({"latent": 8}, 27_648_000, 27_648_000),
    # 8 x (2048 x 3 x 2 + 2048 x 16 x 4)
    # 8 x (2048 x 4 x 2 + 2048 x 16 x 4)
    "mamba": ({"state": 8}, 1_146_880, 1_179_648),
    # 8 x (2560 x 3 x 2 + 32 x 64 x 128 x 4)
    # 8 x (2560 x 4 x 2 + 32 x 64 x 128 x 4)
    "mamba2": ({"state": 8}, 8_511_488, 8_552_448),
    # 2 x 2 x 4 x 128 x 3000 x 2 + 6 x 16 x 128 x 128 x 2
    "minimax": ({"state": 6, "full": 2}, 15_433_728, 15_433_728),
    # 2 x 2 x 4 x 128 x 3000 x 2 + 6 x 16 x 128 x 128 x 2
    "minimax_m1": ({"state": 6, "full": 2}, 15_433_728, 15_433_728),
    # 2 x 8 x 4 x 128 x 3000 x 2 + 5 x 128 x 3000 x 2
    "minimax_m3": ({"full": 8, "index": 5}, 52_992_000, 52_992_000),
    # 2 x 8 x 4 x 128 x 3000 x 2 + 5 x 128 x 3000 x 2
    "minimax_m3_vl": ({"full": 8, "index": 5}, 52_992_000, 52_992_000),
    # 2 x 2 x 4 x 128 x 3000 x 2 + 6 x 16 x 128 x 128 x 2
    "minimax_text_01": ({"state": 6, "full": 2}, 15_433_728, 15_433_728),
    # (512 + 64) x 8 x 3000 x 2
    "mistral4": ({"latent": 8}, 27_648_000, 27_648_000),
    # (512 + 64) x 4 x 3000 x 2 + 512 x 1 x 3000 x 2 + 128 x 7 x 3000 x 2
    "mistral_large4": ({"latent": 5, "index": 7}, 22_272_000, 22_272_000),
    # 2 x 4 x 128 x 3000 x 2 + 3 x (2560 x 3 x 2 + 32 x 64 x 128 x 4)
    # 2 x 4 x 128 x 3000 x 2 + 3 x (2560 x 4 x 2 + 32 x 64 x 128 x 4)
    "nemotron_h": ({"state": 3, "full": 1}, 9_335_808, 9_351_168),
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (1536 x 3 x 2 + 4 x 96 x 192 x 4)
    # 2 x 2 x 4 x 64 x 3000 x 2 + 6 x (1536 x 4 x 2 + 4 x 96 x 192 x 4)
    "olmo_hybrid": ({"state": 6, "full": 2}, 7_968_768, 7_987_200),
    # (512 + 64) x 8 x 3000 x 2
    "pangu_ultra_moe": ({"latent": 8}, 27_648_000, 27_648_000),
    # 2 x 2 x 2 x 256 x 3000 x 2 + 6 x (2048 x 3 x 2 + 8 x 128 x 128 x 4)
    # 2 x 2 x 2 x 256 x 3000 x 2 + 6 x (2048 x 4 x 2 + 8 x 128 x 128 x 4)
    "qwen3_5_moe_text": ({"state": 6, "full": 2}, 15_507_456, 15_532_032),
    # 2 x 2 x 2 x 256 x 3000 x 2 + 6 x (2048 x 3 x 2 + 8 x 128 x 128 x 4)
    # 2 x 2 x 2 x 256 x 3000 x 2 + 6 x (2048 x 4 x 2 + 8 x 128 x 128 x 4)
    "qwen3_5_text": ({"state": 6, "full": 2}, 15_507_456, 15_532_032),
    # 2 x 2 x 1 x 64 x 2048 x 2 + 6 x (1024 x 3 x 2 + 1024 x 4)
    # 2 x 2 x 1 x 64 x 2047 x 2 + 6 x (1024 x 3 x 2 + 1024 x 4)
    "recurrent_gemma": ({"state": 6, "window": 2}, 1_110_016, 1_109_504),
    # 8 x (2 x 1024 x 2 + 3 x 1024 x 4)
    "rwkv": ({"state": 8}, 131_072, 131_072),
    # 8 x (2 x 1024 x 2 + 16 x 64 x 64 x 4)
    "rwkv5": ({"state": 8}, 2_129_920, 2_129_920),
    # 8 x (2 x 1024 x 2 + 16 x 64 x 64 x 4)
    "rwkv6": ({"state": 8}, 2_129_920, 2_129_920),
    # (512 + 64) x 8 x 3000 x 2
    "sarvam_mla": ({"latent": 8}, 27_648_000, 27_648_000),
    # 8 x 4 x (128 x 256 + 128 + 1) x 2
    # 8 x 4 x (128 x 256 + 128 + 1) x 2 + 8
    "xlstm": ({"state": 8}, 2_105_408, 2_105_416),
    # (512 + 64) x 8 x 3000 x 2
    "youtu": ({"latent": 8}, 27_648_000, 27_648_000),
    # 2 x 3 x 16 x 128 x 3000 x 2 + 8 x (2048 x 3 x 2 + 2048 x 16 x 4)
    # 2 x 3 x 16 x 128 x 3000 x 2 + 8 x (2048 x 4 x 2 + 2048 x 16 x 4)
    "zamba": ({"state": 8, "full": 3}, 74_874_880, 74_907_648),
    # 2 x 2 x 16 x 128 x 3000 x 2 + 8 x (2176 x 3 x 2 + 2048 x 64 x 4)
    # 2 x 2 x 16 x 128 x 3000 x 2 + 8 x (2176 x 4 x 2 + 2048 x 64 x 4)
    "zamba2": ({"state": 8, "full": 2}, 53_450_752, 53_485_568),
    # 2 x 8 x 4 x 64 x 3000 x 2 + 8 x (20 x 64 x 2 + 128) x 2
    "zaya": ({"full": 8, "state": 8}, 24_619_008, 24_619_008),
}

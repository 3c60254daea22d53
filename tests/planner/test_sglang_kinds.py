"""SGLang 0.5.23: windows, states, sparse attention and DeepSeek-V4, worked out from its own sizing and from public logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cache import Pool
from planner.capacity import plan
from planner.engines.sglang import v4 as sglang_v4
from planner.engines.sglang.rows import row_bytes, state_bytes
from planner.engines.sglang.sizes import state_slots
from planner.heatmap import heat_map
from planner.mix import from_text
from planner.mix_capacity import mix_capacity
from planner.readers import read_config
from planner.sources import load
from tests.planner.sglang_cases import FORTY_GIB, SMALL, codes, planned, printed, refused

# -- windows -------------------------------------------------------------------------------------------------------------


def test_two_pools_by_ratio() -> None:
    """gpt-oss-20b: 24,576 B of full rows + 0.8 x 24,576 B of windows = 44,236.8 B."""
    p = planned("gpt-oss-20b")
    assert printed(p, "max_total_num_tokens", "swa_max_total_num_tokens") == (970_903, 776_722)
    assert p.sizes is not None
    assert p.sizes.shares == (970_903 * 24_576, 776_722 * 24_576)
    half = planned("gpt-oss-20b", swa_full_tokens_ratio=0.5)
    assert printed(half, "max_total_num_tokens", "swa_max_total_num_tokens") == (1_165_084, 582_542)
    above = {n.code: dict(n.args) for n in p.notes}["sglang_above_budget"]
    assert above["bytes"] == 2 * 24_576 + 8 * 970_903


def test_fp4_is_not_halved_beside_windows() -> None:
    assert planned("gpt-oss-20b", kv_dtype="nvfp4").kv_tokens == planned("gpt-oss-20b", kv_dtype="fp8").kv_tokens == 1_941_807


def test_a_request_cap_without_radix_cache() -> None:
    """64 x (127 + 128 + 2) + 2 x 8,192 + 1 = 32,833 window tokens; the rest for full rows. With the cache on 64 requests change nothing."""
    p = planned("gpt-oss-20b", prefix_caching=False, max_num_seqs=64)
    assert printed(p, "max_total_num_tokens", "swa_max_total_num_tokens", "max_running_requests") == (1_714_793, 32_833, 64)
    assert printed(planned("gpt-oss-20b", max_num_seqs=64), "max_total_num_tokens", "swa_max_total_num_tokens") == (970_903, 776_722)
    assert planned("gpt-oss-20b", prefix_caching=False).kv_tokens == 970_903


def test_a_cap_that_leaves_no_room_is_a_value() -> None:
    """Llama-4: 64 x (8,192 + 128 + 2) + 16,384 + 1 = 548,993 tokens x 147,456 B = 75.39 GiB."""
    p = planned("Llama-4-Scout", prefix_caching=False, max_num_seqs=64)
    said = {n.code: dict(n.args) for n in p.notes}["sglang_window_cap"]
    assert (said["tokens"], said["needs"], p.kv_tokens, p.fits, p.limited_by) == (548_993, "75.39 GiB", 0, False, "pool")


def test_a_window_pool_below_one_request_is_a_value() -> None:
    p = planned("gpt-oss-20b", kv_memory=160 * 44_237)
    assert (p.kv_tokens, p.fits) == (0, False)
    assert "sglang_window_small" in codes(p)
    assert planned("gpt-oss-20b", kv_memory=165 * 44_237, tokens=1).kv_tokens == 165  # 132 window tokens hold 127 + 1


def test_the_list_of_windowed_classes_is_a_list_of_classes() -> None:
    """The same layers under another class keep everything."""
    raw = dict(load("catalog:gpt-oss-20b").raw)
    model = replace(read_config(raw), architecture="SomeForCausalLM")
    assert planned("", model).kv_tokens == 40 * 2**30 // 49_152
    assert {"sglang_windows_full", "sglang_no_class"} <= codes(planned("", model))


def test_each_pool_must_hold_its_part() -> None:
    """One budget of 40 GiB could hold 30 sequences at 32,768 tokens; the full pool of 970,903 tokens holds 29."""
    p = planned("gpt-oss-20b", tokens=32_768, sequences=30)
    assert (p.max_sequences, p.fits, p.limited_by) == (29, False, "pool")
    assert p.footprint.engine_bytes < FORTY_GIB
    assert p.shortfall_bytes == (30 * 32_768 - 970_903) * 24_576
    fitting = replace(p.scenario, sequences=29)
    assert plan(p.model, p.hardware, fitting).fits
    assert planned("gpt-oss-20b", tokens=32_768, sequences=29).longest_tokens_for_load() == 970_903 // 29
    assert planned("gpt-oss-20b", swa_full_tokens_ratio=0.01, tokens=300, sequences=1).max_sequences == int(1_731_829 * 0.01) // 257


def test_the_heat_map_and_a_mix_see_each_pool() -> None:
    p = planned("gpt-oss-20b", tokens=32_768, sequences=29)
    h = heat_map(p)
    column = h.tokens.index(32_768)
    assert [h.fits[h.sequences.index(n)][column] for n in (16, 32)] == [True, False]
    assert dict(h.line)[32_768] == 29
    mix = mix_capacity(p, from_text("32768+0"))
    assert (mix.sequences_guaranteed, mix.sequences_typical) == (29, 29)
    cells = np.array([[1, 2]])
    assert p.rank_bytes(cells, 100).tolist() == [[100 * 49_152, 200 * 49_152]]


# -- states --------------------------------------------------------------------------------------------------------------


def test_state_slots_take_their_share_whatever_the_model_needs() -> None:
    """Qwen3-Next: 77,266,944 B a slot; 0.9 / 1.9 of 40 GiB hold 263, one of them padding; five a running request."""
    p = planned("Qwen3-Next-80B-A3B")
    assert printed(p, "max_mamba_cache_size", "max_running_requests", "max_total_num_tokens") == (262, 52, 920_754)
    assert p.sizes is not None
    assert p.sizes.shares[1] == 263 * 77_266_944
    assert planned("Qwen3-Next-80B-A3B", sequences=52, tokens=10).fits
    assert not planned("Qwen3-Next-80B-A3B", sequences=53, tokens=10).fits
    assert planned("Qwen3-Next-80B-A3B", tokens=10).max_sequences == 52
    lean = planned("Qwen3-Next-80B-A3B", mamba_full_memory_ratio=0.1)
    assert printed(lean, "max_mamba_cache_size") == (int((FORTY_GIB * 0.1 / 1.1 - 77_266_944) // 77_266_944),)


def test_one_slot_a_request_without_radix_cache() -> None:
    p = planned("Qwen3-Next-80B-A3B", prefix_caching=False, max_num_seqs=64)
    assert printed(p, "max_mamba_cache_size", "max_running_requests", "max_total_num_tokens") == (64, 64, 1_543_266)


def test_slots_of_public_logs() -> None:
    """Qwen3.6-27B: 360 slots and one of padding are 51.757 GiB and serve 72 requests of five."""
    assert round(361 * 153_944_064 / 2**30, 3) == 51.757
    setting = planned("Qwen3-Next-80B-A3B").setting
    slots, held, rest = state_slots(setting, 153_944_064, 361 * 153_944_064 * 19 // 9 + 1)
    assert (slots, held) == (360, 361 * 153_944_064)
    assert abs(rest - 361 * 153_944_064 * 10 // 9) < 1024


def test_the_state_dtypes() -> None:
    """Convolution columns in bf16, K - 1 of them; the matrix in fp32, whatever dtype the model runs in."""
    p = planned("Qwen3-Next-80B-A3B", dtype="fp32")
    conv, recurrent = (2 * 16 * 128 + 32 * 128) * 3 * 2, 32 * 128 * 128 * 4
    assert state_bytes(p.model, p.setting) == 36 * (conv + recurrent) == 77_266_944


def test_a_model_of_states_alone_prints_its_length() -> None:
    p = planned("", read_config(SMALL["mamba"]), max_model_len=4096, tokens=16)
    assert (p.kv_tokens, [pool.name for pool in p.pools]) == (4096, ["state"])
    assert p.max_sequences == printed(p, "max_mamba_cache_size")[0] // 3


def test_states_that_leave_nothing_are_a_value() -> None:
    p = planned("Qwen3-Next-80B-A3B", prefix_caching=False, max_num_seqs=600)
    assert (p.kv_tokens, p.fits) == (0, False)
    assert "sglang_states_too_large" in codes(p)


# -- sparse attention and DeepSeek-V4 ------------------------------------------------------------------------------------


def test_rows_of_sparse_attention_by_device() -> None:
    """DeepSeek-V3.2: 656 + 132 B in fp8 on Hopper, 576 + 132 on Blackwell (auto there), 1,152 + 132 in bf16."""
    model = read_config(SMALL["deepseek_v32"])
    rows = {k.kind: k for k, _ in model.cache_groups()}
    wide = replace(rows["latent"], k_dim=576)
    for gpu, kv_dtype, want in (("H100 SXM", "fp8", 656), ("B200 SXM", "auto", 576), ("H100 SXM", "auto", 1152), ("B200 SXM", "bf16", 1152)):
        setting = planned("", model, gpu=gpu, kv_dtype=kv_dtype).setting
        attention = next(layer.attention for layer in model.layers if layer.attention)
        big = replace(model, layers=tuple(replace(layer, attention=replace(attention, kv_rank=512, rope_dim=64)) for layer in model.layers))
        assert row_bytes(wide, big, setting) == want
        assert row_bytes(replace(rows["index"], k_dim=128), big, setting) == 132
        assert setting.block_size == 64
    assert refused("", model=model, kv_dtype="fp8_e5m2") == "kv_dtype_not_in_engine"


def test_pages_of_deepseek_v4() -> None:
    """Flash: 21 ratio-4 and 20 ratio-128 layers of 43: 3,899.25 B a full token and 31,875 a window token."""
    full = 21 * (sglang_v4.padded(64, 512) + 64 * 132) + 20 * sglang_v4.padded(2, 512)
    window = 43 * sglang_v4.padded(256, 512) + 21 * 8 * 2 * 2 * (512 + 128) * 4
    assert (full / 256, window / 256) == (3899.25, 31875.0)
    pools = tuple(Pool(name="", groups=(), block_bytes=size) for size in (full, window, 20 * 128 * 2 * 512 * 4))
    # 256 requests and three rings more: 259 x 10,485,760 B come off; 32 and 64 requests leave more tokens.
    assert sglang_v4.tokens(FORTY_GIB, pools, 256, 0.1) == (5_677_312, 567_552, 259 * 10_485_760)
    assert [sglang_v4.tokens(FORTY_GIB, pools, n, 0.1)[0] for n in (32, 64)] == [6_008_576, 5_961_216]
    assert sglang_v4.tokens(0, pools, 256, 0.1)[:2] == (0, 0)

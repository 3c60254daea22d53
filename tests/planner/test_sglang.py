"""SGLang 0.5.23: goldens worked out on paper from its own sizing and from public logs, rules by structure, refusals, and (with the corpus)
every executed row."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.api import answer, plan_json
from planner.cache import Pool, State, max_sequences
from planner.capacity import CapacityPlan, plan
from planner.engines.sglang import v4 as sglang_v4
from planner.engines.sglang.device import memory_fraction, prefill_buckets
from planner.engines.sglang.models import class_of, is_multimodal, is_native
from planner.engines.sglang.rows import row_bytes, state_bytes
from planner.engines.sglang.sizes import state_slots
from planner.errors import PlannerError
from planner.hardware import find
from planner.heatmap import heat_map
from planner.mix import from_text
from planner.mix_capacity import mix_capacity
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario, from_options
from planner.sources import load
from tests.conftest import corpus_file, corpus_rows, small_configs

FORTY_GIB = 40 * 2**30
SMALL = dict(small_configs())


def planned(name: str, model: ModelSpec | None = None, **options: Any) -> CapacityPlan:
    model = model or read_config(load(f"catalog:{name}").raw, name)
    s = Scenario(**{"engine": "sglang", "kv_memory": FORTY_GIB, "sequences": 1, "tokens": 1024, **options})
    return plan(model, find(s.gpu), s)


def printed(p: CapacityPlan, *names: str) -> tuple[int, ...]:
    assert p.sizes is not None
    figures = dict(p.sizes.printed)
    return tuple(figures[n] for n in names)


def codes(p: CapacityPlan) -> set[str]:
    return {n.code for n in p.notes}


def refused(name: str, **options: Any) -> str:
    with pytest.raises(PlannerError) as e:
        planned(name, **options)
    return e.value.code


def config(**keys: Any) -> dict[str, Any]:
    """A Llama of 2 layers, 4 query heads, 2 KV heads of 8."""
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 128, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
            **keys}  # fmt: skip


# -- one pool ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "tokens", "page"),
    [
        ("Llama-3.1-8B", {}, 327_680, 1),  # 131,072 B a token
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8}, 2_621_440, 1),  # one head of eight a rank
        ("Llama-3.1-8B", {"kv_dtype": "fp8"}, 655_360, 1),
        ("Llama-3.1-8B", {"kv_dtype": "nvfp4"}, 40 * 2**30 // 36_864, 1),  # 9 bytes for 16 values
        ("Llama-3.1-8B", {"block_size": 48}, 327_648, 48),  # 327,680 down to whole pages
        ("Llama-3.1-8B", {"gpu": "B200 SXM"}, 327_680, 64),
        ("Llama-3.1-8B", {"gpu": "B200 SXM", "block_size": 48}, 327_680, 64),  # not a page of this backend
        ("Gemma-3-27B", {}, 84_562, 1),  # 507,904 B: 62 layers in full, windows or not
        ("DeepSeek-V3", {}, 611_191, 1),  # 70,272 B
        ("DeepSeek-V3", {"gpus": 8, "tp": 8}, 611_191, 1),  # a latent is on every rank
        ("DeepSeek-V3", {"kv_dtype": "fp8_e4m3"}, 40 * 2**30 // 35_136, 1),
        ("DeepSeek-V3", {"gpu": "B200 SXM"}, 611_136, 64),
        ("MiniCPM3-4B", {}, 40 * 2**30 // 35_712, 1),  # the latent, where vLLM expands it
        ("Mistral-7B-v0.1", {}, 327_680, 1),
    ],
)
def test_tokens_of_one_pool(name: str, options: dict[str, Any], tokens: int, page: int) -> None:
    p = planned(name, **options)
    assert (p.kv_tokens, p.setting.block_size) == (tokens, page)


def test_a_page_more_than_the_tokens_lies_above_the_budget() -> None:
    above = {n.code: dict(n.args) for n in planned("Llama-3.1-8B", gpu="B200 SXM").notes}["sglang_above_budget"]
    assert above["bytes"] == 64 * 131_072


@pytest.mark.parametrize(
    ("tokens", "context", "asked", "dp", "running"),
    [
        (327_680, 131_072, None, 1, 2048),  # 1,280 at least 2,048
        (970_903, 131_072, None, 1, 3792),
        (40 * 2**30 // 35_712, 32_768, None, 1, 4096),
        (327_680, 131_072, 100, 1, 100),
        (327_680, 131_072, 100, 8, 12),
    ],
)
def test_running_requests(tokens: int, context: int, asked: int | None, dp: int, running: int) -> None:
    """int(tokens / context x 512) between 2,048 and 4,096, at most half the tokens; asked for: shared out over the attention groups."""
    name = {970_903: "gpt-oss-20b", 327_680: "Llama-3.1-8B"}.get(tokens, "MiniCPM3-4B")
    p = planned(name, max_model_len=context, max_num_seqs=asked, dp_attention=dp, tp=dp, gpus=dp)
    assert printed(p, "max_total_num_tokens", "max_running_requests") == (tokens, running)


def test_no_more_requests_than_half_the_tokens() -> None:
    assert printed(planned("Llama-3.1-8B", kv_memory=101 * 131_072), "max_total_num_tokens", "max_running_requests") == (101, 50)


def test_a_load_beyond_the_running_requests_waits() -> None:
    assert "sglang_running" in codes(planned("Llama-3.1-8B", max_num_seqs=4, sequences=5))
    assert "sglang_running" not in codes(planned("Llama-3.1-8B", max_num_seqs=4, sequences=4))


def test_layers_without_a_cache_are_priced_like_the_others() -> None:
    model = read_config(config())
    bare = replace(model, layers=(model.layers[0], replace(model.layers[1], caches=())))
    shared = replace(model, layers=(model.layers[0], replace(model.layers[1], caches=(), shares_with=0)))
    for changed in (bare, shared):
        assert planned("", changed).kv_tokens == planned("", model).kv_tokens == 40 * 2**30 // 128
        assert "sglang_layers_charged" in codes(planned("", changed))


def test_layers_of_different_rows_are_refused() -> None:
    assert refused("", model=_uneven()) == "uneven_rows"


def _uneven() -> ModelSpec:
    model = read_config(config())
    wide = replace(model.layers[1].caches[0], heads=4)
    return replace(model, layers=(model.layers[0], replace(model.layers[1], caches=(wide,))))


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


# -- defaults of a device ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "name", "tp", "dp", "fraction"),
    [
        ("H100 SXM", "Llama-3.1-8B", 1, 1, 0.830), ("H100 SXM", "Llama-3.1-8B", 2, 1, 0.828), ("H100 SXM", "Llama-3.1-8B", 8, 1, 0.812),
        ("H100 SXM", "DeepSeek-V3", 1, 1, 0.816), ("H100 SXM", "DeepSeek-V3", 8, 1, 0.799), ("H100 SXM", "Llama-3.1-8B", 8, 8, 0.586),
        ("H100 SXM", "DeepSeek-V3", 8, 8, 0.573), ("A100 SXM 80GB", "Llama-3.1-8B", 8, 1, 0.813), ("L4", "Llama-3.1-8B", 1, 1, 0.684),
        ("L4", "Llama-3.1-8B", 8, 1, 0.635), ("L4", "DeepSeek-V3", 1, 1, 0.635), ("B200 SXM", "Llama-3.1-8B", 1, 1, 0.854),
        ("B200 SXM", "DeepSeek-V3", 8, 1, 0.844),
    ],
)  # fmt: skip
def test_the_static_fraction(gpu: str, name: str, tp: int, dp: int, fraction: float) -> None:
    assert planned(name, gpu=gpu, tp=tp, gpus=tp, dp_attention=dp).setting.memory_fraction == fraction


def test_graphs_and_chunks_lower_the_fraction() -> None:
    """H100: 512 + 1.5 x 8,192 + 128 + 2 x 256 + 8 x 58 = 13,904 of 81,559 MiB; 64 requests capture no larger graphs than 64."""
    assert (prefill_buckets(8192), prefill_buckets(2048), prefill_buckets(100)) == (58, 42, 12)
    model, memory = read_config(config()), find("H100 SXM").memory_bytes
    assert memory_fraction(model, memory, Parallel(), "", 8192, None) == (round((81_559 - 13_904) / 81_559, 3), True)
    assert memory_fraction(model, memory, Parallel(), "", 8192, 64)[0] == round((81_559 - 13_904 + 384) / 81_559, 3)
    assert memory_fraction(model, memory, Parallel(), "", 2048, 64)[0] == round((81_559 - 10_240) / 81_559, 3)  # the floor


def test_small_chunks_and_attention_groups() -> None:
    """L4 (23,034 MiB, no floor): a chunk of 1,024 reserves as 2,048. Two attention groups add 3 MiB a graph slot each, eight with graphs of
    512 another 1.5, and each gets its part of the chunk."""
    model, small, large = read_config(config()), find("L4").memory_bytes, find("H100 SXM").memory_bytes
    assert memory_fraction(model, small, Parallel(), "", 1024, None)[0] == round((23_034 - 512 - 3072 - 128 - 96 - 8 * 38) / 23_034, 3)
    pair = Parallel(tensor=2, attention_data=2)
    assert memory_fraction(model, large, pair, "", 8192, None)[0] == round((81_559 - 512 - 12_288 - 256 - 512 - 464 - 256 * 2 * 3) / 81_559, 3)
    assert planned("Llama-3.1-8B", tp=8, gpus=8, dp_attention=8).setting.max_num_batched_tokens == 1024


def test_a_vision_part_lowers_the_fraction() -> None:
    """0.95 x clamp(1.1 - 0.1 x size / ViT-L, 0.8, 1.05) of 0.835, where prefill has no graphs."""
    model = read_config(config())
    image = replace(model, architecture="LlavaForConditionalGeneration", server=replace(model.server, vision=(24, 1024)))
    memory = find("H100 SXM").memory_bytes
    assert is_multimodal(image)
    assert not is_multimodal(model)
    assert memory_fraction(image, memory, Parallel(), "", 8192, None) == (0.835 * 0.95, True)
    large = replace(image, server=replace(model.server, vision=(48, 1024)))
    assert memory_fraction(large, memory, Parallel(), "", 8192, None)[0] == pytest.approx(0.835 * 0.95 * 0.9)
    huge = replace(image, server=replace(model.server, vision=(240, 1024)))
    assert memory_fraction(huge, memory, Parallel(), "", 8192, None)[0] == pytest.approx(0.835 * 0.95 * 0.8)
    unsaid = replace(image, server=replace(model.server, vision=(None, 1024)))
    assert memory_fraction(unsaid, memory, Parallel(), "", 8192, None)[1] is False
    assert "sglang_vision_unknown" in codes(planned("", unsaid))


def test_the_budget_is_a_share_of_what_is_free_before_the_load() -> None:
    p = planned("Llama-3.1-8B", kv_memory=None)
    lines = {line.code: line.bytes for line in p.ledgers[0]}
    before = 81_559 * 2**20 - lines["driver_gap"] - lines["before_load"]
    assert lines["static_slack"] == before - int(before * 0.83)
    assert p.kv_pool_bytes == int(before * 0.83) - lines["weights"]
    assert sum(lines.values()) == 81_559 * 2**20
    assert p.kv_tokens == p.kv_pool_bytes // 131_072


def test_weights_that_do_not_fit_miss_more_than_the_load() -> None:
    p = planned("Llama-3.1-70B", kv_memory=None, tokens=1)
    assert (p.limited_by, p.kv_tokens, p.kv_pool_bytes < 0) == ("weights", 0, True)
    assert p.shortfall_bytes == 327_680 - p.kv_pool_bytes


def test_the_context_that_sglang_reads() -> None:
    """seq_length before max_position_embeddings; times a rope factor unless the original length is named."""
    for keys, want in (
        ({"seq_length": 2048}, 2048),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({}, 4096),
    ):
        model = read_config(config(**keys), harmless=("seq_length",))
        assert planned("", model, tokens=16).setting.max_model_len == want
    model = read_config(config(rope_scaling={"type": "dynamic", "factor": 2.0}))
    assert planned("", model, tokens=8192).fits  # twice the file's own limit
    assert "sglang_context" in codes(planned("", model, max_model_len=8193, tokens=16))
    assert planned("", model, max_model_len=8193, tokens=16).limited_by == "model"


@pytest.mark.parametrize(
    ("quantization", "want"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "bf16"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "bf16"),
        ({"quant_method": "fp8", "kv_cache_scheme": "fp8"}, "bf16"),
    ],
)
def test_which_wish_of_a_checkpoint_is_honoured(quantization: dict[str, Any], want: str) -> None:
    model = read_config(config(quantization_config=quantization))
    assert planned("", model).setting.kv.name == want
    assert planned("", model, kv_dtype="bf16").setting.kv.name == "bf16"


def test_float32_files_run_in_half() -> None:
    assert planned("", read_config(config(torch_dtype="float32"))).setting.kv.name == "fp16"
    gemma = replace(read_config(config(torch_dtype="float32")), model_type="gemma2")
    assert planned("", gemma).setting.kv.name == "bf16"
    assert planned("gpt-oss-20b").setting.kv.name == "bf16"
    assert planned("", read_config(config(torch_dtype="float32")), dtype="fp32").setting.kv.name == "fp32"


# -- refusals, notes, launch ---------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    assert refused("Llama-3.1-8B", tp=3, gpus=3) == "kv_heads_no_split"
    assert refused("Llama-3.1-8B", tp=8, gpus=8, dcp=2) == "option_not_covered"
    assert refused("gpt-oss-20b", pp=2, gpus=2) == "option_not_covered"
    assert refused("Qwen3-Next-80B-A3B", pp=2, gpus=2) == "option_not_covered"
    assert refused("Llama-3.1-8B", kv_dtype="int8") == "kv_dtype_not_in_engine"
    assert refused("", model=read_config(SMALL["rwkv"])) in ("kind_not_in_engine", "no_class")
    assert refused("", model=read_config(SMALL["jamba"])) == "no_class"
    assert refused("", model=read_config(SMALL["mamba"]), block_size=16) == "page_of_one"


def test_query_heads_that_do_not_divide_are_a_warning() -> None:
    p = planned("Qwen2.5-7B", tp=8, gpus=8)  # 28 query heads, 4 KV heads
    assert p.kv_tokens == 2_995_931
    assert "sglang_query_heads" in codes(p)
    assert "sglang_query_heads" not in codes(planned("Qwen2.5-7B", tp=4, gpus=4))


def test_rules_that_were_only_read_say_so() -> None:
    assert "sglang_rule_read" in codes(planned("Llama-3.1-8B", pp=2, gpus=2))
    assert "sglang_rule_read" in codes(planned("Llama-3.1-8B", kv_dtype="nvfp4"))
    assert "sglang_device_not_run" in codes(planned("Llama-3.1-8B", gpu="V100 SXM2 32GB"))
    assert not {"sglang_rule_read", "sglang_device_not_run"} & codes(planned("Llama-3.1-8B"))


def test_pipeline_stages_share_the_layers() -> None:
    p = planned("Llama-3.1-8B", pp=2, gpus=2)
    assert (p.kv_tokens, len(p.footprint.allocation.stages)) == (655_360, 2)


@pytest.mark.corpus
def test_the_gap_of_deepseek_v4_has_no_line_below_nothing_but_the_layout() -> None:
    p = planned("", read_config(load(str(corpus_file("configs/deepseek-ai__DeepSeek-V4-Flash.json"))).raw), tokens=131_072, sequences=40)
    assert all(g.bytes >= 0 for g in p.gap if g.code != "row_layout")
    assert all(i["holds"] for i in plan_json(p)["identities"])


def test_the_launch_line() -> None:
    def words(**options: Any) -> list[str]:
        out = plan_json(planned("Llama-3.1-8B", **options))
        return shlex.split(out["launch"]["sglang"])

    line = words(kv_memory=None, tp=4, gpus=4, dp_attention=2, kv_dtype="fp8", max_num_seqs=7, prefix_caching=False, block_size=16)
    assert line[:5] == ["python", "-m", "sglang.launch_server", "--model-path", "Llama-3.1-8B"]
    pairs = dict(itertools.pairwise(line))
    assert (pairs["--tp-size"], pairs["--attn-dp-size"], pairs["--kv-cache-dtype"], pairs["--max-running-requests"]) == ("4", "2", "fp8_e4m3", "7")
    assert (pairs["--page-size"], pairs["--context-length"], line[-1]) == ("16", "131072", "--disable-radix-cache")
    assert 0.5 < float(pairs["--mem-fraction-static"]) < 0.9
    assert dict(zip(w := words(), w[1:], strict=False))["--max-total-tokens"] == "327680"
    hostile = replace(planned("Llama-3.1-8B"), model=replace(planned("Llama-3.1-8B").model, name="a; rm -rf /"))
    assert "'a; rm -rf /'" in plan_json(hostile)["launch"]["sglang"]


def test_the_answer_in_json() -> None:
    out = answer("plan", "catalog:gpt-oss-20b", {"engine": "sglang", "kv_memory": FORTY_GIB, "tokens": 1024})
    assert out["printed"] == {"max_total_num_tokens": 970_903, "swa_max_total_num_tokens": 776_722, "max_running_requests": 3792}
    assert [(p["name"], p["tokens"]) for p in out["pools"]] == [("full", 970_903), ("window", 776_722)]
    assert all(i["holds"] for i in out["identities"])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_small_config_is_planned_whole_or_refused(name: str) -> None:
    """Ledgers sum, gaps explain, pools stay within the budget; nothing but a PlannerError stops a plan."""
    model = read_config(SMALL[name])
    for options in ({}, {"prefix_caching": False, "max_num_seqs": 8}, {"gpu": "B200 SXM", "kv_memory": None}, {"kv_dtype": "fp8", "tp": 2, "gpus": 2}):
        try:
            p = planned("", model, **{"tokens": 64, "kv_memory": 2**30, **options})
        except PlannerError:
            continue
        assert all(i["holds"] for i in plan_json(p)["identities"]), options
        assert p.sizes is not None
        assert sum(p.sizes.shares) <= max(0, p.kv_pool_bytes)
        most = min(max_sequences(pools, 64, size) for pools, size in p.parts)
        assert p.max_sequences == most * p.setting.parallel.attention_data


# -- executed rows -------------------------------------------------------------------------------------------------------

GPUS = {"H100 80GB": "H100 SXM", "A100 80GB": "A100 SXM 80GB", "L4 24GB": "L4", "B200 180GB": "B200 SXM"}
PRINTED = ("max_total_num_tokens", "swa_max_total_num_tokens", "max_mamba_cache_size", "max_running_requests")
REFUSED_AT_MOST = 0.03


def executed_plan(r: dict[str, str], model: ModelSpec) -> CapacityPlan:
    options: dict[str, Any] = {
        "engine": "sglang", "gpu": GPUS[r["device"]], "gpus": int(r["tp"]), "tp": int(r["tp"]), "dp_attention": int(r["dp"]), "tokens": 1, "sequences": 1,
        "kv_dtype": r["kv_dtype"], "kv_memory": int(r["kv_budget_bytes"]), "max_model_len": int(r["context_len"]),
        "max_num_seqs": 64 if r["variant"].startswith("radix") else None, "prefix_caching": r["variant"] != "radix_off_64_requests",
    }  # fmt: skip
    s = from_options(options)
    return plan(model, find(s.gpu), s)


@pytest.mark.corpus
def test_executed_rows() -> None:
    """Tokens, window tokens, state slots, running requests, page, KV dtype and, where the file tells it, the static fraction of every row
    that SGLang's own sizing gave for a class that it has: exact or refused."""
    models: dict[str, ModelSpec] = {}
    wrong, right, no, fractions = [], 0, 0, 0
    for r in corpus_rows("sglang_executed.csv"):
        if r["route"] != "executed" or r["native_class"] != "True" or not (r["max_total_num_tokens"] or r["error"].startswith("sizing")):
            continue
        model = models.setdefault(r["file"], read_config(load(str(corpus_file(f"configs/{r['file']}"))).raw) if r["file"] not in models else models[r["file"]])
        try:
            p = executed_plan(r, model)
        except PlannerError:
            no += 1
            continue
        figures = dict(p.sizes.printed) if p.sizes else {}
        got = {k: figures.get(k) for k in PRINTED if r[k] and not r["error"]} | {"page": p.setting.block_size}
        want: dict[str, Any] = {k: int(r[k]) for k in PRINTED if r[k] and not r["error"]} | {"page": int(r["page_size"])}
        if r["error"]:
            got, want = {"tokens": p.kv_tokens}, {"tokens": 0}
        if "sglang_vision_unknown" not in codes(p):
            fractions += 1
            got["fraction"], want["fraction"] = round(p.setting.memory_fraction, 9), round(float(r["mem_fraction_static"]), 9)
        bytes_of = {"bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}[r["kv_dtype_resolved"]]
        got["element"], want["element"] = p.setting.kv.element.block_bytes, bytes_of
        right += got == want
        if got != want:
            wrong.append(f"{r['file']} {r['device']} tp{r['tp']} dp{r['dp']} {r['kv_dtype']} {r['variant']}: {got} != {want}")
    assert not wrong, wrong[:5]
    assert fractions > 0.85 * right
    assert no <= REFUSED_AT_MOST * (right + no)


@pytest.mark.corpus
def test_built_pools() -> None:
    """What the pools that SGLang built on the meta device hold: the shares, a page more, and the table of windows; pointer tables of a few
    KB lie beside."""
    seen = 0
    for r in corpus_rows("sglang_executed.csv"):
        if not r["allocated_kv_bytes"] or r["route"] != "executed" or r["native_class"] != "True" or r["configurator"] == "DSV4PoolConfigurator":
            continue
        model = read_config(load(str(corpus_file(f"configs/{r['file']}"))).raw)
        try:
            p = executed_plan(r, model)
        except PlannerError:
            continue
        assert p.sizes is not None
        above = next((dict(n.args)["bytes"] for n in p.notes if n.code == "sglang_above_budget"), 0)
        tokens = sum(share for pool, share in zip(p.pools, p.sizes.shares, strict=True) if pool.name != "state")
        states = sum(share for pool, share in zip(p.pools, p.sizes.shares, strict=True) if pool.name == "state")
        assert 0 <= int(r["allocated_kv_bytes"]) - tokens - above <= 16_384, (r["file"], r["tp"], r["kv_dtype"])
        assert states == int(r["allocated_state_bytes"] or 0)
        seen += 1
    assert seen > 300


def test_the_tables_name_classes() -> None:
    model = read_config(config())
    assert is_native(model)
    assert not is_native(replace(model, architecture="JambaForCausalLM"))
    assert class_of(replace(model, architecture="Olmo3ForCausalLM")) == "Olmo2ForCausalLM"
    assert any(isinstance(k, State) for k, _ in read_config(SMALL["mamba"]).cache_groups())

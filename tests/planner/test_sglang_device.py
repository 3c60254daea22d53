"""SGLang 0.5.23: what it chooses by device and checkpoint: the static fraction, contexts, the dtype of the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.engines.sglang.device import memory_fraction, prefill_buckets
from planner.engines.sglang.models import is_multimodal
from planner.hardware import find
from planner.parallel import Parallel
from planner.readers import read_config
from tests.planner.sglang_cases import codes, config, planned

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

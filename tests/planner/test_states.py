"""States, indexers and dialects: what must be refused by its key, what wins where two keys disagree, and files without a model_type."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ConfigError, MissingField, UnsupportedValue
from planner.footprint import measure
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources.text import parse
from tests.conftest import refused, small_configs

CONFIGS = dict(small_configs())


@pytest.mark.parametrize(
    ("name", "change", "error", "field"),
    [
        ("glm_moe_dsa", {"indexer_types": ["full"] * 7}, UnsupportedValue, "indexer_types"),
        ("glm_moe_dsa", {"index_topk_pattern": "FFFFFFFX"}, UnsupportedValue, "index_topk_pattern"),
        ("glm_moe_dsa", {"mlp_layer_types": ["dense"] * 7 + ["thin"]}, UnsupportedValue, "mlp_layer_types"),
        ("deepseek_v32", {"index_head_dim": None}, MissingField, "index_head_dim"),
        ("deepseek_v4", {"sliding_window": None}, MissingField, "sliding_window"),
        ("deepseek_v4", {"num_key_value_heads": 2}, UnsupportedValue, "num_key_value_heads"),
        ("deepseek_v4", {"compress_rate_hca": 1}, UnsupportedValue, "compress_rate_hca"),
        ("mistral_large4", {"kv_source_layers": [0, 2, 2, 3, 4, 5, 5, 5]}, UnsupportedValue, "kv_source_layers"),
        ("kimi_linear", {"linear_attn_config": {"num_heads": 8, "head_dim": 128, "kda_layers": [1, 2], "full_attn_layers": [4]}}, UnsupportedValue,
         "linear_attn_config.kda_layers"),
        ("bailing_hybrid", {"short_conv_kernel_size": None}, MissingField, "short_conv_kernel_size"),
        ("qwen3_5_text", {"mamba_ssm_dtype": "float7"}, UnsupportedValue, "mamba_ssm_dtype"),
        ("qwen3_5_text", {"linear_num_value_heads": None}, MissingField, "linear_num_value_heads"),
        ("bamba", {"mamba_n_heads": 31}, UnsupportedValue, "mamba_n_heads"),
        ("mamba2", {"head_dim": 63}, UnsupportedValue, "num_heads"),
        ("granitemoehybrid", {"layer_types": ["mamba"] * 7 + ["window"]}, UnsupportedValue, "layer_types"),
        ("nemotron_h", {"hybrid_override_pattern": "M-M*-MX"}, UnsupportedValue, "hybrid_override_pattern"),
        ("nemotron_h", {"hybrid_override_pattern": None}, UnsupportedValue, "hybrid_override_pattern"),
        ("minimax_m1", {"attn_type_list": [0, 1]}, UnsupportedValue, "attn_type_list"),
        ("minimax_m1", {"attn_type_list": [0, 2] * 4}, UnsupportedValue, "attn_type_list"),
        ("lfm2", {"conv_dim": 512}, UnsupportedValue, "conv_dim"),
        ("gla", {"attn": {"layers": [0]}}, UnsupportedValue, "attn"),
        ("recurrent_gemma", {"block_types": ["recurrent", "wide"]}, UnsupportedValue, "block_types"),
        ("xlstm", {"v_dim_factor": "1"}, UnsupportedValue, "v_dim_factor"),
        ("hrm_text", {"num_layers_per_stack": 3}, UnsupportedValue, "num_hidden_layers"),
        ("inkling2_loop_text", {"loop_layer_index_end": 7}, UnsupportedValue, "loop_layer_index_end"),
        ("zaya", {"layer_types": ["hybrid_sliding"] * 8}, MissingField, "sliding_window"),
        ("longcat_flash", {"kv_lora_rank": None}, MissingField, "kv_lora_rank"),
    ],
)  # fmt: skip
def test_refused_with_the_field(name: str, change: dict[str, Any], error: type[ConfigError], field: str) -> None:
    with refused(error, field):
        read_config({**CONFIGS[name], **change})


def state_bytes(config: dict[str, Any]) -> int:
    return measure(read_config(config), None, Scenario(engine="architecture", tokens=1, sequences=1)).state_bytes_per_sequence


def test_which_key_wins() -> None:
    falcon = CONFIGS["falcon_mamba"]
    assert state_bytes(falcon) == state_bytes({**falcon, "expand": 2})  # intermediate_size, not expand x hidden
    nemotron = CONFIGS["nemotron_h"]
    assert len(read_config(nemotron).layers) == len(nemotron["hybrid_override_pattern"]) != nemotron["num_hidden_layers"]
    assert state_bytes(nemotron) == state_bytes({**nemotron, "expand": 1})
    long = {**nemotron, "hybrid_override_pattern": None, "layers_block_type": ["mamba", "attention", "mlp", "moe"] * 60}
    assert {k.kind: len(w) for k, w in read_config(long).cache_groups()} == {"state": 60, "full": 60}
    listed = {**CONFIGS["glm_moe_dsa"], "indexer_types": ["full"] + ["shared"] * 7}
    assert {k.kind: len(w) for k, w in read_config(listed).cache_groups()} == {"latent": 8, "index": 1}


def test_both_names_of_a_layer_type_are_known() -> None:
    old, new = CONFIGS["granitemoehybrid"], ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2
    assert read_config({**old, "layer_types": new}).layers == read_config(old).layers


def test_files_without_a_model_type() -> None:
    v3 = {k: v for k, v in CONFIGS["deepseek_reference"].items() if k != "model_type"}
    spec = read_config(v3)
    assert spec.layers == read_config(CONFIGS["deepseek_reference"]).layers
    assert (spec.dtype.name, spec.quantization) == ("bf16", "fp8")  # its dtype names the weights
    v32 = read_config({**v3, "index_n_heads": 8, "index_head_dim": 128})
    assert {k.kind for k, _ in v32.cache_groups()} == {"latent", "index"}
    mistral = {"dim": 1024, "n_layers": 8, "n_heads": 16, "hidden_dim": 2816, "vocab_size": 32000, "q_lora_rank": 384, "kv_lora_rank": 512,
               "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64,
               "moe": {"num_experts": 16, "num_experts_per_tok": 4, "expert_hidden_dim": 256, "num_shared_experts": 1, "first_k_dense_replace": 3}}  # fmt: skip
    large = read_config(mistral)
    assert [bool(layer.mlp and layer.mlp.experts) for layer in large.layers] == [False] * 3 + [True] * 5
    nameless = {k: v for k, v in CONFIGS["minicpm3"].items() if k != "model_type"}
    assert read_config(nameless).layers == read_config(CONFIGS["minicpm3"]).layers


def test_an_open_time_step_limit_is_no_bad_number() -> None:
    raw, _ = parse(b'{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    assert raw["time_step_limit"] == [0.0, None]
    with pytest.raises(ConfigError) as caught:
        parse(b'{"model_type": "mamba2", "time_step_limit": [0.0, NaN], "x": 1}')
    assert caught.value.field == "time_step_limit[1]"

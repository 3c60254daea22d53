"""Dialects of the dense and MoE families: what each key does to the cache, and what is refused rather than guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import ConfigError, MissingField, UnsupportedModel, UnsupportedValue
from planner.footprint import measure
from planner.readers import read_config
from planner.scenario import Scenario
from planner.weights import parameters
from tests.conftest import CONFIGS, refused


def config(name: str, **change: Any) -> dict[str, Any]:
    raw = {**json.loads((CONFIGS / f"{name}.json").read_text()), **change}
    return {k: v for k, v in raw.items() if v != "gone"}


def windows(raw: dict[str, Any]) -> list[Any]:
    """The window of each layer: None for full attention, "-" for a layer that keeps nothing."""
    return [layer.caches[0].window if layer.caches else "-" for layer in read_config(raw).layers]  # type: ignore[union-attr]


FULL, W = None, 1024


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("olmo3", {}, [W, W, W, FULL] * 2),
        ("olmo3", {"sliding_window": "gone"}, [4096, 4096, 4096, FULL] * 2),  # the class default, where the key is absent
        ("olmo3", {"sliding_window": None}, [FULL] * 8),  # null says: none
        ("olmo3", {"layer_types": ["full_attention"] * 7 + ["sliding_attention"]}, [FULL] * 7 + [W]),
        ("olmo2", {"sliding_window": 128}, [128] * 8),  # a stray window counts: caches go by the key, not by the family
        ("exaone4", {"sliding_window_pattern": "LG"}, [W, FULL] * 4),
        ("exaone4", {"sliding_window_pattern": 2}, [W, FULL] * 4),
        ("cohere2", {"sliding_window_pattern": 2}, [W, FULL] * 4),
        ("cwm", {}, [FULL, W, W, W] * 2),
        ("smollm3", {"sliding_window": W}, [FULL] * 8),  # not switched on
        ("smollm3", {"sliding_window": W, "use_sliding_window": True}, [FULL, FULL, FULL, W] * 2),  # the layers without RoPE
        ("qwen2_moe", {"use_sliding_window": False}, [FULL] * 8),
        ("mellum", {"layer_types": "gone"}, [FULL] * 8),
        ("laguna", {}, [FULL, 512, 512, 512] * 2),
        ("gemma4_text", {}, [512] * 5 + [FULL] + ["-"] * 6),
        ("gemma4_text", {"num_kv_shared_layers": 0}, ([512] * 5 + [FULL]) * 2),
        ("gemma4_text", {"num_hidden_layers": 11, "num_kv_shared_layers": 0}, [512] * 5 + [FULL] + [512] * 4 + [FULL]),  # the last is full
        ("gemma3n_text", {}, [512] * 4 + [FULL] + ["-"] * 5),
        ("nemotron_nas", {}, [FULL, "-", FULL, "-", FULL]),
        ("step3p5", {}, [FULL, 512, 512, 512] * 2),  # the ninth entry belongs to a draft layer
        ("gpt_neo", {}, [FULL] * 8),  # local attention masks, and frees nothing
    ],
)
def test_windows_by_layer(name: str, change: dict[str, Any], expected: list[Any]) -> None:
    assert windows(config(name, **change)) == expected


@pytest.mark.parametrize(
    ("name", "change", "heads"),
    [
        ("olmo", {"num_key_value_heads": "gone"}, {(16, 64, 64)}),
        ("phi_msft", {"n_head_kv": 4}, {(4, 64, 64)}),
        ("chatglm", {"multi_query_attention": False}, {(16, 64, 64)}),
        ("qwen", {"kv_channels": 128}, {(16, 128, 128)}),
        ("dbrx", {}, {(4, 64, 64)}),
        ("gemma4_text", {}, {(4, 64, 64), (2, 128, 128)}),
        ("gemma4_text", {"attention_k_eq_v": False}, {(4, 64, 64), (4, 128, 128)}),  # without it the number of global KV heads is not used
        ("gemma4_unified_text", {}, {(4, 64, 64), (4, 128, 128)}),
        ("mimo_v2_flash", {}, {(4, 96, 64), (8, 96, 64)}),
        ("mimo_v2_flash", {"swa_num_key_value_heads": "gone"}, {(4, 96, 64), (8, 96, 64)}),
        ("openelm", {}, {(3, 64, 64), (4, 64, 64), (5, 64, 64)}),
        ("step3p5", {}, {(4, 64, 64), (8, 64, 64)}),
        ("telechat", {"num_key_value_heads": 4}, {(4, 64, 64)}),
        ("seed_oss", {"head_dim": "gone"}, {(4, 128, 128)}),  # the class default
        ("seed_oss", {"head_dim": None}, {(4, 64, 64)}),  # null: hidden / heads
    ],
)
def test_heads(name: str, change: dict[str, Any], heads: set[tuple[int, int, int]]) -> None:
    kinds = {kind for kind, _ in read_config(config(name, **change)).cache_groups()}
    assert {(k.heads, k.k_dim, k.v_dim) for k in kinds} == heads  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "change", "error", "field"),
    [
        ("glm4", {"num_key_value_heads": "gone"}, MissingField, "num_key_value_heads"),
        ("granite", {"kv_lora_rank": 512}, UnsupportedModel, "kv_lora_rank"),
        ("olmo2", {"sliding_window_pattern": 4}, UnsupportedModel, "sliding_window_pattern"),
        ("olmo2", {"num_kv_shared_layers": 2}, UnsupportedModel, "num_kv_shared_layers"),
        ("phi", {"add_cross_attention": True}, UnsupportedModel, "add_cross_attention"),
        ("minicpm", {"sparse_config": {"kernel_size": 32}}, UnsupportedModel, "sparse_config"),
        ("baichuan", {"num_key_value_heads": 4}, UnsupportedValue, "num_key_value_heads"),
        ("mpt", {"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 4}}, UnsupportedValue, "attn_config.kv_n_heads"),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, UnsupportedValue, "attn_config.attn_type"),
        ("dbrx", {"attn_config": None}, UnsupportedValue, "attn_config"),
        ("minimax_m2", {"attn_type_list": [1, 0] * 4}, UnsupportedValue, "attn_type_list"),
        ("exaone4", {"sliding_window_pattern": "LLX"}, UnsupportedValue, "sliding_window_pattern"),
        ("laguna", {"gating": "per-layer"}, UnsupportedValue, "gating"),
        ("hunyuan", {"moe_topk": [1, 2] * 4}, UnsupportedValue, "moe_topk"),
        ("hunyuan", {"use_mla": True}, UnsupportedValue, "use_mla"),
        ("gemma4_text", {"num_kv_shared_layers": 12}, UnsupportedValue, "num_kv_shared_layers"),
        ("gemma4_unified_text", {"per_layer_config": {"05": {"sliding_window": 8}}}, UnsupportedValue, "per_layer_config.05"),
        ("nemotron_nas", {"block_configs": None}, UnsupportedValue, "block_configs"),
        ("openelm", {"num_kv_heads": [3, 3, 4, 3]}, UnsupportedValue, "num_kv_heads"),
        ("step3p5", {"layer_types": ["full_attention"] * 7}, UnsupportedValue, "layer_types"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": None}, UnsupportedValue, "hybrid_layer_pattern"),
        ("bert", {"architectures": ["BertForMaskedLM"]}, UnsupportedModel, "architectures"),
        ("hy_v3", {"mlp_layer_types": ["thin"] * 8}, UnsupportedValue, "mlp_layer_types"),
    ],
)
def test_refused_with_the_key(name: str, change: dict[str, Any], error: type[ConfigError], field: str) -> None:
    with refused(error, field):
        read_config(config(name, **change))


def test_a_gemma4_layer_that_shares_names_its_lender() -> None:
    assert [layer.shares_with for layer in read_config(config("gemma4_text")).layers] == [None] * 6 + [4] * 5 + [5]


def test_vllm_windows_one_token_more_for_cohere2() -> None:
    # window 1,025: 1,024 + 2 x 2,048 tokens in flight fill 320 blocks and one more; full: 8,192 / 16
    scenario = Scenario(engine="vllm", tokens=8192, max_model_len=8192, max_num_batched_tokens=2048)
    groups = measure(read_config(config("cohere2")), None, scenario).allocation.stages[0][0].groups
    assert {g.admission.units(8192) for g in groups} == {512, 321}


def test_vllm_sums_the_pages_of_uneven_layers() -> None:
    # one block of 16 tokens: (4 + 2 + 4) KV heads x 2 x 64 x 2 bytes
    m = measure(read_config(config("nemotron_nas")), None, Scenario(engine="vllm", tokens=3000))
    assert m.allocation.stages[0][0].block_bytes == 16 * 10 * 2 * 64 * 2


def test_experts_in_a_dense_family_make_the_count_an_estimate() -> None:
    assert parameters(read_config(config("xverse"))).exact
    assert not parameters(read_config(config("xverse", num_experts=8))).exact

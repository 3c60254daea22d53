"""Each family's reader on a hand-written config: literal bytes worked out on paper, and a twin table of files that must be refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from planner.answers import plan_json
from planner.capacity import plan
from planner.errors import ConfigError, MissingField, NotAConfig, PlannerError, UnsupportedModel, UnsupportedValue
from planner.footprint import measure
from planner.hardware import find
from planner.readers import READERS, read_config
from planner.scenario import Scenario
from planner.weights import parameters
from tests.conftest import CONFIGS, refused, small_configs
from tests.planner import expected, expected_dense, expected_latent_state, expected_nested, expected_new

EXPECTED = expected.EXPECTED | expected_dense.EXPECTED | expected_latent_state.EXPECTED | expected_nested.EXPECTED | expected_new.EXPECTED


def engine_bytes(config: dict[str, Any], engine: str) -> int:
    return measure(read_config(config), None, Scenario(engine=engine, tokens=3000, sequences=1)).engine_bytes


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_cache_of_each_family(name: str) -> None:
    config = dict(small_configs())[name]
    kinds, architecture, transformers = EXPECTED[name]
    found: dict[str, int] = {}
    for kind, where in read_config(config).cache_groups():
        found[kind.kind] = found.get(kind.kind, 0) + len(where)
    assert found == kinds
    assert engine_bytes(config, "architecture") == architecture
    assert engine_bytes(config, "transformers") == transformers


def test_every_row_of_the_table_names_a_reader() -> None:
    assert all(callable(READERS[model_type]) for model_type in READERS)


def test_every_config_has_an_expectation_and_every_reader_a_config() -> None:
    assert {p.stem for p in CONFIGS.glob("*.json")} == set(EXPECTED)
    covered = {c["model_type"] for _, c in small_configs()} | {c["text_config"]["model_type"] for _, c in small_configs() if "text_config" in c}
    assert set(READERS) <= covered


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # vocabulary x hidden x 2 + layers x (q + k + v + o + gate, up, down + 2 norms) + norm
        ("llama", 2 * 32000 * 1024 + 8 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 2816 + 2 * 1024) + 1024, None),
        ("gpt2", 32000 * 1024 + 1024 * 1024 + 8 * (12 * 1024 * 1024 + 13 * 1024) + 2 * 1024, None),
        # embedding half as wide, with projections in and out; positions carry two rows more
        ("opt", 32000 * 512 + 2050 * 1024 + 2 * 512 * 1024 + 8 * (12 * 1024 * 1024 + 13 * 1024) + 2 * 1024, None),
        ("mixtral", 2 * 32000 * 1024 + 8 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 8 * 1024 + 8 * 3 * 1024 * 2816 + 2 * 1024) + 1024,
         2 * 32000 * 1024 + 8 * (2 * 1024 * 1024 + 2 * 1024 * 256 + 8 * 1024 + 2 * 3 * 1024 * 2816 + 2 * 1024) + 1024),
    ],
)  # fmt: skip
def test_parameters_by_hand(name: str, total: int, active: int | None) -> None:
    p = parameters(read_config(dict(small_configs())[name]))
    assert (p.total, p.active, p.exact) == (total, active or total, True)


LLAMA = json.loads((CONFIGS / "llama.json").read_text())


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"num_hidden_layers": None}, MissingField, "num_hidden_layers"),
        ({"hidden_size": None}, MissingField, "hidden_size"),
        ({"num_attention_heads": None}, MissingField, "num_attention_heads"),
        ({"num_hidden_layers": -1}, UnsupportedValue, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, UnsupportedValue, "num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, UnsupportedValue, "num_hidden_layers"),
        ({"hidden_size": 10**40}, UnsupportedValue, "hidden_size"),
        ({"num_attention_heads": True}, UnsupportedValue, "num_attention_heads"),
        ({"num_attention_heads": [32]}, UnsupportedValue, "num_attention_heads"),
        ({"num_key_value_heads": 7.5}, UnsupportedValue, "num_key_value_heads"),
        ({"num_key_value_heads": 0}, UnsupportedValue, "num_key_value_heads"),
        ({"num_key_value_heads": 5}, UnsupportedValue, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, UnsupportedValue, "num_key_value_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, UnsupportedValue, "num_attention_heads"),
        ({"layer_types": ["full_attention"] * 3, "sliding_window": 8}, UnsupportedValue, "layer_types"),
        ({"layer_types": ["new_attention"] * 8, "sliding_window": 8}, UnsupportedValue, "layer_types"),
        ({"torch_dtype": "float7"}, UnsupportedValue, "torch_dtype"),
        ({"model_type": "mistral", "sliding_window": "wide"}, UnsupportedValue, "sliding_window"),
        ({"model_type": "gemma3", "num_hidden_layers": None}, UnsupportedValue, "text_config"),
        ({"model_type": "brand_new", "kv_lora_rank": 512}, UnsupportedModel, "kv_lora_rank"),
        ({"model_type": "brand_new", "multi_query": False}, UnsupportedModel, "multi_query"),
        ({"model_type": "brand_new", "layer_types": ["full_attention"] * 8}, UnsupportedModel, "layer_types"),
        ({"model_type": "brand_new", "attn_config": {}}, UnsupportedModel, "attn_config"),
        ({"model_type": "brand_new", "is_encoder_decoder": True}, UnsupportedModel, "is_encoder_decoder"),
        ({"model_type": "brand_new", "architectures": ["NewForMaskedLM"]}, UnsupportedModel, "architectures"),
        ({"model_type": "brand_new", "text_config": {"model_type": "newer"}}, UnsupportedModel, "text_config.model_type"),
    ],
)
def test_refused_with_the_field(change: dict[str, Any], error: type[ConfigError], field: str) -> None:
    with refused(error, field):
        read_config({**LLAMA, **change})


def test_only_an_object_is_a_config() -> None:
    with pytest.raises(NotAConfig):
        read_config([])  # type: ignore[arg-type]


def test_an_unknown_type_with_plain_keys_is_read_and_marked() -> None:
    spec = read_config({**LLAMA, "model_type": "brand_new"})
    assert not spec.verified
    assert not spec.parameters_exact
    assert engine_bytes({**LLAMA, "model_type": "brand_new"}, "architecture") == 24_576_000
    assert "unverified" in {n.code for n in spec.notes}


def test_a_key_declared_harmless_is_kept_in_the_plan() -> None:
    config = {**LLAMA, "model_type": "brand_new", "fancy_router_width": 12}
    with pytest.raises(UnsupportedModel):
        read_config(config)
    spec = read_config(config, harmless=("fancy_router_width",))
    assert [n.field for n in spec.notes if n.code == "declared_harmless"] == ["fancy_router_width"]


def test_null_and_zero_head_sizes_are_absent() -> None:
    for value in (None, 0):
        assert engine_bytes({**LLAMA, "head_dim": value}, "architecture") == 24_576_000


def test_the_window_may_be_wider_than_the_context_and_is_still_a_window() -> None:
    spec = read_config({**LLAMA, "model_type": "mistral", "sliding_window": 100_000})
    assert {k.kind for k, _ in spec.cache_groups()} == {"window"}


def test_dtype_is_found_outside_the_nested_part() -> None:
    nested = {"model_type": "gemma3", "torch_dtype": "float16", "text_config": {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}}
    assert read_config(nested).dtype.name == "fp16"
    del nested["torch_dtype"]
    assert "no_dtype" in {n.code for n in read_config(nested).notes}


def test_the_whole_model_decides_whether_embeddings_are_tied() -> None:
    inner = {**LLAMA, "tie_word_embeddings": False}
    assert read_config({"model_type": "some_vlm", "tie_word_embeddings": True, "text_config": inner}).tied_embeddings
    assert not read_config({"model_type": "some_vlm", "text_config": inner}).tied_embeddings


@pytest.mark.parametrize(
    ("quantization", "wish"),
    [
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, None),
        ({"quant_method": "gptq", "bits": 4}, None),
    ],
)
def test_the_cache_dtype_follows_its_own_key_not_the_weights(quantization: dict[str, Any], wish: str | None) -> None:
    assert read_config({**LLAMA, "quantization_config": quantization}).kv_dtype_wish == wish


VALUES: list[Any] = [None, True, False, 0, 1, -1, 3, 7, 4096, 10**9, 10**20, 1.5, 16.0, "x", "", [], [1], {}, {"a": 1}, ["full_attention"] * 8, "64", 1e308]


@pytest.mark.parametrize("seed", range(200))
def test_a_mutated_config_is_planned_or_refused_but_never_crashes(seed: int) -> None:
    chance = random.Random(seed)
    name, config = chance.choice(list(small_configs()))
    section = config.get("text_config", config)
    for _ in range(chance.randint(1, 3)):
        section[chance.choice([*section, "quantization_config", "layer_types", "sliding_window"])] = chance.choice(VALUES)
    try:
        spec = read_config(config, name)
        for engine in ("architecture", "transformers", "vllm"):
            plan_json(plan(spec, find("H100 SXM"), Scenario(engine=engine, tokens=100, sequences=3)), remedies=True)
    except PlannerError as e:
        refused = e.to_json()
    else:
        return
    assert all(refused[k] for k in ("message", "hint", "type"))

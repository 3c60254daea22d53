"""The keys named for a group are those that decide it, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from planner.readers import read_config
from planner.why import deciding_keys
from tests.conftest import small_configs
from tests.planner.test_drafts import config


def keys_of(raw: dict[str, Any]) -> dict[str, set[str]]:
    return {kind.kind: {key for key, _ in keys} for kind, keys in deciding_keys(raw).items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama", {"full": {"num_hidden_layers", "num_key_value_heads", "hidden_size", "num_attention_heads"}}),
        ("deepseek_v3", {"latent": {"num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"}}),
        ("mamba", {"state": {"num_hidden_layers", "hidden_size", "expand", "state_size", "conv_kernel"}}),
    ],
)
def test_keys_by_family(name: str, expected: dict[str, set[str]]) -> None:
    found = keys_of(config(name))
    assert found.keys() == expected.keys()
    for kind, keys in expected.items():
        raw = config(name)
        assert found[kind] == {k for k in keys if k in raw}, kind


def test_a_key_decides_its_own_groups_only() -> None:
    found = keys_of(config("qwen3_5_text"))
    assert "linear_value_head_dim" in found["state"]
    assert "linear_value_head_dim" not in found["full"]
    assert "head_dim" in found["full"]
    assert "head_dim" not in found["state"]
    assert "full_attention_interval" in found["full"] & found["state"]


def test_keys_inside_a_section_carry_their_path() -> None:
    raw = config("qwen2_vl") if "text_config" in config("qwen2_vl") else config("kimi_vl")
    assert all(any(key.startswith("text_config.") for key in keys) for keys in keys_of(raw).values())


def test_every_small_config_is_explained_and_left_as_it_was() -> None:
    """A model that keeps anything has a deciding key, or every figure of it is a class default."""
    explained = 0
    for name, raw in small_configs():
        before = repr(raw)
        found = deciding_keys(raw)
        assert repr(raw) == before, name
        assert set(found) == {kind for kind, _ in read_config(raw).cache_groups()}, name
        explained += bool(found) and all(found.values())
        assert not {"vocab_size", "tie_word_embeddings"} & {key for keys in found.values() for key, _ in keys}, name
    assert explained >= 180

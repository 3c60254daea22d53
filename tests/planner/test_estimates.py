"""Counts of weights that are estimates: the band of each kind of cause, worked out on paper, and where it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.__main__ import main
from planner.api import answer
from planner.budget import weights_line
from planner.engines import engine
from planner.readers import read_config
from planner.scenario import Scenario
from planner.units import short_count
from planner.weights import parameters
from tests.conftest import CONFIGS, small_configs

SMALL = dict(small_configs())
# Sizes of the small configs: vocabulary, hidden, layers, feed-forward width, one expert.
V, H, N, W, E = 32000, 1024, 8, 2816, 256


def changed(name: str, **change: Any) -> dict[str, Any]:
    raw = {**SMALL[name], **change}
    return {k: v for k, v in raw.items() if v != "gone"}


def composite(model_type: str, **text: Any) -> dict[str, Any]:
    return {"model_type": model_type, "text_config": changed("llama", **text)}


@pytest.mark.parametrize(
    ("raw", "code", "fewer", "more"),
    [
        # a head of its own or the embedding: the whole model's class ties, its text part does not say
        (composite("internvl"), "doubt_tie", V * H, 0),
        (composite("idefics3", tie_word_embeddings=True), "doubt_tie", 0, V * H),
        (changed("nemotron_h", tie_word_embeddings=True), "doubt_tie", 0, V * H),
        (changed("t5", tie_word_embeddings=False), "doubt_tie", V * 256, 0),
        # 16 heads of 128 + 64: a query projection of hidden x 3072, or hidden x 1536 with its norm and 1536 x 3072
        (changed("deepseek_v3", q_lora_rank="gone"), "doubt_query_rank", 0, N * (H * 1536 + 1536 + 1536 * 3072 - H * 3072)),
        # a draft without experts: one dense part, or eight and a router
        (changed("mixtral", num_local_experts="gone"), "doubt_experts_left_out", 0, N * (7 * 3 * H * W + 8 * H)),
        (changed("xverse", num_experts=8), "doubt_experts_unread", N * 3 * H * W, N * (8 * 3 * H * W + 8 * H)),
        # the class of transformers knows another number of dense layers, or none of the keys
        (changed("glm4_moe_lite", first_k_dense_replace=2), "doubt_expert_layers", 0, H * 16 + 3 * H * E * 17 - 3 * H * W),
        (changed("longcat_flash"), "doubt_idle_experts", 0, 4 * 8 * 2 * E * H),
        (changed("helium", head_dim=32), "doubt_class_differs", 0, N * H * 16 * 32),
        (changed("mpt", expansion_ratio=8), "doubt_class_differs", N * 2 * H * 4 * H, 0),
        (changed("minimax", shared_intermediate_size=512), "doubt_class_differs", 0, N * (3 * H * 512 + H)),
        (changed("openelm", ffn_multipliers="gone"), "doubt_width", 4 * 3 * H * 2048 * 3 // 4, 4 * 3 * H * 2048),
    ],
)
def test_bands_by_hand(raw: dict[str, Any], code: str, fewer: int, more: int) -> None:
    spec = read_config(raw)
    assert [(d.fewer, d.more) for d in spec.doubts if d.code == code] == [(fewer, more)]
    assert code in {n.code for n in spec.notes}
    p = parameters(spec)
    assert not p.exact
    assert p.low <= p.total - fewer <= p.total + more <= p.high


def test_small_parts_hold_biases_norms_and_nothing_as_large_as_a_matrix() -> None:
    exact, estimate = parameters(read_config(SMALL["llama"])), parameters(read_config(SMALL["yi"]))
    assert exact.total == estimate.total
    assert (exact.low, exact.high) == (exact.total, exact.total)
    biases = N * (2 * (H + 256) + 2 * W + H)  # q, k, v, o, gate, up, down: a bias is as long as what comes out
    assert estimate.high - estimate.total > biases
    assert estimate.high - estimate.total < H * H
    assert estimate.total - estimate.low == N * 2 * H + H  # the norms that are counted


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen3_moe", "arcee", "olmo2", "starcoder2"])
def test_the_allow_list_reader_s_band_holds_what_the_family_really_is(name: str) -> None:
    """A family that we know, read as if nobody had met it."""
    truth = parameters(read_config(SMALL[name])).total
    keys = ("use_bias", "mlp_only_layers", "norm_topk_prob")
    p = parameters(read_config({k: v for k, v in SMALL[name].items() if k not in keys} | {"model_type": "brand_new", "architectures": ["NewForCausalLM"]}))
    assert p.low <= truth <= p.high
    assert p.high < 2 * truth


@pytest.mark.parametrize(
    ("name", "key", "value"), [("mistral", "num_key_value_heads", 8), ("lfm3", "head_dim", 128), ("flint", "shared_expert_intermediate_size", 1024)]
)
def test_a_size_that_is_left_out_is_the_class_s_own(name: str, key: str, value: int) -> None:
    left, written = read_config(changed(name, **{key: "gone"})), read_config(changed(name, **{key: value}))
    assert parameters(left) == parameters(written)
    assert left.cache_groups() == written.cache_groups()
    assert [n.field for n in left.notes if n.code == "class_default" and n.field == key] == [key]
    assert read_config(changed(name, **{key: None})).cache_groups()  # a null is a value: nothing is filled in


def test_low_and_high_are_in_the_answers_of_an_estimate_alone(capsys: pytest.CaptureFixture[str]) -> None:
    exact, about = str(CONFIGS / "llama.json"), str(CONFIGS / "longcat_flash.json")
    for command, options in (("read", {}), ("kv", {"tokens": 100})):
        assert set(answer(command, exact, options)["parameters"]) == {"total", "active", "embedding", "routed_experts", "estimated"}
        p = answer(command, about, options)["parameters"]
        assert p["estimated"]
        assert (p["low"], p["high"]) == (p["total"], p["total"] + 4 * 8 * 2 * E * H)
    assert main(["read", about]) == 0
    out = capsys.readouterr().out
    assert "about 216.1 M (216.1 M to 232.9 M) parameters" in out
    assert "16,777,216 elements" in out  # the reason
    assert main(["read", exact]) == 0
    assert "155,730,944 parameters" in capsys.readouterr().out
    assert json.dumps(p)


def test_the_ledger_carries_the_band_in_bytes() -> None:
    spec, s = read_config(SMALL["longcat_flash"]), Scenario(engine="vllm", tokens=100)
    line, p = weights_line(spec, s, engine("vllm").settle(spec, None, s), 0), parameters(spec)
    assert line.kind == "assumed"
    assert (line.low_bytes, line.high_bytes) == (line.bytes * p.low // p.total, line.bytes * p.high // p.total)


def test_short_counts() -> None:
    assert [short_count(n) for n in (15_706_484_224, 505_425_920, 12_345)] == ["15.71 B", "505.4 M", "12,345"]

"""Shares of ranks by hand: heads, layers, requests, weights."""

from __future__ import annotations

import pytest

from planner.api import answer
from planner.cache import Rows
from planner.draft import with_stored_weights
from planner.dtypes import DTYPES, kv_layout
from planner.engines.architecture import ideal_term
from planner.engines.vllm.specs import Spec
from planner.errors import InvalidInput
from planner.model import Weight
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from planner.weights import WeightFormat, bytes_on_rank, elements_on_rank, stored_bytes
from tests.conftest import refused

BF16 = WeightFormat(matrix=DTYPES["bf16"], rest=DTYPES["bf16"], kind="derived")


@pytest.mark.parametrize(("heads", "tp", "dp", "kept"), [(8, 1, 1, 8), (8, 8, 1, 1), (8, 16, 1, 1), (10, 4, 1, 2), (1, 8, 1, 1), (8, 8, 4, 4)])
def test_kv_heads_of_a_rank(heads: int, tp: int, dp: int, kept: int) -> None:
    assert Parallel(tensor=tp, attention_data=dp).heads_on_rank(heads) == kept


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"), [(61, 4, [15, 15, 16, 15]), (62, 8, [7, 8, 8, 8, 8, 8, 8, 7]), (32, 2, [16, 16]), (5, 4, [1, 1, 2, 1]), (3, 1, [3])]
)
def test_layers_of_the_stages(layers: int, stages: int, sizes: list[int]) -> None:
    ranges = Parallel(pipeline=stages).stage_layers(layers)
    assert [len(r) for r in ranges] == sizes
    assert [i for r in ranges for i in r] == list(range(layers))


def test_what_is_copied_is_not_shared_out() -> None:
    p, kv = Parallel(tensor=4), kv_layout("bf16")
    assert ideal_term(Rows(heads=4, k_dim=64, v_dim=64), kv, DTYPES["bf16"], p, 0).unit_bytes == 256
    assert ideal_term(Rows(heads=4, k_dim=64, v_dim=64, shard="copy"), kv, DTYPES["bf16"], p, 0).unit_bytes == 1024


@pytest.mark.parametrize(("window", "blocks"), [(16, 2), (17, 2), (18, 3), (1024, 65), (1025, 65), (1026, 66)])
def test_blocks_of_a_window_while_decoding(window: int, blocks: int) -> None:
    """The last W - 1 tokens fill ceil((W - 1) / 16) blocks; one more where they do not begin at a block's edge."""
    assert Spec(type="window", kind="window", block_size=16, page_bytes=1, window=window).resident().units(10**6) == blocks


@pytest.mark.parametrize(
    ("weight", "parallel", "elements"),
    [
        (Weight(name="k_proj", shape=(1024, 4096), role="attention", parts=8), Parallel(tensor=4), 256 * 4096),
        (Weight(name="k_proj", shape=(1024, 4096), role="attention", parts=8), Parallel(tensor=16), 128 * 4096),  # one whole head, kept twice
        (Weight(name="k_proj", shape=(1024, 4096), role="attention", parts=8), Parallel(tensor=8, attention_data=8), 1024 * 4096),
        (Weight(name="kv_a", shape=(576, 7168), role="attention"), Parallel(tensor=8), 576 * 7168),
        (Weight(name="experts.up", shape=(2048, 7168), role="expert", parts=2048, copies=256), Parallel(tensor=8), 256 * 256 * 7168),
        (Weight(name="experts.up", shape=(2048, 7168), role="expert", parts=2048, copies=256), Parallel(tensor=8, expert=8), 32 * 2048 * 7168),
        (Weight(name="embed_tokens", shape=(50257, 768), role="embedding", parts=50257), Parallel(tensor=2), 25152 * 768),  # padded to 50,304
        (Weight(name="norm", shape=(4096,), role="norm", copies=2), Parallel(tensor=8), 8192),
    ],
)
def test_elements_of_a_weight_on_a_rank(weight: Weight, parallel: Parallel, elements: int) -> None:
    assert elements_on_rank(weight, parallel) == elements


@pytest.mark.parametrize(
    ("tp", "elements"),
    [
        (1, 8_030_261_248),
        # vocabulary / 8, q and o / 8, one KV head, MLP / 8, norms whole
        (8, 2 * 16_032 * 4096 + 32 * (2 * 512 * 4096 + 2 * 128 * 4096 + 3 * 1792 * 4096 + 2 * 4096) + 4096),
        (16, 2 * 8_016 * 4096 + 32 * (2 * 256 * 4096 + 2 * 128 * 4096 + 3 * 896 * 4096 + 2 * 4096) + 4096),
    ],
)
def test_weight_bytes_of_llama_on_a_rank(tp: int, elements: int) -> None:
    model = read_config(load("catalog:Llama-3.1-8B").raw)
    assert bytes_on_rank(model, BF16, Parallel(tensor=tp)) == 2 * elements


def test_stages_hold_their_layers_and_their_ends() -> None:
    model = read_config(load("catalog:Llama-3.1-8B").raw)
    p = Parallel(pipeline=4)
    stages = [bytes_on_rank(model, BF16, p, k) for k in range(4)]
    assert sum(stages) == 2 * 8_030_261_248
    assert stages[0] - stages[1] == 2 * 128_256 * 4096  # the embedding
    assert stages[3] - stages[1] == 2 * (128_256 * 4096 + 4096)  # the head and the final norm


@pytest.mark.parametrize(
    ("options", "field"), [({"tensor": 0}, "tp"), ({"tensor": 8, "attention_data": 3}, "dp_attention"), ({"tensor": 8, "expert": 3}, "ep")]
)
def test_degrees_that_do_not_divide(options: dict[str, int], field: str) -> None:
    with refused(InvalidInput, field):
        Parallel(**options)


@pytest.mark.parametrize(
    ("elements", "bytes_"),
    [
        ({"BF16": 8192, "F32": 64}, 8192 * 2 + 64 * 4),
        ({"F8_E4M3": 1000, "F32": 10, "BF16": 5}, 1050),
        ({"I32": 7, "F16": 2}, 32),  # a packed 4-bit model: words and scales, as they are stored
        ({"F4_NEW": 5}, None),
        ({}, None),
        (None, None),
    ],
)
def test_stored_bytes_by_the_headers(elements: dict[str, int] | None, bytes_: int | None) -> None:
    assert stored_bytes(elements) == bytes_


def test_given_weights_are_exact_on_one_rank_and_shared_out_on_many() -> None:
    given = 16_000_000_001
    one = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "weight_bytes": given, "tokens": 8192})
    assert one["weights_bytes_per_rank"] == [given]
    assert all(i["holds"] for i in one["identities"])
    eight = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "weight_bytes": given, "tokens": 8192, "tp": 8, "gpus": 8})
    assert given // 8 <= eight["weights_bytes_per_rank"][0] <= given // 8 * 1.01  # norms are on every rank
    assert {line["code"] for line in eight["rank_ledgers"][0]} >= {"weights_given"}


def test_a_hubs_headers_become_the_weights_line() -> None:
    s = with_stored_weights(Scenario(), {"safetensors_parameters": {"BF16": 10, "F32": 1}})
    assert s.weight_bytes == 24
    assert with_stored_weights(Scenario(weight_dtype="fp8"), {"safetensors_parameters": {"BF16": 10}}).weight_bytes is None
    assert with_stored_weights(Scenario(weight_bytes=7), {"safetensors_parameters": {"BF16": 10}}).weight_bytes == 7
    assert with_stored_weights(Scenario(), {}).weight_bytes is None

"""DeepSeek-V4 in older releases of vLLM: what a block costs and what the printed concurrency counts, by public start-up logs."""

from __future__ import annotations

import json

import pytest

from planner.capacity import CapacityPlan, plan
from planner.readers import read_config
from planner.scenario import Scenario
from planner.units import GIB
from tests.conftest import corpus_file

ROUNDING = 0.005 * GIB  # logs print GiB to two digits


def planned(version: str, pool_bytes: int, length: int, **options: object) -> CapacityPlan:
    model = read_config(json.loads(corpus_file("configs/deepseek-ai__DeepSeek-V4-Flash.json").read_text()))
    chosen = {"max_num_batched_tokens": 8192, **options}
    return plan(model, None, Scenario(engine="vllm", engine_version=version, kv_memory=pool_bytes, max_model_len=length, tokens=16, **chosen))  # type: ignore[arg-type]


# The releases of the second and third log are not printed: each figure fits one rule only.
LOGS = [
    ("0.26.0", 7.01, 912_128, {"num_speculative_tokens": 1, "async_scheduling": False}, 1_009_661),  # vLLM issue 51041, MTP
    ("0.26.0", 7.71, 121_344, {"num_speculative_tokens": 1}, 150_992),  # the same issue: two batches of 8,192 in flight
    ("0.24.0", 32.08, 262_144, {}, 2_175_276),
    ("0.21.0", 37.93, 256_000, {}, 2_497_693),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("version", "gib", "length", "options", "tokens"), LOGS, ids=[str(row[4]) for row in LOGS])
def test_printed_tokens_of_public_logs(version: str, gib: float, length: int, options: dict[str, object], tokens: int) -> None:
    low, high = (planned(version, round(gib * GIB + side), length, **options).kv_tokens or 0 for side in (-ROUNDING, ROUNDING))
    assert low <= tokens <= high


@pytest.mark.corpus
def test_no_other_rule_gives_these_tokens() -> None:
    for (version, gib, length, options, tokens), others in zip(
        LOGS, (("0.33.0", "0.22.0"), ("0.33.0", "0.25.0"), ("0.33.0", "0.22.0"), ("0.24.0", "0.27.0")), strict=True
    ):
        for other in others:
            low, high = (planned(other, round(gib * GIB + side), length, **options).kv_tokens or 0 for side in (-ROUNDING, ROUNDING))
            assert not low <= tokens <= high, (version, other)


@pytest.mark.corpus
def test_what_one_request_needs_as_an_older_release_refuses_it() -> None:
    # vLLM issue 44376: 6.66 GiB for 30,000 tokens; 118 + 2 x 259 + 4,099 + 2,065 blocks of 22 x (37,440 + 8,640 + 1,728) bytes, by hand
    p = planned("0.22.0", round(5.44 * GIB), 30_000, max_num_batched_tokens=16_384)
    assert p.bytes_per_block == 22 * (37_440 + 8_640 + 1_728) == 1_051_776
    units = 118 + 2 * 259 + 4_099 + 2_065
    assert not p.fits
    assert round(units * p.bytes_per_block / GIB, 2) == 6.66
    assert p.pools[0].units(30_000, "admission") == units


@pytest.mark.corpus
def test_a_block_costs_each_page_as_often_as_a_group_has_it() -> None:
    assert planned("0.23.0", GIB, 4096).bytes_per_block == 22 * 37_440 + 21 * 8_640 + 20 * 1_728 == 1_039_680
    assert planned("0.27.0", GIB, 4096).bytes_per_block == 21 * 37_440 + 21 * 8_640 + 20 * 1_728 == 1_002_240

"""Batch limits: each is the last batch that keeps its promise, the least of them binds, and the curves say what a batch gives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from planner.answers import plan_json
from planner.capacity import CapacityPlan, plan
from planner.errors import InvalidInput
from planner.hardware import find
from planner.latency import Served, served, tokens_per_s
from planner.latency.load import times
from planner.scenario import Scenario, from_options
from planner.throughput import MARGIN, BatchLimit, batch_limit, by_prompt, over_parallelism
from tests.planner.test_latency import llama_plan, model_of


def limit_of(p: CapacityPlan, **more: Any) -> BatchLimit:
    found = batch_limit(p, **more)
    assert isinstance(found, BatchLimit)
    return found


def served_by(p: CapacityPlan) -> Served:
    found = served(p)
    assert isinstance(found, Served)
    return found


def itl_at(p: CapacityPlan, sequences: int) -> float:
    own = served_by(p)
    return float(times(own.stages, own.speeds, own.at(sequences)).itl_s)


def test_without_targets_memory_or_the_engine_binds() -> None:
    p = llama_plan()
    limit = limit_of(p)
    assert (limit.itl, limit.ttft) == (None, None)
    assert limit.memory == p.max_sequences
    assert limit.best == min(p.max_sequences, p.setting.max_num_seqs)
    few = limit_of(llama_plan(max_num_seqs=5))
    assert (few.best, few.binding) == (5, "engine")


@pytest.mark.parametrize("target", [0.012, 0.02, 0.03])
def test_the_itl_limit_is_the_last_batch_within_the_target(target: float) -> None:
    p = llama_plan(target_itl=target)
    n = limit_of(p).itl
    assert n is not None
    assert n > 0
    assert MARGIN * itl_at(p, n) <= target < MARGIN * itl_at(p, n + 1)


def test_the_ttft_limit_likewise() -> None:
    p = llama_plan(target_ttft=0.4)
    n, own = limit_of(p).ttft, served_by(p)
    assert n is not None
    at = [float(times(own.stages, own.speeds, own.at(k)).ttft_s) for k in (n, n + 1)]
    assert MARGIN * at[0] <= 0.4 < MARGIN * at[1]


def test_a_target_that_not_even_one_sequence_meets() -> None:
    limit = limit_of(llama_plan(target_itl=0.001))
    assert (limit.itl, limit.best, limit.binding, limit.at_best) == (0, 0, "itl", None)


def test_a_margin_makes_the_limit_smaller() -> None:
    p = llama_plan(target_itl=0.02)
    with_it, without = limit_of(p).itl, limit_of(p, margin=1.0).itl
    assert with_it is not None
    assert without is not None
    assert with_it < without


def test_more_batch_gives_more_tokens_and_slower_ones() -> None:
    points = limit_of(llama_plan()).frontier
    for a, b in itertools.pairwise(points):
        assert a["sequences"] < b["sequences"]
        assert a["itl_s"] < b["itl_s"]
        assert a["output_tokens_per_s"] < b["output_tokens_per_s"]
    assert points[0]["fits"] is True
    assert points[-1]["fits"] is False


def test_chunk_size_sets_the_p99_and_hardly_the_mean() -> None:
    p = llama_plan(prompt=16_384, output=512, tokens=16_896, sequences=8)
    chunks = {c["chunk"]: c for c in limit_of(p).chunks}
    small, large = chunks[1024], chunks[8192]
    assert large["itl_p99_s"] > 2.5 * small["itl_p99_s"]
    assert abs(large["itl_s"] / small["itl_s"] - 1) < 0.35
    assert [c["chunk"] for c in chunks.values() if c["chosen"]] == [p.setting.max_num_batched_tokens]


def test_static_batching_waits_for_the_longest_output() -> None:
    even = limit_of(llama_plan()).static
    mixed = limit_of(llama_plan(lengths="1000+100:3,1000+1700:1")).static
    assert even is not None
    assert mixed is not None
    assert even["longest_over_mean"] == 1.0
    assert mixed["longest_over_mean"] == pytest.approx(1700 / 500)
    assert mixed["gain"] > 2 * even["gain"]


def test_other_degrees_are_real_plans() -> None:
    p = llama_plan(target_itl=0.02)
    found = over_parallelism(p)
    assert [d.tp for d in found] == [1, 2, 4, 8, 16]
    again = limit_of(plan(p.model, p.hardware, replace(p.scenario, tp=2, gpus=2)))
    assert found[1].limit == again
    two = found[1].to_json()
    assert again.at_best is not None
    assert two["output_tokens_per_s_per_gpu"] == again.at_best["output_tokens_per_s"] / 2


def test_ttft_rises_with_the_prompt() -> None:
    rows = by_prompt(served_by(llama_plan()), 8192)
    assert [r["prompt"] for r in rows] == [128, 256, 512, 1024, 2048, 4096, 8192]
    assert all(a["ttft_s"] < b["ttft_s"] for a, b in itertools.pairwise(rows))
    assert all(r["low_s"] < r["ttft_s"] < r["high_s"] for r in rows)


def test_the_answer_carries_its_limits() -> None:
    out = plan_json(llama_plan(target_itl=0.02))["batch_limit"]
    assert out["best"] == min(x for x in (out["b_mem"], out["b_itl"], out["b_ttft"], out["max_num_seqs"]) if x is not None)
    own = served_by(llama_plan(target_itl=0.02))
    load = own.at(out["best"])
    assert out["at_best"]["output_tokens_per_s"] == pytest.approx(float(tokens_per_s(times(own.stages, own.speeds, load), load)), rel=1e-12)


def test_data_parallel_attention_serves_its_groups_side_by_side() -> None:
    model = model_of("deepseek_v3")
    base = Scenario(prompt=512, output=128, tokens=640, sequences=8, gpus=4, tp=4, max_model_len=640)
    one = limit_of(plan(model, find("H200 SXM"), base))
    spread = limit_of(plan(model, find("H200 SXM"), replace(base, dp_attention=4)))
    assert spread.memory > 2 * one.memory


@pytest.mark.parametrize(("value", "want"), [("50ms", 0.05), ("2s", 2.0), (0.25, 0.25), ("0.25", 0.25)])
def test_targets_are_read_in_seconds(value: Any, want: float) -> None:
    assert from_options({"target-itl": value}).target_itl == want


@pytest.mark.parametrize("value", ["", "ms", "nan", "-1", 0, "1e99", True, [], {"a": 1}, "5 minutes"])
def test_targets_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput) as e:
        from_options({"target_ttft": value})
    assert e.value.field == "target_ttft"
    assert e.value.message

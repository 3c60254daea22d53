"""Samples and beams: whole blocks of the prompt once, everything else a copy; states always a copy; engines without them refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.answers import plan_json
from planner.cache import max_sequences
from planner.capacity import CapacityPlan, plan, replan
from planner.errors import PlannerError
from planner.hardware import find
from planner.heatmap import heat_map
from planner.mix import from_text
from planner.mix_capacity import mix_capacity
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load

BLOCK = 16 * 131_072


def planned(name: str = "Llama-3.1-8B", **options: Any) -> CapacityPlan:
    chosen = {"prompt": 1000, "output": 24, "tokens": 1024, "sequences": 2, "max_model_len": 4096, **options}
    return plan(read_config(load(f"catalog:{name}").raw, name), find("H100 SXM"), Scenario(**chosen))


def codes(p: CapacityPlan) -> set[str]:
    return {n.code for n in p.notes}


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"samples": 1}, (2 * 64 + 1) * BLOCK),
        ({"samples": 4}, (2 * (4 * 64 - 3 * 62) + 1) * BLOCK),  # 1,000 // 16 = 62 blocks once
        ({"beams": 4}, (2 * (4 * 64 - 3 * 62) + 1) * BLOCK),
        ({"samples": 4, "shared_prefix": 512}, (2 * (4 * 64 - 3 * 62) - 32 + 1) * BLOCK),  # and 32 blocks once for both
        ({"samples": 4, "prefix_caching": False}, (2 * 4 * 64 + 1) * BLOCK),
        ({"samples": 4, "prompt": None, "output": None}, (2 * 4 * 64 + 1) * BLOCK),
        ({"samples": 4, "engine": "trtllm"}, 2 * (4 * 32 - 3 * 31) * 2 * BLOCK),
        ({"beams": 4, "engine": "trtllm", "prefix_caching": False}, 2 * (4 * 32 - 3 * 31) * 2 * BLOCK),  # context blocks are shared anyway
        ({"samples": 4, "engine": "trtllm", "prefix_caching": False}, 2 * 4 * 32 * 2 * BLOCK),
        ({"samples": 4, "engine": "sglang"}, 2 * (4 * 1024 - 3 * 1000) * 131_072),
        ({"beams": 4, "engine": "transformers"}, 2 * 4 * 1024 * 131_072),
        ({"samples": 3, "engine": "architecture"}, 2 * 3 * 1024 * 131_072),
    ],
)
def test_bytes_by_hand(options: dict[str, Any], size: int) -> None:
    p = planned(**options)
    assert p.footprint.engine_bytes == size
    assert all(i["holds"] for i in plan_json(p)["identities"])
    n = max(options.get("samples", 1), options.get("beams", 1))
    assert p.footprint.architecture_bytes == 2 * n * 1024 * 131_072
    assert (p.footprint.fan_bytes_saved > 0) == any(g.code == "samples" and g.bytes < 0 for g in p.gap)


def test_states_and_windows_are_copies() -> None:
    """A state is never shared; of a window, blocks of the prompt only while they are still needed."""
    one, four = planned("Qwen3-Next-80B-A3B", gpus=4), planned("Qwen3-Next-80B-A3B", gpus=4, samples=4)
    pool = one.pools[0]
    states = sum(g.resident.extra_units for g in pool.groups if g.kind == "state")
    rows = [g for g in pool.groups if g.kind != "state"]
    shared = sum(g.shared_units(1024, pool.aligned(1000)) for g in rows)
    units = 4 * (states + sum(g.resident.units(1024) for g in rows)) - 3 * shared
    assert four.footprint.per_rank_bytes[0] == (2 * units + 1) * pool.block_bytes
    window = planned("Mistral-7B-v0.1", samples=4, prompt=6000, output=2000, tokens=8000, max_model_len=8000)
    group = window.pools[0].groups[0]
    assert window.footprint.engine_bytes == (2 * (4 * group.resident.units(8000) - 3 * group.shared_units(8000, 6000)) + 1) * window.pools[0].block_bytes


def test_capacity_turns_round() -> None:
    p = planned(samples=4)
    size = p.kv_pool_bytes
    most = max_sequences(p.pools, 1024, size)
    assert most == p.max_sequences == (size // BLOCK - 1) // 70
    assert p.rank_bytes(most, 1024) <= size < p.rank_bytes(most + 1, 1024)
    assert list(p.rank_bytes(np.array([1, 2, 3]), 1024)) == [p.rank_bytes(n, 1024) for n in (1, 2, 3)]
    assert replan(p, samples=1).longest_context_tokens() == p.longest_context_tokens()  # one request alone is one sample
    assert replan(p, samples=1).blocks_per_request == p.blocks_per_request
    heat = heat_map(p)
    assert heat is not None


def test_notes() -> None:
    assert "samples_share" in codes(planned(samples=2))
    assert "samples_no_prompt" in codes(planned(samples=2, prompt=None, output=None))
    assert "samples_apart" in codes(planned(beams=2, engine="transformers"))
    assert not {"samples_share", "samples_apart"} & codes(planned())


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("Llama-3.1-8B", {"samples": 2, "beams": 2}, ("samples_and_beams", "beams")),
        ("Llama-3.1-8B", {"samples": 2, "engine": "llamacpp"}, ("option_not_in_engine", "samples")),
        ("Llama-3.1-8B", {"beams": 2, "engine": "sglang"}, ("option_not_in_engine", "beams")),
        ("Qwen3-Next-80B-A3B", {"beams": 2, "engine": "trtllm"}, ("option_not_covered", "beams")),
        ("gpt-oss-20b", {"beams": 2, "engine": "trtllm", "window_pools": True}, ("option_not_covered", "beams")),
    ],
)
def test_refusals(name: str, options: dict[str, Any], error: tuple[str, str]) -> None:
    with pytest.raises(PlannerError) as e:
        planned(name, **options)
    assert (e.value.code, e.value.field) == error
    assert e.value.hint


def test_a_mix_of_lengths_is_for_one_sample() -> None:
    for options in ({"samples": 2}, {"beams": 2}):
        with pytest.raises(PlannerError) as e:
            mix_capacity(planned(**options), from_text("512+128:0.7,1024+256:0.3"))
        assert (e.value.code, e.value.field) == ("lengths_alone", next(iter(options)))

"""The least memory for a load: it fits there, and no longer one step below."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api import answer
from planner.backwards import STEPS, smallest
from planner.capacity import plan, replan
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load

BLOCK = 16 * 131_072


def made(name: str, **options: Any) -> Any:
    return plan(read_config(load(f"catalog:{name}").raw, name), find("H100 SXM"), Scenario(**options))


def test_llama_by_hand() -> None:
    """4 x 1,024 tokens are 4 x 64 blocks; with the null block 257 of 2 MiB, if the engine need not admit more than 1,024 tokens."""
    p = made("Llama-3.1-8B", tokens=1024, sequences=4, max_model_len=1024)
    assert smallest(p).kv_memory == 257 * BLOCK


def test_the_start_counts_where_it_needs_more_than_the_load() -> None:
    """One request of 131,072 tokens: 8,192 blocks and the null block."""
    assert smallest(made("Llama-3.1-8B", tokens=1024, sequences=4)).kv_memory == 8193 * BLOCK


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama-3.1-8B", {"tokens": 4096, "sequences": 8}),
        ("Gemma-3-27B", {"tokens": 8192, "sequences": 4, "max_model_len": 16_384}),
        ("Qwen3-Next-80B-A3B", {"tokens": 8192, "sequences": 4, "gpus": 4}),
        ("gpt-oss-20b", {"tokens": 8192, "sequences": 4, "engine": "sglang"}),
        ("gpt-oss-20b", {"tokens": 8192, "sequences": 4, "engine": "trtllm", "window_pools": True}),
        ("Qwen3-Next-80B-A3B", {"tokens": 8192, "sequences": 4, "engine": "trtllm", "gpus": 4, "max_num_seqs": 16}),
        ("Llama-3.1-8B", {"tokens": 4096, "prompt": 4000, "output": 96, "sequences": 8, "samples": 4}),
    ],
)
def test_one_step_less_does_not_fit(name: str, options: dict[str, Any]) -> None:
    p = made(name, **options)
    found = smallest(p)
    assert found.memory_fraction is not None
    assert found.kv_memory is not None
    assert replan(p, memory_fraction=found.memory_fraction).fits
    assert not replan(p, memory_fraction=found.memory_fraction - 1 / STEPS).fits
    assert replan(p, kv_memory=found.kv_memory).fits
    assert not replan(p, kv_memory=found.kv_memory - 1).fits


def test_what_never_fits_has_no_fraction_but_a_pool() -> None:
    found = smallest(made("DeepSeek-V3", tokens=4096, sequences=1))
    assert found.memory_fraction is None
    assert found.kv_memory is not None


def test_beyond_the_models_limit_there_is_none() -> None:
    assert smallest(made("Llama-2-7B", tokens=100_000, sequences=1)).to_json() == {
        "smallest_memory_fraction": None, "smallest_kv_memory": None, "flags": []}  # fmt: skip


def test_the_command_line_says_it() -> None:
    out = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "tokens": 1024, "sequences": 4, "max_model_len": 1024, "backwards": True})
    assert out["backwards"]["smallest_kv_memory"] == 257 * BLOCK
    assert out["backwards"]["flags"][1] == f"--kv-cache-memory-bytes {257 * BLOCK}"
    assert 0.2 < out["backwards"]["smallest_memory_fraction"] < 0.3


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "transformers", "architecture"])
def test_the_longest_context_says_what_ends_it(engine: str) -> None:
    """Llama-3.1-8B: 131,072 tokens by the model, 16 GiB of rows; 1 GiB holds 8,192 of them."""
    full, small = made("Llama-3.1-8B", engine=engine, kv_memory=2**35), made("Llama-3.1-8B", engine=engine, kv_memory=2**30)
    assert (full.longest_context_tokens(), full.longest_context_by) == (131_072, "model")
    assert small.longest_context_by == "pool"
    assert 8192 - 32 <= small.longest_context_tokens() <= 8192

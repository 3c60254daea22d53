"""The lines between architecture and engine bytes: each on paper, their sum for every family, engine and length."""

from __future__ import annotations

import pytest

from planner.capacity import CapacityPlan, plan
from planner.errors import PlannerError
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from tests.conftest import small_configs
from tests.planner.test_vllm import planned
from tests.planner.test_vllm_kinds import V4_FLASH, V32, mamba2, mla, model, nemotron, rows
from tests.planner.test_vllm_kinds import planned as planned_layers


def gap(p: CapacityPlan) -> dict[str, int]:
    return {line.code: line.bytes for line in p.gap if line.bytes}


def test_the_empty_part_of_the_last_block() -> None:
    """Llama-3.1-8B, 3 sequences of 100 tokens: 7 blocks of 16 hold 112; 12 x 131,072 bytes are empty. One null block."""
    p = planned("Llama-3.1-8B", sequences=3, tokens=100)
    assert gap(p) == {"last_block": 3 * 12 * 131_072, "null_blocks": 16 * 131_072}


def test_windows_are_kept_in_whole_blocks_and_short_groups_are_padded() -> None:
    """Gemma-3-27B at 8,192: 65 blocks of 16 for a window of 1,024; groups of 8 and 9 layers pay for 10."""
    p = planned("Gemma-3-27B", tokens=8192)
    row = 16 * 2 * 128 * 2
    assert gap(p) == {
        "window_slack": 52 * row * (65 * 16 - 1024),
        "padding": (2 * 2 + 4 * 1) * row * 65 * 16,
        "null_blocks": 10 * 16 * row,
    }


def test_states_have_slots_and_pages() -> None:
    """Three slots of 4,255,744 bytes in pages of 4,259,840 (12 layers in 3 groups of 4)."""
    p = planned_layers(nemotron(mamba2(128, 64, 8, 128), rows(8, 128)), tokens=1040, max_model_len=8192)
    assert gap(p) == {"state_slots": 12 * 2 * 4_255_744, "state_pages": 12 * 3 * 4_096, "null_blocks": 4 * 4_259_840}


def test_a_state_in_the_models_dtype_is_a_layout() -> None:
    p = planned_layers(nemotron(mamba2(128, 64, 8, 128, asked=None), rows(8, 128)), tokens=528, max_model_len=8192)
    assert gap(p)["row_layout"] == -12 * 2 * 128 * 64 * 128


def test_sparse_rows_carry_scales_and_index_keys() -> None:
    """DeepSeek-V3.2 in fp8 on Hopper: 656 and 132 bytes where 576 + 128 elements would do; copies on all eight ranks."""
    p = planned_layers(model(V32, mla()), tokens=64, kv_dtype="fp8", tp=8, gpus=8)
    assert gap(p) == {"copies": 7 * 64 * 61 * 704, "row_layout": 8 * 64 * 61 * (788 - 704), "null_blocks": 8 * 64 * 61 * 788}


def test_the_packed_model_is_told_apart_too() -> None:
    codes = gap(planned_layers(model(V4_FLASH), tokens=5000, sequences=3))
    assert {"row_layout", "last_block", "window_slack", "state_pages", "padding", "null_blocks"} == set(codes)
    assert all(size > 0 for size in codes.values())


@pytest.mark.parametrize("engine", ["architecture", "transformers", "vllm"])
def test_the_lines_sum_to_the_engines_bytes_for_every_family(engine: str) -> None:
    answered = 0
    for name, raw in small_configs():
        m = read_config(raw)
        for tokens, sequences, caching in ((1, 1, True), (777, 3, False), (2048, 5, True)):
            try:
                p = plan(m, find("H100 SXM"), Scenario(engine=engine, tokens=tokens, sequences=sequences, prefix_caching=caching, kv_memory=10**12))
            except PlannerError:
                continue
            answered += 1
            assert p.footprint.architecture_bytes + sum(line.bytes for line in p.gap) == p.footprint.engine_bytes, name
            assert all(line.bytes >= 0 for line in p.gap if line.code not in ("row_layout", "blocks")), (name, p.gap)
    assert answered > 450


@pytest.mark.parametrize(
    ("kv_dtype", "scale"),
    [("fp8_per_token_head", 8), ("int8_per_token_head", 8), ("int4_per_token_head", 8), ("nvfp4", 2 * 8), ("fp8", 0), ("bf16", 0)],
)
def test_scales_are_a_line_of_their_own(kv_dtype: str, scale: int) -> None:
    """Llama-3.1-8B, 1,000 tokens: 32 layers x 8 heads x two fp32 a token, or one byte for each 16 of 2 x 128 elements."""
    p = planned("Llama-3.1-8B", tokens=1000, kv_dtype=kv_dtype)
    lines = {line.code: line.bytes for line in p.ledgers[0]}
    assert lines.get("kv_scales", 0) == 1000 * 32 * 8 * scale
    assert sum(lines.values()) == p.kv_pool_bytes
    assert lines["kv_rows"] + lines.get("kv_scales", 0) == p.footprint.architecture_bytes

"""Rules that differ by release: each against a public start-up log that only the older or only the newer rule explains."""

from __future__ import annotations

from typing import Any

import pytest

from planner.capacity import CapacityPlan
from planner.engines.vllm.versions import CHANGES, rules_of
from planner.units import GIB
from tests.planner.test_vllm import planned
from tests.planner.test_vllm_kinds import GEMMA_4_31B, model
from tests.planner.test_vllm_kinds import planned as planned_layers


def log(name: str, version: str, gib: float, **options: Any) -> CapacityPlan:
    return planned(name, engine_version=version, kv_memory=round(gib * GIB), **options)


def test_before_0_22_the_log_prints_blocks_shared_out_over_groups() -> None:
    """0.19, Gemma-2-27B, 20.59 GiB: 58,672 tokens and 7.16 requests of 8,192 (58,650 by the newer rule)."""
    p = log("Gemma-2-27B", "0.19.0", 20.59, max_model_len=8192)
    assert p.kv_tokens == p.num_blocks // 2 * 16  # type: ignore[operator]
    assert abs(p.kv_tokens - 58_672) <= 16
    assert p.max_concurrency == pytest.approx(7.16, abs=0.01)
    newer = log("Gemma-2-27B", "0.33.0", 20.59, max_model_len=8192)
    assert newer.kv_tokens != p.kv_tokens


def test_before_0_26_a_window_reserves_one_batch() -> None:
    """0.23, Gemma-4-31B, 28.41 GiB: 97,541 tokens and 2.98 requests of 32,768; two batches in flight would give 1.80."""
    old, new = (planned_layers(model(GEMMA_4_31B), kv_memory=round(28.41 * GIB), max_model_len=32768, engine_version=v) for v in ("0.23.0", "0.33.0"))
    assert old.max_concurrency == pytest.approx(2.98, abs=0.005)
    assert old.kv_tokens == pytest.approx(97_541, abs=60)
    assert new.max_concurrency == pytest.approx(1.80, abs=0.005)


def test_before_0_10_windowed_layers_keep_everything() -> None:
    """0.8, Gemma-3-27B at 131,072: 1.17 requests and 153,200 tokens, which is one group of 62 full layers."""
    p = planned("Gemma-3-27B", engine_version="0.8.4", max_model_len=131072, kv_memory=153_200 // 16 * 8_126_464)
    assert (p.kv_tokens, round(p.max_concurrency or 0, 2)) == (153_200, 1.17)
    assert planned("Mistral-7B-v0.1", engine_version="0.8.4", max_model_len=32768).pools[0].groups[0].kind == "window"


def test_before_0_7_1_a_latent_was_expanded() -> None:
    """December 2024, DeepSeek-V2-Lite: 85,968 tokens from 35.42 GiB, 27 layers x 16 heads x 2 x 256 x 2 bytes."""
    p = log("DeepSeek-V2-Lite", "0.6.4", 35.42, max_model_len=8192)
    assert abs((p.kv_tokens or 0) - 85_968) <= 16
    assert p.bytes_per_block == 16 * 27 * 16 * 2 * 256 * 2


@pytest.mark.parametrize(("since", "name", "before", "source"), CHANGES)
def test_every_change_turns_at_its_release(since: tuple[int, ...], name: str, before: object, source: str) -> None:
    at = ".".join(map(str, since))
    below = ".".join(map(str, (*since[:-1], since[-1] - 1)))
    assert getattr(rules_of(at)[0], name) != before
    old, notes = rules_of(below)
    assert getattr(old, name) == before
    assert source in " ".join(n.source for n in notes)


def test_the_newest_needs_no_note() -> None:
    assert rules_of(None) == rules_of("v0.33.2")
    assert rules_of(None)[1] == ()

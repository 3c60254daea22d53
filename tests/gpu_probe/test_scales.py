"""Narrow caches: one byte a number, scales beside them counted and measured, and logits near those of a bf16 cache."""

from __future__ import annotations

import pytest
import torch

from gpu_probe import accuracy, cache, device
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from planner.errors import UnsupportedValue
from tests.gpu_probe.tiny import MODELS

SCALED = {"fp8_per_token_head": torch.float8_e4m3fn, "int8_per_token_head": torch.int8}


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)


def probed(name: str, kv: str) -> ProbeResult:
    return run(MODELS[name], ProbeRequest(device="cpu", prompt=40, output=8, kv_dtype=kv))


# By hand: two sequences of 48 tokens hold 96 rows. A row has heads x (K + V) numbers of one byte, and a float32 for each head's K and V.
BY_HAND = {"gqa": (96 * 2 * 32 * 3, 96 * 2 * 2 * 4 * 3), "mla": (96 * 32 * 3, 96 * 4 * 3), "odd head": (96 * (12 + 36), 96 * (2 + 4) * 4)}


@pytest.mark.parametrize("kv", SCALED)
@pytest.mark.parametrize("name", BY_HAND)
def test_scales_are_counted_and_measured_apart(name: str, kv: str) -> None:
    result = probed(name, kv)
    numbers, scales = BY_HAND[name]
    assert (result.predicted_kv_bytes, result.predicted_scale_bytes) == (numbers + scales, scales)
    assert (result.measured_kv_bytes, result.scale_bytes) == (numbers + scales, scales)
    assert {row.name for row in result.rows if row.exact and row.measured == scales} >= {"Scale bytes held"}
    assert sum(g["scale_bytes"] for g in result.groups) == scales
    assert "probe_scales" in {n["code"] for n in result.notes}


@pytest.mark.parametrize("kv", accuracy.TOLERANCE)
@pytest.mark.parametrize("name", ["gqa", "mla", "window"])
def test_a_narrow_cache_stays_near_bf16(name: str, kv: str) -> None:
    result = probed(name, kv)
    assert result.kv_accuracy is not None
    assert 0 < result.kv_accuracy["error"] <= result.kv_accuracy["tolerance"] == accuracy.TOLERANCE[kv]
    assert "probe_accuracy_failed" not in {n["code"] for n in result.notes}
    assert (result.kv_accuracy["against"], result.kv_accuracy["positions"]) == ("bf16", 9)


def test_a_wide_cache_has_no_scales_and_no_such_check() -> None:
    result = probed("gqa", "bf16")
    assert (result.scale_bytes, result.predicted_scale_bytes, result.kv_accuracy) == (0, 0, None)


@pytest.mark.parametrize("kv", SCALED)
def test_scales_that_are_not_read_are_caught(kv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cache.gather
    monkeypatch.setattr(cache, "gather", lambda pages, blocks, dtype, scales=None: real(pages, blocks, dtype))
    result = probed("gqa", kv)
    assert result.kv_accuracy is not None
    assert result.kv_accuracy["error"] > result.kv_accuracy["tolerance"]
    assert "probe_accuracy_failed" in {n["code"] for n in result.notes}


def test_a_scale_of_the_wrong_head_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cache.gather
    monkeypatch.setattr(cache, "gather", lambda p, b, d, scales=None: real(p, b, d, None if scales is None else scales.roll(1, -1)))
    result = probed("gqa", "int8_per_token_head")
    assert result.kv_accuracy is not None
    assert result.kv_accuracy["error"] > result.kv_accuracy["tolerance"]


@pytest.mark.parametrize(("kv", "dtype"), SCALED.items())
def test_a_row_comes_back_within_half_a_step(kv: str, dtype: torch.dtype) -> None:
    rows = torch.randn(1, 6, 2, 8, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(-3, 3).view(1, 6, 1, 1)
    rows[0, 5] = 0.0
    pages, scales = torch.zeros(2, 3, 2, 8, dtype=dtype), torch.zeros(2, 3, 2)
    cache.write(pages, torch.arange(6), rows, scales)
    back = cache.gather(pages, torch.tensor([[0, 1]]), torch.float32, scales)
    most = rows.abs().amax(-1, keepdim=True)
    step = most / 254 if dtype == torch.int8 else rows.abs() / 16 + most * 2**-17
    assert bool(((back - rows).abs() <= step * 1.0001).all())
    assert bool((back[0, 5] == 0).all())


@pytest.mark.parametrize("kv", ["int8", "int4_per_token_head", "nvfp4", "q8_0"])
def test_what_cannot_be_stored_is_refused_by_name(kv: str) -> None:
    with pytest.raises(UnsupportedValue) as refused:
        ProbeRequest(kv_dtype=kv).checked()
    assert (refused.value.field, refused.value.args_by_name["value"]) == ("kv_dtype", kv)

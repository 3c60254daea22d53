"""The bench's shape, its guards and its arithmetic, on cases of a few kilobytes. Nothing here asserts a time."""

from __future__ import annotations

import json
import statistics
import sys

import pytest
import torch

from gpu_probe import bench
from planner.errors import UnsupportedValue


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "cold_bytes", lambda: 1)
    monkeypatch.setattr(bench, "MOST_ROUNDS", 5)


def small(**more: object) -> dict[str, object]:
    return bench.bench(contexts=(70, 96), mla_context=50, budget_s=5.0, **more)  # type: ignore[arg-type]


def test_every_key_comes_from_the_rows_and_the_answers_agree() -> None:
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    events: list[tuple[str, int, int]] = []
    result = json.loads(json.dumps(small(progress=lambda *e: events.append(e))))
    assert (torch.is_grad_enabled(), torch.get_num_threads()) == (grad, threads)
    assert [(r["kind"], r["dtype"], r["context"]) for r in result["rows"]] == [
        ("gqa", "bf16", 70), ("gqa", "fp32", 70), ("gqa", "bf16", 96), ("gqa", "fp32", 96), ("mla", "fp32", 50), ("mla", "bf16", 50),
    ]  # fmt: skip
    for row in result["rows"]:
        assert row["error"] <= (1e-5 if row["dtype"] == "fp32" else 3e-2), row
        assert row["rounds"] == 5
        assert all(s > 0 for s in row["seconds"].values())
    for key in ("paged_over_contiguous", "share_of_read_ceiling", "dynamic_cache_over_paged"):
        for dtype in ("bf16", "fp32"):
            found = [r["ratios"][key] for r in result["rows"] if (r["kind"], r["dtype"]) == ("gqa", dtype)]
            assert result[key][dtype] == round(statistics.median(found), 4)
    assert result["expanded_over_absorbed"] == round(min(r["ratios"]["expanded_over_absorbed"] for r in result["rows"] if r["kind"] == "mla"), 4)
    assert (events[0], events[-1]) == (("gqa bf16 70", 0, 6), ("done", 6, 6))
    assert "expanded_over_absorbed" in bench.table(result)


def test_without_transformers_its_step_is_emulated_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    step, source = bench.dynamic_cache()
    assert source == "emulated"
    q, k, v = torch.randn(1, 32, 1, 128), torch.randn(1, 8, 9, 128), torch.randn(1, 8, 9, 128)
    want = torch.nn.functional.scaled_dot_product_attention(q.view(1, 8, 4, 128), k, v).view(q.shape)
    assert torch.allclose(step(q, k[:, :, :-1], v[:, :, :-1], k[:, :, -1:], v[:, :, -1:]), want, atol=1e-5)
    result = small()
    assert "probe_bench_emulated" in {n["code"] for n in result["notes"]}  # type: ignore[attr-defined]


def test_a_row_that_does_not_fit_is_skipped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer context needs more than half of what is free: nothing of it is allocated."""
    least = bench.needed_bytes("gqa", "bf16", 96, 1)
    monkeypatch.setattr(bench, "host_memory_bytes", lambda: int((least - 1) / bench.MEMORY_SHARE))
    result = small()
    assert {(s["dtype"], s["context"]) for s in result["skipped"] if s["kind"] == "gqa"} == {("fp32", 70), ("bf16", 96), ("fp32", 96)}  # type: ignore[attr-defined]
    assert list(result["paged_over_contiguous"]) == ["bf16"]  # type: ignore[call-overload]
    assert "probe_bench_skipped" in {n["code"] for n in result["notes"]}  # type: ignore[attr-defined]


def test_memory_is_counted_with_every_copy() -> None:
    """16k in fp32, 128 MiB a buffer: two buffers paged and contiguous, and four more for the DynamicCache."""
    assert bench.needed_bytes("gqa", "fp32", 16384, 128 << 20) == (2 * 2 + 4) * (128 << 20)


def test_ratios_are_medians_of_rounds() -> None:
    assert bench._ratio({"a": [2.0, 9.0, 40.0], "b": [1.0, 3.0, 10.0]}, "a", "b") == 3.0
    assert bench._ratio({"a": [1.0]}, "a", "b") is None


def test_another_device_is_refused() -> None:
    with pytest.raises(UnsupportedValue) as refused:
        bench.bench(device="cuda")
    assert refused.value.field == "device"

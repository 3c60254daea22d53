"""The Triton kernels without a GPU: interpreted beside float64, and compiled ahead of time for real targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from gpu_probe.backends import triton_decode as td
from tests.conftest import ROOT
from tests.gpu_probe import triton_child

TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}


Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def child() -> Iterator[Callable[[str], Rows]]:
    """The rows of triton_child.py by its mode. The interpreter is chosen before triton is imported, so for a whole process; interpreting
    and compiling run side by side."""
    if find_spec("triton") is None:
        reason = "triton is not installed (pip install -r requirements-dev.txt)"
        if os.environ.get("KVLEDGER_REQUIRE_CORPUS"):
            pytest.fail(reason)
        pytest.skip(reason)
    plain = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")}
    modes = {"interpret": ([], {"TRITON_INTERPRET": "1"}), "compile": (list(triton_child.BRIEF), {})}
    command = [sys.executable, "-m", "tests.gpu_probe.triton_child"]
    running = {
        mode: subprocess.Popen([*command, mode, *args], cwd=ROOT, env=plain | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for mode, (args, env) in modes.items()
    }

    @cache
    def rows(mode: str) -> Rows:
        out, err = running[mode].communicate(timeout=240)
        assert running[mode].returncode == 0, err[-3000:]
        return [json.loads(line) for line in out.splitlines()]

    yield rows
    for process in running.values():
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def test_interpreted_kernels_equal_float64(child: Callable[[str], Rows]) -> None:
    rows = [r for r in child("interpret") if "case" in r]
    wanted = {(name, "fp32") for name in triton_child.CASES} | {(name, "bf16") for name in triton_child.BF16}
    assert {(r["case"], r["dtype"]) for r in rows} >= wanted
    assert not [r for r in rows if not r["error"] <= TOLERANCE[r["dtype"]]]


def test_a_dropped_window_chunk_softcap_or_sink_is_caught(child: Callable[[str], Rows]) -> None:
    found = {r["tampered"]: r["error"] for r in child("interpret") if "tampered" in r}
    assert set(found) == set(triton_child.TAMPERED)
    assert all(error > 100 * TOLERANCE["fp32"] for error in found.values()), found


def test_the_backend_passes_the_self_test_of_every_kind_of_job(child: Callable[[str], Rows]) -> None:
    jobs = [r for r in child("interpret") if "job" in r]
    assert len(jobs) == len(triton_child.JOBS)
    assert not [r for r in jobs if r["refused"]]


def test_fp8_read_by_its_bits_is_what_torch_reads(child: Callable[[str], Rows]) -> None:
    assert {r["bits"]: r["wrong"] for r in child("interpret") if "bits" in r} == {"e4m3": 0, "e5m2": 0}


@pytest.mark.parametrize("target", triton_child.BRIEF)
def test_compiled_ahead_of_time_within_the_targets_shared_memory(child: Callable[[str], Rows], target: str) -> None:
    rows = [r for r in child("compile") if r["target"] == target]
    assert {r["case"] for r in rows} == set(triton_child.BRIEF[target])
    for row in rows:
        assert row["binary"] == (["hsaco"] if target.startswith("gfx") else ["cubin"]), row
        assert 0 < row["shared"] <= row["limit"], row
        assert row["case"] == "merge" or target.startswith("gfx") or row["shared"] <= row["estimate"], row


def layout(query_bytes: int) -> td.Layout:
    return td.Layout(128, 576, 512, True, 64, query_bytes)


def test_the_cut_follows_the_devices_shared_memory() -> None:
    assert layout(4).config(td.SHARED_BYTES["sm_90"]).tokens == 32
    small = layout(4).config(td.SHARED_BYTES["sm_89"])
    assert small.tokens < 32
    assert layout(4).shared_bytes(small) <= td.SHARED_BYTES["sm_89"] < layout(4).shared_bytes(td.Config(tokens=32))
    assert layout(2).config(td.SHARED_BYTES["gfx942"]).tokens == 32


def test_every_cut_ends_at_the_smallest() -> None:
    config: td.Config | None = td.Config(tokens=128, heads=64, warps=8, stages=3)
    seen = []
    while config is not None:
        seen.append(layout(2).shared_bytes(config))
        config = config.smaller()
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 5


@pytest.mark.parametrize(("width", "pieces"), [(128, (128, 0)), (96, (64, 32)), (80, (64, 16)), (192, (128, 64)), (16, (16, 0)), (5, (4, 1))])
def test_a_key_is_two_powers_of_two_or_the_second_is_padded(width: int, pieces: tuple[int, int]) -> None:
    assert td.Layout(4, width, width, False, 16, 2).pieces == pieces


def test_splits_fill_the_processors_and_stay_long_enough() -> None:
    assert td.splits_for(8, 65_536, 132) == 66
    assert td.splits_for(8, 1000, 132) == 4
    assert td.splits_for(10_000, 65_536, 132) == 1
    assert td.splits_for(1, 10**6, 132) == td.MAX_SPLITS


def test_without_a_gpu_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert td.supports(torch.device("cpu"), layout(2)) in ("no_gpu", "no_triton")
    monkeypatch.setattr(td, "find_spec", lambda name: None)
    assert td.supports(torch.device("cpu"), layout(2)) == "no_triton"


def test_the_module_loads_without_the_kernels() -> None:
    """Nothing above launched: in this process, which the suite shares, the kernels' module was never needed."""
    assert "gpu_probe.backends.triton_kernels" not in sys.modules

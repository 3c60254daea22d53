"""The GPU check without a GPU: the dry run goes through every step, failures are results, and what is written can be read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu_probe import device as devices
from gpu_probe import gpu_check
from gpu_probe.backends import triton_decode as td
from gpu_probe.gpu_check import steps as gpu_steps
from gpu_probe.gpu_check import sweep as gpu_sweep
from gpu_probe.gpu_check import tools
from planner.errors import InvalidInput
from planner.messages import render
from planner.readers import read_config
from tests.conftest import ROOT

STEPS = [name for name, _ in gpu_steps.steps()]


@pytest.mark.parametrize("module", ["gpu_probe", "tests.gpu_probe.lean"])
def test_the_dry_run_goes_through_every_step(module: str, tmp_path: Path) -> None:
    """Also where torch and numpy alone are there, as on a rented machine: kernels are then named as missing."""
    out = tmp_path / "made" / "x.json"
    command = [sys.executable, "-m", module, "gpu-check", "--dry", "--json", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert [x["step"] for x in lines[:-1]] == [x["step"] for x in lines[-1]["steps"]] == STEPS
    assert lines[-1]["complete"]
    assert lines[-1] == json.loads(out.read_text())
    found = {x["step"]: x["result"] for x in lines[:-1]}
    for name in ("probe_gqa", "probe_mla"):
        assert found[name]["bytes_agree"]
        assert found[name]["predicted_kv_bytes"] == found[name]["probe"]["measured_kv_bytes"] > 0
    assert found["out_of_memory"] == {"refused": True, "works_after": True, "exit": 0}
    assert all(row["asked"] == row["tensors"] for row in found["accounting"]["rows"])
    if module != "gpu_probe":
        assert found["kernels"] == {"missing": "triton"}
    elif find_spec("triton"):
        assert [row["right"] for row in found["kernels"]["rows"]] == [True] * 8
        assert [row["case"] for row in found["sweep"]["rows"]] == ["gqa", "mla"]
        assert all(row["differs"] < 0.02 for row in found["sweep"]["rows"])
    table = out.with_suffix(".md").read_text()
    assert render("gpu.dry") in table
    assert all(f"## {name} " in table for name in STEPS)


def test_every_step_is_explained() -> None:
    assert all(render(f"gpu.{name}") for name in [*STEPS, "limit"])


def checked(monkeypatch: pytest.MonkeyPatch, steps: dict[str, Callable[[Any], Any]], **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(gpu_steps, "steps", lambda: iter(steps.items()))
    lines: list[dict[str, Any]] = []
    return gpu_check.check(read_config, lines.append, dry=True, **options), lines


def test_a_step_that_fails_is_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(setting: Any) -> Any:
        raise RuntimeError("CUDA error | an illegal\nmemory access")

    data, lines = checked(
        monkeypatch, {"facts": gpu_steps.facts, "kernels": fails, "fp8": lambda s: {"x": float("nan"), "rows": [{"y": float("inf")}]}}, out=tmp_path
    )
    assert [x["ok"] for x in lines] == [True, False, True]
    assert not data["complete"]
    (path,) = tmp_path.glob("*.json")
    assert path.name.startswith(data["date"])
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == data
    assert "`RuntimeError: CUDA error \\| an illegal memory access`" in path.with_suffix(".md").read_text()


def test_nothing_starts_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data, lines = checked(monkeypatch, {"fp8": lambda s: {}, "kernels": lambda s: {}}, limit_s=-1.0)
    assert [(x["ok"], x["error"]) for x in lines] == [(False, "time")] * 2
    assert not data["complete"]


def test_what_was_found_is_kept_when_a_step_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    codes: list[int] = []
    monkeypatch.setattr(gpu_check.os, "_exit", codes.append)
    made = gpu_check.Check(dry=True, out=tmp_path / "x.json")
    made.add({"step": "facts", "ok": True, "result": {"device": "cuda", "device_name": "NVIDIA H200"}})
    (tmp_path / "x.json").unlink()
    lines: list[dict[str, Any]] = []
    gpu_check._give_up(made, lines.append)
    assert codes == [4]
    assert lines[0]["step"] == "limit"
    assert json.loads((tmp_path / "x.json").read_text())["device_name"] == "NVIDIA H200"


def test_a_folder_gets_a_file_by_date_and_device() -> None:
    made = gpu_check.Check(dry=False, out=Path("there"))
    assert made.path() is None
    made.data |= {"device_name": "NVIDIA H200 (SXM) / 141GB", "date": "2026-01-02"}
    assert made.path() == Path("there/2026-01-02-nvidia-h200-sxm-141gb.json")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(InvalidInput) as refused:
        gpu_check.check(read_config, lambda line: None)
    assert refused.value.field == "device"


def test_where_triton_is_missing_the_other_steps_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(td, "find_spec", lambda name: None)
    setting = tools.Setting(dry=True, read_config=read_config, deadline=time.monotonic() + 60)
    for step in (gpu_steps.kernels, gpu_steps.graph, gpu_sweep.sweep):
        assert step(setting) == {"missing": "triton"}


def test_a_ceiling_that_moved_is_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tools.Setting(dry=True, read_config=read_config, deadline=0.0)
    for after, steady in ((100.0, True), (124.0, True), (126.0, False), (74.0, False)):
        setting.found["ceilings"] = {"read_bytes_per_s": 100.0}
        monkeypatch.setattr(gpu_steps, "ceilings", lambda s, after=after: {"read_bytes_per_s": after})
        assert gpu_steps.ceilings_again(setting)["steady"] is steady


def test_a_cuda_device_is_picked_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda.set_per_process_memory_fraction` raises for a device without one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda n, device: SimpleNamespace(device=torch.device(device.type, 0)))
    assert devices.pick("auto") == devices.pick("cuda") == torch.device("cuda:0")
    assert devices.pick("cpu") == torch.device("cpu")


@pytest.mark.parametrize("captured", [False, True])
def test_a_gpu_is_timed_by_events(monkeypatch: pytest.MonkeyPatch, captured: bool) -> None:
    """With stand-ins for the device: milliseconds become seconds of one call, the best round counts, a graph is replayed."""
    times = iter([40.0, 10.0, 30.0])
    replayed: list[int] = []
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda end: next(times))
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "Event": lambda enable_timing: event, "Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda s: nullcontext(),
        "graph": lambda g: nullcontext(), "synchronize": lambda: None, "CUDAGraph": lambda: SimpleNamespace(replay=lambda: replayed.append(1)),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    calls: list[str] = []
    setting = tools.Setting(dry=False, read_config=read_config, deadline=0.0, device=torch.device("cuda:0"))
    assert tools.timed(setting, [lambda: calls.append("a"), lambda: calls.append("b")], captured=captured, rounds=3) == pytest.approx(0.005)
    assert calls == ["a", "b"] * (2 if captured else 4)
    assert len(replayed) == (3 if captured else 0)


def test_the_models_of_the_check_are_what_they_are_called() -> None:
    gqa, mla = read_config(gpu_steps.GQA_CONFIG, ""), read_config(gpu_steps.MLA_CONFIG, "")
    assert {(c.heads, c.k_dim, c.v_dim) for layer in gqa.layers for c in layer.caches} == {(8, 128, 128)}
    assert {(c.heads, c.k_dim, c.v_dim) for layer in mla.layers for c in layer.caches} == {(1, 576, 0)}
    assert (len(gqa.layers), len(mla.layers)) == (32, 27)

"""The devices of this host, without torch: the driver's tool, Apple's chip, or the RAM in words."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_probe import host
from gpu_probe.host import HostDevice
from planner.errors import UnsupportedValue
from planner.units import GIB, MIB
from tests.conftest import ROOT


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each program of the host prints; none is there that is not named."""
    said: dict[str, str] = {}
    monkeypatch.setattr(host, "_said", lambda program, *words: said.get(program, ""))
    monkeypatch.setattr(host, "_ram_bytes", lambda: 64 * GIB)
    return said


def test_equal_gpus_are_one_entry(says: dict[str, str]) -> None:
    says["nvidia-smi"] = "NVIDIA L4, 23034\nNVIDIA L4, 23034\nNVIDIA A10, 23028\n\nnonsense\n"
    assert host.devices() == (
        HostDevice(name="NVIDIA L4", memory_bytes=23_034 * MIB, kind="gpu", count=2), HostDevice(name="NVIDIA A10", memory_bytes=23_028 * MIB, kind="gpu"),
    )  # fmt: skip


def test_a_gpu_that_shares_the_machines_memory(says: dict[str, str]) -> None:
    says["nvidia-smi"] = "NVIDIA GB10, [N/A]\n"
    assert host.devices() == (HostDevice(name="NVIDIA GB10", memory_bytes=64 * GIB, kind="gpu"),)


def test_apple(says: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    says["sysctl"] = "Apple M4 Max\n"
    assert host.devices() == (HostDevice(name="Apple M4 Max", memory_bytes=64 * GIB, kind="apple"),)


def test_no_gpu_is_said(says: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.devices() == (HostDevice(name="CPU RAM", memory_bytes=64 * GIB, kind="cpu"),)
    monkeypatch.setattr(host, "_ram_bytes", lambda: None)
    with pytest.raises(UnsupportedValue) as caught:
        host.devices()
    assert caught.value.field == "device"


@pytest.mark.parametrize("body", ["import time; time.sleep(60)", "import sys; sys.exit(9)", "print('x' * 10**7)", "import os; os.write(1, b'\\xff\\x00, 5')"])
def test_a_tool_that_misbehaves_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host, "TIMEOUT_S", 1.0)
    assert len(host._said("nvidia-smi")) <= 100_000
    assert host.devices()[-1].memory_bytes > 0


def test_torch_stays_out() -> None:
    code = "import sys; from gpu_probe import host; host.devices(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0

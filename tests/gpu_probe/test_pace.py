"""The host's own figures in a run: ceilings around the decode, shares, overheads, and what lies between the levels of memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_probe import __main__ as command
from gpu_probe import calibration, device
from gpu_probe.figures import ceilings, pace
from gpu_probe.figures.timing import Work, roofline, timing
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from planner.dtypes import kv_layout
from planner.engines.probe import attention_flop, predicted_read_bytes
from planner.errors import UnsupportedValue
from tests.gpu_probe.test_client import LLAMA
from tests.gpu_probe.tiny import MODELS, heads, latent, model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)
    monkeypatch.setattr(device, "cache_bytes", lambda device: 2**18)  # so that a small buffer is beyond it


def taken(monkeypatch: pytest.MonkeyPatch, *rates: tuple[float, float]) -> None:
    """The ceilings that a run finds, one after the other."""
    found = iter([{"read_bytes_per_s": read, "flop_per_s": flop} for read, flop in rates])
    monkeypatch.setattr(pace, "ceilings", lambda *a, **kw: next(found))


def probed(**asked: object) -> ProbeResult:
    return run(MODELS["gqa"], ProbeRequest(device="cpu", prompt=20, output=4, **asked))  # type: ignore[arg-type]


def row(result: ProbeResult, name: str) -> Any:
    return next(r for r in result.rows if r.name.startswith(name))


def test_a_run_calibrates(monkeypatch: pytest.MonkeyPatch) -> None:
    taken(monkeypatch, (2e9, 5e9), (2.4e9, 4.5e9))
    result = probed()
    found = calibration.of(json.loads(json.dumps(result.to_json())))
    assert (found.read_bytes_per_s, found.flop_per_s, found.dtype, found.source) == (2.4e9, 5e9, "fp32", "probe")
    assert found.t_layer_s > 0
    assert found.t_fixed_s >= 0
    assert result.roofline["share"] is not None
    assert row(result, "Read ceiling").measured == 2.4


def test_a_share_is_refused_where_the_ceilings_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    taken(monkeypatch, (2e9, 5e9), (2.6e9, 5e9))
    result = probed()
    assert (result.roofline["share"], result.roofline["reason"]) == (None, "unsteady")
    share = row(result, "Share of the roofline")
    assert share.measured is None
    assert share.how.startswith("refused")
    assert row(result, "Bytes read a second").measured > 0
    assert "1.30" in next(n["text"] for n in result.notes if n["code"] == "probe_unsteady")
    with pytest.raises(UnsupportedValue):
        calibration.of(result.to_json())


@pytest.mark.parametrize(("after", "code"), [(2.4e9, 0), (2.6e9, 2)])
def test_the_command_line_prints_a_calibration_or_refuses(
    after: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    taken(monkeypatch, (2e9, 5e9), (after, 5e9))
    monkeypatch.setattr(device, "offer_to_oom_killer", lambda: None)
    monkeypatch.setattr(command.Out, "take_over", lambda self: None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert command.main(["run", str(path), "--device=cpu", "--prompt=20", "--output=2", "--calibration", "--json"]) == code
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert last["error"]["code"] == "calibration_unsteady" if code else last["read_bytes_per_s"] == after


def test_a_buffer_within_the_cache_gives_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cache_bytes", lambda device: 2**40)
    found = probed().roofline
    assert (found["share"], found["reason"]) == (None, "small")
    assert found["bytes_per_s"] > 0


def test_the_roofline_by_hand() -> None:
    """1,000 bytes at 100 a second take 10 s, 300 FLOP at 10 take 30: the step of 60 s is at half of the longer one."""
    rates = {"read_bytes_per_s": 100.0, "flop_per_s": 10.0}
    both = {"before": {**rates, "flop_per_s": 9.0}, "after": rates, "steady": True}
    found = roofline(Work(kv_bytes=400, weight_bytes=600, flop=300), 60.0, both)
    assert (found["share"], found["bound"], found["bytes_per_s"]) == (0.5, "product", 1000 / 60)
    found = roofline(Work(kv_bytes=400, weight_bytes=600, flop=30), 20.0, both)
    assert (found["share"], found["bound"]) == (0.5, "read")
    unknown = roofline(Work(kv_bytes=400, weight_bytes=None, flop=None, unknown="experts"), 20.0, both)
    assert (unknown["share"], unknown["bytes_per_s"], unknown["reason"]) == (None, None, "experts")


def test_work_of_a_step_by_hand() -> None:
    """GQA: 4 heads of 16 + 16 over 100 rows. MLA absorbed: 4 heads over rows of 24 + 8, values of 24. A window of 21 rows."""
    spec = model(heads(4, 2, 16), latent(q=4, rank=24, rope=8), heads(4, 2, 16, window=21))
    assert attention_flop(spec, (0,), 2, 100) == 2 * 2 * 4 * 32 * 100
    assert attention_flop(spec, (1,), 2, 100) == 2 * 2 * 4 * (32 + 24) * 100
    assert attention_flop(spec, (2,), 2, 100) == 2 * 2 * 4 * 32 * 21
    assert predicted_read_bytes(spec, (0, 1, 2), kv_layout("fp32"), 2, 100) == 2 * 4 * (64 * 100 + 32 * 100 + 64 * 21)


def test_rates_by_hand() -> None:
    """Two sequences of 10 + 3 tokens: the third step feeds a token that nobody asked for, so it counts for no rate of the whole."""
    found = timing(1.0, [0.5, 0.5, 2.0], ProbeRequest(batch=2, prompt=10, output=3))
    assert (found.tokens_per_s, found.prefill_tokens_per_s, found.decode_tokens_per_s) == (3.0, 20.0, 2.0)
    assert found.itl_s["p50"] == 0.5


def test_the_ceilings_are_the_best_of_their_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "interleaved", lambda calls, host, rounds: {"read": [2.0, 1.0, 4.0][:rounds], "product": [3.0, 2.0, 4.0][:rounds]})
    found = ceilings.ceilings(ceilings.Host(device=CPU), size=1000, rounds=3)
    assert found == {"read_bytes_per_s": 1000.0, "flop_per_s": 2 * 64**3 / 2.0}


@pytest.mark.skipif(not device._lines("/proc/self/status"), reason="reads /proc")
def test_a_peak_is_what_a_stretch_took() -> None:
    peak = device.Peak(CPU)
    first = torch.ones(30 * 2**20, dtype=torch.uint8)
    del first
    peak.begin()
    if peak._base is None:
        pytest.skip("the kernel does not set back the peak here")
    assert (peak.end() or 0) < 20 * 2**20, "what came before does not count"
    second = torch.ones(40 * 2**20, dtype=torch.uint8)
    del second
    found = peak.end()
    assert found is not None
    assert 30 * 2**20 < found < 120 * 2**20
    assert peak.memory_now()["host_peak_rss_bytes"] >= peak.worst["host_peak_rss_bytes"] > 0


def test_what_a_cpu_does_not_tell_is_there_with_the_reason() -> None:
    result = probed()
    silent = [r for r in result.rows if r.measured is None and r.predicted is None]
    assert {r.name for r in silent} >= {"Driver's context", "Allocator's rounding", "Memory reserved by the allocator", "Allocator's bytes in no known tensor"}
    assert all(r.how.startswith(("not known", "refused")) for r in silent)
    assert set(result.memory["slack"].values()) == {None}


def test_slack_of_a_device_that_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "memory_now", lambda d: {"device_allocated_bytes": 1000, "device_requested_bytes": 990})
    levels = {"tensor": 900, "allocator": 1000, "reserved": 1200, "device": 1500}
    found = device.slack(torch.device("cuda:0"), levels, 60)
    assert found == {"untracked": 40, "rounding": 10, "unused": 200, "context": 300}

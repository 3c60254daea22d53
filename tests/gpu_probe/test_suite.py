"""The suite: sizes by hand, verdicts by rule, and never a word on how fast this machine must be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_probe import dist, suite
from gpu_probe.calibration import Calibration, of, steady
from gpu_probe.claims import HOLDS, NOT, UNDECIDED, VERDICTS, Spread, both, ranks, read, sizes
from gpu_probe.claims.needs import NEEDS, needed
from gpu_probe.claims.views import views
from gpu_probe.errors import ProbeFault, ProbeOutOfMemory
from gpu_probe.figures.ceilings import Host
from planner.errors import InvalidInput, NotAConfig, UnsupportedValue
from planner.messages import render
from planner.units import MIB, gib
from tests.conftest import ROOT

ASKED = [name for name in suite.ITEMS if name != "ranks"]  # test_dist runs those
PEAKS: dict[str, tuple[int | None, int]] = {}
"""What each entry of `result` took at its worst (None where nobody tells), and what it said that it takes, by name."""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """As JSON gives it back."""
    one = suite._one

    def watched(name: str, host: Host, *rest: Any) -> Any:
        peak = suite.devices.Peak(host.device)
        peak.begin()
        found = one(name, host, *rest)
        PEAKS[name] = (peak.end(), needed(name, "cpu"))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "_one", watched)
        return dict(json.loads(json.dumps(suite.run(device="cpu", only=ASKED, rounds=1))))


@pytest.fixture
def items(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {i["name"]: i for i in result["items"]}


def test_every_item_says_what_is_claimed_and_what_was_measured(result: dict[str, Any]) -> None:
    assert result["bytes_right"] is True
    for i in result["items"]:
        assert i["verdict"] in VERDICTS
        assert i["verdict_text"] == render(f"suite.verdict.{i['verdict']}")
        assert i["says"]
        assert i["measured"]
        assert i["claims"]
    told = {c for i in result["items"] for c in i["claims"]}
    assert told >= {f"C{n}" for n in (*range(1, 10), 19, 20, 21, 22)}


def test_sizes_by_hand(items: dict[str, dict[str, Any]]) -> None:
    kinds = {r["kind"]: r["bytes"] for r in items["kinds_bytes"]["numbers"]["rows"]}
    tokens = 2 * 4 * 2048 * 4  # layers x sequences x tokens x bytes of fp32
    assert kinds == {"MHA": 2 * 16 * 64 * tokens, "GQA": 2 * 4 * 64 * tokens, "MQA": 2 * 64 * tokens, "MLA": (128 + 32) * tokens}
    assert items["absorbed"]["numbers"]["kv_bytes"] == 2048 * 576 * 4
    assert items["prefix"]["numbers"]["shared_bytes"] == (256 + 8 * 64) * 2048
    assert items["prefix"]["numbers"]["apart_bytes"] == 8 * 320 * 2048
    paged = items["paged"]["numbers"]
    assert len(set(paged["lengths"])) > 4
    assert paged["paged_bytes"] == sum(-(-n // 16) * 16 * 2048 for n in paged["lengths"]) < paged["contiguous_bytes"] == 16 * 1024 * 2048
    assert items["kv_dtype"]["numbers"]["bytes"] == {
        "fp32": 524_288, "bf16": 262_144, "fp8": 131_072, "fp8_per_token_head": 131_072 + 16_384, "int8_per_token_head": 131_072 + 16_384,
    }  # fmt: skip
    assert items["llama_size"]["numbers"]["bytes_per_token"] == 819_200
    assert items["llama_weights"]["numbers"]["weight_bytes"] == 26_031_728_640  # 13,015,864,320 parameters
    assert items["cache"]["numbers"]["kv_bytes"] == [8192 * n for n in (144, 272, 528, 1040)]
    assert [p["kv_bytes"] for p in items["itl"]["numbers"]["points"]] == [16_384 * b * n for b in (1, 4) for n in (272, 1040, 4112)]


def test_what_has_one_answer_everywhere(items: dict[str, dict[str, Any]]) -> None:
    for name in ("kinds_bytes", "unchanged", "paged", "prefix", "kv_dtype", "llama_size"):
        assert items[name]["verdict"] == HOLDS, name
    assert items["llama_weights"]["verdict"] == NOT
    assert items["quality"]["verdict"] == UNDECIDED
    assert items["prompt"]["numbers"]["score_products"] == [2 * 8 * 64 * n * n for n in (256, 512, 1024)]
    assert items["cache"]["numbers"]["max_rel_error"] <= 1e-5
    assert items["absorbed"]["numbers"]["max_rel_error"] <= 1e-4


def test_a_wrong_size_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ROW", sizes.ROW + 4)
    assert sizes.paged(Host(device=suite.devices.pick("cpu")), {}).bytes_right is False


def test_verdicts_need_the_middle_half_of_the_rounds() -> None:
    assert Spread.ratio([3, 4, 5, 6], [1, 1, 1, 1]).at_least(3.0) == HOLDS
    assert Spread.ratio([3, 4, 5, 6], [1, 1, 1, 1]).at_least(7.0) == NOT
    assert Spread.ratio([3, 4, 5, 6], [1, 1, 1, 1]).at_least(4.5) == UNDECIDED
    assert Spread.of([1.0, 2.0, 3.0]).below(3.5) == HOLDS
    assert Spread.of([1.0, 2.0, 3.0]).below(0.5) == NOT
    assert Spread.ratio([10, 1], [5, 0.5]) == Spread(2.0, 2.0, 2.0)  # a slow round slows both
    assert (both(HOLDS, NOT, UNDECIDED), both(HOLDS, UNDECIDED), both(HOLDS)) == (NOT, UNDECIDED, HOLDS)


def test_ranks_that_cannot_start_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*args: object, **kwargs: object) -> dict[str, Any]:
        raise ProbeFault("probe_fault", reason="no port")

    monkeypatch.setattr(dist, "launch", dies)
    found = ranks.latent_under_ranks(Host(device=suite.devices.pick("cpu")), {})
    assert (found.verdict, found.bytes_right) == (UNDECIDED, None)
    assert "no port" in found.numbers["reason"]


def test_the_table_has_a_row_an_item(result: dict[str, Any], tmp_path: Path) -> None:
    suite.save(result, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "suite.json").read_text()) == result
    rows = [line for line in (tmp_path / "out" / "suite.md").read_text().splitlines() if line.startswith("| C")]
    assert len(rows) == len(result["items"])
    assert {row.count("|") for row in rows} == {6}
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        suite.save(result, tmp_path / "file")


def test_an_item_that_does_not_fit_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs(what: BaseException) -> suite.Run:
        def fails(*args: object) -> Any:
            raise what

        return fails

    monkeypatch.setattr(suite, "ITEMS", {**suite.ITEMS, "cache": needs(ProbeOutOfMemory("probe_memory_short", field="memory", needed=9, available=1)),
                                         "prompt": needs(RuntimeError("DefaultCPUAllocator: can't allocate memory"))})  # fmt: skip
    found = suite.run(device="cpu", only=["cache", "prompt", "prefix"], rounds=1)
    assert [(i["name"], i["verdict"]) for i in found["items"]] == [("cache", UNDECIDED), ("prompt", UNDECIDED), ("prefix", HOLDS)]
    assert "9 bytes" in found["items"][0]["measured"]
    monkeypatch.setattr(suite, "ITEMS", {"cache": needs(RuntimeError("a fault"))})
    with pytest.raises(RuntimeError, match="a fault"):
        suite.run(device="cpu", only=["cache"], rounds=1)


# -- the cap on memory


def test_no_entry_takes_more_than_it_says(result: dict[str, Any]) -> None:
    assert set(NEEDS) == {"ceilings", *suite.ITEMS}
    if any(peak is None for peak, _ in PEAKS.values()):
        pytest.skip("nobody tells the peak of a process here")
    for name, (peak, said) in PEAKS.items():
        assert (peak or 0) <= said, name
    peak, said = PEAKS["itl"]
    assert 450 * MIB < (peak or 0) < said < 3 * (peak or 0)  # the KV of six loads alone: what is measured is there


def test_an_entry_beyond_the_cap_is_left_out_before_it_allocates_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(suite.devices, "limit_memory", lambda device, cap: limits.append(cap))
    monkeypatch.setattr(suite, "ITEMS", {**suite.ITEMS, "llama": lambda *a: pytest.fail("began")})
    cap = needed("llama", "cpu") - 1
    found = suite.run(device="cpu", only=["paged", "llama", "prefix"], rounds=1, memory_cap_bytes=cap)
    assert limits == [int(cap * 1.25)]
    assert [(i["name"], i["verdict"]) for i in found["items"]] == [("paged", HOLDS), ("prefix", HOLDS), ("llama", UNDECIDED)]
    said = found["items"][2]["measured"]
    for word in (f"up to {gib(cap + 1)}", "KVLEDGER_PROBE_MEMORY", "--memory-cap", "--only llama"):
        assert word in said
    assert said in suite.markdown(found)
    (view,) = [v for v in views(found, read(found)) if v.name == "llama_size"]
    assert said in view.reason
    assert (found["bytes_right"], found["memory_cap_bytes"]) == (True, cap)
    host = Host(device=suite.devices.pick("cpu"))
    assert suite._beyond("llama", host, cap + 1) is None


def test_where_not_even_the_ceilings_fit_all_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite.devices, "limit_memory", lambda device, cap: None)
    told: list[str] = []
    found = suite.run(device="cpu", rounds=1, memory_cap_bytes=64 * MIB, found=lambda head, items: told.extend(i.name for i in items))
    assert [i["name"] for i in found["items"]] == ["ceilings", *suite.ITEMS] == told
    assert {i.verdict for i in read(json.loads(json.dumps(found)))} == {UNDECIDED}
    assert all(v.reason for v in views(found, read(found)))
    assert found["ceilings"] is None
    with pytest.raises(NotAConfig) as caught:
        of(found)
    assert caught.value.field == "ceilings"


def test_memory_that_others_hold_is_told_apart_from_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite.devices, "free_bytes", lambda device, host: 100 * MIB)
    for cap in (None, 2**40):
        beyond = suite._beyond("itl", Host(device=suite.devices.pick("cpu")), cap)
        assert beyond is not None
        assert beyond.code == "probe_suite_free"


UNFORESEEN = """
import sys
from gpu_probe import suite
known = suite.needed
suite.needed = lambda name, device: 0 if name == "llama" else known(name, device)
from gpu_probe.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA")
def test_what_was_not_foreseen_meets_the_limit_of_the_process() -> None:
    """A child whose plan believes that llama takes nothing: 274 MiB do not fit into 1.25 times 128."""
    command = [sys.executable, "-c", UNFORESEEN, "suite", "--only=llama,kv_dtype", "--device=cpu", "--json", "--memory-cap=128MiB"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    said = {i["name"]: (i["verdict"], i["measured"]) for i in found["items"]}
    assert said["kv_dtype"][0] == HOLDS
    assert said["ceilings"][0] == UNDECIDED  # 256 MiB to read
    assert said["llama"][0] == UNDECIDED
    assert "allocate" in said["llama"][1]


def test_an_unknown_item_is_named() -> None:
    with pytest.raises(InvalidInput, match="nothing"):
        suite.run(only=["nothing"])


def test_the_command_ends_with_the_result() -> None:
    command = [sys.executable, "-m", "gpu_probe", "suite", "--only=paged,prefix", "--device=cpu", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, run.stderr[-2000:]
    assert [i["name"] for i in lines[-1]["items"]] == ["paged", "prefix"]
    assert {"ev": "phase", "name": "paged", "done": 1, "total": 4} in lines


# -- calibration


def test_calibration_of_a_suite(result: dict[str, Any]) -> None:
    result = {**result, "ceilings": {**result["ceilings"], "after": result["ceilings"]["before"]}}
    found = of(result)
    assert found.read_bytes_per_s == result["ceilings"]["before"]["read_bytes_per_s"]
    assert found.flop_per_s == result["ceilings"]["before"]["flop_per_s"]
    assert (found.t_fixed_s, found.t_layer_s) == (result["overhead"]["t_fixed_s"], result["overhead"]["t_layer_s"])
    assert (found.source, found.threads, found.device) == ("suite", "1", "cpu")
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found


FITTED: dict[str, Any] = {
    "device": "cpu", "device_name": "a processor",
    "ceilings": {"dtype": "fp32", "before": {"read_bytes_per_s": 8e9, "flop_per_s": 4e10}, "after": {"read_bytes_per_s": 1e10, "flop_per_s": 4e10}},
    "overhead": {"t_fixed_s": 0.001, "t_layer_s": 0.0005},
    "items": [{"name": "itl", "numbers": {"fixed_s": 0.023, "layers": 4, "per_token_s": 4e-6, "weight_bytes": 10**8, "kv_bytes_per_token": 20_000}}],
}  # fmt: skip


def test_shares_of_the_read_rate_by_hand() -> None:
    """Weights: 1e8 bytes in 23 - 1 - 4 x 0.5 = 20 ms are 5 GB/s of 10. KV: 20,000 bytes in 4 microseconds are 5 GB/s too."""
    found = of(FITTED)
    assert found.eff_w == pytest.approx(0.5)
    assert found.eff_kv == pytest.approx(0.5)
    assert found.read_bytes_per_s == 1e10


def test_a_probes_result_that_carries_both_calibrates_too() -> None:
    run = {k: v for k, v in FITTED.items() if k not in ("items", "ceilings", "overhead")} | {"extra": {k: FITTED[k] for k in ("ceilings", "overhead")}}
    found = of(run)
    assert (found.source, found.eff_w, found.t_layer_s) == ("probe", None, 0.0005)


@pytest.mark.parametrize(("after", "good"), [(10.0, True), (8.0, True), (7.99, False), (12.5, True), (12.6, False)])
def test_a_quarter_is_the_most_that_a_ceiling_may_move(after: float, good: bool) -> None:
    before = {"read_bytes_per_s": 10.0, "flop_per_s": 1.0}
    assert steady(before, {"read_bytes_per_s": after, "flop_per_s": 1.0}) is good
    assert steady({"read_bytes_per_s": 1.0, "flop_per_s": 10.0}, {"read_bytes_per_s": 1.0, "flop_per_s": after}) is good
    data = {**FITTED, "ceilings": {"before": before, "after": {"read_bytes_per_s": after, "flop_per_s": 1.0}}}
    if good:
        assert of(data).read_bytes_per_s == max(10.0, after)
    else:
        with pytest.raises(UnsupportedValue, match=r"differ by a factor of 1\.2"):
            of(data)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ceilings": None}, "ceilings"),
        ({"overhead": 7}, "overhead"),
        ({"overhead": {"t_fixed_s": float("nan"), "t_layer_s": 1.0}}, "t_fixed_s"),
        ({"overhead": {"t_fixed_s": 1.0, "t_layer_s": -1.0}}, "t_layer_s"),
        ({"ceilings": {"before": FITTED["ceilings"]["before"]}}, "ceilings.after"),
        ({"ceilings": {**FITTED["ceilings"], "before": {"read_bytes_per_s": 0, "flop_per_s": 1}}}, "read_bytes_per_s"),
        ({"ceilings": {**FITTED["ceilings"], "before": {"read_bytes_per_s": 10**400, "flop_per_s": 1}}}, "read_bytes_per_s"),
        ({"device": None}, "device"),
        ({"items": [{"name": "itl", "numbers": {}}]}, "fixed_s"),
    ],
)
def test_what_cannot_calibrate_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(NotAConfig) as caught:
        of({**FITTED, **change})
    assert caught.value.field == field

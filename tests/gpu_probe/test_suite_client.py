"""The suite as a child process: progress by claim, cancel with everything it started, and what was finished by then."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from gpu_probe import client, suite
from gpu_probe.backends import FACTORIES
from gpu_probe.claims import FORM, catalog, read
from gpu_probe.claims.views import views
from gpu_probe.client import SuiteRun, partial, start_suite
from gpu_probe.result import ProbeRequest
from planner.errors import InvalidInput, UnsupportedValue


def test_the_lists_without_torch_are_those_of_the_code() -> None:
    assert list(catalog.ENTRIES) == list(suite.ITEMS)
    assert set(client.BACKENDS) == {"auto", *FACTORIES}


def test_a_run_of_some_tells_each_as_it_ends() -> None:
    run = start_suite(only=["unchanged", "paged", "prefix"], device="cpu", threads=1)
    end = run.wait(120)
    assert end.error is None, end
    assert end.result is not None
    items = read(end.result)
    assert [i.name for i in items] == ["unchanged", "paged", "prefix"]
    assert [i["name"] for i in end.items] == ["unchanged", "paged", "prefix"]
    assert [v.reason for v in views(end.result, items)] == ["", ""]
    assert end.fraction == 1.0


ITEMS_EVENT = {"ev": "items", "head": {"device_name": "a processor"}, "items": [{"name": "paged"}]}


def child(script: str, limit_s: float = 60.0) -> SuiteRun:
    return SuiteRun([sys.executable, "-c", script], ("paged", "ranks"), limit_s, dict(os.environ))


def test_what_was_finished_before_a_cancel_is_kept() -> None:
    lines = [json.dumps(ITEMS_EVENT), json.dumps({"ev": "phase", "name": "ranks", "done": 2, "total": 4})]
    run = child(f"import time\nfor line in {lines!r}: print(line, flush=True)\ntime.sleep(60)")
    deadline = time.monotonic() + 20
    while (status := run.poll()).phase != "ranks" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status.fraction == 0.5
    run.cancel()
    end = run.wait(10)
    assert (end.cancelled, end.result, end.error) == (True, None, None)
    assert partial(end) == {"form": FORM, "device_name": "a processor", "items": [{"name": "paged"}], "partial": True, "wall_s": end.elapsed_s}
    assert partial(child("").wait(10)) is None


@pytest.mark.parametrize(("line", "code", "taken"), [({"form": FORM, "items": [1]}, 1, True), ({"form": FORM, "items": []}, 0, False), ({"x": 1}, 0, False)])
def test_a_wrong_size_is_a_result_and_anything_else_is_a_fault(line: dict[str, object], code: int, taken: bool) -> None:
    end = child(f"print({json.dumps(line)!r})\nraise SystemExit({code})").wait(20)
    assert (end.result is not None, end.error is not None) == (taken, not taken)


@pytest.mark.parametrize(("asked", "field"), [({"only": ["nonsense"]}, "only"), ({"time_limit_s": 1}, "time_limit"), ({"time_limit_s": 1e9}, "time_limit")])
def test_what_is_out_of_range_starts_nothing(asked: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as e:
        start_suite(**asked)  # type: ignore[arg-type]
    assert e.value.field == field


def test_without_torch_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "installed", lambda package: False)
    for begin in (start_suite, lambda: client.start({}, ProbeRequest())):
        with pytest.raises(UnsupportedValue, match="PyTorch is not installed"):
            begin()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to see the processes of the ranks")
def test_cancel_ends_the_ranks_too() -> None:
    run = start_suite(only=["ranks"], device="cpu", threads=1)
    deadline = time.monotonic() + 60
    while not (ranks := descendants(run)) and time.monotonic() < deadline:
        assert run.poll().running
        time.sleep(0.2)
    assert ranks, "torchrun was never seen"
    run.cancel()
    assert run.wait(20).cancelled
    deadline = time.monotonic() + 20
    while (left := [pid for pid in ranks if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def processes() -> dict[int, tuple[int, str, str]]:
    """Of this host: parent, state and command line by process id."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            found[int(place.name)] = (int(fields[1]), fields[0], (place / "cmdline").read_text().replace("\0", " "))
        except (OSError, ValueError):
            continue  # gone meanwhile
    return found


def descendants(run: SuiteRun) -> list[int]:
    """Process ids below the child that are torchrun's or its ranks'."""
    table, below = processes(), {run._child.pid}
    for _ in range(4):
        below |= {pid for pid, (parent, _, _) in table.items() if parent in below}
    return [pid for pid in below & set(table) if "torch.distributed.run" in table[pid][2] or "dist_worker" in table[pid][2]]


def alive(pid: int) -> bool:
    return processes().get(pid, (0, "Z", ""))[1] != "Z"

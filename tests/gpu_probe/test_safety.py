"""The host is not harmed: whole process groups end, refusals say what was asked and what was free, one probe runs at a time, and a
server that has seen many probes die is as it was. The long variant runs in `make check-all`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from gpu_probe import device, lock, orphan
from gpu_probe.child import PROJECT
from gpu_probe.client import ProbeRun, start
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.pool import PoolExhausted
from gpu_probe.result import ProbeRequest
from gpu_probe.run import run
from tests.gpu_probe.test_client import LLAMA, PHASE, child, until
from tests.gpu_probe.test_suite_client import processes
from tests.gpu_probe.tiny import MODELS

SEGFAULT = PHASE + "import ctypes\nctypes.string_at(0)"
FORGETFUL = (
    "import sys\nimport gpu_probe.fit as f\nf.needed_bytes = lambda *a: 0\nf.SKELETON_VOCAB = 10**9\n"
    "from gpu_probe.__main__ import main\nsys.exit(main(sys.argv[1:]))"
)
"""A child whose plan believes that everything fits."""


def overallocating() -> ProbeRun:
    big = {**LLAMA, "hidden_size": 4096, "vocab_size": 60_000}
    options = ["run", "-", "--json", "--device=cpu", "--layers=1", f"--memory-cap={200 * 2**20}"]
    return ProbeRun([sys.executable, "-c", FORGETFUL, *options], json.dumps(big), ProbeRequest(), {**os.environ, "PYTHONPATH": str(PROJECT)})


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(what: object, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_cancel_ends_the_whole_process_group(tmp_path: Path) -> None:
    """A grandchild that ignores SIGTERM goes too."""
    told = tmp_path / "pid"
    grandchild = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    run_ = child(
        "import signal, subprocess, sys, time, pathlib\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"g = subprocess.Popen([sys.executable, '-c', {grandchild!r}])\npathlib.Path({str(told)!r}).write_text(str(g.pid))\n{PHASE}time.sleep(60)"
    )
    until(run_, "decode")
    pid = int(told.read_text())
    assert alive(pid)
    run_.cancel()
    assert run_.wait(10).cancelled
    assert wait_for(lambda: not alive(pid))


def test_a_real_segfault_is_survived() -> None:
    end = child(SEGFAULT).wait(20)
    assert (end.exit_code, end.result) == (-signal.SIGSEGV, None)
    assert end.error is not None
    assert "SIGSEGV" in end.error["message"]


@linux
def test_an_overallocation_says_what_was_asked_and_what_was_free() -> None:
    run_ = overallocating()
    end = run_.wait(60)
    assert end.exit_code == 3
    assert end.error is not None
    assert end.error["code"] == "probe_memory"
    oom = run_._seen.events["oom"]
    assert oom["asked"] >= 60_000 * 4096 * 2  # the embedding, in bf16 or wider
    assert 0 <= oom["free"] < oom["asked"]
    assert f"{oom['asked']:,} bytes" in end.error["message"]
    assert f"{oom['free']:,} bytes" in end.error["message"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 983040000 bytes. Error code 12", 983_040_000),
        ("CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0 has a total capacity of", 21_495_808),
        ("HIP out of memory. Tried to allocate 2.00 GiB", 2**31),
        ("something else", None),
    ],
)
def test_what_was_asked_is_read_off_torchs_own_words(said: str, asked: int | None) -> None:
    assert device.asked_bytes(RuntimeError(said)) == asked


def test_a_pool_that_runs_out_is_told_with_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*a: object, **kw: object) -> None:
        raise PoolExhausted(7, 3, 40)

    monkeypatch.setattr(device, "limit_memory", lambda *a: None)
    monkeypatch.setattr("gpu_probe.session._prefill", refuse)
    with pytest.raises(ProbeOutOfMemory) as out:
        run(MODELS["gqa"], ProbeRequest(device="cpu"))
    assert (out.value.code, out.value.args_by_name["asked"], out.value.args_by_name["free"]) == ("probe_pool", 7, 3)
    assert "7 blocks" in out.value.message


@linux
def test_headroom_is_the_least_of_limit_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "host_memory_bytes", lambda: 12_345)
    assert device.headroom_bytes(torch.device("cpu")) == 12_345


# -- one at a time


def test_a_second_probe_waits_for_the_first_and_then_runs() -> None:
    with lock.held():
        second = start(LLAMA, ProbeRequest(device="cpu", prompt=20, output=2), threads=1)
        assert until(second, "wait").phase == "wait"
        assert second.poll().running
    end = second.wait(40)
    assert end.error is None
    assert end.result is not None


def test_a_probe_that_another_one_starts_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with lock.held(for_children=True):
        assert start(LLAMA, ProbeRequest(device="cpu", prompt=20, output=2), threads=1).wait(60).result is not None
    assert lock.HOLDER_VARIABLE not in os.environ
    with lock.held():
        monkeypatch.setenv(lock.HOLDER_VARIABLE, "1")  # lives, but does not hold it
        with pytest.raises(lock.ProbeBusy), lock.held(wait_s=0.0):
            pass


@pytest.mark.parametrize("command", ["sweep", "bench", "suite", "dist", "gpu-check"])
def test_everything_that_measures_waits_its_turn(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process: another one holds the lock, and nothing begins."""
    from gpu_probe import __main__ as main

    monkeypatch.setattr(lock, "WAIT_S", 0.05)
    monkeypatch.setattr(main.Out, "take_over", lambda self: None)
    monkeypatch.setitem(main.COMMANDS, command, (lambda options, out: pytest.fail("began"), main.COMMANDS[command][1]))
    code = "import time\nfrom gpu_probe import lock\nwith lock.held():\n    print('held', flush=True)\n    time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        assert main.main([command, "--json"]) == 2
    finally:
        holder.kill()
        holder.wait(10)
        holder.stdout.close()
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert lines[0] == {"ev": "phase", "name": "wait", "done": 0, "total": 1}
    assert lines[-1]["error"]["code"] == "probe_busy"


def test_waiting_has_an_end_and_names_the_holder() -> None:
    with lock.held(), pytest.raises(lock.ProbeBusy) as busy, lock.held(wait_s=0.1):
        pytest.fail("two at once")
    assert str(os.getpid()) in busy.value.message
    with lock.held(wait_s=0.0):
        pass


def test_the_lock_ends_with_its_holder_however_it_dies() -> None:
    code = "import time\nfrom gpu_probe import lock\nwith lock.held():\n    print('held', flush=True)\n    time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(lock.ProbeBusy), lock.held(wait_s=0.0):
        pass
    holder.kill()
    holder.wait(10)
    holder.stdout.close()
    with lock.held(wait_s=1.0):
        pass


def test_a_place_without_a_lock_file_refuses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(lock.PATH_VARIABLE, str(tmp_path / "missing" / "lock"))
    with lock.held(wait_s=0.0), lock.held(wait_s=0.0):
        pass


# -- the server is gone

SERVER = """
import json, os, sys, threading, time
from gpu_probe.client import start, start_suite
from gpu_probe.result import ProbeRequest

def say(run, phase):
    os.write(1, (json.dumps({"pid": run._child.pid, "phase": phase}) + chr(10)).encode())  # whole lines, whoever else writes

def session(make):
    run = make()
    while (status := run.poll()).running:
        say(run, status.phase)
        time.sleep(0.1)
    say(run, "ended " + str(status.error))

config = json.loads(sys.argv[1])
makes = [lambda: start_suite(only=[sys.argv[2]], device="cpu", threads=1), lambda: start(config, ProbeRequest(device="cpu"), threads=1)]
for make in makes:
    threading.Thread(target=session, args=(make,), daemon=True).start()
    time.sleep(0.5)
time.sleep(600)
"""
"""The parent's side, two sessions: a suite, and a probe that waits for it or the other way round."""


def _served(entry: str, place: Path, until: set[str]) -> set[int]:
    """The process ids of both children of a server that was killed once `until` are the phases that they are in."""
    environment = {**os.environ, "TMPDIR": str(place), lock.PATH_VARIABLE: str(place.parent / "lock")}
    server = subprocess.Popen([sys.executable, "-c", SERVER, json.dumps(LLAMA), entry], cwd=PROJECT, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    phases: dict[int, str] = {}
    deadline = time.monotonic() + 120
    try:
        while not (len(phases) == 2 and set(phases.values()) == until) and time.monotonic() < deadline:
            said = json.loads(server.stdout.readline())
            phases[said["pid"]] = said["phase"]
        assert set(phases.values()) == until
        if "ranks" in until:
            assert wait_for(lambda: list(place.glob("*/torchelastic_*")), 60), "torchrun was never seen"
    finally:
        server.kill()
        server.wait(10)
        server.stdout.close()
    return set(phases)


def _gone(pids: set[int], seconds: float) -> bool:
    """Whether all have ended in time; what has not is ended here."""
    gone = wait_for(lambda: not any(alive(pid) for pid in pids), seconds)
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    return gone


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what the children write, and a lock beside it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv(lock.PATH_VARIABLE, str(tmp_path / "lock"))
    return tmp_path / "tmp"


@linux
def test_children_of_a_killed_server_that_wait_end_too(place: Path) -> None:
    """They write nothing while they wait, so no broken pipe ends them; the lock is awaited for half a minute."""
    with lock.held():
        assert _gone(_served("paged", place, {"wait"}), lock.WAIT_S / 2)


@linux
@pytest.mark.check_all
def test_a_killed_server_leaves_no_child_no_rank_no_lock_and_no_file(place: Path) -> None:
    children = _served("ranks", place, {"ranks", "wait"})
    below = {pid for pid, (_, _, command) in processes().items() if str(place) in _environ(pid) and ("gpu_probe" in command or "torch" in command)}
    assert len(below) > 2  # torchrun is there
    assert _gone(children | below, 20)
    with lock.held(wait_s=0.0):
        pass
    assert list(place.iterdir()) == []


def _environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def test_a_child_without_a_parent_to_watch_is_left_alone() -> None:
    before = threading.active_count()
    orphan.watch(0)
    assert threading.active_count() == before


# -- many times


def footprint() -> tuple[int, int, int]:
    rss = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return len(os.listdir("/proc/self/fd")), threading.active_count(), rss * 1024  # noqa: PTH208  a count, not paths


@linux
@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.check_all)])
def test_killed_cancelled_and_overallocating_probes_leave_the_server_as_it_was(times: int) -> None:
    def once() -> None:
        killed = child(PHASE + "import time\ntime.sleep(60)")
        until(killed, "decode")
        os.killpg(killed._child.pid, signal.SIGKILL)
        assert killed.wait(10).error is not None
        cancelled = child(PHASE + "import time\ntime.sleep(60)")
        until(cancelled, "decode")
        cancelled.cancel()
        assert cancelled.wait(10).cancelled
        assert child(SEGFAULT).wait(20).exit_code == -signal.SIGSEGV
        assert overallocating().wait(60).exit_code == 3

    def settled() -> tuple[int, int, int]:
        wait_for(lambda: threading.active_count() <= threads, 5.0)
        return footprint()

    threads = threading.active_count()
    once()  # what is made once and kept is made here
    files, threads, memory = settled()
    for _ in range(times):
        once()
    after = settled()
    assert after[:2] == (files, threads)
    assert after[2] - memory < 8 * 2**20

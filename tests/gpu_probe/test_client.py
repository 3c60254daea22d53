"""The parent outlives every way in which a child can end. Most children here are short scripts without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from gpu_probe.child import PROJECT
from gpu_probe.client import ProbeRun, ProbeStatus, start
from gpu_probe.result import ProbeRequest
from planner.errors import InvalidInput, UnsupportedValue
from tests.gpu_probe.lean import absent

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 99, "intermediate_size": 80, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "torch_dtype": "float32",
}  # fmt: skip
PHASE = 'print(\'{"ev": "phase", "name": "decode", "done": 1, "total": 4}\', flush=True)\n'


def child(script: str, limit_s: float = 60.0) -> ProbeRun:
    return ProbeRun([sys.executable, "-c", script], "{}", ProbeRequest(time_limit_s=limit_s), dict(os.environ))


def until(run: ProbeRun, phase: str) -> ProbeStatus:
    deadline = time.monotonic() + 20
    while (status := run.poll()).phase != phase and status.running and time.monotonic() < deadline:
        time.sleep(0.01)
    return status


def test_a_real_run_reports_progress_and_a_result() -> None:
    run = start(LLAMA, ProbeRequest(device="cpu", prompt=40, output=6), name="--tiny", threads=1)
    seen = [run.poll()]
    assert seen[0].running
    while seen[-1].running:
        time.sleep(0.01)
        seen.append(run.poll())
    end = run.wait(30)
    assert end.error is None, end
    assert end.result is not None
    assert end.result.bytes_agree
    assert end.result.model["name"] == "--tiny"
    assert end.result.measured_kv_bytes == 2 * 48 * 2 * 32 * 4 * 3
    fractions = [s.fraction for s in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert end.hello is not None
    assert end.plan is not None
    assert not end.cancelled


def test_a_run_can_be_cancelled() -> None:
    run = child(PHASE + "import time\ntime.sleep(60)")
    assert until(run, "decode").phase == "decode"
    run.cancel()
    end = run.wait(10)
    assert (end.running, end.cancelled, end.result, end.error) == (False, True, None, None)


def test_a_request_out_of_range_starts_nothing() -> None:
    with pytest.raises(InvalidInput):
        start(LLAMA, ProbeRequest(batch=0))
    with pytest.raises(UnsupportedValue):
        start(LLAMA, ProbeRequest(kv_dtype="q4_0"))


def test_a_model_that_cannot_be_read_is_the_readers_error() -> None:
    end = start({**LLAMA, "num_hidden_layers": "many"}, ProbeRequest()).wait(30)
    assert end.error is not None
    assert end.error["field"] == "num_hidden_layers"
    assert end.exit_code == 2


def test_cancel_reaches_a_child_that_will_not_listen() -> None:
    run = child("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PHASE + "time.sleep(60)")
    until(run, "decode")
    began = time.monotonic()
    run.cancel()
    end = run.wait(10)
    assert (end.cancelled, end.exit_code) == (True, -9)
    assert time.monotonic() - began < 5
    run.cancel()  # once more does no harm


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os._exit(7)", "exit 7"),
        ("", "exit 0"),
    ],
)
def test_a_child_that_dies_leaves_a_clean_status(death: str, reason: str) -> None:
    end = child("import os, signal, sys\n" + PHASE + "print('a last word', file=sys.stderr, flush=True)\n" + death).wait(20)
    assert not end.running
    assert end.result is None
    assert end.error is not None
    assert end.error["type"] == "ProbeFault"
    assert reason in end.error["message"]
    assert "decode" in end.error["message"]
    assert end.log == ("a last word",)


def test_lines_that_are_no_events_are_kept_as_log() -> None:
    error = '{"error": {"type": "ProbeOutOfMemory", "message": "m"}}'
    end = child(f"for line in ('hello', '[1, 2]', '{{', {error!r}): print(line)\nraise SystemExit(3)").wait(20)
    assert end.log == ("hello", "[1, 2]", "{")
    assert end.error == {"type": "ProbeOutOfMemory", "message": "m"}
    assert end.exit_code == 3


def test_the_parent_ends_a_child_that_lost_its_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_probe.child.PARENT_SLACK_S", 0.0)
    end = child("import time\ntime.sleep(60)", limit_s=0.5).wait(10)
    assert end.error is not None
    assert end.error["type"] == "ProbeTimeLimit"


# -- the command line


def cli(*args: str, config: object = LLAMA, code: str = "", module: str = "gpu_probe") -> tuple[int, dict[str, object], str]:
    program = ["-c", code, *args] if code else ["-m", module, *args]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *program],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=environment,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    for line in lines:
        json.loads(line)
    return done.returncode, json.loads(lines[-1]), done.stderr


def test_a_stray_print_does_not_reach_stdout() -> None:
    code = (
        "import sys\nfrom gpu_probe.__main__ import main\nimport gpu_probe.compare as m\nold = m.build_rows\n"
        "def loud(*a, **k):\n    print('stray', flush=True)\n    return old(*a, **k)\nm.build_rows = loud\nsys.exit(main(sys.argv[1:]))"
    )
    exit_code, last, errors = cli("run", "-", "--json", "--device", "cpu", "--prompt", "20", "--output", "3", code=code)
    assert exit_code == 0, errors
    assert last["predicted_kv_bytes"] == last["measured_kv_bytes"]
    assert "stray" in errors


def test_torch_and_numpy_are_enough() -> None:
    """All that pip would not bring along with them is made unfindable (tests/gpu_probe/lean.py)."""
    assert {"streamlit", "pandas", "transformers", "huggingface_hub", "sqlalchemy", "reportlab"} <= absent()
    assert not {"torch", "numpy", "sympy", "typing_extensions"} & absent()
    exit_code, last, errors = cli("run", "-", "--json", "--device", "cpu", "--prompt", "20", "--output", "3", module="tests.gpu_probe.lean")
    assert exit_code == 0, errors
    assert last["predicted_kv_bytes"] == last["measured_kv_bytes"]
    assert {
        "ttft_s",
        "itl_s",
        "tokens_per_s",
        "logits_max_rel_error",
        "device",
        "backend",
        "layers_run",
        "layers_total",
        "versions",
        "rows",
    } <= set(last)


def test_the_memory_cap_holds_in_the_child_and_ends_in_exit_3() -> None:
    """The plan is made to think that everything fits: the allocation itself is then refused, and told as such."""
    code = (
        "import sys\nimport gpu_probe.fit as f, gpu_probe.device as d\nf.needed_bytes = lambda *a: 0\n"
        "from gpu_probe.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    big = {**LLAMA, "hidden_size": 4096, "vocab_size": 60_000}
    exit_code, last, _ = cli("run", "-", "--json", "--device", "cpu", "--layers", "1", "--memory-cap", "200MiB", config=big, code=code)
    assert exit_code == 3
    error = last["error"]
    assert isinstance(error, dict)
    assert (error["type"], error["code"], error["field"]) == ("ProbeOutOfMemory", "probe_memory", "memory_cap")


def test_the_child_ends_itself_at_its_time_limit() -> None:
    exit_code, last, _ = cli("run", "-", "--json", "--device", "cpu", "--output", "60000", "--time-limit", "0.7")
    assert exit_code == 4
    assert last["error"]["type"] == "ProbeTimeLimit"  # type: ignore[index]


@pytest.mark.parametrize(
    ("args", "config", "field"),
    [
        (("run", "-", "--batch", "two"), LLAMA, "options"), (("run",), LLAMA, "options"), (("run", "-", "--prompt", "0"), LLAMA, "prompt"),
        (("run", "-", "--kv-dtype", "int8"), LLAMA, "kv_dtype"), (("run", "-", "--memory-cap", "much"), LLAMA, "memory_cap"), (("run", "-"), [], "source"),
    ],
)  # fmt: skip
def test_a_users_error_is_json_and_exit_2(args: tuple[str, ...], config: object, field: str) -> None:
    exit_code, last, _ = cli(*args, "--json", config=config)
    assert exit_code == 2
    assert {"type", "message", "field", "hint"} <= set(last["error"])  # type: ignore[call-overload]
    assert last["error"]["field"] == field  # type: ignore[index]


@pytest.mark.parametrize("module", ["client", "result", "pool", "shapes", "fit", "compare", "errors", "__main__"])
def test_no_torch_is_loaded(module: str) -> None:
    code = f"import sys, gpu_probe.{module}; sys.exit(any(m in sys.modules for m in ('torch', 'streamlit', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, timeout=60, check=False).returncode == 0

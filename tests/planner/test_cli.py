"""The command line's contract: keys, exit codes, several sources, batch lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import main
from tests.conftest import CONFIGS, ROOT

LLAMA = str(CONFIGS / "llama.json")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(words)
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, (out,) = run(capsys, "read", LLAMA, "--json")
    assert code == 0
    assert set("name model_type architecture verified weight_dtype max_context_tokens parameters layers groups notes source".split()) <= set(out)
    assert out["source"]["path"] == LLAMA
    assert len(out["layers"]) == 8
    assert out["groups"][0]["kind"] == "full"
    assert out["parameters"]["total"] == 155_730_944


def test_kv(capsys: pytest.CaptureFixture[str]) -> None:
    code, (out,) = run(capsys, "kv", LLAMA, "--tokens", "3000", "--batch", "2", "--json")
    assert code == 0
    keys = """architecture_bytes engine engine_version engine_bytes per_rank_bytes bytes_per_token_unbounded windowed state_bytes_per_sequence
        cross_bytes_per_encoder_token cross_bytes admission_bytes resident_bytes kv_dtype formula""".split()
    assert set(keys) <= set(out)
    assert out["architecture_bytes"] == out["engine_bytes"] == 49_152_000


@pytest.mark.parametrize(
    ("options", "bytes_"),
    [
        (("--kv-dtype", "fp8"), 12_288_000),
        (("--kv-dtype", "fp32"), 49_152_000),
        (("--engine", "transformers"), 24_576_000),
        (("--engine", "vllm"), 188 * 131_072 + 131_072),  # 188 blocks of 16 tokens and the null block
        (("--engine", "vllm", "--tp", "2"), 188 * 131_072 + 131_072),
        (("--engine", "vllm", "--tp", "8"), 8 * (188 * 32_768 + 32_768)),  # 4 KV heads on 8 ranks: each kept twice
        (("--engine", "vllm", "--block-size", "32"), 94 * 262_144 + 262_144),
    ],
)
def test_kv_options(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], bytes_: int) -> None:
    code, (out,) = run(capsys, "kv", LLAMA, "--tokens", "3000", *options, "--json")
    assert (code, out["engine_bytes"]) == (0, bytes_)
    assert sum(out["per_rank_bytes"]) == bytes_


def test_beyond_the_models_limit_is_a_note_in_kv_and_no_fit_in_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, (out,) = run(capsys, "kv", LLAMA, "--tokens", "5000", "--json")
    assert code == 0
    assert "beyond_model_limit" in {n["code"] for n in out["notes"]}
    code, (out,) = run(capsys, "plan", LLAMA, "--tokens", "5000", "--json", "--remedies")
    assert (code, out["fits"], out["limited_by"]) == (0, False, "model")
    assert out["remedies"]


def test_several_sources_answer_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"model_type": "llama"}')
    code, outs = run(capsys, "kv", str(bad), LLAMA, "--tokens", "16", "--json")
    assert code == 0
    assert outs[0]["error"]["field"] == "num_hidden_layers"
    assert outs[0]["source"]["path"] == str(bad)
    assert outs[1]["architecture_bytes"] == 131_072
    code, outs = run(capsys, "kv", str(bad), str(tmp_path / "none.json"), "--tokens", "16", "--json")
    assert code == 2
    assert all("error" in o for o in outs)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("kv", LLAMA, "--json"), "tokens"),
        (("kv", LLAMA, "--tokens", "x", "--json"), "tokens"),
        (("kv", LLAMA, "--tokens", "10", "--engine", "tgi", "--json"), "engine"),
        (("plan", LLAMA, "--gpu", "H1000", "--json"), "gpu"),
        (("plan", LLAMA, "--kv-memory", "much", "--json"), "kv_memory"),
        (("plan", LLAMA, "--frobnicate", "--json"), "command"),
        (("fly", LLAMA), "command"),
        ((), "command"),
        (("batch", "/no/such/file", "--json"), "file"),
    ],
)
def test_a_users_error_is_exit_2_and_one_object(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], field: str) -> None:
    code, (out,) = run(capsys, *words)
    assert code == 2
    assert {"type", "message", "field", "hint"} <= set(out["error"])
    assert out["error"]["field"] == field


def test_batch_answers_in_order_and_in_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    requests = [
        {"command": "kv", "source": LLAMA, "tokens": "3000", "kv-dtype": "fp8"},
        "not json",
        {"command": "plan", "source": LLAMA, "kv_memory": 2**30, "engine": "vllm", "gpus": 1, "no_async_scheduling": True},
        {"command": "kv", "source": LLAMA, "tokens": 3000, "wings": 2},
        {"command": "read", "source": LLAMA},
        {"command": "sing", "source": LLAMA},
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in requests) + "\n")
    code, outs = run(capsys, "batch", str(path), "--json")
    assert code == 0
    assert len(outs) == 6
    assert outs[0]["engine_bytes"] == 12_288_000
    assert outs[1]["error"]["field"] == "command"
    assert outs[2]["num_blocks"] == 2**30 // 131_072
    assert outs[3]["error"]["field"] == "wings"
    assert outs[4]["name"]
    assert outs[5]["error"]["field"] == "command"


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        f"import sys, planner.__main__ as m; m.main(['plan', {LLAMA!r}, '--json'])\n"
        "heavy = {'torch', 'streamlit', 'pandas', 'plotly', 'huggingface_hub', 'jinja2', 'transformers'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_one_config_needs_few_of_the_readers() -> None:
    code = (
        f"import sys, planner.__main__ as m; m.main(['read', {LLAMA!r}, '--json'])\nsys.exit(len([m for m in sys.modules if m.startswith('planner.readers.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert 0 < done.returncode <= 18


def test_plain_text_and_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", LLAMA]) == 0
    assert "GiB" in capsys.readouterr().out
    for fmt in ("json", "md", "html", "csv"):
        target = tmp_path / f"report.{fmt}"
        assert main(["report", LLAMA, "--format", fmt, "-o", str(target)]) == 0
        assert target.stat().st_size > 500

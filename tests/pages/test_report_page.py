"""The Report page, and what the web process may load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from planner.messages import render as render_text
from planner.report import render, write
from tests.conftest import ROOT
from tests.pages.conftest import ROUTER, fresh, upload


def test_the_preview_and_a_button_a_format(at: AppTest) -> None:
    at.number_input(key="sequences").set_value(32).run()
    page = at.switch_page("report.py").run()
    assert not page.exception
    assert not page.error
    assert "with_reconciliation" not in {c.key for c in page.checkbox}  # the Reconcile page's example is no result
    assert [b.label for b in page.get("download_button")] == ["JSON", "Markdown", "HTML", "CSV", "XLSX", "PDF"]
    assert all(b.proto.url or b.proto.deferred_file_id for b in page.get("download_button"))
    assert "32.00 GiB" in page.markdown[0].value
    inside = next(c.value for c in page.caption if c.value.startswith("Inside:"))
    assert all(title in page.markdown[0].value for title in inside.removeprefix("Inside: ").rstrip(".").split(", ") if "byte of a rank" not in title)
    assert page.number_input(key="sequences").value == 32


UNKNOWN = {"model_type": "newtype", "architectures": ["NewForCausalLM"], "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
           "hidden_size": 512, "intermediate_size": 1024, "vocab_size": 1000, "odd_setting": 3, "max_position_embeddings": 4096}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("Llama-3.1-8B", {"gpu": "L4", "tokens": 1000, "prompt": 900, "output": 100, "kv_dtype": "fp8", "memory_fraction": 0.87}),
        ("Qwen3-8B", {"engine": "sglang", "sequences": 8, "tokens": 900, "max_num_seqs": 64}),
        ("Llama-3.1-8B", {"lengths": "CSV"}),
        ("UNKNOWN", {"tokens": 64, "harmless": ["odd_setting"]}),
    ],
)
def test_a_report_that_is_uploaded_is_the_same_plan_to_the_byte(source: str, options: dict[str, Any], tmp_path: Path) -> None:
    if source == "UNKNOWN":
        (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
        source = str(tmp_path / "config.json")
    if options.get("lengths"):
        (tmp_path / "mix.csv").write_text("prompt,output,count\n" + "".join(f"{100 + i},{i % 7 + 1},{i % 5 + 1}\n" for i in range(200)))
        options = {**options, "lengths": str(tmp_path / "mix.csv")}
    saved = write(source, options, "json")
    at = upload(fresh(), ("kv-plan.json", saved))
    assert not at.exception
    assert not at.error
    c = at.session_state["_current"]
    mix = at.session_state["_mix"][1] if at.session_state["_mix"] else None
    again = render(c.plan(), "json", c.loaded.provenance, config=c.loaded.raw, notes=c.loaded.notes, harmless=c.harmless, mix=mix)
    assert again == saved


def test_a_log_of_this_session_goes_in_unless_it_is_left_out() -> None:
    at = fresh().switch_page("reconcile.py").run()
    at.text_area(key="log_paste_0").set_value("INFO GPU KV cache size: 445,600 tokens\nINFO Available KV cache memory: 54.39 GiB\n").run()
    page = at.switch_page("report.py").run()
    assert not page.exception
    assert "445,600" in page.markdown[0].value
    title = render_text("report.table.reconciliation")
    assert title in page.markdown[0].value
    page.checkbox(key="with_reconciliation").uncheck().run()
    assert title not in page.markdown[0].value


def test_a_plan_that_cannot_be_says_so_here_too() -> None:
    page = fresh(gpus="3", tp="2").switch_page("report.py").run()
    assert not page.exception
    assert page.error


def test_no_page_loads_torch() -> None:
    code = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({ROUTER!r}, default_timeout=60).run()\n"
        "for name in ('validate', 'report', 'plan'):\n    at.switch_page(f'{name}.py').run()\n    assert not at.exception, name\n"
        "import app\nsys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

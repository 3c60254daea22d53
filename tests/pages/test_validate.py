"""The Validate page: the prediction first, a result from elsewhere, a run in a child process."""

from __future__ import annotations

import importlib.util
import json
import time

import pytest
from streamlit.testing.v1 import AppTest

from gpu_probe.result import ProbeResult, ProbeRow
from planner.errors import PlannerError
from planner.messages import render
from tests.conftest import CONFIGS
from tests.pages.conftest import fresh, shown, values

RESULT = ProbeResult(
    predicted_kv_bytes=1_310_720, measured_kv_bytes=1_310_720, ttft_s=0.5, itl_s={"p50": 0.01, "p90": 0.02, "p99": 0.03}, tokens_per_s=20.0,
    prefill_tokens_per_s=256.0, decode_tokens_per_s=100.0, logits_max_rel_error=1e-6, absorbed_vs_expanded_max_rel_error=None, device="cpu",
    device_name="a processor", backend="torch", layers_run=2, layers_total=32, predicted_kv_bytes_all_layers=20_971_520, kv_dtype="bf16", compute_dtype="fp32",
    model={"name": "Llama-3.1-8B", "model_type": "llama"}, request={}, cuts={}, groups=(), proof={}, step_s=(), versions={"torch": "2"},
    rows=(ProbeRow(name="KV bytes held", predicted=1_310_720, measured=1_310_720, how="storage", exact=True),),
    notes=({"level": "info", "text": "a note", "field": ""},),
)  # fmt: skip


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("validate.py").run()


def test_the_prediction_stands_before_any_run(page: AppTest) -> None:
    assert not page.exception
    # 2 sequences x ceil(72 / 16) blocks x 16 tokens x 2 layers x 4,096 bytes
    assert values(page)["Predicted for this run"] == "1.25 MiB"
    assert values(page)["All layers"] == "20.00 MiB"
    page.number_input(key="probe_prompt").set_value(128).run()
    assert values(page)["Predicted for this run"] == "2.25 MiB"


def test_a_model_that_the_probe_cannot_run_is_named() -> None:
    at = fresh()
    at.text_area(key="paste").set_value((CONFIGS / "lfm2.json").read_text()).run()
    at.switch_page("validate.py").run()
    assert not at.exception
    assert "layers[0].caches" in shown(at)
    assert "state short_conv" in shown(at)
    assert render("page.probe.none") not in [i.value for i in at.info], "no prediction stands above"


def test_a_result_from_elsewhere_is_shown_and_goes_into_the_report(page: AppTest) -> None:
    lines = b'{"ev": "hello"}\n' + json.dumps(RESULT.to_json()).encode() + b"\n"
    page.file_uploader(key="probe_upload").set_value(("result.json", lines, "application/json")).run()
    assert not page.exception
    assert "1,310,720 bytes" in page.success[0].value
    assert values(page)["ITL p50 (decode)"] == "10.0 ms"
    report = page.switch_page("report.py").run()
    assert not report.exception
    assert "Predicted beside measured" in report.markdown[0].value


@pytest.mark.parametrize("change", [{"rows": 7}, {"ttft_s": "fast"}, {"itl_s": {}}, {"rows": [{"name": 1}]}, {"versions": []}, {"notes": ["x"]}, None])
def test_what_is_no_result_is_refused(page: AppTest, change: dict[str, object] | None) -> None:
    data = b'{"model_type": "llama"}' if change is None else json.dumps({**RESULT.to_json(), **change}).encode()
    page.file_uploader(key="probe_upload").set_value(("x.json", data, "application/json")).run()
    assert not page.exception
    assert "no result of the probe" in shown(page)
    assert not page.success


def test_a_run_can_be_cancelled_and_a_bad_choice_is_refused_before_it(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    class Run:
        def __init__(self) -> None:
            self.cancelled = False

        def poll(self) -> object:
            from gpu_probe.client import ProbeStatus

            return ProbeStatus(phase="decode", done=1, total=2, fraction=0.6, running=not self.cancelled, cancelled=self.cancelled, elapsed_s=1.0)

        def cancel(self) -> None:
            self.cancelled = True

    run = Run()
    monkeypatch.setattr("pages.parts.jobs.start", lambda *a, **k: run)
    page.button(key="probe_start").click().run()
    assert page.button(key="probe_start").disabled
    page.button(key="probe_cancel").click().run()
    assert run.cancelled
    page.run()
    assert "cancelled" in page.info[0].value
    assert not page.button(key="probe_start").disabled

    def refuse(*args: object, **keys: object) -> None:
        raise PlannerError("out_of_range", field="batch", value=0, low=1, high=2)

    monkeypatch.setattr("pages.parts.jobs.start", refuse)
    page.button(key="probe_start").click().run()
    assert "batch" in shown(page)


def test_a_real_run_ends_with_agreement(page: AppTest) -> None:
    """The child has torch; this process must not get it."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: the probe cannot run")
    page.selectbox(key="model").set_value("GPT-2").run()
    for name, value in (("prompt", 16), ("output", 2), ("layers", 1), ("batch", 1)):
        page.number_input(key=f"probe_{name}").set_value(value).run()
    page.button(key="probe_start").click().run()
    end = time.monotonic() + 110
    while page.button(key="probe_start").disabled and time.monotonic() < end:
        time.sleep(0.5)
        page.run()
    assert not page.exception
    assert not page.error, shown(page)
    # 2 blocks x 16 tokens x 1 layer x 12 heads x (64 + 64) x 2 bytes
    assert "98,304 bytes" in page.success[0].value

"""The Diagnose page says what the planner says, remedies carry the load that was seen, and hostile texts are answered; Serve calibrates on request."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from planner.calibrate import Point
from planner.messages import render
from tests.pages.conftest import fresh, shown
from tests.planner.test_calibrate import csv_of, measured, planned
from tests.planner.test_diagnose import BENCH, METRICS


def page(**query: str) -> AppTest:
    at = fresh(**query).switch_page("diagnose.py").run()
    assert not at.exception
    return at


def enter(at: AppTest, **values: float) -> AppTest:
    for name, value in values.items():
        at.number_input(key=f"diagnose_{name}").set_value(value)
    at.run()
    assert not at.exception
    return at


def test_it_starts_with_an_example_of_the_plan() -> None:
    at = page()
    assert "An example until you enter" in at.info[0].value
    assert "32 at once, 7,168 + 1,024 tokens" in at.info[0].value, "at 16 no part clearly binds"
    assert at.success[0].value == render("diagnose.verdict.cache")
    assert [b for b in at.button if str(b.key).startswith("diagnose_take_")]
    chart = json.loads(at.get("plotly_chart")[0].proto.spec)["data"][0]
    assert chart["y"][0] == render("diagnose.part.cache")
    assert render("diagnose.part.links") not in chart["y"], "one device has no links"
    other = page(sequences="4")
    assert "4 at once" in other.info[0].value
    assert other.info[0].value != at.info[0].value


def test_without_times_it_asks() -> None:
    at = page(gpu="L20")  # no bandwidth is known of it
    assert [i.value for i in at.info] == [render("page.diagnose.empty")]
    assert not at.success


def test_a_diagnosis_with_its_evidence_and_remedies() -> None:
    at = enter(page(), itl_s=33.0, sequences=32, prompt=12_000, output=4_000)
    assert at.success[0].value == render("diagnose.verdict.cache")
    assert any("reading the cache" in m.value for m in at.markdown)
    takes = [b for b in at.button if str(b.key).startswith("diagnose_take_")]
    assert takes
    cache = next(b for b in takes if b.key.endswith("fp8_cache"))
    cache.click().run()
    assert not at.exception
    assert at.number_input(key="sequences").value == 32
    assert at.number_input(key="tokens").value == 16_000
    assert at.selectbox(key="kv_dtype").value == "fp8"
    assert at.number_input(key="diagnose_itl_s").value == 33.0


def test_what_is_open_is_said_without_remedies() -> None:
    at = enter(page(), tokens_per_s=900.0)
    assert at.warning[0].value == render("diagnose.verdict.undecided")
    assert any("How many sequences" in m.value for m in at.markdown)
    assert not [b for b in at.button if str(b.key).startswith("diagnose_take_")]


def test_pasted_texts() -> None:
    at = page()
    at.text_area(key="diagnose_paste").set_value(METRICS).run()
    assert not at.exception
    assert at.success[0].value == render("diagnose.verdict.pool")
    at.text_area(key="diagnose_paste").set_value(BENCH).run()
    assert at.success or at.warning
    typed = "Typed above, and so not taken from the paste: ITL (ms)."
    assert typed not in [c.value for c in at.caption]
    enter(at, itl_s=77.0)
    captions = [c.value for c in at.caption]
    assert typed in captions
    assert not any("ITL (ms)" in c for c in captions if c.startswith("Taken from"))


@pytest.mark.parametrize("text", ["nothing here", "{" * 10_000, "vllm:num_requests_running 1e30", "<script>alert(1)</script>"])
def test_hostile_pastes_are_answered(text: str) -> None:
    at = page()
    at.text_area(key="diagnose_paste").set_value(text).run()
    assert not at.exception
    assert shown(at)


@pytest.mark.parametrize("query", [{"gpu": "L20"}, {"engine": "llamacpp", "gpu": "RTX 4090"}, {"lengths": "100+20:3,4000+500:1"}, {"tp": "8", "gpus": "8"},
                                   {"model": "DeepSeek-V3", "tp": "8", "gpus": "8"}, {"engine": "architecture"}])  # fmt: skip
def test_any_plan_gets_an_answer(query: dict[str, str]) -> None:
    at = enter(page(**query), itl_s=40.0, ttft_s=900.0, sequences=24)
    assert at.success or at.warning or at.error


def points() -> tuple[Point, ...]:
    return measured(planned(), 1.5)


def test_calibration_is_shown_first_and_used_on_request() -> None:
    at = fresh(prompt="1024", output="256").switch_page("serve.py").run()
    before = next(m.value for m in at.metric if m.label == "Each next token")
    at.text_area(key="calibrate_points").set_value(csv_of(points()).decode()).run()
    assert not at.exception
    assert any("1.500" in m.value for m in at.markdown)
    assert next(m.value for m in at.metric if m.label == "Each next token") == before
    assert "calibration" not in at.query_params
    at.button(key="calibrate_use").click().run()
    assert not at.exception
    assert next(m.value for m in at.metric if m.label == "Each next token") != before
    assert at.query_params["calibration"]
    at.button(key="calibrate_forget").click().run()
    assert next(m.value for m in at.metric if m.label == "Each next token") == before
    assert "calibration" not in at.query_params


def test_bad_points_are_answered() -> None:
    at = fresh().switch_page("serve.py").run()
    at.text_area(key="calibrate_points").set_value("a,b\n1,2").run()
    assert not at.exception
    assert shown(at)

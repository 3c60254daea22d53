"""The suite on the Validate page: started here, watched claim by claim, cancelled, drawn as charts whose figures come from the JSON."""

from __future__ import annotations

import importlib.util
import json
import time
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from gpu_probe.claims import FORM, catalog, read
from gpu_probe.claims.views import MAKERS, views
from gpu_probe.client import SuiteRun, SuiteStatus
from pages.parts.suite_charts import figure
from tests.pages.conftest import shown
from tests.suite_result import numbers_of, suite_result


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("validate.py").run()


def given(page: AppTest, data: dict[str, Any]) -> AppTest:
    return page.file_uploader(key="probe_upload").set_value(("suite.json", json.dumps(data).encode(), "application/json")).run()


def text(page: AppTest) -> str:
    return "\n".join(m.value for m in (*page.markdown, *page.caption, *page.info, *page.warning)).replace("\\", "")


def test_before_any_run_the_claims_stand_there_with_their_time(page: AppTest) -> None:
    said = text(page)
    assert "Reports of MQA: up to 11 times the throughput." in said
    assert f"About {catalog.expected_seconds(())} s on two CPU cores" in said
    assert "compiled and interpreted, but not timed" in said
    page.multiselect(key="suite_only").set_value(["paged"]).run()
    assert f"About {catalog.expected_seconds(['paged'])} s" in text(page)


def test_the_note_on_gpus_goes_once_one_was_measured(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_probe.measurements.of_gpus", lambda: ("a GPU",))
    assert "not timed" not in text(page.run())


def test_every_claim_has_a_chart_with_a_name_and_a_table(page: AppTest) -> None:
    given(page, suite_result())
    assert not page.exception
    assert not page.error
    charts = page.get("plotly_chart")
    assert len(charts) == len(MAKERS)
    for chart, view in zip(charts, views(suite_result(), read(suite_result())), strict=True):
        assert view.title in chart.proto.alt
        assert "The document says" in chart.proto.alt
        title = next(m for m in page.markdown if m.value.replace("\\", "").strip("*# ") == view.title)
        assert title
        assert any(all(c in m.value.replace("\\", "").replace("\u00a0", " ") for c in view.rows[-1] if c) for m in page.markdown if m.value.startswith("|"))
    assert [b.label for b in page.get("download_button")] == ["Suite (JSON)", "Suite (Markdown)"]


def test_another_json_turns_title_and_table_on_the_page(page: AppTest) -> None:
    given(page, suite_result())
    changed = suite_result()
    numbers_of(changed, "mqa_throughput").update(ratio=3.25, mqa_tokens_per_s=123.4)
    before = text(page)
    assert "make 9 times the tokens a second" in before
    assert "123.4" not in before
    after = text(given(page, changed))
    assert "make 3.25 times the tokens a second" in after
    assert "make 9 times" not in after
    assert "123.4" in after


def test_figures_are_what_the_view_says() -> None:
    for view in views(suite_result(), read(suite_result())):
        drawn = figure(view)
        traces = {t.name: t for t in drawn.data}
        for s in view.series:
            assert tuple(traces[s.name].y) == s.values
        assert [shape.y0 for shape in drawn.layout.shapes] == [at for _, at in view.references]
        assert {name for name, _ in view.references} <= set(traces)
        assert drawn.layout.xaxis.title.text == view.x
        assert drawn.layout.yaxis.title.text == view.y
        bars = [t for t in drawn.data if t.type == "bar"]
        looks = {(t.marker.color, t.marker.pattern.shape) for t in bars}
        assert len(looks) == len(bars) == len({t.marker.pattern.shape for t in bars}), "told apart by pattern as by colour"


def test_a_skipped_claim_gives_its_reason_and_a_missing_one_is_named(page: AppTest) -> None:
    result = suite_result()
    result["items"] = [i for i in result["items"] if i["name"] not in ("paged", "cache")]
    numbers_of(result, "ranks").clear()
    numbers_of(result, "ranks")["reason"] = "torchrun ![x](http://x)"
    given(page, result)
    assert not page.exception
    assert any("Not measured: torchrun" in i.value.replace("\\", "") for i in page.info)
    assert "](http" not in "\n".join(i.value for i in page.info)
    assert "Not in this result: with and without a cache, blocks against reservation." in text(page)
    assert len(page.get("plotly_chart")) == len(MAKERS) - 3


def test_a_busy_host_and_a_wrong_size_are_said(page: AppTest) -> None:
    result = suite_result()
    result["ceilings"]["steady"] = False
    result["items"][0]["bytes_right"] = False
    given(page, result)
    assert any("differ by over a quarter" in w.value for w in page.warning)
    assert "differs from its prediction" in shown(page)


class Fake(SuiteRun):
    """A suite that ends when it is told to."""

    def __init__(self, entries: tuple[str, ...] = ("paged", "prefix")) -> None:
        self.entries, self.cancelled, self.end, self.items = entries, False, {}, []

    def poll(self) -> SuiteStatus:
        running = not (self.cancelled or self.end)
        return SuiteStatus(phase="prefix", done=1, total=4, fraction=0.25, running=running, cancelled=self.cancelled, elapsed_s=1.0,
                           head={"form": FORM, "device_name": "here"}, items=tuple(self.items), **self.end)  # fmt: skip

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setattr("pages.parts.jobs.start_suite", lambda **asked: fake)
    return fake


def finished(*names: str) -> list[dict[str, Any]]:
    return [i for i in suite_result()["items"] if i["name"] in names]


def test_progress_goes_by_claim_and_a_cancel_keeps_what_was_finished(page: AppTest, run: Fake) -> None:
    left = {"name": "llama", "claims": [], "verdict": "undecided", "says": "(not run)", "measured": "beyond the cap", "numbers": {"reason": "beyond the cap"}}
    run.entries, run.items = ("llama", "paged", "prefix"), [left, *finished("paged")]
    page.button(key="suite_start").click().run()
    assert page.button(key="suite_start").disabled
    assert page.button(key="probe_start").disabled, "one run at a time"
    (table,) = [m.value for m in page.markdown if "| State" in m.value]
    states = [line.split("|")[-2].strip() for line in table.splitlines()[2:]]
    assert states == ["not measured", "done", "measuring"]
    page.button(key="suite_cancel").click().run()
    page.run()
    assert not page.exception
    assert not page.button(key="suite_start").disabled
    assert "What was finished before is shown below" in text(page)
    assert "2 of the suite's 11" in text(page)
    assert len(page.get("plotly_chart")) == 1
    assert any("Not measured: beyond the cap" in i.value.replace("\\", "") for i in page.info)


def test_a_cancel_before_the_first_claim_leaves_nothing(page: AppTest, run: Fake) -> None:
    page.button(key="suite_start").click().run()
    page.button(key="suite_cancel").click().run()
    page.run()
    assert "before it had measured anything" in text(page)
    assert not page.get("plotly_chart")


def test_an_error_is_said_clearly_and_what_was_finished_stays(page: AppTest, run: Fake) -> None:
    run.items = finished("paged")
    page.button(key="suite_start").click().run()
    run.end = {"error": {"type": "ProbeTimeLimit", "message": "stopped after 600 s", "field": "time_limit", "hint": "raise it"}, "exit_code": 4}
    page.run()
    page.run()
    assert "stopped after 600 s" in shown(page)
    assert "raise it" in shown(page)
    assert len(page.get("plotly_chart")) == 1
    assert not page.button(key="suite_start").disabled


def test_a_real_run_of_two_claims(page: AppTest) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: the suite cannot run")
    page.multiselect(key="suite_only").set_value(["paged", "prefix"]).run()
    page.button(key="suite_start").click().run()
    end = time.monotonic() + 110
    while page.button(key="suite_start").disabled and time.monotonic() < end:
        time.sleep(0.5)
        page.run()
    assert not page.exception
    assert not page.error, shown(page)
    assert len(page.get("plotly_chart")) == 2
    assert "take 3.33 times less together" in text(page)  # 8 x 320 tokens against 256 + 8 x 64
    report = page.switch_page("report.py").run()
    assert not report.exception
    again = report.switch_page("validate.py").run()
    assert len(again.get("plotly_chart")) == 2, "kept in the session"

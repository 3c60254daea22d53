"""Results of probes on the Validate page: the form, several side by side, and files that only look like results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from gpu_probe.result import ProbeRequest
from tests.pages.conftest import deltas, shown, values
from tests.pages.test_validate import RESULT

RAW: dict[str, Any] = json.loads(json.dumps({**RESULT.to_json(), "request": {"batch": 2, "prompt": 64, "output": 8, "shared_prefix": 0, "block_size": 16}}))


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("validate.py").run()


def given(page: AppTest, raw: dict[str, Any] | bytes) -> AppTest:
    data = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    return page.file_uploader(key="probe_upload").set_value(("r.json", data, "application/json")).run()


def test_the_form_asks_for_everything_that_a_request_has(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[ProbeRequest, str]] = []

    def start(config: dict[str, Any], request: ProbeRequest, *, runner: str, **rest: Any) -> None:
        asked.append((request, runner))
        raise OSError

    monkeypatch.setattr("pages.parts.jobs.start", start)
    for name, value in {"batch": 3, "prompt": 100, "output": 9, "shared_prefix": 40, "block_size": 32, "layers": 1}.items():
        page.number_input(key=f"probe_{name}").set_value(value).run()
    for name, value in {"kv_dtype": "int8_per_token_head", "runner": "injected", "backend": "torch-gather", "device": "cpu"}.items():
        page.selectbox(key=f"probe_{name}").set_value(value).run()
    page.button(key="probe_start").click().run()
    ((request, runner),) = asked
    assert runner == "injected"
    expected = {"batch": 3, "prompt": 100, "output": 9, "shared_prefix": 40, "block_size": 32, "layers": 1, "kv_dtype": "int8_per_token_head",
                "backend": "torch-gather", "device": "cpu"}  # fmt: skip
    assert {name: getattr(request, name) for name in expected} == expected


def test_the_prediction_counts_a_shared_prefix_once(page: AppTest) -> None:
    page.number_input(key="probe_shared_prefix").set_value(32).run()
    # 2 x 5 blocks, of which 2 are held once: 8 blocks x 16 tokens x 2 layers x 4,096 bytes
    assert values(page)["Predicted for this run"] == "1.00 MiB"


def test_a_prefix_beyond_the_prompt_is_refused_and_the_rest_of_the_page_stays(page: AppTest) -> None:
    page.number_input(key="probe_shared_prefix").set_value(65).run()
    assert not page.exception
    assert "shared_prefix" in shown(page)
    assert page.button(key="suite_start")


def test_results_are_kept_compared_and_forgotten(page: AppTest) -> None:
    given(page, RAW)
    assert not page.get("table")
    other = {**RAW, "ttft_s": 2.0, "measured_kv_bytes": 7, "device_name": "an [other](http://x)", "device": "cuda", "model": {"name": "B"}, "request": {}}
    given(page, other)
    assert not page.exception
    (table,) = page.table
    rows = {row.iloc[0]: list(row.iloc[1:]) for _, row in table.value.iterrows()}
    assert rows["TTFT"] == ["2\\.00 s", "500\\.0 ms"]
    assert rows["Agree"] == ["no", "yes"]
    assert rows["Sequences x prompt + output"] == ["\\- x \\- \\+ \\-", "2 x 64 \\+ 8"]
    assert "](http" not in str(rows)
    assert "7 bytes" in page.error[0].value.replace("\\", "")
    page.selectbox(key="probe_shown").set_value(1).run()
    assert "1,310,720 bytes" in page.success[0].value
    report = page.switch_page("report.py").run()
    assert "1,310,720" in report.markdown[0].value
    back = report.switch_page("validate.py").run()
    assert back.success, "the choice is kept"
    given(back, {**other, "ttft_s": 3.0})
    assert back.selectbox(key="probe_shown").value == 0, "a new result is shown at once"
    back.button(key="probe_forget").click().run()
    assert not back.exception
    assert not back.table
    assert any("No run yet" in i.value for i in back.info)


def test_pace_and_largest_batch_are_shown_where_a_result_has_them(page: AppTest) -> None:
    given(page, RAW)
    assert not {"Decode reads", "Largest batch"} & set(values(page))
    pace = {
        "roofline": {"bytes_per_s": 5e9, "share": 0.5, "bound": "read"},
        "capacity": {"found": 7, "predicted": 8, "tokens": 72},
        "extra": {"runner": "lean"},
    }
    given(page, {**RAW, **pace})
    assert values(page)["Decode reads"] == "5 GB/s"
    assert deltas(page)["Decode reads"] == "50.0 % of the roofline (read)"
    assert values(page)["Largest batch"] == "7 sequences"
    assert deltas(page)["Largest batch"] == "predicted 8, of 72 tokens"
    rows = {row.iloc[0]: list(row.iloc[1:]) for _, row in page.table[0].value.iterrows()}
    assert rows["Runner"] == ["lean", "\\-"]
    assert rows["Largest batch found"] == ["7", "\\-"]
    given(page, {**RAW, "roofline": {"bytes_per_s": 5e9, "share": None}, "capacity": {"found": "many", "predicted": []}})
    assert not page.exception
    assert deltas(page)["Decode reads"] == "no share: the ceilings moved"
    assert "Largest batch" not in values(page)


def test_rows_without_any_figure_are_left_out(page: AppTest) -> None:
    empty = {"name": "Driver's context", "predicted": None, "measured": None, "how": "h", "unit": "bytes", "exact": False}
    given(page, {**RAW, "rows": [*RAW["rows"], empty, {**empty, "name": "Other", "measured": 0}]})
    (table,) = [m.value for m in page.markdown if "KV bytes held" in m.value]
    assert "Other" in table
    assert "context" not in table


def test_only_the_newest_are_kept(page: AppTest) -> None:
    page.session_state["_probe_results"] = [replace(RESULT, ttft_s=float(n)) for n in range(8, 0, -1)]
    given(page, {**RESULT.to_json(), "ttft_s": 5.0})
    assert [r.ttft_s for r in page.session_state["_probe_results"]] == [5, 8, 7, 6, 4, 3, 2, 1], "an equal one moves to the front"
    given(page, {**RESULT.to_json(), "ttft_s": 9.0})
    assert [r.ttft_s for r in page.session_state["_probe_results"]] == [9, 5, 8, 7, 6, 4, 3, 2]


HOSTILE: dict[str, Any] = {"nan": {"ttft_s": float("nan")}, "beyond": {"measured_kv_bytes": 10**30}, "many_rows": {"rows": [{}] * 30_000}}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_only_looks_like_a_result_is_refused(page: AppTest, change: dict[str, Any]) -> None:
    given(page, {**RAW, **change})
    assert not page.exception
    assert page.error
    assert not page.success
    assert page.session_state["_probe_results"] == [] if "_probe_results" in page.session_state else True


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xd8\xff", b"[" * 100_000, b"{" * 5, b'{"form": "kvledger-suite-1"}', b"{}\n" * 1000])
def test_bytes_that_are_no_result_are_refused(page: AppTest, data: bytes) -> None:
    given(page, data)
    assert not page.exception
    assert page.error
    assert not page.success


def test_markup_of_a_result_is_text(page: AppTest) -> None:
    evil = "<b>![x](http://x/y.png)$1$"
    given(page, {**RAW, "device_name": evil, "backend": evil, "notes": [{"level": "info", "text": evil, "field": evil}], "versions": {evil: evil},
                 "backends_refused": [{"name": evil, "reason": evil}], "rows": [{**RAW["rows"][0], "name": evil, "how": evil}]})  # fmt: skip
    assert not page.exception
    assert page.success
    assert not [m.value for m in (*page.markdown, *page.caption) if "](http" in m.value or "<b>" in m.value]

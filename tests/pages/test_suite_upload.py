"""A suite's result on the Validate page: the table, what it calibrates, and files that only look like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import shown

RATES = {"read_bytes_per_s": 2e10, "flop_per_s": 5e10}
SUITE: dict[str, Any] = {
    "form": "kvledger-suite-1", "device": "cpu", "device_name": "a [processor](http://x)", "versions": {"threads": "1"},
    "ceilings": {"before": RATES, "after": RATES, "dtype": "fp32"}, "overhead": {"t_fixed_s": 0.001, "t_layer_s": 0.0002},
    "items": [
        {"name": "paged", "claims": ["C7", "C15"], "verdict": "holds", "says": "blocks", "measured": "<b>100</b> bytes", "numbers": {}, "bytes_right": True},
        {"name": "llama_weights", "claims": ["C20"], "verdict": "does_not_hold", "says": "as large", "measured": "12.6 %", "numbers": {}},
    ],
}  # fmt: skip


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("validate.py").run()


def given(page: AppTest, data: dict[str, Any], before: bytes = b"") -> AppTest:
    return page.file_uploader(key="probe_upload").set_value(("suite.json", before + json.dumps(data).encode() + b"\n", "application/json")).run()


@pytest.mark.parametrize("before", [b"", b'{"ev": "phase"}\n'])
def test_a_suite_is_shown_as_a_table(page: AppTest, before: bytes) -> None:
    given(page, SUITE, before)
    assert not page.exception
    assert not page.error
    (table,) = [m.value for m in page.markdown if "Verdict" in m.value]
    rows = table.splitlines()[2:]
    assert [r.split("|")[-2].strip() for r in rows] == ["holds here", "does not hold here"]
    assert rows[0].startswith("| C7 C15 |")
    assert "<b>" not in table
    said = "\n".join(c.value for c in page.caption)
    assert "reads 20 GB/s, multiplies 50 GFLOP/s, and spends 1.0 ms a step" in said
    assert "](http" not in said


def test_a_busy_host_calibrates_nothing(page: AppTest) -> None:
    given(page, {**SUITE, "ceilings": {"before": RATES, "after": {**RATES, "flop_per_s": 3e10}}})
    assert not page.exception
    assert any("factor of 1" in i.value and "No calibration" in i.value for i in page.info)


@pytest.mark.parametrize("items", [None, [], [7], [{"name": "x"}], [{**SUITE["items"][0], "verdict": "sure"}], [{**SUITE["items"][0], "claims": [1]}]])
def test_what_is_no_suite_is_refused(page: AppTest, items: Any) -> None:
    given(page, {**SUITE, "items": items})
    assert not page.exception
    assert "no result of the probe" in shown(page)

"""Files that only look like a probe's result: each is refused by the name of what is wrong. No torch."""

from __future__ import annotations

import json
import time
from dataclasses import MISSING, fields
from typing import Any

import pytest

from gpu_probe.result import ProbeResult
from gpu_probe.uploads import read_result, sane
from planner.errors import NotAConfig
from tests.pages.test_validate import RESULT

RAW: dict[str, Any] = json.loads(json.dumps(RESULT.to_json()))
REQUIRED = {f.name for f in fields(ProbeResult) if f.default is MISSING and f.default_factory is MISSING}


HOSTILE: dict[str, Any] = {
    "nan": {"ttft_s": float("nan")}, "inf": {"tokens_per_s": float("inf")}, "beyond": {"measured_kv_bytes": 10**30}, "deep_in": {"levels": {"tensor": 10**30}},
    "bool": {"measured_kv_bytes": True}, "text_number": {"predicted_kv_bytes": "7"}, "fraction_of_a_byte": {"measured_kv_bytes": 1.5}, "list": {"ttft_s": [1]},
    "itl_text": {"itl_s": {"p50": "x", "p90": 1, "p99": 1}}, "itl_missing": {"itl_s": {"p50": 1}}, "no_rows": {"rows": None}, "row_text": {"rows": ["x"]},
    "row_extra": {"rows": [{"name": "a", "predicted": 1, "measured": 1, "how": "h", "colour": "red"}]},
    "row_nan": {"rows": [{"name": "a", "predicted": float("nan"), "measured": 1, "how": "h"}]},
    "row_type": {"rows": [{"name": "a", "predicted": "1", "measured": 1, "how": "h"}]},
    "row_unit": {"rows": [{"name": "a", "predicted": 1, "measured": 1, "how": "h", "unit": 7}]},
    "many_rows": {"rows": [{}] * 30_000}, "long_text": {"device_name": "x" * 100_000},
    "versions_list": {"versions": []}, "versions_nested": {"versions": {"a": {}}},
    "model_text": {"model": "Llama"}, "notes_text": {"notes": ["x"]}, "request_list": {"request": []}, "device_none": {"device": None},
    "backend_list": {"backend": ["a"]}, "extra_number": {"extra": 7}, "refused": {"backends_refused": [{"name": 7, "reason": "r"}]},
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_only_looks_like_a_result_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(NotAConfig) as e:
        read_result({**RAW, **change})
    (name,) = change
    assert e.value.field.startswith(name)


def test_a_result_comes_back_and_a_newer_ones_keys_are_kept() -> None:
    assert read_result(RAW) == RESULT
    assert read_result({**RAW, "wattage": [1, 2]}).extra == {"wattage": [1, 2]}
    assert read_result({**RAW, "ttft_s": 1}).ttft_s == 1


def test_a_field_less_is_the_default_or_is_named() -> None:
    for name in RAW:
        less = {k: v for k, v in RAW.items() if k != name}
        if name in REQUIRED:
            with pytest.raises(NotAConfig) as e:
                read_result(less)
            assert e.value.field == name
        else:
            assert isinstance(read_result(less), ProbeResult)


def test_a_large_file_takes_no_long_time() -> None:
    began = time.monotonic()
    with pytest.raises(NotAConfig):
        read_result({**RAW, "extra": {str(i): list(range(1000)) for i in range(1000)}, "rows": [{}] * 19_000})
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("value", [float("nan"), 10**400, "x" * 5000, [0] * 200_000, {"a" * 5000: 1}])
def test_a_suite_is_walked_too(value: Any) -> None:
    with pytest.raises(NotAConfig) as e:
        sane({"items": [{"numbers": {"x": value}}]})
    assert e.value.field == "items[0].numbers.x"

"""Charts of the suite's claims: every figure comes from the JSON, and a JSON of anybody's harms no other chart. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_probe import claims
from gpu_probe.claims import catalog, report
from gpu_probe.claims.view import View
from gpu_probe.claims.views import MAKERS, absent, views
from planner.errors import InvalidInput
from tests.suite_result import NUMBERS, numbers_of, suite_result

BAD: tuple[Any, ...] = (None, "x" * 50, [], {}, True, -1, 0, float("nan"), float("inf"), 10**400, 1e300, [[[]]], [float("nan")])


def shown(result: dict[str, Any]) -> dict[str, View]:
    return {v.name: v for v in views(result, claims.read(result))}


def test_every_entry_has_its_charts_and_every_chart_a_finding() -> None:
    found = shown(suite_result())
    assert list(found) == [chart for entry in catalog.ENTRIES.values() for chart in entry.charts]
    assert set(found) == set(MAKERS)
    for v in found.values():
        assert not v.reason
        assert any(c.isdigit() for c in v.title), v.title
        assert v.x
        assert v.y
        assert v.how
        assert v.said
        assert v.claims
        assert all(len(s.values) == len(v.at) for s in v.series)
        assert all(len(row) == len(v.columns) for row in v.rows)
    told = {c for _, (named, _) in NUMBERS.items() for c in named.split()}
    assert {c for v in found.values() for c in v.claims} == told


def test_findings_by_hand() -> None:
    found = shown(suite_result())
    assert found["cache"].title == "From 100 to 400 tokens of context a token takes 1.1 times as long with a cache, 4 times without"
    assert found["cache"].rows[-1] == ("slope, us", "4", "500", "")
    trend = found["cache"].series[3]  # slope 0.5 ms a token through the mean of (100, 200, 400) and (50, 100, 200) ms
    assert trend.values == pytest.approx((116.6667 - 66.6667, 116.6667 - 16.6667, 116.6667 + 83.3333), rel=1e-4)
    # 0.02 + 0.01 x 4 + 1e-5 x 4 x 1000 = 0.1 s, of which 0.04 are KV; 0.01 of 0.04 at batch 1
    assert found["itl"].title == "Reading KV is 40.0 % of a step at batch 4 and 1,000 tokens, 25.0 % at batch 1 and 1,000"
    assert [sum(s.values[i] for s in found["itl"].series if s.form == "bar") for i in range(2)] == pytest.approx([40, 100])
    assert "score work x 4, time in attention x 3.9, whole prefill x 3" in found["prompt"].title
    assert found["kinds_bytes"].title.endswith("GQA 4, MQA 16, MLA 12.8")
    assert found["kinds_itl"].title == "ITL of MQA is 50 % lower than that of MHA; reports say 30 %"
    assert found["kinds_itl"].references[0][1] == pytest.approx(28)  # 0.7 of 40 ms
    assert found["mqa_throughput"].references[0][1] == pytest.approx(440)  # 11 times 40
    assert found["ranks"].title == "On 4 ranks tensor parallelism keeps 4 copies of MLA's latent, data-parallel attention 1"
    assert found["paged"].title == "3 requests of mixed lengths leave 25.0 % of their blocks empty, and 62.5 % of room for the longest"
    assert "take 3 times less" in found["prefix"].title
    assert "fp8 0.5" in found["kv_dtype"].title
    assert "819,200 bytes a token: 3.05 GiB at 4,000 tokens, beside 24.24 GiB" in found["llama_size"].title
    assert found["llama_size"].references[0][1] == pytest.approx(4e9 / 2**30)


KINDS, RANKS = NUMBERS["gqa_speed"][1]["rows"], NUMBERS["ranks"][1]["rows"]
CHANGES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "cache": [("cache", {"growth_with": 7.5, "slope_with_s_per_token": 0.3, "with_s": [1, 2, 3]})],
    "prompt": [("prompt", {"prefill_ratio": [2.5, 7.5], "prefill_s": [1, 2, 3]})],
    "phases": [("phases", {"decode_of_read": 0.123})],
    "itl": [("itl", {"per_token_s": 3e-5})],
    "kinds_bytes": [("kinds_bytes", {"rows": [{**r, "bytes": 7 * r["bytes"] if r["kind"] == "MQA" else r["bytes"]} for r in KINDS]})],
    "kinds_itl": [("mqa_latency", {"mqa_over_mha": 1.25}), ("gqa_speed", {"rows": [{**r, "itl_s": 2 * r["itl_s"]} for r in KINDS]})],
    "mqa_throughput": [("mqa_throughput", {"ratio": 3.25, "mqa_tokens_per_s": 130.0})],
    "absorbed": [("absorbed", {"ratio": 0.25, "absorbed_s": 1.0})],
    "paged": [("paged", {"stored_bytes": 20_000})],
    "prefix": [("prefix", {"apart_bytes": 77_000})],
    "kv_dtype": [("kv_dtype", {"bytes": {"fp32": 4000, "bf16": 2000, "fp8": 1500}})],
    "llama_size": [("llama_size", {"bytes": 9_000_000_000})],
    "ranks": [("ranks", {"rows": [{**r, "over_single": 3.5} for r in RANKS]})],
}


def test_every_chart_is_among_the_changes() -> None:
    assert set(CHANGES) == set(MAKERS)


@pytest.mark.parametrize("chart", MAKERS)
def test_another_json_is_another_title_and_table(chart: str) -> None:
    before, result = shown(suite_result())[chart], suite_result()
    for item, changes in CHANGES[chart]:
        numbers_of(result, item).update(changes)
    after = shown(result)[chart]
    assert not after.reason
    assert after.title != before.title
    assert after.rows != before.rows
    assert after.series != before.series


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(part, (*path, key))


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_of_anybodys_breaks_more_than_its_own_charts(name: str) -> None:
    for path in leaves(NUMBERS[name][1]):
        for bad in BAD:
            result = suite_result()
            place: Any = {i["name"]: i for i in result["items"]}[name]
            keys = ("numbers", *path)
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = bad
            found = shown(result)
            broken = {v.name for v in found.values() if v.reason}
            assert len(broken) <= 1, (path, bad)
            for v in found.values():
                assert v.reason or all(abs(x) < 1e25 for s in v.series for x in s.values)
            assert len(found) == len(MAKERS)


def test_what_was_not_run_says_why_or_is_named() -> None:
    result = suite_result()
    failed = {"name": "kinds", "claims": [], "verdict": "undecided", "says": "(not run)", "measured": "no memory", "numbers": {"reason": "no memory"}}
    names = catalog.ENTRIES["kinds"].items
    result["items"] = [failed, *(i for i in result["items"] if i["name"] not in (*names, "ranks"))]
    found = shown(result)
    assert {found[c].reason for c in ("kinds_bytes", "kinds_itl", "mqa_throughput")} == {"Not measured: no memory"}
    assert "ranks" not in found
    assert absent(claims.read(result)) == ("ranks",)
    {i["name"]: i for i in result["items"]}["absorbed"]["numbers"] = {"reason": "no torchrun"}
    assert shown(result)["absorbed"].reason == "Not measured: no torchrun"


def test_the_markdown_has_claim_measurement_and_verdict_in_each_row() -> None:
    result = suite_result()
    text = report.markdown(result)
    rows = [line for line in text.splitlines() if line.startswith("| C")]
    assert len(rows) == len(NUMBERS)
    for i, row in zip(result["items"], rows, strict=True):
        cells = [c.strip() for c in row.strip("|").split("|")]
        assert cells[1:4] == [i["name"], i["says"], i["measured"]]
        assert cells[4] in ("holds here", "cannot be decided here")
    assert "30 % lower" in text
    assert "11 times" in text
    assert "reading 20 / 20 GB/s, products 50 / 50 GFLOP/s" in text


def test_the_markdown_of_a_part_says_so_and_breaks_on_nothing() -> None:
    whole = suite_result()
    part = {"form": whole["form"], "items": [{**whole["items"][0], "says": "a | b\n# c"}], "partial": True}
    text = report.markdown(part)
    assert "1 of the suite's 11" in text
    assert "a / b # c" in text
    assert "reading - / - GB/s" in text
    for path in leaves(whole):
        if not path or path[0] in ("items", "form"):
            continue
        for bad in (None, [], {}, 10**400, "x"):
            result: Any = suite_result()
            place = result
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = bad
            assert report.markdown(result)
    json.dumps(part)


def test_only_known_entries_are_asked_for() -> None:
    assert catalog.chosen(()) == tuple(catalog.ENTRIES)
    assert catalog.chosen(["ranks", "cache"]) == ("cache", "ranks")
    assert catalog.expected_seconds(["cache"]) < catalog.expected_seconds([])
    with pytest.raises(InvalidInput, match="nonsense"):
        catalog.chosen(["nonsense"])

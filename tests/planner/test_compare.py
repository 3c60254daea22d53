"""Scenarios side by side: differences, sources, refused columns, the address, exports."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from planner import compare
from planner.capacity import CapacityPlan, plan
from planner.compare import Column, as_text, changed, changes, column, from_text, instructive, suggestion
from planner.compare.files import PARTS, bars, finding, to_csv, to_json
from planner.compare.lines import Line, lines
from planner.errors import PlannerError
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import OPTIONS, Scenario
from planner.sources import load
from tests.planner.test_scenario import scenarios


def make(s: Scenario) -> CapacityPlan:
    return plan(read_config(load(f"catalog:{s.model}").raw, s.model), find(s.gpu), s)


@pytest.fixture(scope="module")
def found() -> list[Column]:
    """The plan of a newcomer, its cache in fp8, GPUs that do not divide, another model on more GPUs."""
    chosen = (Scenario(), Scenario(kv_dtype="fp8"), Scenario(gpus=3, tp=2), Scenario(model="DeepSeek-V3", gpus=8))
    return [column(s, make) for s in chosen]


def by_code(found: list[Column]) -> dict[str, Line]:
    return {f"{line.section}.{line.code}": line for line in lines(found)}


def test_figures_are_the_plans(found: list[Column]) -> None:
    rows = by_code(found)
    assert [c.value if c else None for c in rows["answer.kv_load"].cells[:3]] == [17_181_966_336, 8_590_983_168, None]
    assert [c.value if c else None for c in rows["answer.kv_token"].cells] == [131_072, 65_536, None, 70_272]
    for i, c in enumerate(found):
        if c.plan is not None:
            cell = rows["answer.max_sequences"].cells[i]
            assert cell is not None
            assert cell.value == c.plan.total_max_sequences


def test_what_differs_is_marked_and_nothing_else(found: list[Column]) -> None:
    rows = by_code(found[:2])
    assert {code for code, line in rows.items() if line.section == "choices" and line.differs} == {"choices.kv_dtype"}
    assert {code for code, line in rows.items() if line.section == "resolved" and line.differs} == {"resolved.kv_dtype"}
    assert rows["answer.kv_load"].differs
    assert not rows["answer.kv_pool"].differs
    assert not rows["ledger.weights"].differs
    for line in rows.values():
        assert not (line.cells[0] and line.cells[0].differs)
        values = [c.value for c in line.cells if c is not None]
        assert line.differs == (len(set(map(str, values))) > 1), line.code


def test_a_small_difference_is_seen() -> None:
    one = Scenario(kv_memory=2**34)
    rows = by_code([column(one, make), column(replace(one, kv_memory=2**34 + 1), make)])
    first, second = rows["answer.kv_pool"].cells
    assert first is not None
    assert second is not None
    assert second.differs
    assert second.text != first.text


def test_a_refused_column_says_why_and_spoils_no_other(found: list[Column]) -> None:
    alone = by_code([found[0], found[3]])
    beside = by_code([found[0], found[2], found[3]])
    assert found[2].state == "refused"
    assert found[2].error is not None
    assert found[2].error.field == "gpus"
    for code, line in alone.items():
        assert [c.value for c in line.cells if c] == [c.value for i, c in enumerate(beside[code].cells) if c and i != 1]
    assert beside["choices.gpus"].cells[1] is not None, "what was chosen is shown all the same"
    assert all(line.cells[1] is None for line in beside.values() if line.section != "choices")


def test_all_refused_is_a_table_of_choices() -> None:
    bad = column(Scenario(gpus=3, tp=2), make)
    assert {line.section for line in lines([bad])} == {"choices"}
    assert bars([bad]) == ()
    assert finding([bad])


def test_every_number_has_a_source(found: list[Column]) -> None:
    for line in lines(found):
        for c in line.cells:
            assert c is None or c.source or c.text == "-", line.code


def test_bars_are_the_ledger(found: list[Column]) -> None:
    drawn = bars(found)
    assert [b.index for b in drawn] == [0, 1, 3]
    assert drawn[0].limit_bytes == sum(drawn[0].parts.values()), "nothing is lost where it fits"
    assert drawn[0].parts["kv_used"] == 17_181_966_336
    assert sum(drawn[2].parts.values()) > drawn[2].limit_bytes, "a load that does not fit runs over its limit"
    assert set(drawn[0].parts) == set(PARTS)
    assert "108" in finding(found)


@settings(max_examples=150, deadline=None)
@given(scenarios())
def test_a_column_survives_the_address(s: Scenario) -> None:
    assert from_text(as_text(s)) == s


@pytest.mark.parametrize("text", ["nonsense", "tokens=abc", "what=1", "a=1&" * 2000, "=", "tokens=-5", "kv_dtype=fp99", "\x00=\x00", "&" * 50])
def test_an_address_that_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(PlannerError) as caught:
        from_text(text)
    assert caught.value.message
    assert caught.value.hint


def test_a_copy_changes_one_thing() -> None:
    s = Scenario(prompt=100, output=28, tokens=128, tp=2, gpus=2)
    assert changes(s, changed(s, "kv_dtype", "fp8")) == (("KV cache type", "auto", "fp8"),)
    assert changed(s, "tokens", 4096) == replace(s, tokens=4096, prompt=None, output=None)
    assert changed(s, "tp", None) == replace(s, tp=None)
    with pytest.raises(PlannerError):
        changed(s, "tokens", -1)
    with pytest.raises(PlannerError):
        changed(s, "no_such", 1)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_suggestion_can_be_taken(name: str) -> None:
    s = Scenario()
    value = suggestion(s, name)
    if OPTIONS[name].kind in ("int", "choice", "flag"):
        assert value != getattr(s, name)
        assert getattr(changed(s, name, value), name) == value


@pytest.mark.parametrize(
    ("chosen", "moved"),
    [({}, "kv_dtype"), ({"kv_dtype": "fp8"}, "kv_dtype"), ({"engine": "llamacpp"}, "kv_dtype"), ({"gpus": 3, "tp": 2}, "sequences")],
)
def test_the_first_copy_moves_the_figures(chosen: dict[str, Any], moved: str) -> None:
    base = column(Scenario(**chosen), make)
    copy = instructive(base, make)
    differing = [f for f in OPTIONS if getattr(base.scenario, f) != getattr(copy.scenario, f)]
    assert differing == [moved]
    if base.plan is not None:
        assert copy.plan is not None
        assert copy.plan.footprint.engine_bytes != base.plan.footprint.engine_bytes


def test_the_json_holds_all_and_the_csv_agrees(found: list[Column]) -> None:
    out = json.loads(json.dumps(to_json(found)))
    assert [c["state"] for c in out["columns"]] == ["fits", "fits", "refused", "no"]
    assert out["columns"][2]["error"]["field"] == "gpus"
    assert Scenario(**out["columns"][3]["scenario"]) == found[3].scenario
    rows = list(csv.DictReader(io.StringIO(to_csv(found).decode("utf-8-sig"))))
    read = {(r["section"], r["code"]): r for r in rows}
    assert read["refused", "C"]["label"]
    for line in out["lines"]:
        r = read[line["section"], line["code"]]
        assert [r[n] for n in "ABCD"] == ["" if v is None else str(v).lstrip("'") if not isinstance(v, str) else v for v in line["values"]]
        assert r["differs"] == str(line["differs"]).lower()
        assert [r[f"source {n}"].lstrip("'") for n in "ABCD"] == [x or "" for x in line["sources"]]


def test_a_cell_of_the_csv_is_no_formula() -> None:
    bad = Column(scenario=Scenario(model="=1+1"), error=column(Scenario(gpus=3, tp=2), make).error)
    cells = [c for row in csv.reader(io.StringIO(to_csv([bad]).decode("utf-8-sig"))) for c in row]
    assert "'=1+1" in cells
    assert not [c for c in cells if c.startswith(("=", "+", "@"))]


def test_six_is_the_most() -> None:
    assert len(compare.NAMES) == compare.MOST == 6
    assert set(compare.FIELDS) == set(OPTIONS)

"""Public reports about times (bug_reports.csv, kind perf): each answered by a test, or listed with the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.api import model_of
from planner.capacity import plan
from planner.hardware import find
from planner.latency.load import times
from planner.latency.steps import decode, prefill
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import corpus_rows
from tests.planner.test_latency import answered, llama_plan, served_plan


def b142() -> None:
    """A model with states, 1024 slots and fewer blocks: a refusal at the start, and before 0.20 graphs that were capped without a word."""
    model = model_of(load("catalog:Qwen3-Next-80B-A3B"))
    base = Scenario(prompt=1024, output=1024, tokens=2048, gpus=4, tp=4, max_num_seqs=1024, kv_memory=2**31)
    for version, code in ((None, "state_slots_refused"), ("0.18.0", "state_slots_capped")):
        p = plan(model, find("H100 SXM"), replace(base, engine_version=version))
        assert p.num_blocks is not None
        assert p.num_blocks < 1024
        said = {n.code: n for n in p.notes}
        assert dict(said[code].args)["blocks"] == p.num_blocks
    for other in ({"max_num_seqs": p.num_blocks}, {"enforce_eager": True}, {"kv_memory": 2**34}):
        assert not {n.code for n in plan(model, find("H100 SXM"), replace(base, **other)).notes} & {"state_slots_refused", "state_slots_capped"}, other
    assert "state_slots_refused" not in {n.code for n in llama_plan(max_num_seqs=100_000).notes}


def b171() -> None:
    """A step that carries a chunk is one pass over the weights: tokens are added before the roofline, not times after it."""
    own = served_plan(sequences=4)
    w, v = own.stages[0], own.speeds
    mixed = decode(w, v, 4, 2048).total + prefill(w, v, 256, 1.0, 0, 4).total
    apart = decode(w, v, 4, 2048).total + prefill(w, v, 256).total
    reading = w.weight_bytes_read(1) / v.read["16"]
    assert apart - mixed == pytest.approx(reading, rel=0.05)


def b174() -> None:
    """A device on which no whole engine was measured is said, and its range is wider."""
    known, a100 = answered(llama_plan("H100 SXM")), answered(llama_plan("A100 SXM 80GB"))
    assert "latency_unmeasured" in {n.code for n in a100.notes}
    assert a100.itl_range_s[1] / a100.itl_range_s[0] > known.itl_range_s[1] / known.itl_range_s[0]


def b179() -> None:
    """ITL depends on the batch that runs, which max_num_seqs bounds: 16 and 32 of the same 64 requests."""
    few, many = (answered(llama_plan(sequences=64, max_num_seqs=n)) for n in (16, 32))
    assert (few.sequences, many.sequences) == (16, 32)
    assert few.itl_s < many.itl_s
    own = served_plan(sequences=64)
    assert many.itl_s == float(times(own.stages, own.speeds, own.at(32)).itl_s)


ANSWERED: dict[str, Callable[[], None]] = {"B142": b142, "B171": b171, "B174": b174, "B179": b179}
NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("report", sorted(ANSWERED))
def test_answered(report: str) -> None:
    ANSWERED[report]()


def test_every_report_about_times_has_its_place() -> None:
    assert {r["id"] for r in corpus_rows("bug_reports.csv") if r["kind"] == "perf"} == set(ANSWERED) | set(NOT_YET)

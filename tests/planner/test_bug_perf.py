"""Public reports about times (bug_reports.csv, kind perf): each answered by a test, or listed with the reason why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.latency.load import times
from planner.latency.steps import decode, prefill
from tests.conftest import corpus_rows
from tests.planner.test_latency import answered, llama_plan, served_plan


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


ANSWERED: dict[str, Callable[[], None]] = {"B171": b171, "B174": b174, "B179": b179}
NOT_YET = {"B142": "which batch sizes CUDA graphs are captured for is not planned: times assume graphs, or none with --enforce-eager"}


@pytest.mark.parametrize("report", sorted(ANSWERED))
def test_answered(report: str) -> None:
    ANSWERED[report]()


def test_every_report_about_times_has_its_place() -> None:
    assert {r["id"] for r in corpus_rows("bug_reports.csv") if r["kind"] == "perf"} == set(ANSWERED) | set(NOT_YET)

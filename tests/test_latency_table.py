"""What docs/latency.md says of the times still holds, and the bars behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import pytest

from planner.throughput import MARGIN
from tests.conftest import corpus_file
from tests.latency_left_out import left_out
from tests.latency_others import AICONFIGURATOR, aiconfigurator, answers, error
from tests.latency_rows import DENSE, Row, end_to_end, single_streams, within
from tests.latency_table import TARGET, batches, figures, rivals


@cache
def rows() -> tuple[Row, ...]:
    return tuple(end_to_end())


@pytest.fixture(autouse=True)
def _corpus() -> None:
    corpus_file("e2e_silicon_samples.csv")
    corpus_file("perf_points.csv")


def said(name: str) -> list[float]:
    """The numbers of a row of the page."""
    found = next(line for line in TARGET.read_text().splitlines() if line.startswith(f"| {name} "))
    return [float(x) for x in re.findall(r"\d+\.\d+|\d+", found.split("|", 2)[2])]


@pytest.mark.parametrize("name", ["all", "dense", "experts", "all held out", "all fitted"])
def test_the_page_says_what_is_so(name: str) -> None:
    chosen = [
        r
        for r in rows()
        if {"all": True, "dense": r.model in DENSE, "experts": r.model not in DENSE, "all fitted": r.fitted, "all held out": not r.fitted}[name]
    ]
    f = figures(chosen)
    got = (f.rows, 100 * f.itl_mape, f.bias, 100 * f.itl_inside, f.width, 100 * f.ttft_inside, f.ttft_width)
    assert got == pytest.approx(said(f"**{name}**"), abs=0.6), "run python -m tests.latency_table"


def test_the_bars_of_the_itl() -> None:
    assert figures([r for r in rows() if r.model in DENSE]).itl_mape <= 0.15
    for name in {r.model for r in rows()}:
        own = [r for r in rows() if r.model == name]
        assert figures(own).itl_mape <= (0.20 if own[0].fitted else 0.25), name
        assert figures(own).itl_inside >= 0.85, name
    f = figures(rows())
    assert f.width <= 2.0


def test_the_bars_of_the_ttft() -> None:
    """Four in five measured times lie inside the range, and half of the ranges are no wider than a factor of two."""
    for chosen in (rows(), [r for r in rows() if r.fitted], [r for r in rows() if not r.fitted]):
        f = figures(chosen)
        assert f.ttft_inside >= 0.82
        assert f.ttft_width <= 1.95
    for engine, least in (("vllm", 0.85), ("trtllm", 0.90), ("sglang", 0.75)):
        assert figures([r for r in rows() if r.engine == engine]).ttft_inside >= least, engine


def test_what_is_left_out_is_told_as_it_is() -> None:
    """Below the bar: the page must say so."""
    found = left_out(rows(), lambda r: r.model)
    inside, of = (sum(v[i] for v in found.values()) for i in (0, 1))
    assert said("**each family in turn**")[-2:] == [pytest.approx(100 * inside / of, abs=0.6), of], "run python -m tests.latency_table"
    assert inside >= 0.70 * of


def test_the_batch_under_a_target() -> None:
    cases, near, large, _ = batches(rows(), MARGIN)
    assert cases > 100
    assert near >= 0.95
    assert large <= 0.07


def test_single_streams_are_inside_the_range() -> None:
    streams = list(single_streams())
    inside = [within(r.itl_s or r.ttft_s or 0.0, r.got.itl_range_s if r.itl_s else r.got.ttft_range_s) for r in streams]
    assert len(streams) > 30
    assert sum(inside) >= 0.85 * len(inside)


def test_the_bare_roofline_is_worse() -> None:
    for name, predicted in rivals(rows()).items():
        assert error(rows(), predicted) > 2 * figures(rows()).itl_mape, name


def test_every_row_was_put_to_the_other_planner() -> None:
    asked = {(r.model, r.gpu, r.engine, r.precision, r.tp, r.ep, r.prompt, r.output, r.sequences) for r in rows()}
    assert asked == set(answers())


@pytest.mark.parametrize("name", ["**KVLedger**", *AICONFIGURATOR])
def test_the_peers_table_says_what_is_so(name: str) -> None:
    predicted: dict[str, Sequence[float | None]] = {"**KVLedger**": [r.got.itl_s for r in rows()], **aiconfigurator(rows())}
    shared = [i for i in range(len(rows())) if all(values[i] is not None for values in predicted.values())]
    got = (sum(x is not None for x in predicted[name]), 100 * error([rows()[i] for i in shared], [predicted[name][i] for i in shared]))
    assert got == pytest.approx(said(name)[:2], abs=0.6), "run python -m tests.latency_table"

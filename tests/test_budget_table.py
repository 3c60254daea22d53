"""docs/budget.md is what the planner says of the start-up logs, and its errors stay under their bars; a fault in a constant turns it."""

from __future__ import annotations

from typing import Any

import pytest

from planner.engines.vllm import activation, overhead, versions
from tests import budget_table
from tests.budget_others import others
from tests.budget_table import MEDIAN_BAR, P90_BAR, TARGET, Row, line, rows, spread
from tests.conftest import corpus_file

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def good() -> tuple[Row, ...]:
    corpus_file("engine_logs.csv")
    return rows()[0]


def again() -> list[float]:
    """Errors computed anew, with whatever was planted."""
    return [r.error for r in budget_table.rows.__wrapped__()[0]]


def test_most_rows_with_known_flags_are_predicted(good: tuple[Row, ...]) -> None:
    assert len(good) >= 25
    refused = [name for name, why in rows()[1] if why not in budget_table.REASONS]
    assert len(refused) <= 0.03 * len(good), refused


@pytest.mark.parametrize("side", ["all", "held out"])
def test_errors_stay_under_the_bars(good: tuple[Row, ...], side: str) -> None:
    middle, high = spread([r.error for r in good if side == "all" or r.held_out])
    assert middle <= MEDIAN_BAR
    assert high <= P90_BAR


def test_the_document_is_current(good: tuple[Row, ...]) -> None:
    """Line by line, for the rows that this corpus has."""
    written = set(TARGET.read_text().splitlines())
    names = [r for r in good if any(f"| {r.name}" in w for w in written)]
    assert names
    assert not [r.name for r in names if line(r) not in written], "run python -m tests.budget_table"


def test_other_engines_print_within_their_bands() -> None:
    for o in others():
        assert o.low <= o.printed <= o.high, o.name
        assert o.predicted == pytest.approx(o.printed, rel=0.35), o.name


def test_the_two_sides_share_no_family(good: tuple[Row, ...]) -> None:
    sides: dict[str, set[bool]] = {}
    for r in good:
        sides.setdefault(r.family, set()).add(r.held_out)
    assert all(len(found) == 1 for found in sides.values())


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (activation, "FILTERED", {"sort": 8.0, "triton": 32.0, "flashinfer": 32.0}),  # the sampler's filters mixed up
        (overhead, "NON_TORCH_GIB", {k: {1: (3.0, 3.0, 3.0), 2: (5.0, 5.0, 5.0), 4: (5.0, 5.0, 5.0)} for k in ("fused", "snapshot", "plain")}),
        (versions, "CHANGES", ()),  # every release by the newest rules
    ],
)
def test_a_planted_fault_turns_the_bars(good: tuple[Row, ...], monkeypatch: pytest.MonkeyPatch, where: Any, name: str, value: Any) -> None:
    monkeypatch.setattr(where, name, value)
    middle, high = spread(again())
    assert middle > MEDIAN_BAR or high > P90_BAR

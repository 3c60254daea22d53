"""Sums of units in closed form, held against the sums term by term."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cache import Term
from planner.sums import covered, shared_between, units_through
from tests.planner.allocator import Layers
from tests.planner.test_cache import TERMS
from tests.planner.test_prefix import LAYERS, group_of


@given(TERMS, st.integers(0, 400), st.integers(0, 400))
def test_sums_of_units(term: Term, a: int, more: int) -> None:
    b = a + more
    want = sum(term.units(s) for s in range(a + 1, b + 1))
    assert units_through(term, b) - units_through(term, a) == want
    both = np.array([a, b])
    assert np.diff(units_through(term, both)).tolist() == [want]


def test_sums_of_a_sawtooth() -> None:
    t = Term(unit_bytes=1, unit_tokens=7, rounding="rest", extra_units=2)
    assert [units_through(t, n) for n in range(60)] == [sum(t.units(s) for s in range(1, n + 1)) for n in range(60)]


@settings(max_examples=300)
@given(LAYERS, st.integers(0, 80), st.integers(0, 60), st.integers(0, 90))
def test_sums_of_shared_units(g: Layers, prefix: int, later: int, moments: int) -> None:
    made, start = group_of(g), np.array([prefix + later])
    want = sum(made.shared_units(s, prefix) for s in range(prefix + later + 1, prefix + later + moments + 1))
    assert shared_between(made, np.array([prefix]), start, start + moments).tolist() == [want]


def test_what_several_intervals_cover() -> None:
    assert covered([(0, 10), (2, 5), (6, 8), (12, 13), (12, 13), (20, 20)]) == 11
    assert covered([]) == 0

"""Every page opens by itself, in a session that has seen no other, with an answer and without a fault of ours."""

from __future__ import annotations

import gc

import pytest

from pages.parts.errors import LOG
from planner.capacity import CapacityPlan
from tests.pages.conftest import fresh
from tests.pages.test_address import PAGES


@pytest.mark.parametrize("query", [{}, {"model": "DeepSeek-V3", "gpus": "8", "tp": "8", "engine": "sglang"}, {"engine": "architecture"}], ids=str)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opened_first(page: str, query: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    at = fresh(**query).switch_page(page).run()
    assert not at.exception
    assert [r for r in caplog.records if r.name == LOG.name] == []
    assert len(at.metric) + len(at.table) + len(at.dataframe) + len(at.get("plotly_chart")) + len(at.markdown) + len(at.info) > 0


@pytest.mark.parametrize("page", PAGES)
def test_what_was_planned_before_is_let_go(page: str) -> None:
    """Streamlit keeps callbacks of what it no longer shows: none of ours may hold a run's plan, or a long session grows with each choice."""
    at = fresh(sequences="3").switch_page(page).run()
    chosen = range(1001, 1007)
    for sequences in chosen:
        at.number_input(key="sequences").set_value(sequences).run()
        assert not at.exception
    if page == "compare.py":
        at.session_state["_column_answers"].clear()  # kept on purpose, so many at most (columns.KEPT)
    gc.collect()
    alive = {p.scenario.sequences for p in gc.get_objects() if type(p) is CapacityPlan} & set(chosen)
    assert len(alive) <= 2, alive

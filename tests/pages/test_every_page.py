"""Every page opens by itself, in a session that has seen no other, with an answer and without a fault of ours."""

from __future__ import annotations

import pytest

from pages.parts.errors import LOG
from tests.pages.conftest import fresh
from tests.pages.test_address import PAGES


@pytest.mark.parametrize("query", [{}, {"model": "DeepSeek-V3", "gpus": "8", "tp": "8", "engine": "sglang"}, {"engine": "architecture"}], ids=str)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opened_first(page: str, query: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    at = fresh(**query).switch_page(page).run()
    assert not at.exception
    assert [r for r in caplog.records if r.name == LOG.name] == []
    assert len(at.metric) + len(at.table) + len(at.dataframe) + len(at.get("plotly_chart")) + len(at.markdown) + len(at.info) > 0

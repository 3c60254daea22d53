"""docs/models.md is what the readers are."""

from __future__ import annotations

from tests.models_table import TARGET, table


def test_the_table_is_fresh() -> None:
    assert TARGET.read_text() == table(), "run python -m tests.models_table"

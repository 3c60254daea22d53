"""The seventeen shapes: right or refused, and the page that says so is the command's."""

from __future__ import annotations

import pytest

from tests.shapes import SHAPES, TARGET, ours, table


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_right(name: str) -> None:
    assert ours(name) == SHAPES[name][1:3]


def test_the_table_is_fresh() -> None:
    assert TARGET.read_text() == table(), "run python -m tests.shapes"

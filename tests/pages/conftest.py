"""One app a test, run in this process by Streamlit's own test harness."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import ROOT

ROUTER = str(ROOT / "pages" / "router.py")


def fresh(**query: str) -> AppTest:
    """A new session that opened the app with these query parameters."""
    at = AppTest.from_file(ROUTER, default_timeout=30)
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


@pytest.fixture
def at() -> AppTest:
    at = fresh()
    assert not at.exception
    return at


def values(at: AppTest) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def deltas(at: AppTest) -> dict[str, str]:
    return {m.label: m.delta for m in at.metric}


def shown(at: AppTest) -> str:
    """All error texts, without the escapes that keep them from being markup."""
    return "\n".join(e.value for e in at.error).replace("\\", "")


def upload(at: AppTest, *files: tuple[str, bytes]) -> AppTest:
    wanted: list[Any] = [(name, data, "application/json") for name, data in files]
    return at.file_uploader(key="uploads").set_value(wanted).run()

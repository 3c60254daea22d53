"""One app a test, run in this process by Streamlit's own test harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import history
from planner.store import Store, open_store
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


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The history of this test alone, as the pages open it."""
    url = f"sqlite:///{tmp_path / 'kept.sqlite3'}"
    monkeypatch.setenv("KVLEDGER_DATABASE", url)
    history.store.clear()
    opened = open_store(url)
    yield opened
    opened.close()
    history.store.clear()


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

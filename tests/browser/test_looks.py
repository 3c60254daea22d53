"""Pages as they look on a phone and in Korean. With KVLEDGER_SHOTS=folder all of them, each left there as a picture (desktop and dark: test_access.py)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from planner.messages import speaking, table
from tests.browser.conftest import PHONE, Visit
from tests.browser.test_access import PATHS

pytestmark = pytest.mark.browser
Make = Callable[..., Visit]
SOME = PATHS if "KVLEDGER_SHOTS" in os.environ else ["/", "/compare"]
EXCEPTION = '[data-testid="stException"]'


def name(path: str) -> str:
    return path.strip("/") or "plan"


def test_no_page_scrolls_sideways_on_a_phone(visit: Make) -> None:
    v = visit(**PHONE)
    wide = {}
    for path in SOME:
        page = v.open(path)
        if v.sideways() or page.locator(EXCEPTION).count() or not page.locator(".st-key-tokens input").first.is_visible():
            wide[path] = v.sideways()
        v.shot(f"phone_{name(path)}")
    assert wide == {}


def test_every_page_in_korean_by_the_browsers_own_language(visit: Make) -> None:
    v = visit(locale="ko-KR")
    for path in SOME:
        page = v.open(path)
        with speaking("ko"):
            assert page.locator('[data-testid="stMain"] h2').first.inner_text() == table("ko")[f"page.{name(path)}.question"]
        assert page.locator(EXCEPTION).count() == 0
        assert v.sideways() == 0
        v.shot(f"korean_{name(path)}")

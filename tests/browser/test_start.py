"""The way to the answer: nothing need be scrolled on a laptop or a phone, and an example is one click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import PHONE, Visit

pytestmark = pytest.mark.browser
CARDS = '.st-key-headline [data-testid="stMetric"]'


@pytest.mark.parametrize("options", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["laptop", "phone"])
def test_the_answer_is_above_the_fold(visit: Callable[..., Visit], options: dict[str, Any]) -> None:
    v = visit(**options)
    height = options["viewport"]["height"]
    page = v.open()
    assert v.sideways() == 0
    cards = page.locator(CARDS)
    assert cards.count() == 5
    assert max(box["y"] + box["height"] for box in (cards.nth(i).bounding_box() for i in range(5))) <= height
    page.locator(".st-key-preset_rag button:visible").first.click()
    v.wait_metric("KV cache of the load", "120.00 GiB")
    assert "model=Llama-3.1-70B" in page.url
    assert max(box["y"] + box["height"] for box in (cards.nth(i).bounding_box() for i in range(5))) <= height
    page.locator(".st-key-reset button:visible").first.click()
    v.wait_metric("KV cache of the load", "16.00 GiB")
    assert "model" not in page.url

"""The way to the answer: nothing need be scrolled on a laptop or a phone, and an example is one click."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser
PHONE = {"is_mobile": True, "has_touch": True, "device_scale_factor": 2}
CARDS = '.st-key-headline [data-testid="stMetric"]'


@pytest.mark.parametrize(("width", "height", "options"), [(1280, 800, {}), (390, 844, PHONE)], ids=["laptop", "phone"])
def test_the_answer_is_above_the_fold(visit: Callable[..., Visit], width: int, height: int, options: dict[str, object]) -> None:
    v = visit(viewport={"width": width, "height": height}, **options)
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

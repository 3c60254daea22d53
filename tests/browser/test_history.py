"""The history in real browsers: a cookie that no script reads, kept over a reload, seen by nobody else, gone when it is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser
Make = Callable[..., Visit]
BEGIN = "Keep a history in this browser"


def history(v: Visit) -> str:
    v.open("/history")
    v.page.get_by_text("What did I keep?").wait_for()
    v.page.locator(".st-key-kept_search").or_(v.page.get_by_role("button", name=BEGIN)).first.wait_for()
    v.settle()
    return str(v.page.inner_text('[data-testid="stMain"]'))


@pytest.mark.check_all
def test_what_one_browser_keeps_another_never_sees(visit: Make) -> None:
    a, b = visit(), visit()
    page = a.open("/plan?sequences=24&lengths=512%2B128")
    assert a.metric("KV cache of the load") == "24.00 GiB"
    page.locator(".st-key-save_plan summary").click()
    page.get_by_role("button", name=BEGIN).click()
    page.get_by_role("button", name="Save it").wait_for()  # the page stayed where it was
    a.settle()
    page.locator(".st-key-save_plan input").first.fill("the plan of A")
    page.locator(".st-key-save_plan input").first.press("Enter")
    a.settle()
    page.get_by_role("button", name="Save it").click()
    page.get_by_text("Saved as the plan of A").wait_for()
    (cookie,) = (c for c in a.context.cookies() if c["name"] == "kvledger_history")
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in page.content() + page.url
    assert cookie["name"] not in page.evaluate("document.cookie")

    assert "the plan of A" in history(a)
    a.shot("history")
    assert BEGIN in history(b)
    b.page.get_by_role("button", name=BEGIN).click()
    b.page.get_by_text("Nothing is kept yet").wait_for()
    assert "the plan of A" not in history(b)

    # a reload is a new session: the same history, and the plan comes back with its mix
    page.reload()
    page.locator("[class*=st-key-kept_open_] button").click()
    page.get_by_role("link", name="See Plan").click()
    a.wait_metric("KV cache of the load", "24.00 GiB")
    assert "lengths=512%2B128" in page.url
    assert "sequences=24" in page.url

    # forgotten: the rows and the cookie
    history(a)
    page.locator(".st-key-kept_forget summary").click()
    page.get_by_role("button", name="Yes, delete all and the cookie").click()
    page.get_by_text("This browser is forgotten").wait_for()
    assert not [c for c in a.context.cookies() if c["name"] == "kvledger_history"]
    assert "the plan of A" not in history(a)


@pytest.mark.check_all
def test_a_reload_and_back_keep_every_choice_of_the_address(visit: Make) -> None:
    v = visit()
    wanted = {"sequences=24", "kv_dtype=fp8", "target_itl=0.05", "lengths=512%2B128"}
    page = v.open("/learn?" + "&".join(sorted(wanted)))

    def shown(question: str) -> None:
        page.locator("h2").filter(has_text=question).wait_for()
        page.locator('.st-key-sequences input[value="24"]').wait_for()
        page.wait_for_timeout(1500)
        v.settle()
        assert wanted <= set(page.url.split("?")[1].split("&")), page.url

    shown("How does")
    page.get_by_role("link", name="History", exact=True).click()
    shown("What did I keep?")
    page.reload()
    shown("What did I keep?")
    page.get_by_role("link", name="Layers", exact=True).click()
    shown("Where are the bytes")
    for _ in range(3):  # choices without a widget on the page are written after its opening: one more step of the browser's history
        page.go_back()
        page.wait_for_timeout(2000)
        if "What did I keep?" in page.locator("h2").first.inner_text():
            break
    shown("What did I keep?")

"""Sessions in real browsers: two people at once, a link left early, a reload, a lost connection, two tabs, Back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.browser.test_journey import fill, give
from tests.pages.hostile import changed
from tests.pages.test_address import PAGES

pytestmark = pytest.mark.browser
Make = Callable[..., Visit]
MARK = "Zmarkerzz"
LOG = f"INFO 11-29 10:00:00 [{MARK}.py:1] GPU KV cache size: 123,457 tokens"
MARKS = (MARK, "123,457", "123457", "77773", "77,773", r"77\,773")
QUERY = "?sequences=32&kv_dtype=fp8&tokens=4096&max_num_seqs=99&target_itl=0.05&lengths=512%2B128&lang=ko"


def listening(v: Visit) -> list[bytes]:
    """All that the server sends to this page from now on."""
    frames: list[bytes] = []

    def keep(payload: Any) -> None:
        frames.append(payload if isinstance(payload, bytes) else str(payload).encode())

    v.page.on("websocket", lambda ws: ws.on("framereceived", keep))
    return frames


def found(text: str | bytes) -> list[str]:
    return [m for m in MARKS if (m.encode() if isinstance(text, bytes) else m) in text]


def go(v: Visit, page: str) -> None:
    v.page.locator(f'a[href*="/{page}"]:visible').first.click()
    v.page.wait_for_url(f"**/{page}*")
    v.settle()


def value(v: Visit, key: str) -> str:
    return str(v.page.locator(f".st-key-{key} input").first.input_value())


@pytest.mark.check_all
def test_two_at_once_see_nothing_of_each_other(visit: Make) -> None:
    """A uploads, types a device, pastes a log and sweeps; after each, B, who was there before, opens pages."""
    a, b = visit(), visit()
    to_a, to_b = listening(a), listening(b)
    b.open()
    a.open()
    names = [p.removesuffix(".py") for p in PAGES if p != "plan.py"]
    seen: set[str] = set()

    def look(*pages: str) -> None:
        for name in pages:
            go(b, name)
            seen.add(name)
            assert found(b.page.content() + b.page.url) == [], name

    give(a, (f"{MARK}.json", changed(num_hidden_layers=16, _name_or_path=MARK)))
    a.wait_metric("KV cache of the load", "8.00 GiB")
    look("layers", "compare", "learn")
    a.page.locator(".st-key-own_gpu summary").click()
    fill(a, "own_gpu_name", f"{MARK} card")
    a.page.locator(".st-key-own_gpu_take button").click()
    a.page.wait_for_url(f"**{MARK}**")
    a.settle()
    look("serve", "report", "history")
    go(a, "reconcile")
    box = a.page.locator("[class*=st-key-log_paste_] textarea")
    box.fill(LOG)
    box.press("Control+Enter")
    a.page.get_by_text("123,457").first.wait_for()
    look("reconcile", "diagnose", "validate")
    go(a, "sweep")
    fill(a, "sweep_tokens", 77773)
    a.page.locator(".st-key-sweep_start button").click()
    look("sweep")
    a.page.get_by_text("77,773").first.wait_for()
    a.settle()
    go(b, "learn")
    go(b, "sweep")
    assert found(b.page.content()) == []
    assert seen == set(names)
    assert set(found(b"".join(to_a))) >= {MARK, "123,457"}, "the frames are readable: the next line could fail"
    assert found(b"".join(to_b)) == []
    assert len(to_b) > 100


@pytest.mark.parametrize("wait", [0, *(pytest.param(ms, marks=pytest.mark.check_all) for ms in (150, 400))])
def test_a_link_that_is_left_at_once_is_not_lost(visit: Make, wait: int) -> None:
    """The next page is clicked as soon as it is there: the browser has drawn no choice yet, and drops what it does not know."""
    v = visit()
    page = v.page
    page.goto(v.base + "/" + QUERY)
    link = page.locator('a[href*="/serve"]:visible').first
    link.wait_for()
    page.wait_for_timeout(wait)
    link.click()
    page.wait_for_url("**/serve*")
    page.locator(".st-key-serve_target_itl input").first.wait_for()
    for i in range(2):
        page.wait_for_timeout(1000)
        v.settle()
        assert set(QUERY[1:].split("&")) <= set(page.url.split("?")[1].split("&")), (page.url, i)
        assert [value(v, key) for key in ("sequences", "tokens", "max_num_seqs", "serve_target_itl")] == ["32", "4096", "99", "50.00"]
        fill(v, "gpus", 2)  # and the next run, which the browser's own values begin
        page.wait_for_url("**gpus=2**")


@pytest.mark.check_all
def test_a_reload_keeps_the_address_and_no_file(visit: Make) -> None:
    v = visit()
    page = v.open("/?sequences=24&lang=ko")
    title = page.locator("h2").first
    give(v, ("config.json", changed(num_hidden_layers=16)))
    page.locator(".st-key-leave_own").wait_for()
    v.settle()
    go(v, "layers")
    korean = title.inner_text()
    page.reload()
    page.locator('.st-key-sequences input[value="24"]').wait_for()
    v.settle()
    assert title.inner_text() == korean
    assert "lang=ko" in page.url
    assert not page.locator(".st-key-leave_own").count()


@pytest.mark.check_all
def test_a_lost_connection_comes_back_to_the_same_session(visit: Make) -> None:
    """Cut, no connection for three seconds, then again: the upload is still there, and what was typed meanwhile counts."""
    v, cut, lost = visit(), [], [0]

    def route(ws: Any) -> None:
        if lost[0]:
            lost[0] += 1
            ws.close()
            return
        server = ws.connect_to_server()
        cut.append(lambda: (server.close(), ws.close()))

    v.page.route_web_socket("**/_stcore/stream**", route)
    page = v.open()
    give(v, ("config.json", changed(num_hidden_layers=16)))
    v.wait_metric("KV cache of the load", "8.00 GiB")
    lost[0] = 1
    cut[-1]()
    page.wait_for_timeout(3000)
    assert lost[0] > 1, "it tried to come back"
    lost[0] = 0
    page.wait_for_timeout(500)
    fill(v, "sequences", 32)
    v.wait_metric("KV cache of the load", "16.00 GiB")
    assert page.locator(".st-key-leave_own").count()
    v.errors.clear()  # the browser names each connection that failed


@pytest.mark.check_all
def test_two_tabs_of_one_browser_are_two_plans(visit: Make) -> None:
    v = visit()
    v.open()
    other = Visit(context=v.context, page=v.context.new_page(), base=v.base)
    other.open()
    fill(v, "sequences", 24)
    fill(other, "sequences", 48)
    other.wait_metric("KV cache of the load", "48.00 GiB")
    give(other, ("config.json", changed(num_hidden_layers=16)))
    other.wait_metric("KV cache of the load", "24.00 GiB")
    v.wait_metric("KV cache of the load", "24.00 GiB")
    fill(v, "tokens", 4096)
    v.wait_metric("KV cache of the load", "12.00 GiB")
    for tab, sequences, tokens in ((v, "24", "4096"), (other, "48", "8192")):
        go(tab, "layers")
        assert (value(tab, "sequences"), value(tab, "tokens")) == (sequences, tokens)
    assert not v.page.locator(".st-key-leave_own").count()
    assert other.page.locator(".st-key-leave_own").count()


@pytest.mark.check_all
def test_back_and_forward_over_pages_show_what_the_address_says(visit: Make) -> None:
    """A choice is no step of the browser's history, a page is: each stands as it was when it was left."""
    v = visit()
    page = v.open()
    fill(v, "sequences", 24)
    v.wait_metric("KV cache of the load", "24.00 GiB")
    go(v, "layers")
    fill(v, "sequences", 48)
    page.wait_for_url("**sequences=48**")
    v.settle()
    page.go_back()
    v.wait_metric("KV cache of the load", "24.00 GiB")
    assert (value(v, "sequences"), page.url.partition("?")[2]) == ("24", "sequences=24")
    page.go_forward()
    page.locator("h2").filter(has_text="Where are the bytes").wait_for()
    v.settle()
    assert (value(v, "sequences"), page.url.partition("?")[2]) == ("48", "sequences=48")

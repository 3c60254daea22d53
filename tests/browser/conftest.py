"""A server on a free port and a real browser. Without playwright or Chromium the tests skip with the reason, or fail where a browser is
required (KVLEDGER_REQUIRE_BROWSER=1). CHROMIUM names another browser, KVLEDGER_SHOTS a folder for screenshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.served import chromium_path, served

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--disable-domain-reliability", "--no-default-browser-check",
)  # fmt: skip
DESKTOP = {"width": 1280, "height": 900}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def _missing(reason: str) -> None:
    if os.environ.get("KVLEDGER_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed (requirements-dev.txt)")
    path = chromium_path()
    if not path:
        _missing("no Chromium on this machine (set CHROMIUM)")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def base(chromium: Any) -> Iterator[str]:
    """The app's address, as `make run` serves it."""
    with served() as server:
        yield server.address
        log = server.log.read_text()
        assert "Traceback" not in log, log[-3000:]


@dataclass
class Visit:
    """One browser context with what it asked for and complained about."""

    context: Any
    page: Any
    base: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> Any:
        self.page.goto(self.base + path)
        self.settle()
        return self.page

    def settle(self) -> None:
        """The script ended, and tables and charts, which load their code late, are there."""
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
        self.page.wait_for_timeout(400)
        for _ in range(150):
            if not self.page.locator('[data-testid="stSkeleton"]').count():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("a chart or a table did not come")

    def metric(self, label: str) -> str:
        return str(self.page.locator('[data-testid="stMetric"]').filter(has_text=label).locator('[data-testid="stMetricValue"]').inner_text())

    def wait_metric(self, label: str, value: str) -> None:
        where = self.page.locator('[data-testid="stMetric"]').filter(has_text=label).locator('[data-testid="stMetricValue"]')
        where.filter(has_text=value).wait_for(timeout=30_000)
        self.settle()

    def sideways(self) -> int:
        wide = "e => e.scrollWidth - e.clientWidth"
        return max(int(self.page.locator(where).first.evaluate(wide)) for where in ("html", '[data-testid="stMain"]'))

    def shot(self, name: str) -> None:
        if folder := os.environ.get("KVLEDGER_SHOTS"):
            height = self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            seen = self.page.viewport_size
            self.page.set_viewport_size({"width": seen["width"], "height": height + 20})
            self.settle()
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))
            self.page.set_viewport_size(seen)


@pytest.fixture
def visit(chromium: Any, base: str) -> Iterator[Any]:
    """Makes visits: visit(viewport=..., color_scheme=...). At the end none may have called outside or printed an error."""
    made: list[Visit] = []

    def make(**options: Any) -> Visit:
        context = chromium.new_context(**{"viewport": DESKTOP, "accept_downloads": True, **options})
        v = Visit(context=context, page=context.new_page(), base=base)
        own = (base, base.replace("http", "ws"), "data:", "blob:")
        context.on("request", lambda r: v.outside.append(r.url) if not r.url.startswith(own) else None)
        # A deep link makes Streamlit probe its own paths, which answers 404 at first: its own affair.
        v.page.on("console", lambda m: v.errors.append(m.text) if m.type == "error" and "Failed to load resource" not in m.text else None)
        v.page.on("pageerror", lambda e: v.errors.append(str(e)))
        made.append(v)
        return v

    yield make
    for v in made:
        v.context.close()
        assert v.outside == []
        assert v.errors == []

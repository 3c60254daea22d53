"""What a user waits for in a real browser, printed and never asserted.

    python -m tests.browser_bench [--rounds 5]

A server of its own, warmed by one visit; then: a fresh browser context to the first figure, a changed input to its new figure, and a scripted new
user from an empty browser to the downloaded report of an uploaded config. Needs playwright and Chromium (CHROMIUM names one), as tests/browser.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

from tests.browser.conftest import DESKTOP, FLAGS
from tests.conftest import CONFIGS
from tests.served import chromium_path, served

METRIC = '[data-testid="stMetric"]'
LOAD = "KV cache of the load"


def wait_for(page: Any, figure: str) -> None:
    """Looked for every frame: Playwright's own waiting polls more slowly than a figure comes."""
    page.wait_for_function(
        """([metric, label, figure]) => [...document.querySelectorAll(metric)].some(e => e.innerText.includes(label) && e.innerText.includes(figure))""",
        arg=[METRIC, LOAD, figure], timeout=60_000,
    )  # fmt: skip


def settle(page: Any) -> None:
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
    page.wait_for_timeout(1500)


def first_figure(browser: Any, base: str) -> float:
    """A tab of a browser that has nothing of the page yet."""
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    start = time.perf_counter()
    page.goto(base, wait_until="commit")
    wait_for(page, "16.00 GiB")
    took = time.perf_counter() - start
    context.close()
    return took


def changes(browser: Any, base: str, rounds: int) -> list[float]:
    """Another number of sequences, from Enter to the new figure: 1 GiB each."""
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    page.goto(base)
    wait_for(page, "16.00 GiB")
    settle(page)
    times = []
    for n in range(2, 2 + rounds):
        box = page.locator(".st-key-sequences input").first
        box.fill(str(n))
        start = time.perf_counter()
        box.press("Enter")
        wait_for(page, f"{n}.00 GiB")
        times.append(time.perf_counter() - start)
        settle(page)
    context.close()
    return times


def new_user(browser: Any, base: str) -> float:
    """From nothing to a report of an own config on the disk: open, upload, see the figure, Report, download, read."""
    start = time.perf_counter()
    context = browser.new_context(viewport=DESKTOP, accept_downloads=True)
    page = context.new_page()
    page.goto(base)
    wait_for(page, "16.00 GiB")
    config = json.loads((CONFIGS / "llama.json").read_text()) | {"num_hidden_layers": 16, "num_key_value_heads": 8, "head_dim": 128}
    page.locator('.st-key-uploads input[type="file"]').set_input_files(
        [{"name": "config.json", "mimeType": "application/json", "buffer": json.dumps(config).encode()}]
    )
    wait_for(page, "8.00 GiB")
    page.get_by_role("link", name="Report").click()
    button = page.get_by_role("button", name="HTML", exact=True)
    button.wait_for(timeout=60_000)
    with page.expect_download(timeout=60_000) as download:
        button.click()
    assert download.value.path().read_bytes().startswith(b"<!DOCTYPE html>")
    took = time.perf_counter() - start
    context.close()
    return took


def said(name: str, times: list[float]) -> None:
    print(f"{name:44s} median {statistics.median(times):6.2f} s of {len(times)}   least {min(times):.2f}, most {max(times):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    if not path:
        sys.exit("no Chromium: set CHROMIUM")
    load = os.getloadavg()[0]
    with served("--server.fileWatcherType", "none") as server, sync_playwright() as p:
        base = server.address
        browser = p.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        first_figure(browser, base)  # the server imports what it needs
        said("a fresh tab to its first figure", [first_figure(browser, base) for _ in range(rounds)])
        said("a changed input to its new figure", changes(browser, base, rounds))
        said("a new user to the report of an upload", [new_user(browser, base)])
        browser.close()
    print(f"{os.cpu_count()} cores, load before {load:.1f}, after {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

"""For everyone: names for what can be used or looked at, contrast in both themes, and the whole way by keyboard alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.pages.test_address import PAGES

pytestmark = pytest.mark.browser
Make = Callable[..., Visit]
PATHS = ["/" if name == "plan.py" else f"/{name.removesuffix('.py')}" for name in PAGES]
# Streamlit's own upload field: a focusable section that it calls presentation. Of minor impact by axe's own scale.
NOT_OURS = {"presentation-role-conflict"}
CHARTS = "[data-testid=stPlotlyChart]"
TABLES = "[data-testid=stTable], [data-testid=stDataFrame]"
FOCUSED = "([n, r]) => { const e = document.activeElement; return e.matches(r) && (e.getAttribute('aria-label') || e.innerText).trim().endsWith(n) }"
EVERY = os.environ.get("KVLEDGER_CHECK_ALL") == "1"
SOME = ["/", "/compare", "/sweep", "/history"]
NAMELESS = "es => es.filter(e => !(e.getAttribute('aria-label') || e.querySelector('[aria-label], caption'))).map(e => e.innerText.slice(0, 60))"


def faults(v: Visit) -> list[tuple[str, str, str]]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed (requirements-dev.txt)")
    v.page.wait_for_timeout(1000)  # colours fade in
    found = axe.Axe().run(v.page).response["violations"]
    return [(x["id"], n["html"][:160], str(n["any"][:1])[:200]) for x in found if x["id"] not in NOT_OURS for n in x["nodes"]]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.check_all)])
def test_no_page_breaks_the_rules_of_accessibility(visit: Make, scheme: str) -> None:
    """WCAG's testable rules by axe-core: accessible names, roles, contrast, order of headings."""
    v = visit(color_scheme=scheme)
    broken: dict[str, Any] = {}
    for path in PATHS if EVERY else SOME:
        v.open(path)
        v.shot(f"{scheme}_{path.strip('/') or 'plan'}")
        if found := faults(v):
            broken[path] = found
        nameless = v.page.locator(f"{CHARTS}, {TABLES}").evaluate_all(NAMELESS)
        if nameless:
            broken[f"{path} nameless"] = nameless
    assert broken == {}


def test_a_fault_is_found(visit: Make) -> None:
    """The test above can fail: a button without a name, captions too faint, a chart without words."""
    v = visit()
    page = v.open("/report")
    page.add_style_tag(content="[data-testid=stCaptionContainer] {opacity: 0.4 !important}")
    page.evaluate("""document.querySelector('[data-testid=stMain]').insertAdjacentHTML('beforeend',
        '<button></button><div data-testid="stPlotlyChart"></div>')""")
    assert {"button-name", "color-contrast"} <= {code for code, _, _ in faults(v)}
    assert v.page.locator(CHARTS).evaluate_all(NAMELESS) != []


def test_a_plan_and_its_report_by_keyboard_alone(visit: Make) -> None:
    v = visit()
    page = v.open()

    def reach(name: str, role: str, key: str = "Tab") -> None:
        for _ in range(120):
            page.keyboard.press(key)
            if page.evaluate(FOCUSED, [name, role]):
                return
        pytest.fail(f"{name} is not reached")

    reach("Tokens a sequence", "input")
    page.keyboard.press("Control+a")
    page.keyboard.type("16384")
    page.keyboard.press("Enter")
    v.wait_metric("KV cache of the load", "32.00 GiB")
    ring = page.evaluate("getComputedStyle(document.activeElement.closest('[data-testid=stNumberInputContainer]') || document.activeElement).borderColor")
    assert ring != page.evaluate("getComputedStyle(document.querySelector('.st-key-sequences [data-testid=stNumberInputContainer]')).borderColor")
    reach("Report", "a", "Shift+Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Show it to someone").wait_for()
    v.settle()
    reach("Markdown", "button")
    with page.expect_download() as d:
        page.keyboard.press("Enter")
    assert "32.00 GiB" in d.value.path().read_text()

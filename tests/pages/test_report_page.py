"""The Report page, and what the web process may load."""

from __future__ import annotations

import subprocess
import sys

from streamlit.testing.v1 import AppTest

from tests.conftest import ROOT
from tests.pages.conftest import ROUTER, fresh


def test_the_preview_and_four_buttons(at: AppTest) -> None:
    at.number_input(key="sequences").set_value(32).run()
    page = at.switch_page("report.py").run()
    assert not page.exception
    assert [b.label for b in page.get("download_button")] == ["JSON", "Markdown", "HTML", "CSV"]
    assert all(b.proto.url or b.proto.deferred_file_id for b in page.get("download_button"))
    assert "32.00 GiB" in page.markdown[0].value
    assert page.number_input(key="sequences").value == 32


def test_a_plan_that_cannot_be_says_so_here_too() -> None:
    page = fresh(gpus="3", tp="2").switch_page("report.py").run()
    assert not page.exception
    assert page.error


def test_no_page_loads_torch() -> None:
    code = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({ROUTER!r}, default_timeout=60).run()\n"
        "for name in ('validate', 'report', 'plan'):\n    at.switch_page(f'{name}.py').run()\n    assert not at.exception, name\n"
        "import app\nsys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

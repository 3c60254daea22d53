"""What docs/hosting.md, docs/threats.md and docs/api.md say is held against the program."""

from __future__ import annotations

import ast
import re

from planner.environment import VARIABLES, wanted
from planner.messages import render
from planner.units import memory
from planner.web.asked import OWN
from tests.conftest import ROOT


def settings() -> list[str]:
    """The rows of the table of settings: ``python -c "from tests.test_service_docs import settings; print(*settings(), sep=chr(10))"``."""
    rows = []
    for name, v in VARIABLES.items():
        if not v.ours:
            default = "on" if v.default is True else memory(v.default) if v.kind == "bytes" else str(v.default or "-")
            rows.append(f"| `{name}` | {render(f'env.{name}')} | {wanted(v)} | {default} |")
    return rows


def test_every_setting_is_in_the_table() -> None:
    lines = (ROOT / "docs/hosting.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("| `KVLEDGER_")] == settings()


def test_every_test_that_is_named_exists() -> None:
    text = (ROOT / "docs/threats.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert not name or any(isinstance(n, ast.FunctionDef) and n.name == name for n in tree.body), f"{path}::{name}"
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert all("`tests/" in row for row in rows)


def test_every_route_is_in_the_guide_of_the_api() -> None:
    text = (ROOT / "docs/api.md").read_text()
    for name in (*OWN, "health", "openapi.json"):
        assert f"/api/{name}" in text


def test_the_container_has_no_rights_and_a_check() -> None:
    text = (ROOT / "Containerfile").read_text()
    assert re.search(r"^USER \d{4,}$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
    assert "KVLEDGER_PROBE=off" in text
    for source in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / path).exists() for path in source.split()), source

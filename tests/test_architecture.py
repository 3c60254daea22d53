"""The rules of the house as failing tests: who imports whom, where GiB lives, that no page computes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

HEAVY = {"torch", "streamlit", "pandas", "plotly", "transformers"}
STDLIB = set(sys.stdlib_module_names)
PLANNER_MAY = {"numpy", "planner"}
EXTRA = {
    "planner/sources": {"huggingface_hub", "httpx2", "httpcore2"},
    "planner/web": {"starlette"},
    "planner/report": {"jinja2", "reportlab", "xlsxwriter"},
    "planner/store": {"sqlalchemy"},
}
PROBE_MAY = {
    "planner.model", "planner.cache", "planner.units", "planner.dtypes", "planner.errors", "planner.notes", "planner.messages", "planner.engines.probe",
    "planner.parallel", "planner.environment",
}  # fmt: skip
PROBE_MAIN_MAY = PROBE_MAY | {"planner.sources", "planner.readers", "planner.engines"}
TORCH_FREE = (
    "gpu_probe", "gpu_probe.client", "gpu_probe.result", "gpu_probe.pool", "gpu_probe.claims", "gpu_probe.calibration", "gpu_probe.dist",
    "gpu_probe.uploads", "gpu_probe.claims.views", "gpu_probe.claims.report", "gpu_probe.claims.catalog", "gpu_probe.measurements",
)  # fmt: skip
MAX_LINES = 450
SPELLINGS = {(ast.Pow, 1024, 2), (ast.Pow, 1024, 3), (ast.Pow, 2, 20), (ast.Pow, 2, 30), (ast.LShift, 1, 20), (ast.LShift, 1, 30)}  # of MiB and GiB


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            module = node.module or ""
            yield from (f"{module}.{a.name}" if (ROOT / module.replace(".", "/") / f"{a.name}.py").exists() else module for a in node.names)


def test_planner_is_pure() -> None:
    for name, tree in modules("planner"):
        allowed = PLANNER_MAY | next((m for folder, m in EXTRA.items() if name.startswith(folder)), set())
        for imported in imports(tree):
            top = imported.split(".")[0]
            assert top in STDLIB or top in allowed, f"{name} imports {imported}"


def test_pages_never_import_torch() -> None:
    for name, tree in modules("pages"):
        assert not {i.split(".")[0] for i in imports(tree)} & {"torch", "transformers"}, name


def test_the_probe_depends_on_few_rooms() -> None:
    for name, tree in modules("gpu_probe"):
        allowed = PROBE_MAIN_MAY if name.endswith("__main__.py") else PROBE_MAY
        for imported in imports(tree):
            top = imported.split(".")[0]
            assert top not in ("streamlit", "pandas", "plotly", "pages"), f"{name} imports {imported}"
            if top == "planner":
                assert any(imported == a or imported.startswith(a + ".") for a in allowed), f"{name} imports {imported}"


@pytest.mark.parametrize("module", TORCH_FREE)
def test_the_web_process_can_import_the_probes_client(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_gib_lives_in_units_alone() -> None:
    for name, tree in modules("planner", "pages", "gpu_probe"):
        if name == "planner/units.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
                spelled = (type(node.op), node.left.value, node.right.value)
                assert spelled not in SPELLINGS, f"{name}:{node.lineno}"
            assert not (isinstance(node, ast.Constant) and node.value in (1_073_741_824, 1_048_576)), f"{name}:{node.lineno}"


def test_pages_hold_no_arithmetic() -> None:
    """Pages read inputs, call one function and render: sums and products belong to the planner (parts/ may scale for the eye)."""
    for path in sorted((ROOT / "pages").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Pow | ast.Mod):
                raise AssertionError(f"{path.name}:{node.lineno} computes")


def test_nothing_at_module_level_can_hold_a_users_data() -> None:
    """Module-level names of pages are constants: no empty container that a session could fill."""
    for name, tree in modules("pages"):
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Dict | ast.List | ast.Set):
                filled = value.keys if isinstance(value, ast.Dict) else value.elts
                assert filled, f"{name}:{node.lineno} is an empty container at module level"


def test_modules_stay_small_enough_to_hold_in_mind() -> None:
    long = {name: n for name in (p.relative_to(ROOT).as_posix() for f in ("planner", "pages", "gpu_probe") for p in (ROOT / f).rglob("*.py"))
            if (n := len((ROOT / name).read_text().splitlines())) > MAX_LINES}  # fmt: skip
    assert not long


def test_app_is_a_launcher() -> None:
    assert len((ROOT / "app.py").read_text().splitlines()) <= 60


def test_every_folder_is_in_the_checks() -> None:
    """A new top-level package must be added to the rules above."""
    packages = {p.parent.name for p in ROOT.glob("*/__init__.py")} | {"pages"}
    assert packages <= {"planner", "gpu_probe", "pages", "tests"}
    assert Path(ROOT / "pages" / "router.py").exists()

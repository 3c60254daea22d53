"""Every sentence comes from planner/messages, every code is there, and every text can be filled in."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator

from planner.messages import en, render
from planner.scenario import OPTIONS
from tests.conftest import ROOT

# Calls whose first text argument (second for notes) is a code, and the prefixes that the code gets.
ERRORS = set(
    "InvalidInput NotAConfig MissingField UnsupportedModel UnsupportedValue SourceError StoreError UnknownName DataError PlannerError "
    "ProbeOutOfMemory ProbeTimeLimit ProbeFault".split()
)
SENTENCE = re.compile(r"[A-Za-z]{2,}[,;]? [a-z]{2,}[,;]? [a-z]{2,}[,;]? [a-z]{2,}")
EXEMPT = ("planner/messages/",)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("planner", "pages", "gpu_probe"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(EXEMPT):
                yield name, ast.parse(path.read_text())


def test_every_code_that_is_used_has_a_text() -> None:
    missing = set()
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if called in ERRORS and texts:
                missing |= {f"{name}: {k}" for k in (f"error.{texts[0]}", f"error.{texts[0]}.hint") if k not in en.TEXT}
            elif called == "note" and len(texts) >= 2 and f"note.{texts[1]}" not in en.TEXT:
                missing.add(f"{name}: note.{texts[1]}")
            elif called in ("LedgerLine", "GapLine", "Remedy"):
                prefix = {"LedgerLine": "ledger", "GapLine": "gap", "Remedy": "remedy"}[called]
                for k in node.keywords:
                    if k.arg == "code" and isinstance(k.value, ast.Constant) and f"{prefix}.{k.value.value}" not in en.TEXT:
                        missing.add(f"{name}: {prefix}.{k.value.value}")
            elif called in ("Doubt", "between"):
                codes = [k.value.value for k in node.keywords if k.arg == "code" and isinstance(k.value, ast.Constant)] or texts[:1]
                missing |= {f"{name}: note.{c}" for c in codes if f"note.{c}" not in en.TEXT}
            elif called in ("render", "say") and texts and texts[0] not in en.TEXT:
                missing.add(f"{name}: {texts[0]}")
    assert not missing


def fields_of(code: str) -> set[str]:
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(en.TEXT.get(code, "")) if name}


def test_every_call_passes_what_its_text_needs() -> None:
    """An error that cannot be rendered would hide itself: the keywords of each call cover the fields of its text and of its hint."""
    wrong = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ERRORS | {"note"}:
                continue
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            given = {k.arg for k in node.keywords}
            if None in given or not texts:
                continue  # **args: seen at run time
            if node.func.id == "note":
                missing = fields_of(f"note.{texts[1]}") - given if len(texts) > 1 else set()
            else:
                missing = (fields_of(f"error.{texts[0]}") | fields_of(f"error.{texts[0]}.hint")) - given - {"field"}
            wrong += [f"{name}:{node.lineno} {sorted(missing)}"] if missing else []
    assert not wrong


def test_no_code_is_defined_twice() -> None:
    parts = [*(module.TEXT for name, module in vars(en).items() if name.startswith("en_")), en._PLANNER]
    assert len(parts) > 10
    assert sum(map(len, parts)) == len(en.TEXT)


def test_every_option_is_explained() -> None:
    assert {f"option.{n}" for n in OPTIONS} - {"option.model"} <= set(en.TEXT)


def test_every_error_has_a_way_out_and_every_text_can_be_filled() -> None:
    for code, text in en.TEXT.items():
        names = {field.split(".")[0].split("[")[0] for _, field, _, _ in string.Formatter().parse(text) if field is not None}
        assert render(code, dict.fromkeys(names, 12_345)), code
        if code.startswith("error.") and not code.endswith(".hint"):
            assert f"{code}.hint" in en.TEXT, code


def test_no_sentence_is_built_elsewhere() -> None:
    found = []
    for name, tree in trees():
        # docstrings and citations are not shown as sentences of ours
        free = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cite":
                free |= {id(a) for arg in node.args for a in ast.walk(arg)}
        texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in free]
        found += [f"{name}:{n.lineno} {n.value[:60]}" for n in texts if "\n" not in n.value and SENTENCE.search(n.value)]
    assert not found

"""Every language is whole: the codes of English, their arguments, its own script; and it reaches commands, children and reports."""

from __future__ import annotations

import io
import json
import os
import re
import string
import subprocess
import sys
from typing import get_args

import pypdf
import pytest

from planner import messages, mix
from planner.answers import plan_json
from planner.api import answer
from planner.engines.settings import LineKind
from planner.messages import Word, kind_word, known_word, render, speaking, state_word, table, type_word
from planner.report import render as render_report
from planner.report.extras import flat
from planner.report.text import text as render_text
from tests.conftest import ROOT
from tests.planner.test_report import PROVENANCE, made
from tests.planner.test_report_formats import READERS, numbers

OTHERS = [code for code in messages.languages() if code != messages.ENGLISH]
SCRIPT = {"ko": re.compile("[가-힣]")}
WORD = re.compile(r"[A-Za-z]{2,}")
# Reviewed: units, symbols and terms of the trade that Korean engineers write in Latin letters. A text may consist of these alone.
TERMS = {
    "GiB", "MiB", "GB", "ms",  # units
    "TTFT", "ITL", "KV", "MHA", "GQA", "MQA", "MLA", "TP", "RAG",  # terms
    "KVLedger", "Llama", "PCIe",  # names
    "CSV", "JSON", "Markdown", "HTML", "XLSX", "PDF",  # formats
    "br", "gray",  # markup
}  # fmt: skip


def arguments(text: str) -> set[str]:
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("code", OTHERS)
def test_a_language_has_every_text_with_its_arguments(code: str) -> None:
    english, own = table(messages.ENGLISH), table(code)
    assert set(own) == set(english)
    assert [c for c in english if arguments(own[c]) != arguments(english[c])] == []
    for c, text in own.items():
        assert text.format(**dict.fromkeys(arguments(text), 12_345)), c


@pytest.mark.parametrize("code", OTHERS)
def test_a_text_is_in_the_script_of_its_language(code: str) -> None:
    plain = {c: re.sub(r"\{[^}]*\}", "", t) for c, t in table(code).items()}
    foreign = {c: t for c, t in plain.items() if not SCRIPT[code].search(t) and not set(WORD.findall(t)) <= TERMS}
    assert foreign == {}


@pytest.mark.parametrize("code", OTHERS)
def test_code_and_flags_are_kept_as_they_are(code: str) -> None:
    english, own = table(messages.ENGLISH), table(code)
    wrong = [c for c, text in english.items() for token in re.findall(r"`[^`]+`|--[a-z][a-z-]+", text) if token not in own[c]]
    assert wrong == []


def test_speaking_is_for_its_block_alone() -> None:
    with speaking("ko"):
        assert render("page.language") == table("ko")["page.language"] != table("en")["page.language"]
        with speaking("en"):
            assert render("page.language") == "Language"
    assert render("page.language") == "Language"
    with speaking("xx"):
        assert messages.language() == "en"


def test_the_command_line_speaks_what_the_environment_names() -> None:
    out = {}
    for code in ("en", "ko"):
        done = subprocess.run(
            [sys.executable, "-m", "planner", "plan", "Llama-3.1-8B", "--gpu", "H100 SXM", "--tokens", "8192", "--json"],
            cwd=ROOT, env={**os.environ, messages.VARIABLE: code}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        out[code] = json.loads(done.stdout)
    assert out["en"]["kv_pool_bytes"] == out["ko"]["kv_pool_bytes"]
    assert SCRIPT["ko"].search(json.dumps(out["ko"], ensure_ascii=False))
    assert not SCRIPT["ko"].search(json.dumps(out["en"], ensure_ascii=False))


@pytest.mark.parametrize("fmt", sorted(READERS))
def test_a_report_is_in_the_language_of_its_reader_with_the_same_numbers(fmt: str) -> None:
    for code in messages.languages():
        with speaking(code):
            rows = READERS[fmt](render_report(made(), fmt, PROVENANCE, created="2026-01-02"))
        for fact, value in (("kv_load", 17_181_966_336), ("kv_architecture", 17_179_869_184), ("kv_pool", made().kv_pool_bytes), ("max_sequences", 54)):
            label = table(code)[f"report.fact.{fact}"]
            assert any(value in numbers(row[row.index(label) + 1 :]) for row in rows if label in row), (code, label)


def test_the_same_plan_comes_back_from_a_report_in_another_language() -> None:
    bodies = {}
    for code in messages.languages():
        with speaking(code):
            bodies[code] = json.loads(render_report(made(), "json", PROVENANCE, created="2026-01-02"))
    assert bodies["ko"]["scenario"] == bodies["en"]["scenario"]
    assert {k: v for k, v in bodies["ko"].items() if isinstance(v, int)} == {k: v for k, v in bodies["en"].items() if isinstance(v, int)}


KOREAN = table("ko")


def ko(text: str) -> bool:
    return SCRIPT["ko"].search(text) is not None


@pytest.mark.parametrize("word", [
    kind_word("latent"), known_word("measured"), state_word("mamba2"), type_word("int"), Word("memory", "page.serve.limit.memory"),
    Word("2", "word.element", size="2"),
], ids=str)  # fmt: skip
def test_a_word_is_data_as_it_is_and_a_text_in_the_language_of_its_reader(word: Word) -> None:
    assert (json.loads(json.dumps(word)), hash(word)) == (str.__str__(word), hash(str.__str__(word)))
    assert not ko(messages.plain(word))
    with speaking("ko"):
        assert ko(messages.plain(word))
        assert messages.plain((word, 12_345)) == f"{messages.plain(word)}, 12,345"
        assert messages.said(word) == messages.plain(word)
        assert messages.said(word[:]) == str.__str__(word)  # any other value as it is


def test_words_inside_sentences_are_in_the_language_of_their_reader() -> None:
    """Kinds, reasons and amounts that errors and notes carry, not only the sentence around them."""
    from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue

    with speaking("ko"):
        for error, foreign in (
            (UnsupportedModel("kind_not_in_engine", field="engine", kind=state_word("mamba"), engine="vllm", version="0.33"), "state"),
            (UnsupportedModel("quantized_full_only", kinds=(kind_word("state"), kind_word("cross")), field=""), "state,"),
            (UnsupportedValue("not_a_list", field="a", value="1", kind=type_word("int")), "whole"),
            (InvalidInput("degree_not_dividing", field="pp", value=3, whole=32, name=Word("layers", "word.layers")), "layers"),
        ):
            assert ko(error.message)
            assert foreign not in error.message
    with pytest.raises(InvalidInput) as refused:
        mix.from_csv(b"prompt,output\n0,0\n")
    assert refused.value.message.startswith("row 2: ")
    with pytest.raises(InvalidInput) as unknown:
        answer("fly", "catalog:Llama-3.1-8B", {})
    assert unknown.value.hint == "Commands are read, kv, plan."


def test_every_name_of_a_kind_has_its_word() -> None:
    for name in ("full", "window", "chunk", "latent", "index", "state", "cross", "shared", "none"):
        assert messages.known(kind_word(name).code)
    for name in get_args(LineKind):
        assert messages.known(known_word(name).code)


def test_a_formula_and_a_ledger_have_no_english_word_in_korean() -> None:
    p = made()
    with speaking("ko"):
        said = render_text("plan", plan_json(p))
        lines = [line.text for line in p.footprint.formula]
        flat_rows = dict(flat({"bound": "cache", "binding": "memory", "other": "cache"}))
    assert not re.search(r"bytes|measured|derived|documented|assumed", said + " ".join(lines))
    assert flat_rows[KOREAN["report.key.bound"]] == KOREAN["page.serve.part.cache"]
    assert flat_rows[KOREAN["report.key.binding"]] == KOREAN["page.serve.limit.memory"]
    assert flat_rows["other"] == "cache"


def test_every_letter_of_a_korean_pdf_has_its_glyph() -> None:
    """The corner of the heat map and the foot of the page too, which are drawn outside of paragraphs."""
    with speaking("ko"):
        data = render_report(made(), "pdf", PROVENANCE, created="2026-01-02")
    pages = [p.extract_text() for p in pypdf.PdfReader(io.BytesIO(data)).pages]
    assert KOREAN["report.heat.corner"] in pages[0]
    for n, text in enumerate(pages, 1):
        assert f"{len(pages)}\ucabd" in re.sub(r"\s", "", text), n
        assert "\u25a0" not in text

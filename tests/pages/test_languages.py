"""The whole interface speaks the reader's language: no sentence beside the catalogue, the same numbers in each."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from planner import messages
from tests.pages.conftest import fresh
from tests.pages.test_address import PAGES
from tests.pages.texts import texts

SENTENCE = re.compile(r"[A-Za-z]{2,}[,;]? [a-z]{2,}[,;]? [a-z]{2,}[,;]? [a-z]{2,}")
MARK = "\N{HANGUL SYLLABLE GA}"
HANGUL = re.compile("[\uac00-\ud7a3]")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
DATA = ("codeText", "placeholder", "html.body", ".cell")  # engine logs, examples, style sheets, citations
# Three words of English in a row, and where they may stand: the reviewed list. Citations are in the column of sources, and are data.
RUN = re.compile(r"(?<![\w`{<=/.-])[A-Za-z][a-z']+(?:[,;:]? [A-Za-z][a-z']+){2,}")
ENGLISH_NAMES = {
    "Jetson Orin Nano Super", "one of four",  # devices of the table
    "inherit; color: inherit; background: transparent; border",  # a form's style
}  # fmt: skip
CITED = ("html.body", "codeText", "placeholder", "table.cell")
QUERIES = [{}, {"model": "DeepSeek-V3", "gpus": "8", "tp": "8", "engine": "sglang"}, {"sequences": "900"}]


@pytest.mark.parametrize("page", PAGES)
def test_every_sentence_of_a_page_is_in_the_catalogue(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a language whose texts all carry a mark, nothing that reads like a sentence is without it."""
    real = messages.table
    marked = {code: MARK + text for code, text in real(messages.ENGLISH).items()}
    monkeypatch.setattr(messages, "table", lambda code: marked if code == "ko" else real(code))
    for query in QUERIES:
        at = fresh(lang="ko", **query).switch_page(page).run()
        assert not at.exception
        found = list(texts(at))
        assert sum(MARK in t for _, t in found) > 20
        assert [(w, t) for w, t in found if MARK not in t and SENTENCE.search(t) and not w.endswith(DATA)] == []


@pytest.mark.parametrize("page", ["plan.py", "serve.py", "learn.py", "compare.py"])
def test_a_korean_page_has_no_english_sentence(page: str) -> None:
    """With the real texts: words that code puts into them, captions, choices and charts too."""
    assert RUN.search("KV cache of the load")
    for query in QUERIES:
        at = fresh(lang="ko", **query).switch_page(page).run()
        assert not at.exception
        found = [(where, uncited(t)) for where, t in texts(at) if not where.endswith(CITED)]
        assert sum(bool(HANGUL.search(t)) for _, t in found) > 20
        assert [(w, r) for w, t in found for r in RUN.findall(t) if r not in ENGLISH_NAMES] == []


def uncited(text: str) -> str:
    """A table's rows without their last cell where that column is of sources."""
    lines = text.splitlines()
    if lines and lines[0].startswith("|") and messages.table("ko")["page.column.source"] in lines[0].rsplit("|", 2)[-2]:
        return "\n".join(line.rsplit(" | ", 1)[0] for line in lines)
    return text


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_the_same_in_every_language(page: str) -> None:
    counted = {}
    for code in messages.languages():
        at = fresh(lang=code).switch_page(page).run()
        assert not at.exception
        assert at.selectbox(key="lang").value == code
        counted[code] = Counter(n for where, t in texts(at) if not where.endswith("html.body") for n in NUMBER.findall(t))
    english = counted.pop(messages.ENGLISH)
    assert sum(english.values()) > 30
    for code, numbers in counted.items():
        assert numbers == english, code


def test_the_choice_is_kept_in_the_address() -> None:
    at = fresh()
    assert at.selectbox(key="lang").value == "en"
    at.selectbox(key="lang").set_value("ko").run()
    assert at.query_params["lang"] in ("ko", ["ko"])
    assert at.header[0].value == messages.table("ko").get("page.plan.question", at.header[0].value)


def test_a_wrong_language_is_english() -> None:
    at = fresh(lang="../../etc")
    assert not at.exception
    assert at.selectbox(key="lang").value == "en"

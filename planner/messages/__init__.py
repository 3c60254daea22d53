"""Every sentence that the product says, by code, in the language of the reader.

English is written in Python beside the code (`en.py` and the subjects it joins). Every other language is one file of this folder, `CODE.toml`: a table
of the same codes, with `"language.name"`, its own name, in the first line. A code that it lacks is said in English.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

ENGLISH = "en"
VARIABLE = "KVLEDGER_LANGUAGE"  # of a command line, and of the children that it or the app starts
FOLDER = Path(__file__).parent
_chosen: ContextVar[str | None] = ContextVar("language", default=None)
_elsewhere: list[Callable[[], str | None]] = []  # how the app finds its reader's choice; functions of ours, no reader's data


@cache
def languages() -> dict[str, str]:
    """Code -> the language's own name, English first. First lines of the files alone: a table is read when it is spoken."""
    names = {ENGLISH: "English"}
    for path in sorted(FOLDER.glob("*.toml")):
        with path.open(encoding="utf-8") as f:
            names[path.stem] = f.readline().partition("=")[2].strip().strip('"')
    return names


@cache
def table(language: str) -> Mapping[str, str]:
    """The texts of `language` by code. Raises FileNotFoundError for one that is not there."""
    if language == ENGLISH:
        from planner.messages import en

        return en.TEXT
    import tomllib

    with (FOLDER / f"{language}.toml").open("rb") as f:
        return tomllib.load(f)


def language() -> str:
    """What is spoken here: of `speaking`, else what `listen` finds, else what the environment names, else English."""
    code = _chosen.get() or next((found for ask in _elsewhere if (found := ask())), None) or os.environ.get(VARIABLE, ENGLISH)
    return code if code == ENGLISH or code in languages() else ENGLISH


def listen(ask: Callable[[], str | None]) -> None:
    """`ask` says the reader's language, or None where it knows none; the app's pages give it once."""
    if ask not in _elsewhere:
        _elsewhere.append(ask)


def choose(code: str | None) -> None:
    """What is spoken in this thread or task from now on; None: as before any choice."""
    _chosen.set(code)


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """Everything within is said in `code`, in this thread or task."""
    token = _chosen.set(code)
    try:
        yield
    finally:
        _chosen.reset(token)


def render(code: str, args: Mapping[str, Any] | None = None) -> str:
    """The text of `code` with `args` filled in. An unknown code is a fault of ours and raises KeyError (a test finds it)."""
    spoken = language()
    text = table(spoken).get(code) or table(ENGLISH)[code]
    return text.format(**{k: plain(v) for k, v in (args or {}).items()})


def known(code: str) -> bool:
    """Whether there is a text of this code."""
    return code in table(ENGLISH)


class Word(str):
    """A value that readers see as a word of the catalogue: as data it stays what it is ("latent"), in a text it is the text of `code`."""

    code: str
    args: Mapping[str, Any]

    def __new__(cls, value: str, code: str = "", **args: Any) -> Word:
        word = super().__new__(cls, value)
        word.code, word.args = code, args
        return word


def kind_word(kind: str) -> Word:
    """What a layer keeps (full, window, latent, ...), as a word."""
    return Word(kind, f"page.layers.kind.{kind}")


def state_word(mechanism: str) -> Word:
    """A state by the mechanism that it is of, which may be nameless."""
    return Word(f"state {mechanism}", "word.cache.state", mechanism=mechanism) if mechanism else kind_word("state")


def type_word(name: str) -> Word:
    """What an entry of a list should be (int, str, ...), as a word."""
    return Word(name, f"word.type.{name}")


def phase_word(name: str) -> Word:
    """What a probe is busy with, as a word."""
    return Word(name, f"word.phase.{name}")


def known_word(kind: str) -> Word:
    """How a figure is known (measured, documented, ...), as a word."""
    return Word(kind, f"word.known.{kind}")


def said(value: Any) -> Any:
    """`value` as readers see it: a `Word` in their language, all else as it is."""
    return render(value.code, value.args) if isinstance(value, Word) and known(value.code) else value


def plain(value: Any) -> str:
    """One argument of a text: a `Word` in the reader's language, several with commas, and whole numbers of five digits and more with
    thousands separators."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    if isinstance(value, Word):
        return str(said(value))
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}" if abs(value) >= 10_000 else str(value)

"""Every sentence that the product says, by code. English first; another language is another table with the same codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.messages import en

LANGUAGES: dict[str, dict[str, str]] = {"en": en.TEXT}


def render(code: str, args: Mapping[str, Any] | None = None, language: str = "en") -> str:
    """The text of `code` with `args` filled in. An unknown code is a fault of ours and raises KeyError (a test finds it)."""
    text = LANGUAGES[language][code]
    return text.format(**{k: plain(v) for k, v in (args or {}).items()})


def plain(value: Any) -> str:
    """One argument of a text: whole numbers of five digits and more get thousands separators."""
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}" if abs(value) >= 10_000 else str(value)

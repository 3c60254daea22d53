"""Fonts of the PDF. Western text is set in Helvetica, which every reader has; Hangul and the like in a font of this machine, whose used
letters go into the file, or by the name of a font that PDF readers replace by their own. No font is shipped, none is fetched.

Looked for: the file that KVLEDGER_FONT names, then Korean fonts with TrueType outlines in the usual folders. Letters that no font has are
printed as "?".
"""

from __future__ import annotations

import os
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from xml.sax.saxutils import escape

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFError, TTFont

from planner import environment

REGULAR, BOLD, MONO = "Helvetica", "Helvetica-Bold", "Courier"
EMBEDDED = "kvledger-hangul"
BY_NAME = "HYGothic-Medium"  # Adobe-Korea1: readers put in a Korean font of their own
FILES = (
    "NanumGothic.ttf", "NanumBarunGothic.ttf", "NotoSansKR-Regular.ttf", "malgun.ttf", "AppleGothic.ttf", "Arial Unicode.ttf", "UnDotum.ttf",
    "Pretendard-Regular.ttf", "baekmuk-dotum.ttf", "DroidSansFallbackFull.ttf", "unifont.ttf",
)  # fmt: skip
# Letters that fonts of the Adobe-Korea1 collection have: Jamo, Kana, signs, Han, Hangul, full-width forms.
_KOREAN = ((0x1100, 0x11FF), (0x3000, 0x318F), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF00, 0xFFEF))


def folders() -> tuple[Path, ...]:
    """Where systems keep fonts."""
    if sys.platform == "darwin":
        return Path("/System/Library/Fonts"), Path("/Library/Fonts"), Path.home() / "Library/Fonts"
    if sys.platform == "win32":
        return (Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts",)
    return Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".local/share/fonts", Path.home() / ".fonts"


def candidates() -> list[Path]:
    """Fonts that are there, the wished one first, then in the order of `FILES`."""
    wished = environment.value("KVLEDGER_FONT")
    found: dict[str, Path] = {}
    for folder in folders():
        for root, _, names in os.walk(folder):
            for name in names:
                found.setdefault(name.lower(), Path(root) / name)
    return ([Path(wished)] if wished else []) + [found[name.lower()] for name in FILES if name.lower() in found]


@lru_cache(maxsize=1)
def hangul() -> tuple[str, frozenset[int] | None]:
    """(name of the font for Hangul, the characters it has; None: those of `_KOREAN`). Found once a process, when first needed."""
    for path in candidates():
        try:
            font = TTFont(f"{EMBEDDED}-{zlib.crc32(str(path).encode()):08x}", str(path))  # a name is registered once a process
        except (TTFError, OSError, ValueError, KeyError, IndexError):  # PostScript outlines, a damaged file
            continue
        pdfmetrics.registerFont(font)
        return font.fontName, frozenset(font.face.charToGlyph)
    pdfmetrics.registerFont(UnicodeCIDFont(BY_NAME))
    return BY_NAME, None


def runs(text: str, font: str = REGULAR) -> list[tuple[str, str]]:
    """`text` cut into (font, characters) so that every character has its glyph."""
    if text.isascii():
        return [(font, text)]
    out: list[tuple[str, str]] = []
    for c in text:
        use, c = _placed(c, font)
        if out and out[-1][0] == use:
            out[-1] = (use, out[-1][1] + c)
        else:
            out.append((use, c))
    return out


def _placed(c: str, font: str) -> tuple[str, str]:
    try:
        c.encode("cp1252")
        return font, c
    except UnicodeEncodeError:
        name, has = hangul()
    known = any(low <= ord(c) <= high for low, high in _KOREAN) if has is None else ord(c) in has
    return (name, c) if known else (font, "?")


def marked(text: str, font: str = REGULAR) -> str:
    """`text` as the markup of a paragraph: user text stays text."""
    return "".join(escape(part) if use == font else f'<font name="{use}">{escape(part)}</font>' for use, part in runs(text, font))


def width(text: str, size: float, font: str = REGULAR) -> float:
    """Points that `text` takes on one line."""
    return sum(float(pdfmetrics.stringWidth(part, use, size)) for use, part in runs(text, font))

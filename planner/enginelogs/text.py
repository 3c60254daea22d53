"""Bytes of a log -> one text with known line starts. Bounded, and the same whatever a terminal, a container or an editor added."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from planner.notes import Note, note

MAX_BYTES = 16 * 1024 * 1024  # of a log; an engine's start is over long before
MAX_LINES = 400_000
MAX_ESCAPES = 1_000_000
MAX_NESTED = 100  # brackets in a container's JSON line
MAX_LINE = 20_000  # characters kept of a line: the longest that engines print are their arguments
WRAP_WIDTHS = range(60, 321)  # columns at which a terminal may have broken lines
RAGGED = 15  # columns by which lines broken at blanks fall short
SURE = 4  # lines of one length that go on: no chance of an editor's
MAX_AROUND = 100  # kinds of it that are kept
LIKE = 10  # signs at the beginning of two lines that tell whether both are records of one log

_DIGITS = re.compile(r"\d")

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)?|[@-Z\\^_()#%])")
_CARETS = re.compile(r"(?:\^\[|\\u001b|\\x1b|\\033|#033)\[[0-9;]{0,16}m")  # colours that a copy turned into letters
_BINARY = bytes(c for c in range(32) if chr(c) not in "\t\n\r\x1b") + b"\x7f"
# Full-width letters, digits and signs; hard, narrow and wide blanks; minus signs. Not NFKC, whose sorting of marks is quadratic.
_HARD_BLANKS = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3})")  # between thousands, in some languages
_CODES: dict[int, int | str] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_CODES |= dict.fromkeys((0xA0, 0x2007, 0x2009, 0x202F, 0x3000), " ") | dict.fromkeys((0x2011, 0x2212), "-") | dict.fromkeys((0x85, 0x2028, 0x2029), "\n")
_CODES |= dict.fromkeys((0xFEFF, 0x2060, *range(0x200B, 0x2010), *range(0x202A, 0x202F)), "")  # marks that have no width
_PLAIN = {chr(code): plain if isinstance(plain, str) else chr(plain) for code, plain in _CODES.items()}
# What a paste makes of signs: entities of a page, and breaks of a table's cell.
_ENTITIES = {"&quot;": '"', "&#34;": '"', "&#39;": "'", "&#x27;": "'", "&apos;": "'", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&amp;": "&"}
_BREAKS = re.compile(r"<br ?/?>", re.IGNORECASE)
# What stands before each line and is none of the engine's: the mark of a quote, and what containers, clusters and journals add.
_AROUND = re.compile(
    r"\s{0,8}(?:>\s{0,40}){1,3}(?=\S)|"
    r"\d{4}-\d\d-\d\d[T ][\d:.,+-]{8,30}Z?\s(?:std(?:out|err)\s[FP]\s|\|\s)|"
    r"\[pod/[^\]\s]{1,200}\]\s(?:\d{4}-\d\d-\d\dT[\d:.+-]{8,30}Z?\s(?:std(?:out|err)\s[FP]\s)?)?|"
    r"[A-Za-z]{3,4}\.? [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w.@-]{1,60}(?:\[\d{1,9}\])?: |"
    r"(?:DEFAULT|INFO|ERROR|WARNING) \d{4}-\d\d-\d\dT[\d:.]{8,20}Z \[resource[^\]]{1,120}\] |"
    r"[a-zA-Z][\w.-]{0,60}\s{1,20}\|\s"
)
# How a line of an engine, of a container's or of a system's log begins: what follows a wrapped line does not look like this.
_START = re.compile(
    r"\s{0,8}(?:\(\w{2,30}[ )]|(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\b|\[|\d{4}[-/]\d\d[-/]\d\d|\d\d[-:/]\d\d|\d+\.\d\d\.\d|"
    r"llama_|llm_|ggml_|load_|print_info|"
    r"[\w./-]{1,60}\s*\||time=|\{)"
)


@dataclass(frozen=True, slots=True)
class LogText:
    """`flat`: all lines, stripped, joined with one blank each, so that a wrapped line reads as one. `starts[i]`: where line i + 1 of the log
    begins in it. `around`: what was taken off before the lines, each kind once: it may name the engine."""

    flat: str
    starts: tuple[int, ...]
    notes: tuple[Note, ...] = ()
    around: str = ""

    def line_at(self, position: int) -> int:
        """The number of the line, from 1, that holds this position of `flat`."""
        return max(1, bisect_right(self.starts, position))

    def line(self, number: int) -> str:
        """The text of a line, without the blank that joins it to the next."""
        end = self.starts[number] if number < len(self.starts) else len(self.flat)
        return self.flat[self.starts[number - 1] : end].rstrip()

    def paragraph(self, position: int, most: int) -> str:
        """From `position` to the end of its line, and of the lines after it that look like its continuation, `most` characters at most."""
        number = self.line_at(position)
        while number < len(self.starts) and not _START.match(self.flat, self.starts[number], self.starts[number] + 80):
            if self.starts[number] - position > most:
                break
            number += 1
        end = self.starts[number] if number < len(self.starts) else len(self.flat)
        return self.flat[position : min(end, position + most)]


def log_text(data: bytes | str) -> LogText:
    """The text of a log: UTF-8, UTF-16 or Latin-1; colours, control characters and JSON wrappers of containers taken off."""
    notes: list[Note] = []
    raw = data.encode("utf-8", errors="replace") if isinstance(data, str) else data
    if len(raw) > MAX_BYTES:
        notes.append(note("warning", "log_cut", size=len(raw), kept=MAX_BYTES))
        raw = raw[:MAX_BYTES]
    text = _decoded(raw, notes)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _HARD_BLANKS.sub("_", text)
        for strange, plain in _PLAIN.items():
            if strange in text:
                text = text.replace(strange, plain)
    if "\x1b" in text:
        text = (_ESCAPES.sub("", text) if text.count("\x1b") < MAX_ESCAPES else text).replace("\x1b", "")
    if "^[[" in text or "\\" in text or "#033[" in text:
        text = _CARETS.sub("", text)
    text = _as_written(text)
    lines = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        notes.append(note("warning", "log_lines_cut", kept=MAX_LINES))
    lines = [line if len(line) <= MAX_LINE else line[:MAX_LINE] for line in lines[:MAX_LINES]]
    around: dict[str, None] = {}
    lines = [_unwrapped(line) if line[:1] == "{" else _bare(line, around) for line in lines]
    width = _wrap_width(lines)
    parts: list[str] = []
    starts: list[int] = []
    at, broken = 0, False
    for i, line in enumerate(lines):
        hard = width and len(line) == width and i + 1 < len(lines) and _goes_on(line, lines[i + 1])
        kept = line.rstrip() if broken else line.strip()  # what follows a hard break begins where it was cut
        kept = (line if broken else line.lstrip()) if hard else kept
        joint, broken = "" if hard or not kept else " ", bool(hard)  # a word broken in the middle is whole again
        starts.append(at)
        parts.append(kept + joint)
        at += len(kept) + len(joint)
    return LogText(flat="".join(parts), starts=tuple(starts), notes=tuple(notes), around=" ".join(around))


def _as_written(text: str) -> str:
    """The text before a page or a program quoted it: entities, breaks, and line ends written as letters where they are the only ones."""
    if "&" in text:
        for entity, sign in _ENTITIES.items():
            text = text.replace(entity, sign)
    if "<br" in text or "<BR" in text:
        text = _BREAKS.sub("", text)
    if text.count("\\n") > 2 * text.count("\n"):
        text = text.replace("\\r\\n", "\n").replace("\\n", "\n").replace('\\"', '"')
    return text


def _decoded(raw: bytes, notes: list[Note]) -> str:
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if raw.startswith(mark):
            return _utf16(raw[2:], name, notes)
    head = raw[:4096]
    if head and head.count(0) * 3 > len(head):  # UTF-16 without its mark: every other byte of plain text is 0
        return _utf16(raw, "utf-16-le" if head[1::2].count(0) >= head[::2].count(0) else "utf-16-be", notes)
    if len(head.translate(None, _BINARY)) * 10 < len(head) * 9:  # no text, whatever it is
        notes.append(note("warning", "log_binary"))
        return ""
    return raw.translate(None, _BINARY).removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _utf16(raw: bytes, name: str, notes: list[Note]) -> str:
    notes.append(note("info", "log_encoding", encoding="UTF-16"))
    return raw.decode(name, errors="replace").encode("utf-8", errors="replace").translate(None, _BINARY).decode("utf-8", errors="replace")


def _unwrapped(line: str) -> str:
    """A container's JSON line -> what was logged in it; anything else as it is."""
    if ('"log"' not in line and '"message"' not in line and '"msg"' not in line) or line.count("[") + line.count("{") > MAX_NESTED:
        return line
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(found, dict):
        return line
    for key in ("log", "message", "msg"):
        if isinstance(found.get(key), str):
            rest = f" target={found['target']}" if isinstance(found.get("target"), str) else ""
            return _ESCAPES.sub("", found[key]).replace("\n", " ")[:MAX_LINE] + rest
    fields = found.get("fields")
    if isinstance(fields, dict) and isinstance(fields.get("message"), str):
        return str(fields["message"]).replace("\n", " ")[:MAX_LINE] + f" target={str(found.get('target', ''))[:80]}"
    return line


def _bare(line: str, around: dict[str, None]) -> str:
    """A line without what a quote, a container or a journal put before it, which is added to `around`; and without the box around it."""
    if line[:1] == "\u2502":
        line = line.strip("\u2502 ")
    m = _AROUND.match(line)
    if m is None:
        return line
    if len(around) < MAX_AROUND:
        around[_DIGITS.sub("", m[0])] = None
    return line[m.end() :]


def _wrap_width(lines: list[str]) -> int:
    """The width of the terminal that broke the lines: no line is longer, and several are as long and go on in the next; 0 where none did. An
    editor, which breaks at blanks and keeps none there, leaves most lines a little shorter than its longest."""
    longest = max((len(line) for line in lines), default=0)
    if longest not in WRAP_WIDTHS:
        return 0
    going = [(len(line), line[-1:] == " " or line[:1] != " " == after[:1]) for line, after in pairwise(lines)
             if len(line) > longest - RAGGED and after and _goes_on(line, after)]  # fmt: skip
    broken = [blank for length, blank in going if length == longest]
    sure = len(broken) >= SURE or (len(broken) >= 2 and any(broken))
    return longest if sure and len(broken) > 2 * (len(going) - len(broken)) else 0


def _goes_on(line: str, after: str) -> bool:
    """Whether the second line may be the rest of the first: it does not begin as a line of a log does, nor as the first one begins."""
    return not _START.match(after) and _DIGITS.sub("0", after[:LIKE]) != _DIGITS.sub("0", line[:LIKE])

"""Bytes to one JSON object, safely: every file, upload, paste and download of a config goes through `parse`.

Bounded in size, in nesting and in time, whatever the bytes are. Anything that is not a config is a NotAConfig that says what was found.
Nothing here knows what a config means; that is the readers' work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from planner.errors import NotAConfig
from planner.notes import Note, note
from planner.units import MIB

MAX_BYTES = 4 * MIB
MAX_DEPTH = 64
MAX_DIGITS = 300  # more digits than the largest double has

# First bytes -> the format's own name. GGUF and safetensors have messages of their own.
_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"), (b"\x89PNG", "PNG"), (b"GIF8", "GIF"), (b"PK\x03\x04", "ZIP"), (b"%PDF", "PDF"), (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"), (b"\x80", "pickle"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"7z\xbc\xaf", "7z"), (b"\x7fELF", "ELF"),
    (b"ARROW1", "Arrow"), (b"PAR1", "Parquet"), (b"\x93NUMPY", "NumPy"), (b"\x89HDF", "HDF5"), (b"SQLite format 3", "SQLite"),
)  # fmt: skip
_ENCODING_NAMES = {
    "utf-8-sig": "UTF-8 (BOM)", "utf-16": "UTF-16", "utf-16-le": "UTF-16 LE", "utf-16-be": "UTF-16 BE",
    "utf-32": "UTF-32", "utf-32-le": "UTF-32 LE", "utf-32-be": "UTF-32 BE",
}  # fmt: skip
# A whole string; an unterminated one runs to the end of the text. Possessive: time is linear in the text.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_OPEN_OR_CLOSE = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused:
    """Stands for a literal that JSON readers of other languages refuse, until the key that holds it is known."""

    __slots__ = ("code", "literal")

    def __init__(self, code: str, literal: str) -> None:
        self.code = code
        self.literal = literal


def refuse_format(head: bytes, name: str = "", size: int | None = None) -> None:
    """Refuses what cannot be a config by its first 64 bytes, and by its `size` in bytes where that is known. Raises NotAConfig."""
    if head.startswith(b"GGUF"):
        raise NotAConfig("is_gguf", name=name)
    if head[8:10] in (b'{"', b"{ ", b"{}") and 0 < int.from_bytes(head[:8], "little") < 2**32:
        raise NotAConfig("is_safetensors", name=name)
    for magic, format_ in _MAGIC:
        if head.startswith(magic):
            raise NotAConfig("is_binary", name=name, format=format_)
    if size is not None and size > MAX_BYTES:
        raise NotAConfig("too_large", name=name, size_bytes=size, limit_bytes=MAX_BYTES)


def parse(data: bytes, name: str = "", *, config: bool = True) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The JSON object in `data`, with notes on what was tolerated (encoding, repeated keys). `name` is only for messages.

    With `config` (a model's config.json is wanted) the JSON files that lie beside a config.json are refused by name.

    Raises NotAConfig; its `field` is the dotted key where one value is the trouble (NaN, a number too long).
    >>> parse(b'{"num_hidden_layers": 32}')[0]
    {'num_hidden_layers': 32}
    """
    refuse_format(data[:64], name, len(data))
    text, encoding = _decode(data, name)
    if not text or text.isspace():
        raise NotAConfig("is_empty", name=name)
    start = text.lstrip()[:40]
    if start.startswith("<"):
        raise NotAConfig("is_html", name=name)
    if start.startswith("version https://git-lfs"):
        raise NotAConfig("is_lfs_pointer", name=name)
    _check_depth(text, name)

    repeated: list[str] = []
    odd: list[_Refused] = []
    raw = _loads(text, name, repeated, odd)
    if not isinstance(raw, dict):
        raise NotAConfig("not_an_object", name=name, found=_json_type(raw))
    if odd:
        _open_limits(raw)
    if odd or _SURROGATE_ESCAPE.search(text):
        _refuse_odd_values(raw, name)
    if config:
        _refuse_other_files(raw, name)

    notes: list[Note] = []
    if encoding != "utf-8":
        notes.append(note("info", "decoded_as", encoding=_ENCODING_NAMES.get(encoding, encoding)))
    notes += [note("warning", "repeated_key", field=key, key=key) for key in sorted(set(repeated))[:20]]
    return raw, tuple(notes)


def _decode(data: bytes, name: str) -> tuple[str, str]:
    """Text and the encoding's Python name: UTF-8, or UTF-16/32 with a BOM or by the zero bytes of its first characters."""
    encoding = json.detect_encoding(data) if data else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as e:
        raise NotAConfig("bad_encoding", name=name, encoding=_ENCODING_NAMES.get(encoding, "UTF-8"), position=e.start) from e
    if "\0" in text:
        raise NotAConfig("has_zero_bytes", name=name)
    return text, encoding


def _check_depth(text: str, name: str) -> None:
    """Nesting is counted on the text, before the parser recurses."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    steps = _STRING.sub("", text).encode().translate(_OPEN_OR_CLOSE, _NO_BRACKETS)
    if max(accumulate(map((-1, 0, 1).__getitem__, steps)), default=0) > MAX_DEPTH:
        raise NotAConfig("too_deep", name=name, limit=MAX_DEPTH)


def _loads(text: str, name: str, repeated: list[str], odd: list[_Refused]) -> Any:
    def refused(code: str, literal: str) -> _Refused:
        odd.append(_Refused(code, literal[:40]))
        return odd[-1]

    def constant(literal: str) -> _Refused:
        return refused("not_finite", literal)

    def number(literal: str) -> Any:
        value = float(literal)
        return refused("not_finite", literal) if value in (float("inf"), float("-inf")) else value

    def integer(literal: str) -> Any:
        return refused("number_too_long", literal) if len(literal) > MAX_DIGITS else int(literal)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen and len(repeated) < 1000:
                    repeated.append(key[:80])
                seen.add(key)
        return result

    try:
        return json.loads(text, parse_constant=constant, parse_float=number, parse_int=integer, object_pairs_hook=pairs)
    except json.JSONDecodeError as e:
        rest = text[e.pos :].strip()
        code = "has_trailing_text" if e.msg == "Extra data" else "not_json"
        if not rest or e.msg.startswith("Unterminated string"):
            code = "is_truncated"
        raise NotAConfig(code, name=name, line=e.lineno, column=e.colno, near=_printable(rest[:20])) from e


def _walk(raw: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key and value with its dotted path. Nesting is bounded before."""
    if isinstance(raw, dict):
        for key, value in raw.items():
            where = f"{path}.{key}" if path else key
            yield where, key
            yield from _walk(value, where)
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _walk(value, f"{path}[{index}]")
    else:
        yield path, raw


def _open_limits(raw: dict[str, Any]) -> None:
    """Published Mamba-2 files write `time_step_limit: [0.0, Infinity]`, no upper limit: the only place where Infinity means something."""
    for section in (raw, *(v for v in raw.values() if isinstance(v, dict))):
        limits = section.get("time_step_limit")
        if isinstance(limits, list):
            section["time_step_limit"] = [None if isinstance(v, _Refused) and v.literal == "Infinity" else v for v in limits]


def _refuse_odd_values(raw: dict[str, Any], name: str) -> None:
    for path, value in _walk(raw):
        if isinstance(value, _Refused):
            raise NotAConfig(value.code, field=_printable(path), name=name, literal=_printable(value.literal), limit=MAX_DIGITS)
        if isinstance(value, str) and not _encodable(value):
            raise NotAConfig("bad_character", field=_printable(path), name=name)


def _refuse_other_files(raw: dict[str, Any], name: str) -> None:
    """Files that lie beside a config.json, are JSON objects too, and are given in its place by mistake."""
    if "model_type" in raw or "num_hidden_layers" in raw:
        return
    for code, keys in (
        ("is_weight_index", {"weight_map"}),
        ("is_adapter", {"peft_type"}),
        ("is_quantization_file", {"producer", "quantization"}),
        ("is_tokenizer", {"added_tokens_decoder"}),
        ("is_diffusion_model", {"_diffusers_version"}),
    ):
        if keys <= raw.keys():
            raise NotAConfig(code, field=min(keys), name=name)


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    for type_, word in ((bool, "boolean"), (str, "string"), (list, "array")):
        if isinstance(value, type_):
            return word
    return "number"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    """At most 200 characters, without control characters and lone surrogates: safe to print and to show."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])

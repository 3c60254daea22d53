"""The header of a GGUF file: metadata and tensor table from a stream of bytes, without the weights and without a package for it.

Format and limits: llama.cpp's ggml/src/gguf.cpp (`gguf_init_from_reader`). Versions 2 and 3; version 3 in both byte orders.
Everything is bounded, whatever the bytes are: the header in size, the counts, and what is kept of it. Of a token list only its length is
kept, of numbers and flags up to 4,096 (the lists that say something layer by layer).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.errors import NotAConfig
from planner.ggml import TYPES, elements_of, nbytes
from planner.units import MIB

MAGIC = b"GGUF"
MAX_HEADER = 64 * MIB
PIECE = MIB
MAX_PAIRS, MAX_TENSORS, MAX_DIMS = 10_000, 100_000, 4
MAX_KEY, MAX_NAME = 65_535, 64  # bytes; GGML_MAX_NAME
KEPT_TEXT, KEPT_LIST, KEPT_IN_ALL = 1_000, 4_096, 262_144  # bytes of a text, entries of a list, entries of all lists
MAX_ELEMENTS = 2**50

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9

Read = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """`shape` in the file's own order: the row's length first."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return elements_of(self.shape)

    @property
    def nbytes(self) -> int:
        return nbytes(self.type, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`header_bytes` end with the tensor table, `sha256` is of them; the whole file has `file_bytes`."""

    version: int
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    header_bytes: int
    file_bytes: int
    sha256: str


class _Bytes:
    """A stream read in pieces, with what was taken of it counted and hashed. It keeps one piece, or one text, at a time."""

    def __init__(self, read: Read, name: str) -> None:
        self.read, self.name = read, name
        self.order = "<"
        self.buffer, self.at, self.before = b"", 0, 0
        self.hash = hashlib.sha256()

    @property
    def taken(self) -> int:
        return self.before + self.at

    def more(self, wanted: int) -> None:
        """Makes `wanted` bytes lie in the buffer from `at` on. Raises NotAConfig where the stream or the limit ends before."""
        if self.taken + wanted > MAX_HEADER:
            raise NotAConfig("gguf_too_large", name=self.name, limit_bytes=MAX_HEADER)
        parts, have = [self.buffer[self.at :]], len(self.buffer) - self.at
        while have < wanted:
            piece = self.read(PIECE)
            if not piece:
                raise NotAConfig("gguf_cut", name=self.name, found_bytes=self.taken + have)
            parts.append(piece)
            have += len(piece)
        self.hash.update(self.buffer[: self.at])
        self.buffer, self.before, self.at = b"".join(parts), self.taken, 0

    def take(self, n: int) -> bytes:
        if len(self.buffer) - self.at < n:
            self.more(n)
        self.at += n
        return self.buffer[self.at - n : self.at]

    def skip(self, n: int) -> None:
        while n:
            step = min(n, PIECE)
            self.take(step)
            n -= step

    def number(self, letter: str) -> Any:
        found = struct.unpack(self.order + letter, self.take(struct.calcsize("=" + letter)))[0]
        return _finite(found) if letter in "fd" else found

    def text(self, limit: int) -> str:
        n = self.number("Q")
        if n > limit:
            raise NotAConfig("gguf_long", name=self.name, size=n, limit=limit)
        return self.take(n).decode("utf-8", "replace")

    def skip_texts(self, n: int) -> None:
        """A list of `n` texts. Token lists have hundreds of thousands: no call a text."""
        unpack = struct.Struct(self.order + "Q").unpack_from
        for _ in range(n):
            if len(self.buffer) - self.at < 8:
                self.more(8)
            size = unpack(self.buffer, self.at)[0]
            self.at += 8
            if size > len(self.buffer) - self.at:
                self.long(size)
            else:
                self.at += size

    def long(self, size: int) -> None:
        if self.taken + size > MAX_HEADER:
            raise NotAConfig("gguf_too_large", name=self.name, limit_bytes=MAX_HEADER)
        self.skip(size)

    def digest(self) -> str:
        self.hash.update(self.buffer[: self.at])
        return self.hash.hexdigest()


def read_head(read: Read, name: str = "") -> Head:
    """The header at the start of what `read(n)` gives (at most n bytes a call, none at the end). `name` is only for messages.

    Raises NotAConfig: cut off, broken, of another version, or beyond a limit.
    """
    b = _Bytes(read, name)
    if b.take(4) != MAGIC:
        raise NotAConfig("gguf_magic", name=name)
    version = b.number("I")
    if version and version & 0xFFFF == 0:
        b.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3) or (b.order == ">" and version == 2):
        raise NotAConfig("gguf_version", name=name, version=version)
    tensors, pairs = b.number("Q"), b.number("Q")
    for what, count, limit in (("tensor_count", tensors, MAX_TENSORS), ("metadata_kv_count", pairs, MAX_PAIRS)):
        if count > limit:
            raise NotAConfig("gguf_count", field=what, name=name, count=count, limit=limit)
    metadata = _metadata(b, pairs)
    table, size = _tensors(b, tensors, _alignment(metadata, name))
    return Head(version=version, metadata=metadata, tensors=table, header_bytes=b.taken, file_bytes=size, sha256=b.digest())


def _metadata(b: _Bytes, pairs: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    room = KEPT_IN_ALL
    for _ in range(pairs):
        key = b.text(MAX_KEY)
        if not key:
            raise NotAConfig("gguf_nameless", name=b.name)
        if key in found:
            raise NotAConfig("gguf_repeated", field=_plain(key), name=b.name)
        kind = b.number("I")
        found[key] = _list(b, key, room) if kind == _LIST else _value(b, key, kind)
        room -= len(found[key]) if isinstance(found[key], list) else 0
    return found


def _value(b: _Bytes, key: str, kind: int) -> Any:
    if kind == _TEXT:
        size = b.number("Q")
        if size <= KEPT_TEXT:
            return b.take(size).decode("utf-8", "replace")
        b.long(size)
        return {"bytes": size}
    if kind not in _NUMBERS:
        raise NotAConfig("gguf_value_type", field=_plain(key), name=b.name, number=kind)
    return b.number(_NUMBERS[kind])


def _list(b: _Bytes, key: str, room: int) -> Any:
    """The entries of a short list of numbers, else only the length: {"length": n}. Lists in lists are no GGUF."""
    kind, n = b.number("I"), b.number("Q")
    if kind == _TEXT:
        if n * 8 > MAX_HEADER:
            raise NotAConfig("gguf_count", field=_plain(key), name=b.name, count=n, limit=MAX_HEADER // 8)
        b.skip_texts(n)
        return {"length": n}
    if kind not in _NUMBERS:
        raise NotAConfig("gguf_value_type", field=_plain(key), name=b.name, number=kind)
    letter = _NUMBERS[kind]
    if n <= min(KEPT_LIST, room):
        data = b.take(n * struct.calcsize("=" + letter))
        return [_finite(v) if letter in "fd" else v for v in struct.unpack(f"{b.order}{n}{letter}", data)]
    b.long(n * struct.calcsize("=" + letter))
    return {"length": n}


def _tensors(b: _Bytes, count: int, alignment: int) -> tuple[tuple[Tensor, ...], int]:
    """The table, and the size of the whole file that it describes. Offsets must follow each other without a gap, as GGML asks."""
    found: dict[str, Tensor] = {}
    end = 0
    for _ in range(count):
        name = b.text(MAX_NAME)
        if name in found:
            raise NotAConfig("gguf_repeated", field=_plain(name), name=b.name)
        dims = b.number("I")
        if dims > MAX_DIMS:
            raise NotAConfig("gguf_dims", field=_plain(name), name=b.name, dims=dims, limit=MAX_DIMS)
        shape = tuple(b.number("Q") for _ in range(dims))
        number, offset = b.number("I"), b.number("Q")
        if number not in TYPES:
            raise NotAConfig("gguf_tensor_type", field=_plain(name), name=b.name, number=number)
        if elements_of(shape) > MAX_ELEMENTS or (shape and shape[0] % TYPES[number][1]):
            raise NotAConfig("gguf_shape", field=_plain(name), name=b.name, shape=shape_text(shape), type=TYPES[number][0])
        if offset != end:
            raise NotAConfig("gguf_offset", field=_plain(name), name=b.name, offset=offset, expected=end)
        found[name] = Tensor(name=name, type=TYPES[number][0], shape=shape)
        end += -(-found[name].nbytes // alignment) * alignment
    start = -(-b.taken // alignment) * alignment if count else b.taken
    return tuple(found.values()), start + end


def _alignment(metadata: dict[str, Any], name: str) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or value < 1 or value & (value - 1) or value > MIB:
        raise NotAConfig("gguf_alignment", field="general.alignment", name=name, value=str(value)[:40])
    return value


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _finite(value: float) -> Any:
    """JSON has no NaN and no infinity: they are kept as words, which no integer key accepts."""
    return value if math.isfinite(value) else repr(value)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:80])

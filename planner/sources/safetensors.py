"""The stored bytes of a checkpoint from the headers of its safetensors files: names, dtypes and offsets, never the weights.

A header is eight bytes of length and a JSON object: tensor -> dtype, shape, data_offsets (huggingface/safetensors README, "Format"). Every
tensor's offsets must fit its dtype and shape; what does not is told in a note, and the weights then count as not known.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from planner.notes import Note, note
from planner.units import MIB

MAX_HEADER = 64 * MIB  # the format's own limit is 100 MB, the largest published header has about 15
MAX_INDEX = MAX_HEADER
MAX_FILES = 4_000
MAX_HEADERS = 4 * MAX_HEADER  # of all files together
INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"[\w.+=-]{1,200}\.safetensors")
_BIN = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")
Read = Callable[[int], bytes]


class BadHeader(ValueError):
    """Not a safetensors header, or one that contradicts itself. The text is a word for a message."""


def header_elements(read: Read, size: int | None) -> tuple[dict[str, int], int, int]:
    """(stored elements by dtype, bytes of all tensors, bytes of the header) of one file. `read`: the next n bytes; `size`: of the file,
    where it is known. Raises BadHeader."""
    from planner.weights import HEADER_BITS

    head = read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not 2 <= length <= MAX_HEADER or (size is not None and length + 8 > size):
        raise BadHeader("length")
    text = read(length)
    if len(text) < length:
        raise BadHeader("length")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BadHeader("JSON") from e
    if not isinstance(raw, dict):
        raise BadHeader("JSON")
    elements: dict[str, int] = {}
    total, last = 0, 0
    for name, tensor in raw.items():
        if name == "__metadata__":
            continue
        dtype, count, begin, end = _tensor(tensor)
        if dtype not in HEADER_BITS:
            raise BadHeader(f"dtype {dtype}"[:40])
        if end - begin != -(-HEADER_BITS[dtype] * count // 8):
            raise BadHeader("data_offsets")
        elements[dtype] = elements.get(dtype, 0) + count
        total, last = total + end - begin, max(last, end)
    if total != last or (size is not None and size < 8 + length + last):  # no gaps, no overlap, nothing missing at the end
        raise BadHeader("data_offsets")
    return elements, total, length


def _tensor(tensor: Any) -> tuple[str, int, int, int]:
    """(dtype, elements, first byte, byte behind the last)."""
    if not isinstance(tensor, dict):
        raise BadHeader("tensor")
    dtype, shape, offsets = tensor.get("dtype"), tensor.get("shape"), tensor.get("data_offsets")
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2 or len(shape) > 16:
        raise BadHeader("tensor")
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**53 for n in (*shape, *offsets)):
        raise BadHeader("tensor")
    count = 1
    for n in shape:
        count *= n
    return dtype, count, offsets[0], offsets[1]


def total_size(head: bytes) -> int | None:
    """`metadata.total_size` of a weight index, from its first bytes."""
    found = re.search(rb'"total_size"\s*:\s*(\d{1,18})(?:\.0)?\s*[,}]', head)
    return int(found[1]) or None if found is not None else None


# -- a folder ------------------------------------------------------------------------------------------------------------


def folder_facts(path: Path) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Facts for the provenance: `weight_bytes`, `safetensors_parameters` (elements by dtype), `weight_files`. Nothing where the folder
    holds no weights. Never raises: what cannot be read is a note."""
    try:
        with os.scandir(path) as entries:
            names = [e.name for e in islice(entries, MAX_FILES + 1)]
        wanted, index_total = _shards(path, names)
        if not wanted:
            return _pickled(path, names)
        missing = [n for n in wanted if n not in names]
        if missing:
            count, name = len(missing), missing[0][:120]
            if index_total:
                return {"weight_bytes": index_total}, (note("derived", "weights_by_index", field=INDEX, count=count, name=name),)
            return {}, (note("warning", "weights_shards_missing", field=INDEX, count=count, name=name),)
    except (OSError, ValueError, RecursionError):
        return {}, ()
    elements: dict[str, int] = {}
    total = headers = 0
    for name in wanted:
        try:
            found, size, length = _of_file(path / name)
            headers += length
            if headers > MAX_HEADERS:
                raise BadHeader("length")
        except (OSError, BadHeader) as e:
            reason = str(e) if isinstance(e, BadHeader) else "-"
            return {}, (note("warning", "weights_header_unread", field=name[:120], name=name[:120], reason=reason),)
        total += size
        for dtype, n in found.items():
            elements[dtype] = elements.get(dtype, 0) + n
    if not total:
        return {}, ()
    facts = {"weight_bytes": total, "safetensors_parameters": elements, "weight_files": len(wanted)}
    return facts, (note("derived", "weights_by_headers", field="safetensors", count=len(wanted)),)


def _shards(path: Path, names: Iterable[str]) -> tuple[list[str], int | None]:
    """The files that make up the checkpoint: those of the index, else all but the maker's own copy (consolidated) and adapters."""
    names = set(names)
    if INDEX in names:
        data = _bounded(path / INDEX, MAX_INDEX)
        raw = json.loads(data)
        shards = raw.get("weight_map") if isinstance(raw, dict) else None
        if isinstance(shards, dict):
            found = {s for s in shards.values() if isinstance(s, str) and _SHARD.fullmatch(s)}
            if found and len(found) <= MAX_FILES:
                return sorted(found), total_size(data)
    found = {n for n in names if n.endswith(".safetensors") and not n.startswith(("adapter", "consolidated", "."))}
    return sorted(found or {n for n in names if n.startswith("consolidated") and n.endswith(".safetensors")})[:MAX_FILES], None


def _pickled(path: Path, names: Iterable[str]) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """pytorch_model.bin: the files' sizes, which hold a little more than the tensors."""
    files = sorted(n for n in names if _BIN.fullmatch(n))
    promised = re.search(r"-of-(\d{5})", files[0]) if files else None
    if not files or (promised is not None and int(promised[1]) != len(files)):
        return {}, ()
    sizes = [(path / n).stat() for n in files]
    if not all(stat.S_ISREG(s.st_mode) and s.st_size > 10_000 for s in sizes):  # less is a pointer to a file that is not here
        return {}, ()
    total = sum(s.st_size for s in sizes)
    return {"weight_bytes": total, "weight_files": len(files)}, (note("assumed", "weights_by_file_size", field="pytorch_model.bin", count=len(files)),)


def _of_file(path: Path) -> tuple[dict[str, int], int, int]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadHeader("-")
    with path.open("rb") as file:
        return header_elements(file.read, status.st_size)


def _bounded(path: Path, limit: int) -> bytes:
    if not path.is_file():
        raise ValueError
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError
    return data

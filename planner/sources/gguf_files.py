"""GGUF files as sources: one file, the parts of a split one, an upload that may be cut behind its header. What comes out is a config.

The raw config is JSON-able and small: ``{"model_type": "gguf", "gguf_version": 3, "metadata": {...}, "tensors": {...}}``. Equal tensors
of many layers are one row of the table, their layers as a range: ``"blk.0-31.attn_k.weight": "Q8_0 4096x1024"``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from planner.errors import NotAConfig, SourceError
from planner.notes import Note, note
from planner.sources.gguf import Head, Read, Tensor, read_head, shape_text

MODEL_TYPE = "gguf"
MAX_PARTS = 1_000
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(.+)")
_SIDE_FILES = ("mmproj", "imatrix", "mtp-", "ggml-vocab")  # projectors, calibration, drafts, vocabularies: beside a model, not the model


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """`raw`: the config; `facts` for provenance: `weight_bytes` of all tensors where no part is missing."""

    raw: dict[str, Any]
    facts: dict[str, Any]
    notes: tuple[Note, ...]


def is_gguf_name(name: str) -> bool:
    return name.lower().endswith(".gguf")


def parts_of(name: str) -> list[str]:
    """The names of all parts of a split file, of whatever part `name` is; of an ordinary file its own name."""
    found = _PART.fullmatch(name)
    if found is None or not 0 < int(found[3]) <= MAX_PARTS:
        return [name]
    return [f"{found[1]}-{i:05}-of-{found[3]}{found[4]}" for i in range(1, int(found[3]) + 1)]


def models_among(names: Iterable[str]) -> list[str]:
    """The models among file names: each once, a split one by its first part; projectors and the like left out."""
    ggufs = [n for n in names if is_gguf_name(n) and not n.rsplit("/", 1)[-1].lower().startswith(_SIDE_FILES)]
    return sorted({parts_of(n)[0] for n in ggufs})


def load_stream(read: Read, name: str, *, size: int | None = None) -> GgufFile:
    """One file; a part of a split one stands alone, its notes saying so. `size`: of the file in bytes, where known.

    Raises NotAConfig (planner.sources.gguf)."""
    head = read_head(read, name)
    return _file([head], [size] if size is not None else [])


def load_parts(names: list[str], open_part: Callable[[str], tuple[Read, int | None]]) -> GgufFile:
    """All parts of a split file, opened one after the other. Raises NotAConfig and what `open_part` raises."""
    heads, sizes = [], []
    for part in names:
        read, size = open_part(part)
        heads.append(read_head(read, part.rsplit("/", 1)[-1]))
        sizes += [] if size is None else [size]
    count = heads[0].metadata.get("split.count")
    if len(heads) > 1 and count != len(heads):
        raise NotAConfig("gguf_split_count", field="split.count", name=names[0].rsplit("/", 1)[-1], count=str(count)[:20], parts=len(heads))
    return _file(heads, sizes)


def _file(heads: list[Head], sizes: list[int]) -> GgufFile:
    tensors: dict[str, Tensor] = {}
    for t in (t for head in heads for t in head.tensors):
        if t.name in tensors:
            raise NotAConfig("gguf_repeated_parts", field=t.name[:80])
        tensors[t.name] = t
    first = heads[0]
    raw = {"model_type": MODEL_TYPE, "gguf_version": first.version, "metadata": first.metadata, "tensors": compact(tensors.values())}
    promised = first.metadata.get("split.tensors.count")
    whole = promised is None or promised == len(tensors)
    if len(heads) > 1 and not whole:
        raise SourceError("gguf_tensors_missing", field="source", found=len(tensors), promised=str(promised)[:20])
    facts: dict[str, Any] = {"header_bytes": sum(h.header_bytes for h in heads), "sha256": first.sha256, "sha256_of": "header", "parts": len(heads)}
    notes: tuple[Note, ...] = ()
    if whole:
        facts["weight_bytes"] = sum(t.nbytes for t in tensors.values())
    missing = sum(h.file_bytes for h in heads) - sum(sizes)
    if len(sizes) == len(heads) and missing > 0:
        notes = (note("info", "gguf_header_only", missing=missing),)
    return GgufFile(raw=raw, facts=facts, notes=notes)


def compact(tensors: Iterable[Tensor]) -> dict[str, str]:
    """The table with one row for equal tensors of many layers, in the order of first appearance."""
    rows: dict[tuple[str, str], list[int]] = {}
    for t in tensors:
        found = _BLOCK.fullmatch(t.name)
        value = f"{t.type} {shape_text(t.shape)}".rstrip()
        rows.setdefault((found[2] if found else "\0" + t.name, value), []).append(int(found[1]) if found else -1)
    return {name[1:] if name[0] == "\0" else f"blk.{ranges(where)}.{name}": value for (name, value), where in rows.items()}


def ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 -> "0-2,5"."""
    out: list[list[int]] = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in out)


def name_of(raw: dict[str, Any], given: str) -> str:
    """What the model is called: the file's name, which tells its quantization too, without part and ending; else general.name."""
    found = _PART.fullmatch(given)
    stem: str = found[1] if found else given[:-5] if is_gguf_name(given) else given
    name = raw["metadata"].get("general.name")
    return stem.strip() or (name.strip() if isinstance(name, str) else "") or "GGUF"

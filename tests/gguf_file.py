"""GGUF headers written by hand, for tests: any metadata, any table, either byte order, and broken in chosen places.

tests/gguf/*.json are headers as the reader keeps them: made by llama.cpp's own converter (ggml 0.25.3) from models of tests/configs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from planner.ggml import TYPES, nbytes
from planner.sources.gguf_files import ranges
from tests.conftest import ROOT

HEADS = ROOT / "tests" / "gguf"
NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
ALIGNMENT = 32


def head(name: str) -> dict[str, Any]:
    """A saved header as a config."""
    found: dict[str, Any] = json.loads((HEADS / f"{name}.json").read_text())
    return found


def names() -> list[str]:
    return sorted(path.stem for path in HEADS.glob("*.json"))


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def value(v: Any, order: str = "<") -> bytes:
    """The type and the value as llama.cpp's converter chooses them. {"length": n}: a list of n texts."""
    if isinstance(v, bool):
        return struct.pack(order + "I?", 7, v)
    if isinstance(v, int):
        kind, letter = (4, "I") if 0 <= v < 2**32 else (5, "i") if -(2**31) <= v < 0 else (10, "Q")
        return struct.pack(order + "I" + letter, kind, v)
    if isinstance(v, float):
        return struct.pack(order + "If", 6, v)
    if isinstance(v, str):
        return struct.pack(order + "I", 8) + text(v, order)
    if isinstance(v, Mapping):
        return struct.pack(order + "IIQ", 9, 8, v["length"]) + text("t", order) * v["length"]
    kind, letter = (7, "?") if isinstance(v[0], bool) else (5, "i") if isinstance(v[0], int) else (6, "f")
    return struct.pack(order + "IIQ", 9, kind, len(v)) + struct.pack(f"{order}{len(v)}{letter}", *(float(x) if kind == 6 else x for x in v))


def table(rows: Mapping[str, str]) -> list[tuple[str, str, tuple[int, ...]]]:
    """The rows of a config, one tensor each."""
    out = []
    for key, row in rows.items():
        kind, _, shape = row.partition(" ")
        dims = tuple(int(n) for n in shape.split("x")) if shape else ()
        first, blk, rest = key.partition("blk.")
        if not blk or first:
            out.append((key, kind, dims))
            continue
        where, _, rest = rest.partition(".")
        for part in where.split(","):
            low, _, high = part.partition("-")
            out += [(f"blk.{i}.{rest}", kind, dims) for i in range(int(low), int(high or low) + 1)]
    return out


def gguf(metadata: Mapping[str, Any], tensors: Iterable[tuple[str, str, tuple[int, ...]]] = (), order: str = "<", version: int = 3) -> bytes:
    """The header of a file: all that is read of it."""
    tensors = list(tensors)
    out = b"GGUF" + struct.pack(order + "IQQ", version, len(tensors), len(metadata))
    out += b"".join(text(k, order) + value(v, order) for k, v in metadata.items())
    offset = 0
    for name, kind, shape in tensors:
        out += text(name, order) + struct.pack(f"{order}I{len(shape)}QIQ", len(shape), *shape, NUMBERS[kind], offset)
        offset += -(-nbytes(kind, shape) // ALIGNMENT) * ALIGNMENT
    return out


def of(raw: Mapping[str, Any], order: str = "<", version: int = 3) -> bytes:
    """A config as the file that it was read from."""
    return gguf(raw["metadata"], table(raw["tensors"]), order, version)


def llama(layers: int = 2, kind: str = "Q4_K", **changes: Any) -> dict[str, Any]:
    """A small Llama as a config, quantized; `changes` with __ for a dot: attention__head_count_kv=4. None takes a key away."""
    metadata: dict[str, Any] = {
        "general.architecture": "llama", "general.name": "tiny", "llama.block_count": layers, "llama.context_length": 4096, "llama.embedding_length": 1024,
        "llama.feed_forward_length": 2816, "llama.attention.head_count": 16, "llama.attention.head_count_kv": 4, "tokenizer.ggml.tokens": {"length": 7},
    }  # fmt: skip
    for key, v in changes.items():
        metadata[f"llama.{key.replace('__', '.')}"] = v
    where = ranges(list(range(layers)))
    tensors = {
        "token_embd.weight": "F16 1024x32000", "output.weight": "Q6_K 1024x32000", f"blk.{where}.attn_q.weight": f"{kind} 1024x1024",
        f"blk.{where}.attn_k.weight": f"{kind} 1024x256", f"blk.{where}.attn_v.weight": "Q6_K 1024x256", f"blk.{where}.attn_norm.weight": "F32 1024",
        f"blk.{where}.attn_output.weight": f"{kind} 1024x1024", f"blk.{where}.ffn_gate.weight": f"{kind} 1024x2816",
        f"blk.{where}.ffn_up.weight": f"{kind} 1024x2816", f"blk.{where}.ffn_down.weight": f"{kind} 2816x1024", "output_norm.weight": "F32 1024",
    }  # fmt: skip
    return {"model_type": "gguf", "gguf_version": 3, "metadata": {k: v for k, v in metadata.items() if v is not None}, "tensors": tensors}

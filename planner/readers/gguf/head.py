"""What a GGUF's metadata says in the terms that all architectures share: layers, heads, head sizes, windows (llama.cpp `load_hparams`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import MissingField, UnsupportedValue
from planner.messages import type_word
from planner.notes import Note, cite, note
from planner.readers.fields import MAX_TOKENS, MAX_WIDTH, Fields
from planner.readers.gguf.table import Arch, Windows
from planner.readers.gguf.tensors import Table

MAX_BLOCKS = 512  # LLAMA_MAX_LAYERS
SOURCE = cite("llama.cpp src/llama-model.cpp and src/models/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The metadata of one model. `layers` leaves out the draft layers behind the stack; `q`, `kv`, `ff` layer by layer; `windowed`: which
    layers have the window. Sizes are in elements, `full` and `near`: (K, V) head sizes of full and of windowed layers."""

    meta: Fields
    arch: str
    row: Arch
    table: Table
    layers: int
    drafts: int
    hidden: int
    q: list[int]
    kv: list[int]
    ff: list[int]
    full: tuple[int, int]
    near: tuple[int, int]
    window: int | None
    windowed: list[bool]
    notes: tuple[Note, ...]

    def key(self, suffix: str) -> str:
        return f"{self.arch}.{suffix}"

    def need(self, suffix: str, low: int = 1, high: int = MAX_WIDTH) -> int:
        return self.meta.need_int(self.key(suffix), low=low, high=high)

    def maybe(self, suffix: str, low: int = 0, high: int = MAX_WIDTH) -> int | None:
        return scalar(self.meta, self.key(suffix), low, high)

    def marks(self, suffix: str) -> list[bool] | None:
        """A list of flags, one a layer of the stack (draft layers may follow)."""
        return marks(self.meta, self.key(suffix), self.layers)

    def some(self, values: list[int]) -> int:
        """The one value that is not zero in a list of layers; the first where they differ (each layer gets its own later)."""
        return next((v for v in values if v), 0)


def head_of(meta: Fields, arch: str, row: Arch, table: Table) -> Head:
    """Raises MissingField and UnsupportedValue with the metadata's own keys."""

    def key(suffix: str) -> str:
        return f"{arch}.{suffix}"

    blocks = meta.need_int(key("block_count"), high=MAX_BLOCKS)
    drafts = meta.int_or(0, key("nextn_predict_layers"), low=0, high=MAX_BLOCKS)
    if arch == "deepseek4" and table.shape(blocks - drafts, "nextn.eh_proj.weight") is None:
        drafts = 0  # its converter names draft layers that a file need not hold
    layers = blocks - drafts
    if layers < 1:
        raise UnsupportedValue("gguf_only_drafts", field=key("block_count"), blocks=blocks, drafts=drafts)
    if table.layers and max(table.layers) >= blocks:
        raise UnsupportedValue("gguf_blocks", field=key("block_count"), value=blocks, found=max(table.layers) + 1)
    hidden = meta.need_int(key("embedding_length"))
    q = by_layer(meta, key("attention.head_count"), blocks, 65_536) or [0] * blocks
    kv = by_layer(meta, key("attention.head_count_kv"), blocks, 65_536) or q
    if row.zero != "all" and not any(q):
        raise MissingField("missing_field", field=key("attention.head_count"), tried=key("attention.head_count"))
    for a, b in zip(q, kv, strict=True):
        if a and b and a % b:
            raise UnsupportedValue("kv_heads_not_dividing", field=key("attention.head_count_kv"), q_heads=a, kv_heads=b)
    first = next((n for n in q if n), 0)
    even = hidden // first if first else 0
    full = meta.int_or(even, key("attention.key_length"), low=0), meta.int_or(even, key("attention.value_length"), low=0)
    near = meta.int_or(full[0], key("attention.key_length_swa"), low=0), meta.int_or(full[1], key("attention.value_length_swa"), low=0)
    if first and not all(full):
        raise UnsupportedValue("out_of_range", field=key("attention.key_length"), value=0, low=1, high=MAX_WIDTH)
    window, windowed, notes = windows(meta, arch, row.windows, layers)
    if drafts:
        notes += (note("info", "gguf_drafts", field=key("nextn_predict_layers"), layers=drafts),)
    return Head(meta=meta, arch=arch, row=row, table=table, layers=layers, drafts=drafts, hidden=hidden, q=q[:layers], kv=kv[:layers],
                ff=(by_layer(meta, key("feed_forward_length"), blocks, MAX_WIDTH) or [0] * blocks)[:layers], full=full, near=near, window=window,
                windowed=windowed, notes=notes)  # fmt: skip


def by_layer(meta: Fields, key: str, blocks: int, high: int) -> list[int] | None:
    """A number for all blocks or a list with one each (llama.cpp `get_key_or_arr` asks for that length)."""
    if not isinstance(meta.raw.get(key), list):
        found = meta.optional_int(key, low=0, high=high)
        return None if found is None else [found] * blocks
    values = meta.list_of(key, int, blocks) or []
    for v in values:
        if not 0 <= v <= high:
            raise UnsupportedValue("out_of_range", field=key, value=str(v)[:40], low=0, high=high)
    return values


def scalar(meta: Fields, key: str, low: int, high: int) -> int | None:
    """A number; of a list layer by layer the largest (experts, widths: nothing that a cache depends on)."""
    if not isinstance(meta.raw.get(key), list):
        return meta.optional_int(key, low=low, high=high)
    return max((v for v in meta.list_of(key, int) or [] if low <= v <= high), default=None)


def marks(meta: Fields, key: str, layers: int) -> list[bool] | None:
    value = meta.value(key)[1]
    if value is None:
        return None
    if not isinstance(value, list) or not all(v in (0, 1) for v in value):
        raise UnsupportedValue("not_a_list", field=key, value=repr(value)[:60], kind=type_word("bool"))
    if len(value) < layers:
        raise UnsupportedValue("list_length", field=key, got=len(value), want=layers)
    return [bool(v) for v in value[:layers]]


def windows(meta: Fields, arch: str, w: Windows | None, layers: int) -> tuple[int | None, list[bool], tuple[Note, ...]]:
    """(window in tokens, which layers have it, notes). Only architectures that llama.cpp windows have any."""
    size_key, pattern_key = f"{arch}.attention.sliding_window", f"{arch}.attention.sliding_window_pattern"
    size = meta.optional_int(size_key, low=0, high=MAX_TOKENS)
    pattern: Any = meta.value(pattern_key)[1]
    none: list[bool] = [False] * layers
    if w is None or (w.only is not None and layers != w.only):
        return None, none, (note("info", "gguf_window_unused", field=size_key, window=size, architecture=arch, source=SOURCE),) if size else ()
    if size == 0 or (size is None and w.default is None):
        if w.need and size is None:
            raise MissingField("missing_field", field=size_key, tried=size_key)
        return None, none, ()
    notes: tuple[Note, ...] = ()
    if w.always is not None and size not in (None, w.always):
        notes = (note("derived", "gguf_window_fixed", field=size_key, window=w.always, given=size or 0, architecture=arch, source=SOURCE),)
    width = w.always or size or w.default
    if w.every:
        return width, [True] * layers, notes
    if isinstance(pattern, list):
        return width, marks(meta, pattern_key, layers) or none, notes
    step = meta.int_or(w.step, pattern_key, low=0, high=MAX_BLOCKS)
    if not step and not w.step and pattern is None:
        raise MissingField("missing_field", field=pattern_key, tried=pattern_key)
    on = [not step or (i % step != 0 if w.first else i % step < step - 1) for i in range(layers)]
    if pattern is None:
        notes += (note("derived", "window_pattern", field=pattern_key, step=step, layers=sum(on), window=width, source=SOURCE),)
    return width, on, notes

"""Which layers of a model are windowed: by the key alone, by a list, or by a family's pattern. One function a rule."""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import UnsupportedValue
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW, window_by_layer

Windows = tuple[list[int | None], tuple[Note, ...]]
Rule = Callable[[Fields, int], Windows]
TYPES = {FULL: FULL, WINDOW: WINDOW}


def by_key(f: Fields, layers: int) -> Windows:
    """A set `sliding_window` counts on every layer that `layer_types` does not call full (transformers cache_utils, vLLM config)."""
    return window_by_layer(f, layers, "all")


def switch(f: Fields, layers: int) -> Windows:
    """`use_sliding_window` must be true; then the late layers (Qwen2's rule)."""
    return window_by_layer(f, layers, "switch")


def listed(f: Fields, layers: int) -> Windows:
    """Windowed only where `layer_types` says so: without the list the class makes every layer full."""
    window = f.optional_int("sliding_window", low=0, high=MAX_TOKENS) or None
    types = shapes.layer_types(f, layers, TYPES) or [FULL] * layers
    return [window if t == WINDOW else None for t in types], ()


def window_of(f: Fields, default: int | None) -> tuple[int | None, tuple[Note, ...]]:
    """The file's window; null or 0: none; the class default, with a note, only where the key is absent."""
    found = f.optional_int("sliding_window", low=0, high=MAX_TOKENS)
    if "sliding_window" in f.raw or default is None:
        return found or None, ()
    said = note("derived", "class_default", field=f.name("sliding_window"), value=default, source=cite("transformers 5.24, class default"))
    return default, (said,)


def pattern(window: int | None, full: Callable[[int, int, int], bool], step: int = 4, keys: tuple[str, ...] = ()) -> Rule:
    """A family's own pattern: `full(i, layers, step)`. `layer_types` wins; `keys` may give the step as a number or as letters (LLLG)."""

    def rule(f: Fields, layers: int) -> Windows:
        width, notes = window_of(f, window)
        every, letters = step, ""
        for key in keys:
            if isinstance(f.raw.get(key), str):
                letters = f.text(key) or ""
                if not letters or set(letters) - {"L", "G"}:
                    raise UnsupportedValue("unknown_layer_type", field=f.name(key), value=letters[:60], known="L, G")
            elif f.optional_int(key, low=0):
                every = f.need_int(key)
        types = shapes.layer_types(f, layers, TYPES)
        if types is None and width:
            is_full = [letters[i % len(letters)] == "G" if letters else full(i, layers, every) for i in range(layers)]
            types = [FULL if x else WINDOW for x in is_full]
            notes += (note("derived", "window_pattern", field=keys[0] if keys else "layer_types", step=len(letters) or every,
                           layers=types.count(WINDOW), window=width),)  # fmt: skip
        return [width if types and types[i] == WINDOW else None for i in range(layers)], notes

    return rule


def last_of(i: int, layers: int, step: int) -> bool:
    """The last layer of every `step` is full."""
    return (i + 1) % step == 0


def first_of(i: int, layers: int, step: int) -> bool:
    """The first layer of every `step` is full."""
    return i % step == 0


def counted_back(i: int, layers: int, step: int) -> bool:
    """The last layer is full, and every `step`-th before it."""
    return (layers - 1 - i) % step == 0


def never(i: int, layers: int, step: int) -> bool:
    return False

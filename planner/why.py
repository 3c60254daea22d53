"""Which keys of a config decide what its layers keep: found by changing one key at a time and reading the config again.

No list of keys to keep in step with the readers: a key is named where another value of it would give this group other caches or
other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.cache import Kind
from planner.errors import PlannerError
from planner.readers import read_config

MAX_KEYS = 200  # a published config has 20 to 80 keys a section
_SKIPPED = frozenset(
    ("model_type", "architectures", "auto_map", "dtype", "torch_dtype", "quantization_config", "compression_config", "vision_config", "audio_config")
)
Groups = dict[Kind, tuple[int, ...]]


def deciding_keys(raw: Mapping[str, Any], harmless: tuple[str, ...] = ()) -> dict[Kind, tuple[tuple[str, Any], ...]]:
    """For every kind that the model keeps: the (dotted key, value) pairs that decide it, in the order of the file."""
    model = read_config(dict(raw), harmless=harmless)
    own: Groups = dict(model.cache_groups())
    found: dict[Kind, list[tuple[str, Any]]] = {kind: [] for kind in own}
    for path, value in _keys(raw, own):
        for kind in _touched(raw, path, value, own, harmless):
            found[kind].append((".".join(path), value))
    return {kind: tuple(keys) for kind, keys in found.items()}


def _keys(raw: Mapping[str, Any], own: Groups) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys of the file and of its sections, two levels deep, with their values."""
    left = MAX_KEYS
    stack: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [((), raw)]
    while stack:
        at, section = stack.pop(0)
        for key, value in section.items():
            if key in _SKIPPED or value is None or left == 0:
                continue
            if isinstance(value, dict) and len(at) < 2:
                stack.append(((*at, key), value))
                continue
            left -= 1
            yield (*at, key), value


def _touched(raw: Mapping[str, Any], path: tuple[str, ...], value: Any, own: Groups, harmless: tuple[str, ...]) -> set[Kind]:
    """The kinds that change with this key. Where no other value can be read at all, the key holds the whole stack together."""
    read = 0
    touched: set[Kind] = set()
    for other in _others(value):
        try:
            groups: Groups = dict(read_config(_with(raw, path, other), harmless=harmless).cache_groups())
        except PlannerError:
            continue
        read += 1
        touched |= {kind for kind, where in own.items() if groups.get(kind) != where}
        if touched or read == 2:
            break
    return touched if read else set(own) if _counts(value) else set()


def _counts(value: Any) -> bool:
    return isinstance(value, (int, list)) and not isinstance(value, bool)


_ABSENT = object()


def _others(value: Any) -> Iterator[Any]:
    """Other values of the same sort, and none at all."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value * 2
        yield _ABSENT
        yield from (value // 2, value + 1)
        return
    elif isinstance(value, list) and len(value) > 1:
        yield from ([*value[1:], value[0]], value[:-1])
    elif isinstance(value, str) and len(value) > 3:  # a pattern of letters
        yield value[1:] + value[0]
    yield _ABSENT


def _with(raw: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    out = dict(raw)
    if len(path) > 1:
        out[path[0]] = _with(raw[path[0]], path[1:], value)
    elif value is _ABSENT:
        out.pop(path[0])
    else:
        out[path[0]] = value
    return out

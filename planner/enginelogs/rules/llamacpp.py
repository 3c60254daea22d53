"""llama.cpp's arithmetic: cells x streams x layers x rows, device by device."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

from planner.dtypes import dtype
from planner.enginelogs.intervals import Interval
from planner.enginelogs.rules.base import Predict, Rule, Values
from planner.errors import PlannerError
from planner.notes import cite
from planner.units import MIB


def _sum_of_buffers(name: str, since: str) -> Predict:
    def predict(v: Values, around: Any) -> list[Interval]:
        parts = around.before(name, since)
        if not parts:
            return []
        total = sum(f.value for f in parts)
        off = sum(f.off for f in parts)
        return [Interval(total * (1 - 5e-4) - off - 0.05 * MIB * len(parts), total + off)]  # devices may pad a buffer

    return predict


def _cut_before(name: str, since: str) -> Callable[[Values, Interval, Any], bool]:
    """Whether an excerpt begins among the buffers of a sum, so that the first of them may be missing."""

    def uncertain(v: Values, seen: Interval, around: Any) -> bool:
        parts = around.before(name, since)
        return bool(parts) and sum(f.value for f in parts) < seen.low and all(f.at >= parts[0].at for f in around.log.figures)

    return uncertain


def _rows(which: str) -> Predict:
    """Bytes = cells x streams x layers x row, so bytes / (cells x streams x layers) is a whole number of the type's blocks; where the model's
    width is printed, that many."""

    def predict(v: Values, around: Any) -> list[Interval]:
        streams, layers = around.count("streams") or 1, around.count("cached_layers") or around.count("n_layer")
        cells = v["cells"].low * streams
        if not layers or cells <= 0:
            return []
        try:
            kind = dtype(around.text(f"{which}_type") or "f16", "kv_dtype")
        except PlannerError:
            return []
        unit = cells * layers * kind.block_bytes / kind.block_elements
        target = around.target
        seen = Interval(target.value - target.off, target.value + target.off)
        step = unit * max(kind.block_elements, 16 if target.name == "kv_pool_bytes" else 8)  # no head is narrower
        nearest = max(1, floor(seen.middle / step + 0.5))
        windowed = around.count("window_tokens") or around.scope.get("swa_tokens")
        widths = [_width(c, around) for c in (("k", "v") if target.name == "kv_pool_bytes" else (which,))]
        width = sum(w or 0 for w in widths) if all(widths) else None
        if width and not windowed and around.count("cached_layers") in (None, around.count("n_layer")):
            return [Interval(unit * width, unit * width)]
        return [Interval(nearest * step, nearest * step)]

    return predict


def _cells_again(v: Values, around: Any) -> list[Interval]:
    """The cells that were announced for this cache; else those of the context, shared out over its streams."""
    before = [f for name in ("full_tokens", "swa_tokens") for f in around.scope.get(name, ()) if f.at < around.target.at]
    if before:
        last = max(before, key=lambda f: f.at)
        used = any(last.at < f.at < around.target.at for f in around.scope.get("cells", ()))  # by the cache before this one
        return [] if used else [Interval(last.value, last.value)]
    context, streams = around.count("n_ctx"), around.count("streams") or 1
    return [Interval(context / streams, context / streams)] if context else []


def _width(which: str, around: Any) -> int | None:
    whole = around.count(f"n_embd_{which}_gqa")
    if whole:
        return int(whole)
    heads, each = around.count("n_head_kv"), around.count(f"n_embd_head_{which}")
    return heads * each if heads and each else None


_CPP = cite("llama.cpp src/llama-kv-cache.cpp")
LLAMACPP = (
    Rule(code="k_and_v", engine="llamacpp", target="kv_pool_bytes", needs=("k_bytes", "v_bytes"), scope="line", slack=0.006 * MIB,
         predict=lambda v, a: [v["k_bytes"] + v["v_bytes"]], source=_CPP),
    Rule(code="buffers", engine="llamacpp", target="kv_pool_bytes", needs=(), scope="start", predict=_sum_of_buffers("kv_buffer_bytes", "kv_pool_bytes"),
         uncertain=_cut_before("kv_buffer_bytes", "kv_pool_bytes"), source=_CPP),
    Rule(code="buffers", engine="llamacpp", target="state_pool_bytes", needs=(), scope="start",
         predict=_sum_of_buffers("state_buffer_bytes", "state_pool_bytes"), uncertain=_cut_before("state_buffer_bytes", "state_pool_bytes"),
         source=cite("llama.cpp src/llama-memory-recurrent.cpp")),
    Rule(code="cells_again", engine="llamacpp", target="cells", needs=(), scope="start", predict=_cells_again, source=_CPP),
    Rule(code="rows", engine="llamacpp", target="k_bytes", needs=("cells",), scope="line", predict=_rows("k"), source=_CPP),
    Rule(code="rows", engine="llamacpp", target="v_bytes", needs=("cells",), scope="line", predict=_rows("v"), source=_CPP),
    Rule(code="rows", engine="llamacpp", target="kv_pool_bytes", needs=("cells",), scope="line", predict=_rows("k"), source=_CPP),
)  # fmt: skip

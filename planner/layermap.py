"""Who keeps what: one cell a layer with its kinds and its bytes at a length, and the groups of equal caches with their layers."""

from __future__ import annotations

from dataclasses import dataclass

from planner.cache import Kind, Rows
from planner.dtypes import DType, KvLayout
from planner.engines.architecture import ALONE, ideal_term
from planner.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`kind`: the first cache's kind, shared or none; `bytes`: one sequence's, by the architecture."""

    index: int
    kind: str
    kinds: tuple[str, ...]
    bytes: int
    shares_with: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindGroup:
    """Layers that keep equal caches. `token_bytes`: of all its layers, what one more token adds below the window; state: 0."""

    kind: Kind
    layers: tuple[int, ...]
    token_bytes: int
    bytes: int

    @property
    def places(self) -> str:
        """The layers as runs: ``0-4, 6-10``; a regular pattern as ``5, 11 ... 59 (every 6th)``."""
        steps = {b - a for a, b in zip(self.layers, self.layers[1:], strict=False)}
        if len(self.layers) > 3 and len(steps) == 1 and (step := steps.pop()) > 1:
            return f"{self.layers[0]}, {self.layers[1]} ... {self.layers[-1]} (+{step})"
        runs: list[list[int]] = []
        for i in self.layers:
            if runs and runs[-1][1] == i - 1:
                runs[-1][1] = i
            else:
                runs.append([i, i])
        shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
        return ", ".join(shown if len(shown) <= 8 else [*shown[:6], "...", shown[-1]])


def cells(model: ModelSpec, kv: KvLayout, own: DType, tokens: int, encoder_tokens: int = 0) -> tuple[Cell, ...]:
    """One cell a layer for one sequence of `tokens` tokens."""
    out = []
    for i, layer in enumerate(model.layers):
        kinds = tuple(k.kind for k in layer.caches)
        size = sum(_bytes(k, kv, own, tokens, encoder_tokens) for k in layer.caches)
        first = kinds[0] if kinds else "shared" if layer.shares_with is not None else "none"
        out.append(Cell(index=i, kind=first, kinds=kinds, bytes=size, shares_with=layer.shares_with))
    return tuple(out)


def groups(model: ModelSpec, kv: KvLayout, own: DType, tokens: int, encoder_tokens: int = 0) -> tuple[KindGroup, ...]:
    out = []
    for kind, where in model.cache_groups():
        each = kind.row_bytes(kv) // kind.ratio if isinstance(kind, Rows) else 0
        out.append(KindGroup(kind=kind, layers=where, token_bytes=len(where) * each, bytes=len(where) * _bytes(kind, kv, own, tokens, encoder_tokens)))
    return tuple(out)


def _bytes(kind: Kind, kv: KvLayout, own: DType, tokens: int, encoder_tokens: int) -> int:
    term = ideal_term(kind, kv, own, ALONE, encoder_tokens)
    return term.unit_bytes * int(term.units(tokens))

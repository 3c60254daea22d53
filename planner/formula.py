"""The formula with the numbers in it: one line a group of equal caches, each line's product is its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cache import Cross, Rows
from planner.dtypes import DType, KvLayout
from planner.engines.architecture import ALONE, ideal_term
from planner.messages import Word, render
from planner.model import ModelSpec
from planner.units import GIB, count, gib, memory

COUNTED = ("layers", "tokens", "sequences")  # shown with their noun, one or many


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaLine:
    """`code` names the form of the product (formula.X), `args` its numbers; `bytes` what it comes to for the whole batch."""

    code: str
    args: tuple[tuple[str, Any], ...]
    bytes: int

    @property
    def text(self) -> str:
        numbers = {k: _counted(k, v) if k in COUNTED else count(v) if isinstance(v, int) else v for k, v in self.args}
        if "limited_by" in numbers:  # the tokens of a row that stopped growing, with what stopped it
            numbers["tokens"] = render("count.limited", {"counted": numbers["tokens"], "limit": numbers["limited_by"]})
        if "ratio" in numbers:  # one row for so many tokens
            numbers["tokens"] = render("count.compressed", {"counted": numbers["tokens"], "ratio": numbers["ratio"]})
        total = gib(self.bytes) if self.bytes >= GIB // 10 else memory(self.bytes)
        return render(f"formula.{self.code}", numbers | {"total": total})


def formula(model: ModelSpec, kv: KvLayout, own: DType, tokens: int, sequences: int, encoder_tokens: int = 0) -> tuple[FormulaLine, ...]:
    """2 (K and V) x layers x KV heads x head dim x tokens x batch x bytes; MLA: (rank + rope) x layers x ...; windows at their width."""
    lines = []
    for kind, where in model.cache_groups():
        term = ideal_term(kind, kv, own, ALONE, encoder_tokens)
        total = len(where) * sequences * term.unit_bytes * term.units(tokens)
        args: dict[str, Any] = {"layers": len(where), "sequences": sequences, "tokens": term.units(tokens), "element": _element(kv)}
        if isinstance(kind, Rows):
            args |= {"heads": kind.heads, "k_dim": kind.k_dim, "v_dim": kind.v_dim, "limit": kind.limit_tokens or 0}
            attention = model.layers[where[0]].attention
            if kind.kind == "latent" and attention is not None and attention.kv_rank is not None:
                code, args["rank"], args["rope"] = "latent", attention.kv_rank, attention.rope_dim
            elif kind.v_dim == 0:
                code = "row" if kind.heads == 1 else "keys_only"
            elif kv.v_element is not None:
                code, args["k_element"], args["v_element"] = "kv_types", _size(kv.element), _size(kv.v_element)
            else:
                code = "kv" if kind.k_dim == kind.v_dim else "kv_uneven"
            if kind.ratio != 1:
                args |= {"tokens": tokens, "ratio": kind.ratio}
            if kind.limit_tokens is not None and tokens > kind.limit_tokens:
                what = "window" if kind.window is not None else "chunk"
                args["limited_by"] = Word(what, f"word.{what}")
        elif isinstance(kind, Cross):
            code, args = "cross", args | {"heads": kind.heads, "k_dim": kind.k_dim}
        else:
            code, args["state_bytes"] = "state", term.unit_bytes
        lines.append(FormulaLine(code=code, args=tuple(args.items()), bytes=total))
    return tuple(lines)


def _counted(noun: str, value: int) -> str:
    return render(f"count.{noun}.one" if value == 1 else f"count.{noun}", {"n": count(value)})


def _element(kv: KvLayout) -> Word:
    """`2 bytes`, or for block formats `34/32 bytes`; scales beside each head are named."""
    size = _size(kv.element)
    code = "word.element" + (".scaled" if kv.scale_bytes else "") + (".one" if size == "1" else "")
    return Word(size, code, size=size, scale=kv.scale_bytes)


def _size(e: DType) -> str:
    return str(e.block_bytes) if e.block_elements == 1 else f"{e.block_bytes}/{e.block_elements}"

"""The tensor table of a GGUF file: the weights are taken from it, and what the metadata says of the caches is held against it.

In the raw config a row stands for equal tensors of many layers: ``"blk.0-3,8.attn_v.weight": "Q6_K 4096x1024"`` (type, then the shape as
the file has it: the row's length first). Names: llama.cpp's gguf-py/gguf/constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.cache import Rows, State
from planner.dtypes import DType
from planner.errors import UnsupportedValue
from planner.ggml import SIZES
from planner.model import LayerSpec, Mlp, ModelSpec, Role, Weight
from planner.readers.fields import MAX_LAYERS, Fields
from planner.stored import Stored

# Rows of whole blocks, whatever the type.
STORED = {name: Stored(name=name, element=DType(name=name, block_elements=n, block_bytes=size), packed="in") for name, (n, size) in SIZES.items()}
MAX_TENSORS = 100_000
_ROW = re.compile(r"blk\.([\d,-]+)\.(.+)")
_VALUE = re.compile(r"(\w{2,16})(?: (\d{1,15}(?:x\d{1,15}){0,3}))?", re.ASCII)

Shape = tuple[int, ...]

# What a tensor is, by its name without the ending: the first that matches. Parts: how tensor parallelism may cut it.
_ROLES: tuple[tuple[str, Role, str], ...] = (
    (r".*norm.*", "norm", ""),
    (r"ffn_.*_(exps|chexps)|ffn_(gate|up|down)\.\d+", "expert", "rows"),
    (r"ffn_gate_inp.*|exp_probs.*|ffn_gate_tid2eid", "router", ""),
    (r"ssm_.*|shortconv.*|time_mix.*|channel_mix.*", "state", "rows"),
    (r"attn_(k|v|qkv)", "attention", "kv"),
    (r"attn_(q|output|gate|q_b|kv_b|k_b|v_b|sinks)", "attention", "q"),
    (r"(attn|indexer)[_.].*", "attention", ""),
    (r"ffn_.*", "mlp", "rows"),
    (r"(per_layer_)?token_embd", "embedding", "rows"),
    (r"output", "lm_head", "rows"),
    (r"position_embd|rope_.*", "position", ""),
)
_MATRIX_ROLES = ("attention", "mlp", "expert", "state")


@dataclass(frozen=True, slots=True)
class Table:
    """`layers`: shapes by name for each block; `outer`: the other tensors; `kinds`: the type of each by block (-1: outer) and name;
    `elements` by type; `complete`: there are blocks, and no part is missing."""

    layers: dict[int, dict[str, Shape]]
    outer: dict[str, Shape]
    kinds: dict[tuple[int, str], str]
    elements: dict[str, int]
    complete: bool

    def shape(self, layer: int, *names: str) -> Shape | None:
        here = self.layers.get(layer, {})
        return next((here[n] for n in names if n in here), None)


def table_of(f: Fields, promised: int | None) -> Table:
    """The table of a raw config. `promised`: tensors of all parts of a split file. Raises UnsupportedValue naming the row."""
    layers: dict[int, dict[str, Shape]] = {}
    outer: dict[str, Shape] = {}
    kinds: dict[tuple[int, str], str] = {}
    elements: dict[str, int] = {}
    total = 0
    section = f.section("tensors")
    for key, value in (section.raw if section else {}).items():
        found = _VALUE.fullmatch(value) if isinstance(value, str) else None
        row = _ROW.fullmatch(key)
        where = _layers(row[1]) if row else [-1]
        total += len(where)
        shape = tuple(int(n) for n in found[2].split("x")) if found and found[2] else (1,)
        if found is None or found[1] not in SIZES or shape[0] % SIZES[found[1]][0] or not where or total > MAX_TENSORS:
            raise UnsupportedValue("gguf_row", field=f"tensors.{plain(key)}", value=plain(repr(value)))
        elements[found[1]] = elements.get(found[1], 0) + len(where) * _product(shape)
        kinds |= dict.fromkeys(((i, row[2] if row else key) for i in where), found[1])
        if row is None:
            outer[key] = shape
        for i in where if row else ():
            layers.setdefault(i, {})[row[2] if row else key] = shape
    return Table(layers, outer, kinds, elements, complete=bool(layers) and (promised is None or total == promised))


def _layers(text: str) -> list[int]:
    """The layers in `0-2,5`; empty where it is no such list."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(first) > 4 or len(last) > 4 or int(last or first) >= MAX_LAYERS:
            return []
        found += range(int(first), int(last or first) + 1)
        if len(found) > MAX_LAYERS:
            return []
    return found


def _product(shape: Iterable[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


# -- weights -----------------------------------------------------------------------------------------------------------


def weight(name: str, shape: Shape, kind: str, q_heads: int, kv_heads: int) -> Weight:
    """One tensor as a weight; experts, which lie in one tensor, as copies."""
    stem = name.rpartition(".")[0] if name.endswith((".weight", ".bias", ".scale")) else name
    role, cut = next(((r, c) for pattern, r, c in _ROLES if re.fullmatch(pattern, stem)), ("mlp" if len(shape) > 1 else "norm", ""))
    copies = 1
    if role == "expert" and "exps" in stem and len(shape) > 1:
        shape, copies = shape[:-1], shape[-1]
    parts: int | None = {"q": q_heads or None, "kv": kv_heads or None, "rows": shape[-1] if shape else None}.get(cut)
    if parts is not None and _product(shape) % parts:
        parts = None
    return Weight(name=name, shape=tuple(reversed(shape)), role=role, copies=copies, parts=parts, quantizable=len(shape) > 1 and role in _MATRIX_ROLES,
                  stored=STORED[kind])  # fmt: skip


def weights_of(table: Table, block: int, layer: LayerSpec | None = None) -> tuple[Weight, ...]:
    """The weights of a block, or of what stands outside of the blocks (-1), each as it is stored."""
    a = layer.attention if layer else None
    q, kv = (a.q_heads, a.kv_heads) if a else (0, 0)
    tensors = table.outer if block < 0 else table.layers.get(block, {})
    return tuple(weight(name, shape, table.kinds[block, name], q, kv) for name, shape in sorted(tensors.items()))


def mlp_of(tensors: dict[str, Shape], top_k: int) -> Mlp | None:
    """The feed-forward part by its tensors: what a layer really holds, whatever period the metadata leaves out."""

    def rows(*names: str) -> int:
        return next((tensors[n][0] for n in names if tensors.get(n)), 0)

    gated = any(n.startswith(("ffn_gate.", "ffn_gate_exps", "ffn_gate_up")) for n in tensors)
    dense = rows("ffn_down.weight")
    down = tensors.get("ffn_down_exps.weight")
    if down is not None and len(down) == 3:
        return Mlp(experts=down[2], top_k=min(top_k, down[2]), expert_width=down[0], shared_width=rows("ffn_down_shexp.weight") or dense, gated=gated)
    single = [n for n in tensors if re.fullmatch(r"ffn_down\.\d+\.weight", n)]  # Mixtral before experts were put into one tensor
    if single:
        return Mlp(experts=len(single), top_k=min(top_k, len(single)), expert_width=rows(single[0]), gated=True)
    return Mlp(width=dense, gated=gated) if dense else None


# -- the metadata against the table ------------------------------------------------------------------------------------


def check(spec: ModelSpec, table: Table, key: str) -> None:
    """Every layer's K and V widths, and the convolution of its state, by the table. Raises UnsupportedValue with both figures.

    `key` is the metadata's key for KV heads, which a contradiction puts in doubt."""
    for i, layer in enumerate(spec.layers):
        here = table.layers.get(i, {})
        states = [k for k in layer.caches if isinstance(k, State)]
        rows = next((k for k in layer.caches if isinstance(k, Rows) and k.format == "kv"), None)
        for state in states:
            _convolution(i, state, here, table.complete)
        if rows is not None:
            _rows(i, layer, rows, here, key, table.complete)
        elif layer.shares_with is None and "attn_k.weight" in here and "ssm_conv1d_k.weight" not in here:  # KDA has keys without a cache
            raise _contradiction(i, "attn_k.weight", 0, here["attn_k.weight"][-1], key)


def _rows(i: int, layer: LayerSpec, rows: Rows, here: dict[str, Shape], key: str, complete: bool) -> None:
    a = layer.attention
    k, v = rows.heads * rows.k_dim, rows.heads * rows.v_dim
    expected: dict[str, int] = {"attn_kv_a_mqa.weight": k} if rows.v_dim == 0 else {"attn_k.weight": k, "attn_v.weight": v}
    if a is not None and rows.v_dim:
        expected["attn_qkv.weight"] = a.q_heads * rows.k_dim + k + v
    seen = False
    for name, width in expected.items():
        shape = here.get(name)
        if shape is None:
            continue
        seen = True
        if len(shape) != 2 or shape[1] != width:
            raise _contradiction(i, name, width, shape[-1] if shape else 0, key)
    if complete and not seen and not any(n.startswith("attn_") and "norm" not in n for n in here):
        raise _contradiction(i, next(iter(expected)), k, 0, key)


def _convolution(i: int, state: State, here: dict[str, Shape], complete: bool) -> None:
    conv = next((t for t in state.tensors if t.role == "conv"), None)
    tensors = {n: s for n, s in here.items() if re.fullmatch(r"ssm_conv1d(_[qkv])?\.weight|shortconv\.conv\.weight", n)}
    found = sum(_product(s) for s in tensors.values())
    if conv is not None and (tensors or complete) and found != conv.elements:
        raise _contradiction(i, min(tensors, default="ssm_conv1d.weight"), conv.elements, found, "ssm.conv_kernel")


def _contradiction(layer: int, name: str, header: int, found: int, key: str) -> UnsupportedValue:
    return UnsupportedValue("gguf_contradiction", field=key, tensor=f"blk.{layer}.{name}", header=header, table=found)


def main_types(elements: dict[str, int]) -> list[str]:
    """Types by the elements stored in them, most first."""
    return sorted(elements, key=lambda t: -elements[t])


def plain(value: Any) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(value)[:60])

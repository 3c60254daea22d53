"""Which layers of a mixture-of-experts model are sparse, and how wide: key names differ by family, the shape does not."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import UnsupportedValue
from planner.model import Mlp
from planner.readers.fields import Fields

DENSE, SPARSE = "dense", "sparse"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Key names of a family. `shared`: the key that counts shared experts, each as wide as a routed one; `shared_width`: a width of its
    own. `first_dense`: the key that counts dense layers before the sparse ones, with the class default."""

    count: tuple[str, ...] = ("num_experts", "num_local_experts")
    top_k: tuple[str, ...] = ("num_experts_per_tok",)
    width: tuple[str, ...] = ("moe_intermediate_size",)
    shared: str = ""
    shared_width: str = ""
    first_dense: tuple[str, ...] = ()
    first_dense_default: int = 0
    router_bias: bool = False
    shared_gate: bool = False
    optional: bool = False  # families that have dense members under the same type


def mlps(f: Fields, layers: int, e: Experts, width: tuple[str, ...] = ("intermediate_size",)) -> list[Mlp]:
    """One Mlp a layer. `mlp_layer_types` wins; then leading dense layers; then `mlp_only_layers` and `decoder_sparse_step`."""
    count = f.optional_int(*e.count, low=0, high=65_536) or 0
    if not count and e.optional:
        f.ignore(*e.top_k, *e.width, e.shared, e.shared_width)
        return [Mlp(width=f.need_int(*width))] * layers
    count = count or f.need_int(*e.count, high=65_536)
    each = f.need_int(*e.width)
    shared = each * (f.optional_int(e.shared, low=0, high=65_536) or 0) if e.shared else 0
    if e.shared_width:
        shared = f.int_or(0, e.shared_width, low=0)
    sparse = Mlp(experts=count, top_k=f.need_int(*e.top_k, high=65_536), expert_width=each, shared_width=shared)
    where = sparse_layers(f, layers, e)
    dense = sparse if all(where) else Mlp(width=f.need_int(*width))
    return [sparse if s else dense for s in where]


def sparse_layers(f: Fields, layers: int, e: Experts) -> list[bool]:
    types = f.list_of("mlp_layer_types", str, layers)
    first = f.int_or(e.first_dense_default, *e.first_dense, low=0) if e.first_dense else e.first_dense_default
    only_dense, step = set(f.list_of("mlp_only_layers", int) or ()), f.int_or(1, "decoder_sparse_step")
    if types is None:
        return [i >= first and i not in only_dense and (i + 1) % step == 0 for i in range(layers)]
    for t in types:
        if t not in (DENSE, SPARSE):
            raise UnsupportedValue("unknown_layer_type", field=f.name("mlp_layer_types"), value=t[:60], known="dense, sparse")
    return [t == SPARSE for t in types]

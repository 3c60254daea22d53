"""What the probe's decoder builds for a model: true attention shapes, and how far vocabulary and feed-forward are cut. No torch.

`LayerShape.tensors()` is the one list of a layer's weights: the decoder makes them from it, the memory plan counts them from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpu_probe.states import StateShape, shape_of
from planner.cache import Kind, Rows, State
from planner.dtypes import DTYPES
from planner.engines.probe import cache_of, caches_of, state_dtype
from planner.errors import UnsupportedModel
from planner.model import Attention, LayerSpec, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer. `index`: in the model. `rows`: what it keeps, None for nothing. `reads`: the layer (by model index) whose rows it
    attends to: itself, another one, or None without attention. `state`: of its recurrent part, which runs after the attention."""

    index: int
    hidden: int
    rows: Rows | None
    reads: int | None
    read_rows: Rows | None
    attention: Attention | None
    mlp_width: int
    gated: bool
    state: StateShape | None = None

    @property
    def is_latent(self) -> bool:
        return self.attention is not None and self.attention.kv_rank is not None

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape; matrices are [out, in]. Biases, norms and matrices alike: everything that the layer allocates."""
        d = self.hidden
        out: dict[str, tuple[int, ...]] = {}
        if self.attention is not None:
            a = self.attention
            q_width = a.q_heads * a.qk_dim
            out["attn_norm"] = (d,)
            if a.q_rank:
                out |= {"q_a": (a.q_rank, d), "q_a_norm": (a.q_rank,), "q": (q_width, a.q_rank)}
            else:
                out |= {"q": (q_width, d)}
            out["q_bias"] = (q_width,)
            if a.kv_rank is not None:
                out |= {
                    "kv_a": (a.kv_rank + a.rope_dim, d),
                    "kv_a_norm": (a.kv_rank,),
                    "kv_b": (a.q_heads * (a.nope_dim + a.v_dim), a.kv_rank),
                }
            elif self.rows is not None:
                k_width, v_width = a.kv_heads * a.qk_dim, a.kv_heads * a.v_dim
                out |= {"k": (k_width, d), "k_bias": (k_width,), "v": (v_width, d), "v_bias": (v_width,)}
            out["o"] = (d, a.q_heads * a.v_dim)
        if self.state is not None:
            out |= self.state.weights(d)
        if self.mlp_width:
            out |= {"mlp_norm": (d,), "up": (self.mlp_width, d), "down": (d, self.mlp_width)}
            if self.gated:
                out["gate"] = (self.mlp_width, d)
        return out

    def elements(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The decoder of one run."""

    hidden: int
    vocab: int
    layers: tuple[LayerShape, ...]

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "embedding", (self.vocab, self.hidden)
        yield "final_norm", (self.hidden,)
        yield "lm_head", (self.vocab, self.hidden)

    def elements(self) -> int:
        return sum(math.prod(s) for _, s in self.tensors()) + sum(layer.elements() for layer in self.layers)


def limited(model: ModelSpec, tokens: int) -> ModelSpec:
    """The same model with windows and chunks of at most `tokens`, so that a short run really slides."""

    def cut(kind: Kind) -> Kind:
        if not isinstance(kind, Rows) or kind.limit_tokens is None or kind.limit_tokens <= tokens:
            return kind
        return replace(kind, window=tokens) if kind.window is not None else replace(kind, chunk=tokens)

    return replace(model, layers=tuple(replace(layer, caches=tuple(cut(k) for k in layer.caches)) for layer in model.layers))


def in_float32(model: ModelSpec) -> ModelSpec:
    """The same model with every state kept in float32: rounding aside, stepping is then exact."""

    def wide(kind: Kind) -> Kind:
        return replace(kind, tensors=tuple(replace(t, dtype=DTYPES["fp32"]) for t in kind.tensors)) if isinstance(kind, State) else kind

    return replace(model, layers=tuple(replace(layer, caches=tuple(wide(k) for k in layer.caches)) for layer in model.layers))


def active_width(layer: LayerSpec) -> int:
    """Width of the dense layer that does as much work as one token does here: chosen and shared experts side by side."""
    mlp = layer.mlp
    if mlp is None:
        return 0
    return mlp.top_k * mlp.expert_width + mlp.shared_width if mlp.experts else mlp.width


def build_shape(model: ModelSpec, layers: tuple[int, ...], *, vocab: int, mlp_limit: int | None) -> Shape:
    """The decoder for these layers of `model`. Raises UnsupportedModel where the probe cannot run one, naming kind and layer."""
    made = []
    for i in layers:
        spec = model.layers[i]
        rows, state = caches_of(spec, i)
        reads = i if rows is not None else spec.shares_with
        read_rows = rows if reads is None or reads == i else cache_of(model.layers[reads], reads)
        width = active_width(spec)
        made.append(LayerShape(
            index=i, hidden=model.hidden_size, rows=rows, reads=reads, read_rows=read_rows, attention=_attention(spec, i, read_rows),
            mlp_width=width if mlp_limit is None else min(width, mlp_limit), gated=spec.mlp.gated if spec.mlp else True,
            state=None if state is None else shape_of(state, spec, i, state_dtype(model).name),
        ))  # fmt: skip
    if not any(x.rows or x.state for x in made):
        raise UnsupportedModel("probe_no_cache", field="layers")
    return Shape(hidden=model.hidden_size, vocab=vocab, layers=tuple(made))


def _attention(spec: LayerSpec, index: int, rows: Rows | None) -> Attention | None:
    """The attention's shapes, checked against the rows it reads: a probe of other rows than the plan's would prove nothing."""
    a = spec.attention
    if rows is None:
        if a is not None:
            raise UnsupportedModel("probe_kind", field=f"layers[{index}].caches", kind="attention without a cache", layer=index)
        return None
    if a is None:
        if rows.v_dim == 0:
            raise UnsupportedModel("probe_shape", field=f"layers[{index}].attention", layer=index, rows=_words(rows), attention="-")
        a = Attention(q_heads=rows.heads, kv_heads=rows.heads, qk_dim=rows.k_dim, v_dim=rows.v_dim)
    if a.kv_rank is not None:
        right = (rows.heads, rows.k_dim, rows.v_dim) == (1, a.kv_rank + a.rope_dim, 0) and a.qk_dim == a.nope_dim + a.rope_dim
    else:
        right = (rows.heads, rows.k_dim, rows.v_dim) == (a.kv_heads, a.qk_dim, a.v_dim) and a.q_heads % a.kv_heads == 0
    if not right or (a.kv_rank is not None and spec.shares_with is not None):
        raise UnsupportedModel("probe_shape", field=f"layers[{index}].attention", layer=index, rows=_words(rows),
                               attention=f"{a.q_heads} / {a.kv_heads} heads, {a.qk_dim} + {a.v_dim}")  # fmt: skip
    return a


def _words(rows: Rows) -> str:
    return f"{rows.heads} x ({rows.k_dim} + {rows.v_dim})"

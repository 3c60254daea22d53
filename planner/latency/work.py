"""What one rank must do: FLOPs, bytes read a step, collectives and launches, from the layers of a ModelSpec. Exact counts, no speeds.

A multiply-add is two FLOPs. *Read a step* is not *stored*: a window reads its window, experts are read as far as they were chosen.
Formulas: attention pairs and projections as in the usual counts (Kaplan et al. 2020, appendix; Korthikanti et al. 2022, appendix A);
absorbed and unabsorbed MLA as in DeepSeek-V2 (arXiv 2405.04434, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.cache import Cross, Rows, State
from planner.dtypes import KvLayout
from planner.model import LayerSpec, ModelSpec, Weight
from planner.parallel import Parallel
from planner.weights import WeightFormat, elements_on_rank

# Formats whose products run at another rate than the model's 16 bits. Formats of 4 or 8 bits that are not here are unpacked first.
RATES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "mxfp4"}
PLAIN = frozenset(("bf16", "fp16", "fp32", "fp64"))
INDEX_SCALE_BYTES = 4
"""Of an index key in fp8 (vLLM 0.33 and SGLang 0.5.23: 128 + 4 bytes a token)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Matrices that every token passes, on one rank. `form`: 16 | fp8 | fp4 | mxfp4 | packed (unpacked to 16 bits before the product)."""

    form: str
    bytes: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of equal layers on one rank; `bytes` and `elements` of all of them. A token passes `top_k` of `experts`."""

    form: str
    bytes: int
    elements: int
    experts: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend:
    """`layers` equal attentions of one rank. `row_bytes` of the rank's heads of one row; a row stands for `ratio` tokens.

    `limit` tokens at most are attended (window or chunk); `chosen`: rows that an indexer picks. FLOPs are per pair of a new and a cached
    token. `expand_flops`: per cached token that is attended in a prefill (MLA's up-projection, once a chunk).
    """

    layers: int
    row_bytes: int
    decode_flops: int
    prefill_flops: int
    limit: int | None = None
    chunked: bool = False
    ratio: int = 1
    chosen: int | None = None
    expand_flops: int = 0
    latent: bool = False

    def rows(self, context: Any) -> Any:
        """Rows that one new token attends to when `context` tokens are cached, itself included. Int or array."""
        kept = context if self.limit is None else _smaller(context, self.limit)
        kept = -(-kept // self.ratio)
        return kept if self.chosen is None else _smaller(kept, self.chosen)

    def pairs(self, tokens: Any, cached: Any = 0) -> Any:
        """Pairs of a causal prefill of `tokens` new tokens on `cached` ones: ``s c + s (s + 1) / 2``, less where rows are limited."""
        bound = self.limit if self.chosen is None else self.chosen * self.ratio if self.limit is None else min(self.limit, self.chosen * self.ratio)
        if bound is None:
            out = tokens * cached + tokens * (tokens + 1) // 2
        else:
            rising = _between(bound - cached, 0, tokens)  # tokens that still see fewer than the bound
            out = rising * cached + rising * (rising + 1) // 2 + (tokens - rising) * bound
        return -(-out // self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Of one rank of one pipeline stage. `head`: the output matrix, one position a sequence; None on other stages.

    `state_bytes`: of one sequence's recurrent states, read and written each step. `attentions`, `latents`, `states`, `mlps`, `moes`: layers
    that have such a part, by which fixed times count (shared experts are an mlp beside the routed ones). `reduces`: all-reduces a step
    over `reduce_ranks`; `exchanges`: dispatches and combines of data-parallel attention. `token_bytes`: one token's activation.
    `cross_bytes`: of an encoder's rows, read each step.
    """

    matrices: tuple[Matrices, ...]
    head: Matrices | None
    experts: tuple[Experts, ...]
    attends: tuple[Attend, ...]
    encoder: tuple[Matrices, ...] = ()
    state_bytes: int = 0
    state_elements: int = 0
    cross_bytes: int = 0
    layers: int = 0
    attentions: int = 0
    latents: int = 0
    states: int = 0
    mlps: int = 0
    moes: int = 0
    reduces: int = 0
    reduce_ranks: int = 1
    exchanges: int = 0
    exchange_ranks: int = 1
    token_bytes: int = 0
    top_k: int = 0
    context_ranks: int = 1
    attention_data: int = 1

    @property
    def token_elements(self) -> int:
        """Elements of the matrices that one token passes, the output matrix apart."""
        return sum(m.elements for m in self.matrices) + sum(e.elements * e.top_k // e.experts for e in self.experts)

    # -- decode ----------------------------------------------------------------------------------------------------------

    def weight_bytes_read(self, tokens: Any) -> Any:
        """Weight bytes that a step of `tokens` tokens reads: all matrices, and of the experts those expected to be chosen."""
        fixed = sum(m.bytes for m in self.matrices) + (self.head.bytes if self.head else 0)
        return fixed + sum(e.bytes * touched(e.experts, e.top_k, tokens) / e.experts for e in self.experts)

    def cache_bytes_read(self, context: Any) -> Any:
        """Cache bytes that one sequence's step reads on this rank; states are read and written."""
        rows = sum(a.layers * a.row_bytes * a.rows(-(-context // self.context_ranks)) for a in self.attends)
        return rows + 2 * self.state_bytes + self.cross_bytes + context * 0

    def decode_flops(self, sequences: Any, context: Any) -> Any:
        """FLOPs of one step: products of weights, and attention."""
        linear = self.token_elements + (self.head.elements if self.head else 0)
        attention = sum(a.layers * a.decode_flops * a.rows(context) for a in self.attends)
        return sequences * (2 * linear + attention + 4 * self.state_elements)

    # -- prefill ---------------------------------------------------------------------------------------------------------

    def linear_flops(self, tokens: Any, sequences: Any = 1) -> Any:
        """Of a prefill of `tokens` tokens in all: the output matrix for one position a sequence, the embedding not at all."""
        return 2 * self.token_elements * tokens + (2 * self.head.elements * sequences if self.head else 0) + 4 * self.state_elements * tokens

    def attention_flops(self, tokens: Any, cached: Any = 0) -> Any:
        """Of one sequence's causal prefill of `tokens` tokens on `cached` ones."""
        return sum(a.layers * (a.prefill_flops * a.pairs(tokens, cached) + a.expand_flops * cached) for a in self.attends)

    def prefill_flops(self, tokens: Any, cached: Any = 0) -> Any:
        """Of one sequence."""
        return self.linear_flops(tokens) + self.attention_flops(tokens, cached)


def touched(experts: int, top_k: int, tokens: Any) -> Any:
    """Distinct experts expected to be chosen by `tokens` tokens under even routing: ``E (1 - (1 - k / E)^B)``. Real routing is skewed and
    touches fewer, so this is an upper bound."""
    if experts <= top_k:
        return experts + 0.0 * tokens
    return experts * -np.expm1(tokens * np.log1p(-top_k / experts))


def work_of(model: ModelSpec, fmt: WeightFormat, kv: KvLayout, p: Parallel, *, model_bytes: int = 2, encoder_tokens: int = 0, stage: int = 0,
            weight_bytes: tuple[int, int] = (1, 1), latent: bool = True) -> Work:  # fmt: skip
    """The work of the fullest rank of pipeline stage `stage`.

    `model_bytes`: of one element of an activation. `weight_bytes`: (stored, counted), where the file's own bytes are known. `latent`: whether
    the engine keeps MLA's latent and decodes absorbed.
    """
    model = model.resting()
    here = set(p.stage_layers(len(model.layers))[stage])
    first, last = stage == 0, stage == p.pipeline - 1
    sums: dict[str, list[int]] = {}
    experts: dict[tuple[str, int, int], list[int]] = {}
    attends: dict[Attend, int] = {}
    n_of = dict.fromkeys(("layers", "attentions", "latents", "states", "mlps", "moes", "reduces", "exchanges"), 0)
    state_bytes = state_elements = cross_bytes = top_k = 0

    def count(w: Weight, n: int, into: dict[str, list[int]]) -> None:
        elements = elements_on_rank(w, p)
        held = fmt.bytes_held(w, elements) * weight_bytes[0] // weight_bytes[1]
        entry = into.setdefault(_form(fmt, w), [0, 0])
        entry[0], entry[1] = entry[0] + n * held, entry[1] + n * elements

    for layer, where in model.layer_groups():
        n = len(here) if len(where) == len(model.layers) else sum(i in here for i in where)
        if not n:
            continue
        m = layer.mlp
        for w in layer.weights:
            if w.role == "expert" and m and m.experts:
                elements = elements_on_rank(w, p)
                entry = experts.setdefault((_form(fmt, w), m.experts, min(m.top_k, m.experts)), [0, 0])
                entry[0] += n * (fmt.bytes_held(w, elements) * weight_bytes[0] // weight_bytes[1])
                entry[1] += n * elements
                top_k = max(top_k, m.top_k)
            elif len(w.shape) > 1 and w.role != "norm":
                count(w, n, sums)
        kinds = _kinds(model, layer)
        for kind in kinds:
            if isinstance(kind, Rows):
                a = _attend(kind, layer, model, kv, p, latent)
                attends[a] = attends.get(a, 0) + n
            elif isinstance(kind, State):
                state_bytes += n * kind.bytes_per_sequence(model.dtype, ranks=p.attention_ranks)
                state_elements += n * sum(t.elements_on_rank(p.attention_ranks if kind.shard == "heads" else 1) for t in kind.tensors if t.role == "recurrent")
            elif isinstance(kind, Cross):
                tokens = kind.source_tokens if kind.source_tokens is not None else encoder_tokens
                cross_bytes += n * tokens * kv.row_bytes(p.heads_on_rank(kind.heads), kind.k_dim, kind.v_dim)
        moe = m is not None and m.experts > 0
        state = any(isinstance(k, State) for k in kinds)
        mixes = layer.attention is not None or state or any(isinstance(k, Rows) for k in kinds)
        n_of["layers"] += n
        n_of["latents"] += n * (layer.attention is not None and layer.attention.kv_rank is not None)
        n_of["attentions"] += n * (mixes and not state)
        n_of["states"] += n * state
        n_of["mlps"] += n * (m is not None and (not moe or m.shared_width > 0))
        n_of["moes"] += n * moe
        n_of["reduces"] += n * ((mixes and p.attention_ranks > 1) + (m is not None and p.tensor > 1 and (not moe or p.attention_data == 1)))
        n_of["exchanges"] += n * (2 if moe and p.attention_data > 1 else 0)
    encoder: dict[str, list[int]] = {}
    head: dict[str, list[int]] = {}
    for w in model.weights:
        if w.role == "lm_head" or (w.role == "embedding" and model.tied_embeddings):
            if last and not head:
                count(w, 1, head)
        elif first and w.role not in ("embedding", "position", "norm") and len(w.shape) > 1:
            count(w, 1, encoder)
    form, (head_bytes, head_elements) = next(iter(head.items()), ("16", (0, 0)))
    return Work(
        matrices=_matrices(sums),
        head=Matrices(form=form, bytes=head_bytes, elements=head_elements) if head_elements else None,
        experts=tuple(Experts(form=f, bytes=b, elements=e, experts=x, top_k=k) for (f, x, k), (b, e) in experts.items()),
        attends=tuple(replace(a, layers=n) for a, n in attends.items()),
        encoder=_matrices(encoder),
        state_bytes=state_bytes,
        state_elements=state_elements,
        cross_bytes=cross_bytes,
        reduce_ranks=p.tensor,
        exchange_ranks=p.tensor,
        token_bytes=model.hidden_size * model_bytes,
        top_k=top_k,
        context_ranks=p.context,
        attention_data=p.attention_data,
        **n_of,
    )


def _matrices(sums: dict[str, list[int]]) -> tuple[Matrices, ...]:
    return tuple(Matrices(form=form, bytes=b, elements=e) for form, (b, e) in sums.items())


def _form(fmt: WeightFormat, w: Weight) -> str:
    name = w.stored.name if fmt.as_read and w.stored is not None else fmt.dtype_of(w).name
    return RATES.get(name) or ("16" if name.lower() in PLAIN | {"f16", "f32"} else "packed")


def _kinds(model: ModelSpec, layer: LayerSpec) -> tuple[Rows | State | Cross, ...]:
    """What a layer reads: its own caches, or those of the layer that it shares with."""
    seen = 0
    while not layer.caches and layer.shares_with is not None and seen < len(model.layers):
        layer, seen = model.layers[layer.shares_with], seen + 1
    return layer.caches


def _attend(kind: Rows, layer: LayerSpec, model: ModelSpec, kv: KvLayout, p: Parallel, latent: bool) -> Attend:
    """One attention over `kind`. Of an index key only its own scoring counts."""
    a = layer.attention
    ranks = p.attention_ranks
    if kind.format == "index":
        row = min(kind.row_bytes(kv), kind.heads * (kind.k_dim + kind.v_dim + INDEX_SCALE_BYTES))
        heads = _index_heads(layer, kind)
        flops = 2 * heads * kind.k_dim
        return Attend(layers=1, row_bytes=row, decode_flops=flops, prefill_flops=flops, ratio=kind.ratio, limit=kind.limit_tokens,
                      chunked=kind.chunk is not None)  # fmt: skip
    on_rank = p.heads_on_rank(kind.heads) if kind.shard == "heads" else kind.heads
    heads = max(1, -(-(a.q_heads if a else kind.heads) // ranks))
    dims = (a.qk_dim + a.v_dim) if a is not None else kind.k_dim + (kind.v_dim or kind.k_dim)
    out = Attend(layers=1, row_bytes=kv.row_bytes(on_rank, kind.k_dim, kind.v_dim), decode_flops=2 * heads * dims, prefill_flops=2 * heads * dims,
                 limit=kind.limit_tokens, chunked=kind.chunk is not None, ratio=kind.ratio, chosen=a.chosen_rows if a else None)  # fmt: skip
    if a is None or a.kv_rank is None or not latent:
        return out
    expand = 2 * a.kv_rank * heads * (a.nope_dim + a.v_dim)
    return replace(out, decode_flops=2 * heads * (2 * a.kv_rank + a.rope_dim), expand_flops=expand, latent=True)


def _index_heads(layer: LayerSpec, kind: Rows) -> int:
    """By the width of the indexer's query projection; one where the layer has none."""
    wide = next((w.shape[0] for w in layer.weights if w.name.endswith("indexer.wq_b")), kind.k_dim)
    return max(1, wide // kind.k_dim) if kind.k_dim else 1


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, (int, float)) and isinstance(b, (int, float)) else np.minimum(a, b)


def _between(value: Any, low: Any, high: Any) -> Any:
    if all(isinstance(v, (int, float)) for v in (value, low, high)):
        return max(low, min(value, high))
    return np.clip(value, low, high)

"""What a layer remembers (the cache kinds), and what an engine makes of it (terms, groups, pools). The heart of the planner.

A kind is a value: two layers with equal kinds are equal. Kinds do not know which engine runs them. An engine turns kinds into
`Group`s with two `Term`s each and puts the groups into `Pool`s; every byte figure of a plan is `Pool.bytes(sequences, tokens)`.
Terms take an int or a numpy array alike: the heat map and a single plan run through the same lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.dtypes import DType, KvLayout

Shard = Literal["heads", "copy"]
Format = Literal["kv", "index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that grow with the tokens: `heads` x (k_dim + v_dim) elements a token.

    MLA is ``Rows(heads=1, k_dim=rank + rope, v_dim=0, shard="copy")``: one latent row for all heads, on every rank.
    `window`: only the newest `window` tokens count (the present one included). `chunk`: only tokens of the present chunk.
    `ratio`: one row per `ratio` tokens. `format`: "kv" follows the KV dtype; "index" is a key for choosing tokens, for which
    engines have a row layout of their own.
    """

    heads: int
    k_dim: int
    v_dim: int
    shard: Shard = "heads"
    format: Format = "kv"
    window: int | None = None
    chunk: int | None = None
    ratio: int = 1

    @property
    def kind(self) -> str:
        if self.format == "index":
            return "index"
        if self.window is not None:
            return "window"
        if self.chunk is not None:
            return "chunk"
        return "latent" if self.v_dim == 0 and self.shard == "copy" else "full"

    @property
    def limit_tokens(self) -> int | None:
        """Beyond this many tokens the rows stop growing; None: they grow for ever."""
        return self.window if self.window is not None else self.chunk

    def row_bytes(self, layout: KvLayout) -> int:
        return layout.row_bytes(self.heads, self.k_dim, self.v_dim)

    def bytes_read_per_step(self, tokens: int, layout: KvLayout) -> int:
        """Bytes that one decode step reads for one sequence that holds `tokens`. Stored and read are different quantities."""
        return -(-(min(tokens, self.limit_tokens) if self.limit_tokens else tokens) // self.ratio) * self.row_bytes(layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One tensor of a recurrent state: `elements`, of which the last axis is `columns` wide.

    `role` conv: engines keep `columns` or one column less; recurrent: the state matrix. `dtype` None: the model's dtype.
    `asked`: the dtype that the file asks of an engine (None: nothing; the engine's own rule holds). `groups` x `group_elements` of the
    elements belong to groups that heads share (B and C of Mamba-2): with more ranks than groups each rank keeps one.
    """

    name: str
    role: Literal["conv", "recurrent"]
    elements: int
    columns: int = 1
    dtype: DType | None = None
    asked: DType | None = None
    groups: int = 0
    group_elements: int = 0

    def elements_on_rank(self, ranks: int) -> int:
        """Elements of one of `ranks` tensor ranks (vLLM 0.33 model_executor/layers/mamba/mamba_utils.py: groups are padded to the ranks)."""
        more = max(0, ranks - self.groups) if self.groups and self.groups % ranks else 0
        return (self.elements + more * self.group_elements) // ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state of constant size per sequence (SSM, linear attention, short convolution). `mechanism`: whose state it is, by which
    engines choose kernels: mamba1, mamba2, gated_delta_net, kda, lightning, short_conv, rg_lru, rwkv, gla, mlstm; "" where unknown."""

    tensors: tuple[StateTensor, ...]
    shard: Shard = "heads"
    mechanism: str = ""

    @property
    def kind(self) -> str:
        return "state"

    def bytes_per_sequence(self, model_dtype: DType, drop_conv_columns: int = 0, ranks: int = 1) -> int:
        """Bytes of one sequence's state on one of `ranks` ranks. `drop_conv_columns`: how many columns fewer than the kernel width the
        holder keeps (negative: more, for drafted tokens)."""
        total = 0
        for t in self.tensors:
            kept = t.elements_on_rank(ranks if self.shard == "heads" else 1)
            if t.role == "conv":
                kept = kept // t.columns * (t.columns - drop_conv_columns)
            total += (t.dtype or model_dtype).nbytes(kept)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross:
    """Keys and values of an encoder's output: grow with encoder tokens, not with decoded ones. `source_tokens` None: given by the request."""

    heads: int
    k_dim: int
    v_dim: int
    source_tokens: int | None = None
    shard: Shard = "heads"

    @property
    def kind(self) -> str:
        return "cross"


Kind = Rows | State | Cross


# -- what an engine allocates ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Units held at S tokens: ``round(min(S, cap_tokens) / unit_tokens) + extra_units``; no `unit_tokens`: only the extra ones.
    `rest`: the tokens beyond the last whole unit instead (a compressor's buffer: a sawtooth), counted after the first `offset_tokens`.

    `unit_bytes` is the price of one unit in one layer (a block's page, a row, a state).
    """

    unit_bytes: int
    unit_tokens: int | None = 1
    rounding: Literal["ceil", "floor", "rest"] = "ceil"
    cap_tokens: int | None = None
    extra_units: int = 0
    offset_tokens: int = 0

    def units(self, tokens: Any) -> Any:
        """`tokens`: int or numpy integer array. Returns the same kind."""
        if self.unit_tokens is None:
            return tokens * 0 + self.extra_units
        if self.cap_tokens is not None:
            tokens = min(tokens, self.cap_tokens) if isinstance(tokens, int) else tokens.clip(max=self.cap_tokens)
        if self.rounding == "rest":
            return _at_least(tokens - self.offset_tokens, 0) % self.unit_tokens + self.extra_units
        whole = -(-tokens // self.unit_tokens) if self.rounding == "ceil" else tokens // self.unit_tokens
        return whole + self.extra_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers (by index in the model) that share a block table. Two terms: what the engine reserves for a request of the largest
    length (`admission`), and what a running sequence holds (`resident`). `content_bytes`: what a full unit holds in all its layers,
    without padding (0: all of it); `limit_tokens`: the window or chunk itself, which the terms widen to whole units."""

    kind: str
    layers: tuple[int, ...]
    admission: Term
    resident: Term
    content_bytes: int = 0
    limit_tokens: int | None = None

    def bytes_per_unit(self) -> int:
        return len(self.layers) * self.resident.unit_bytes

    def first_unit(self, tokens: Any, term: str = "resident") -> Any:
        """The earliest unit that is still needed for the next token after `tokens`: units before it went back to the pool.

        A window's cap covers its kept tokens and one unit, so that they fit wherever they begin; kept are ``cap - unit`` (vLLM 0.33
        v1/core/single_type_kv_cache_manager.py: ``num_computed_tokens - sliding_window + 1`` are skipped). A chunk begins anew.
        """
        t: Term = getattr(self, term)
        if t.cap_tokens is None or t.unit_tokens is None:
            return tokens * 0
        if self.kind == "chunk":
            return tokens // t.cap_tokens * t.cap_tokens // t.unit_tokens
        return _at_least(tokens - max(0, t.cap_tokens - t.unit_tokens), 0) // t.unit_tokens

    def shared_units(self, tokens: Any, prefix: Any, term: str = "resident") -> Any:
        """Units that sequences of `tokens` tokens hold together when their first `prefix` tokens are the same.

        Whole units only, and never one with the last token: a request computes that one itself (vLLM 0.33 v1/core/kv_cache_manager.py,
        ``max_cache_hit_length = num_tokens - 1``). Of a window or chunk, those that are still needed. States are never shared.
        """
        t: Term = getattr(self, term)
        if t.unit_tokens is None or t.rounding == "rest" or self.kind in ("state", "cross"):
            return (tokens + prefix) * 0
        whole = _at_least(_smaller(prefix, tokens - 1), 0) // t.unit_tokens
        return _at_least(whole - self.first_unit(tokens, term), 0)


def _at_least(value: Any, low: int) -> Any:
    return max(value, low) if isinstance(value, int) else value.clip(min=low)


def _smaller(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    import numpy as np  # half the start of a command that has no arrays

    return np.minimum(a, b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """A cache that is taken whole at start (llama.cpp's context), for `sequences` sequences and `tokens` tokens; 0: as the load needs.

    `tokens` are each sequence's own, or with `unified` those of all together. `most`: sequences that one such cache can serve. A cache that
    was asked for has its bytes whatever the load; whether the load goes into it is another question (`hold`).
    """

    most: int
    sequences: int = 0
    tokens: int = 0
    unified: bool = False

    def units(self, group: Group, term: Term, sequences: Any, tokens: Any) -> Any:
        """Units of `group` that are taken. Unified: one row of cells for all, in which a window is kept once for each sequence."""
        slots = sequences * 0 + self.sequences if self.sequences else sequences
        if not self.unified or term.unit_tokens is None:
            return slots * term.units(tokens * 0 + self.tokens if self.tokens else tokens)
        cells = sequences * tokens * 0 + self.tokens if self.tokens else sequences * tokens
        if term.cap_tokens is not None:
            cells = _smaller(cells, term.cap_tokens + _at_least(slots - 1, 0) * (group.limit_tokens or 0))
        return replace(term, cap_tokens=None).units(cells)

    def hold(self, sequences: Any, tokens: Any) -> Any:
        """Whether such a load can be put into the cache as it was asked for. Ints or arrays."""
        enough = sequences <= (self.sequences or self.most)
        return enough & ((sequences * tokens if self.unified else tokens) <= self.tokens) if self.tokens else enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Memory that groups draw from, on one rank.

    own:    every group pays for its own units:      n * sum(layers * unit_bytes * units(S))
    pooled: every unit of any group costs one block: block_bytes * (n * sum(units(S)) + null_blocks)

    With a shared prefix, n sequences hold ``n * units - (n - 1) * shared`` units of each group. `block_size`: the smallest block;
    None: this memory has no block tables, so that nothing in it can be shared. `slots`: it is taken whole at start. Each sequence has
    `samples` samples (or beams), which hold the units of its first `prompt` tokens together in the same way. `printed_weights`: what each
    group's unit counts, in units of `printed_weight`, in the figure of a release that does not count all blocks alike.
    """

    name: str
    groups: tuple[Group, ...]
    priced: Literal["own", "pooled"] = "own"
    block_bytes: int = 0
    block_size: int | None = None
    null_blocks: int = 0
    slots: Slots | None = None
    samples: int = 1
    prompt: int = 0
    printed_weights: tuple[int, ...] = ()
    printed_weight: int = 0

    def alone(self) -> Pool:
        """This memory for sequences of one sample: what an engine's start-up check looks at."""
        return self if self.samples == 1 else replace(self, samples=1, prompt=0)

    def _held(self, group: Group, tokens: Any, term: str) -> Any:
        """Units of `group` that one sequence holds with all its samples."""
        units = getattr(group, term).units(tokens)
        if self.samples == 1:
            return units
        return self.samples * units - (self.samples - 1) * (group.shared_units(tokens, self.aligned(self.prompt), term) if self.prompt else 0)

    def units(self, tokens: Any, term: str = "resident") -> Any:
        return sum(getattr(g, term).units(tokens) for g in self.groups)

    def printed_units(self, tokens: int) -> int:
        """Units that one request of so many tokens takes as the engine's concurrency figure counts them."""
        if not self.printed_weight:
            return int(self.units(tokens, "admission"))
        weighed = sum(int(g.admission.units(tokens)) * w for g, w in zip(self.groups, self.printed_weights, strict=True))
        return -(-weighed // self.printed_weight)

    def price(self, group: Group, term: str = "resident") -> int:
        """Bytes of one unit of `group` in this pool."""
        return self.block_bytes if self.priced == "pooled" else len(group.layers) * int(getattr(group, term).unit_bytes)

    def group_bytes(self, group: Group, sequences: Any, tokens: Any, term: str = "resident") -> Any:
        """What one group holds of so many sequences of one sample, nothing shared."""
        t = getattr(group, term)
        return self.price(group, term) * (self.slots.units(group, t, sequences, tokens) if self.slots else sequences * t.units(tokens))

    def holds(self, sequences: Any, tokens: Any) -> Any:
        """Whether the load can be put here at all, whatever its bytes."""
        return self.slots.hold(sequences * self.samples, tokens) if self.slots else True

    def aligned(self, prefix: Any) -> Any:
        """The part of a prefix that can be shared: where groups draw on one pool, it ends where a unit of each of them ends (vLLM 0.33
        v1/core/kv_cache_coordinator.py, ``lcm_block_size``)."""
        if self.priced != "pooled":
            return prefix
        unit = math.lcm(*(g.resident.unit_tokens for g in self.groups if g.resident.unit_tokens))
        return prefix // unit * unit

    def bytes(self, sequences: Any, tokens: Any, term: str = "resident", prefix: int = 0) -> Any:
        """Bytes held on this rank by `sequences` sequences of `tokens` tokens each, of which the first `prefix` are the same in all.
        Ints or numpy arrays that broadcast."""
        if self.slots:
            return sum(self.group_bytes(g, sequences * self.samples, tokens, term) for g in self.groups)
        if not prefix:
            if self.priced == "pooled":
                return self.block_bytes * (sequences * sum(self._held(g, tokens, term) for g in self.groups) + self.null_blocks)
            return sequences * sum(len(g.layers) * getattr(g, term).unit_bytes * self._held(g, tokens, term) for g in self.groups)
        again, shared = sequences - (sequences > 0), self.aligned(prefix)
        held = sum(self.price(g, term) * (sequences * self._held(g, tokens, term) - again * g.shared_units(tokens, shared, term)) for g in self.groups)
        return held + self.block_bytes * self.null_blocks

    def num_blocks(self, budget_bytes: int) -> int | None:
        return max(0, budget_bytes // self.block_bytes) if self.priced == "pooled" and self.block_bytes else None


def max_sequences(pools: tuple[Pool, ...], tokens: int, budget_bytes: int, term: str = "resident", prefix: int = 0) -> int:
    """The most sequences of `tokens` tokens whose bytes stay within `budget_bytes` on one rank (0: not even one).

    Each adds what it does not share; a shared prefix is held once.
    """
    if most := max((p.slots.most for p in pools if p.slots), default=0):
        return last(most, lambda n: all(p.holds(n, tokens) for p in pools) and bool(sum(p.bytes(n, tokens, term) for p in pools) <= budget_bytes))
    none, one, two = (sum(p.bytes(n, tokens, term, prefix) for p in pools) for n in (0, 1, 2))
    each = two - one
    once = one - each  # what lies there whatever the number: null blocks and the shared prefix
    return max(0, (budget_bytes - once) // each) if each > 0 and none <= budget_bytes else 0


def max_tokens(pools: tuple[Pool, ...], sequences: int, budget_bytes: int, limit_tokens: int, term: str = "resident", prefix: int = 0) -> int:
    """The longest length, at most `limit_tokens`, at which `sequences` sequences fit into `budget_bytes`: a bisection of the
    monotone curve. 0 where one token, or the shared prefix itself, does not fit: sequences are at least as long as it."""

    def fit(tokens: int) -> bool:
        return all(p.holds(sequences, tokens) for p in pools) and bool(sum(p.bytes(sequences, tokens, term, prefix) for p in pools) <= budget_bytes)

    low = 0
    if prefix:  # one token beyond it the curve begins to rise for good: there its last block can be shared
        low = next((t for t in (prefix + 1, prefix) if t <= limit_tokens and fit(t)), limit_tokens + 1)
        if low > limit_tokens:
            return 0
    return last(limit_tokens, fit, low)


def last(high: int, fit: Callable[[int], bool], low: int = 0) -> int:
    """The last number up to `high` at which a falling `fit` still holds; `low` where none above it does."""
    while low < high:
        middle = (low + high + 1) // 2
        if fit(middle):
            low = middle
        else:
            high = middle - 1
    return low

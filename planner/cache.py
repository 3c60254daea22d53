"""What a layer remembers (the cache kinds), and what an engine makes of it (terms, groups, pools). The heart of the planner.

A kind is a value: two layers with equal kinds are equal. Kinds do not know which engine runs them. An engine turns kinds into
`Group`s with two `Term`s each and puts the groups into `Pool`s; every byte figure of a plan is `Pool.bytes(sequences, tokens)`.
Terms take an int or a numpy array alike: the heat map and a single plan run through the same lines.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    name: str
    role: Literal["conv", "recurrent"]
    elements: int
    columns: int = 1
    dtype: DType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state of constant size per sequence (SSM, linear attention, short convolution)."""

    tensors: tuple[StateTensor, ...]
    shard: Shard = "heads"

    @property
    def kind(self) -> str:
        return "state"

    def bytes_per_sequence(self, model_dtype: DType, drop_conv_columns: int = 0) -> int:
        """Bytes of one sequence's state. `drop_conv_columns`: how many columns fewer than the kernel width the holder keeps."""
        total = 0
        for t in self.tensors:
            kept = t.elements
            if t.role == "conv":
                kept = t.elements // t.columns * (t.columns - drop_conv_columns)
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
    `rest`: the tokens beyond the last whole unit instead (a compressor's buffer: a sawtooth).

    `unit_bytes` is the price of one unit in one layer (a block's page, a row, a state).
    """

    unit_bytes: int
    unit_tokens: int | None = 1
    rounding: Literal["ceil", "floor", "rest"] = "ceil"
    cap_tokens: int | None = None
    extra_units: int = 0

    def units(self, tokens: Any) -> Any:
        """`tokens`: int or numpy integer array. Returns the same kind."""
        if self.unit_tokens is None:
            return tokens * 0 + self.extra_units
        if self.cap_tokens is not None:
            tokens = min(tokens, self.cap_tokens) if isinstance(tokens, int) else tokens.clip(max=self.cap_tokens)
        if self.rounding == "rest":
            return tokens % self.unit_tokens + self.extra_units
        whole = -(-tokens // self.unit_tokens) if self.rounding == "ceil" else tokens // self.unit_tokens
        return whole + self.extra_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers (by index in the model) that share a block table. Two terms: what the engine reserves for a request of the largest
    length (`admission`), and what a running sequence holds (`resident`)."""

    kind: str
    layers: tuple[int, ...]
    admission: Term
    resident: Term

    def bytes_per_unit(self) -> int:
        return len(self.layers) * self.resident.unit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Memory that groups draw from, on one rank.

    own:    every group pays for its own units:      n * sum(layers * unit_bytes * units(S))
    pooled: every unit of any group costs one block: block_bytes * (n * sum(units(S)) + null_blocks)
    """

    name: str
    groups: tuple[Group, ...]
    priced: Literal["own", "pooled"] = "own"
    block_bytes: int = 0
    block_size: int | None = None
    null_blocks: int = 0

    def units(self, tokens: Any, term: str = "resident") -> Any:
        return sum(getattr(g, term).units(tokens) for g in self.groups)

    def bytes(self, sequences: Any, tokens: Any, term: str = "resident") -> Any:
        """Bytes held on this rank by `sequences` sequences of `tokens` tokens each. Ints or numpy arrays that broadcast."""
        if self.priced == "pooled":
            return self.block_bytes * (sequences * self.units(tokens, term) + self.null_blocks)
        return sequences * sum(len(g.layers) * getattr(g, term).unit_bytes * getattr(g, term).units(tokens) for g in self.groups)

    def num_blocks(self, budget_bytes: int) -> int | None:
        return max(0, budget_bytes // self.block_bytes) if self.priced == "pooled" and self.block_bytes else None


def max_sequences(pools: tuple[Pool, ...], tokens: int, budget_bytes: int, term: str = "resident") -> int:
    """The most sequences of `tokens` tokens whose bytes stay within `budget_bytes` on one rank (0: not even one)."""
    fixed = sum(p.bytes(0, tokens, term) for p in pools)
    each = sum(p.bytes(1, tokens, term) for p in pools) - fixed
    return max(0, (budget_bytes - fixed) // each) if each > 0 else 0


def max_tokens(pools: tuple[Pool, ...], sequences: int, budget_bytes: int, limit_tokens: int, term: str = "resident") -> int:
    """The longest length, at most `limit_tokens`, at which `sequences` sequences fit into `budget_bytes`: a bisection of the
    monotone curve. 0 where one token does not fit."""
    low, high = 0, limit_tokens
    while low < high:
        middle = (low + high + 1) // 2
        if sum(p.bytes(sequences, middle, term) for p in pools) <= budget_bytes:
            low = middle
        else:
            high = middle - 1
    return low

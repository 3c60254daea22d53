"""State-space models: Mamba, Falcon-Mamba (one), Mamba-2 (two), and the states and weights that hybrids build from.

A layer keeps a convolution's columns and one state: Mamba-1 a vector of `state` for each channel, Mamba-2 a matrix for each head, which
transformers holds in fp32 (5.24, measured).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES, DType
from planner.errors import UnsupportedValue
from planner.model import LayerSpec, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields


def state_of(mechanism: str, channels: int, width: int, recurrent: int, *, groups: int = 0, shared: int = 0, asked: DType | None = None) -> State:
    """A convolution over `channels` and `recurrent` elements of fp32. `shared`: channels of one of `groups` groups."""
    conv = StateTensor(name="conv", role="conv", elements=channels * width, columns=width, groups=groups, group_elements=shared * width)
    return State(tensors=(conv, StateTensor(name="recurrent", role="recurrent", elements=recurrent, dtype=DTYPES["fp32"], asked=asked)), mechanism=mechanism)


# -- Mamba-1 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mamba1:
    """inner channels, state a channel, the convolution's width, the rank of the time step."""

    inner: int
    state: int
    width: int
    rank: int
    bias: bool = False
    conv_bias: bool = True

    def cache(self) -> State:
        return state_of("mamba1", self.inner, self.width, self.inner * self.state)

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        return (
            *shapes.column("in_proj", 2 * self.inner, hidden, "state", self.inner, self.bias),
            Weight(name="conv1d", shape=(self.inner, 1, self.width + self.conv_bias), role="state", parts=self.inner),
            *shapes.row("x_proj", self.rank + 2 * self.state, self.inner, "state", self.inner),
            *shapes.column("dt_proj", self.inner, self.rank, "state", self.inner, bias=True),
            Weight(name="A_log_and_D", shape=(self.inner, self.state + 1), role="state", parts=self.inner),
            *shapes.row("out_proj", hidden, self.inner, "state", self.inner, self.bias),
        )


def rank_of(f: Fields, hidden: int, key: str) -> int:
    """The rank of the time step: "auto" is a sixteenth of the hidden size, rounded up."""
    if f.value(key)[1] in (None, "auto"):
        return -(-hidden // 16)
    return f.need_int(key)


def mamba(f: Fields) -> ModelSpec:
    """Mamba and Falcon-Mamba. `intermediate_size` wins over `expand`: falcon-mamba-7b says 16 and means 8192 channels."""
    layers, hidden = f.layers("num_hidden_layers", "n_layer"), f.need_int("hidden_size", "d_model")
    f.ignore("d_inner", "expand")
    inner = f.optional_int("intermediate_size") or f.int_or(2, "expand") * hidden
    m = Mamba1(inner=inner, state=f.int_or(16, "state_size"), width=f.int_or(4, "conv_kernel"), rank=rank_of(f, hidden, "time_step_rank"),
               bias=f.flag("use_bias"), conv_bias=f.flag("use_conv_bias", True))  # fmt: skip
    layer = LayerSpec(caches=(m.cache(),), weights=m.weights(hidden) + shapes.norms(hidden, 1))
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True)


# -- Mamba-2 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mamba2:
    """Heads of `head_dim`, groups that share B and C, state a head, the convolution's width."""

    heads: int
    head_dim: int
    groups: int
    state: int
    width: int
    bias: bool = False
    out_bias: bool = False
    conv_bias: bool = True
    norm: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def cache(self, asked: DType | None = None) -> State:
        """`asked`: the dtype that the file wants the state matrix in."""
        return state_of("mamba2", self.channels, self.width, self.inner * self.state, groups=self.groups, shared=2 * self.state, asked=asked)

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        return (
            *shapes.column("in_proj", self.inner + self.channels + self.heads, hidden, "state", self.heads, self.bias),
            Weight(name="conv1d", shape=(self.channels, 1, self.width + self.conv_bias), role="state", parts=self.heads),
            Weight(name="dt_bias_A_log_D", shape=(3, self.heads), role="state", parts=self.heads),
            *(shapes.norms(self.inner, 1, name="gated_norm") if self.norm else ()),
            *shapes.row("out_proj", hidden, self.inner, "state", self.heads, self.out_bias),
        )


def prefixed(f: Fields, hidden: int, inner: int | None = None) -> Mamba2:
    """The keys of Bamba, Granite-4 and Falcon-H1: `mamba_d_head` may be "auto", inner / heads. Heads must fill the inner width."""
    heads = f.int_or(128, "mamba_n_heads")
    inner = inner or f.int_or(2, "mamba_expand") * hidden
    asked = f.value("mamba_d_head")[1]
    dim = inner // heads if asked in (None, "auto") else f.need_int("mamba_d_head")
    if heads * dim != inner:
        raise UnsupportedValue("state_heads_not_dividing", field=f.name("mamba_n_heads"), heads=heads, head_dim=dim, inner=inner)
    return Mamba2(heads=heads, head_dim=dim, groups=f.int_or(1, "mamba_n_groups"), state=f.int_or(256, "mamba_d_state"), width=f.int_or(4, "mamba_d_conv"),
                  bias=f.flag("mamba_proj_bias"), out_bias=f.flag("mamba_proj_bias"), conv_bias=f.flag("mamba_conv_bias", True))  # fmt: skip


def mamba2(f: Fields) -> ModelSpec:
    layers, hidden = f.layers("num_hidden_layers", "n_layer"), f.need_int("hidden_size", "d_model")
    heads, dim = f.need_int("num_heads"), f.need_int("head_dim")
    inner = f.int_or(2, "expand") * hidden
    if heads * dim != inner:
        raise UnsupportedValue("state_heads_not_dividing", field=f.name("num_heads"), heads=heads, head_dim=dim, inner=inner)
    m = Mamba2(heads=heads, head_dim=dim, groups=f.int_or(8, "n_groups"), state=f.int_or(128, "state_size"), width=f.int_or(4, "conv_kernel"),
               bias=f.flag("use_bias"), out_bias=f.flag("use_bias"), conv_bias=f.flag("use_conv_bias", True))  # fmt: skip
    notes: tuple[Note, ...] = (
        () if f.has("n_groups") else (note("derived", "class_default", field=f.name("n_groups"), value=8, source=cite("transformers 5.24 models/mamba2")),)
    )
    layer = LayerSpec(caches=(m.cache(),), weights=m.weights(hidden) + shapes.norms(hidden, 1))
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, notes=notes)

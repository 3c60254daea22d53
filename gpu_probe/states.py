"""Shapes of the recurrent states that the probe steps, read off a layer's own weights and checked against the plan's bytes. No torch.

Letters: C channels of the short convolution, W its width, H heads of the state, G heads or groups of its keys, P value dim, N key dim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.cache import State, StateTensor
from planner.errors import UnsupportedModel
from planner.model import LayerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """One layer's state. Mamba-1 has one head a channel: heads = `inner`, P = 1.

    gated_delta_net: state [H, N, P], convolution over G * N + G * N + H * P channels (transformers 5.24 models/qwen3_next).
    mamba2: state [H, P, N], convolution over H * P + 2 * G * N (models/nemotron_h, granitemoehybrid, falcon_h1, mamba2).
    mamba1: state [inner, N], convolution over inner (models/mamba, jamba).
    """

    state: State
    mechanism: str
    heads: int
    groups: int
    key_dim: int
    value_dim: int
    channels: int
    width: int
    dt_rank: int
    conv_dtype: str
    state_dtype: str

    @property
    def inner(self) -> int:
        return self.heads * self.value_dim

    def tensors(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> (shape of one sequence's part, dtype): what the pool keeps."""
        matrix = {
            "gated_delta_net": (self.heads, self.key_dim, self.value_dim),
            "mamba2": (self.heads, self.value_dim, self.key_dim),
            "mamba1": (self.inner, self.key_dim),
        }[self.mechanism]
        return {"conv": ((self.channels, self.width), self.conv_dtype), "recurrent": (matrix, self.state_dtype)}

    def weights(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """Name -> shape; matrices are [out, in]."""
        n, h, inner = self.groups * self.key_dim, self.heads, self.inner
        own: dict[str, tuple[int, ...]] = {
            "gated_delta_net": {"s_in": (self.channels + inner + 2 * h, hidden), "s_dt_bias": (h,), "s_a": (h,), "s_gate_norm": (self.value_dim,)},
            "mamba2": {"s_in": (2 * inner + 2 * n + h, hidden), "s_dt_bias": (h,), "s_a": (h,), "s_d": (h,), "s_gate_norm": (inner,)},
            "mamba1": {
                "s_in": (2 * inner, hidden), "s_x": (self.dt_rank + 2 * self.key_dim, inner), "s_dt": (inner, self.dt_rank), "s_dt_bias": (inner,),
                "s_a": (inner, self.key_dim), "s_d": (inner,),
            },
        }[self.mechanism]  # type: ignore[assignment]  # fmt: skip
        return {"s_norm": (hidden,), **own, "s_conv": (self.channels, self.width), "s_out": (hidden, inner)}


def shape_of(state: State, layer: LayerSpec, index: int, model_dtype: str) -> StateShape:
    """The shape of `layer`'s state. Raises UnsupportedModel, naming layer and kind, where its weights do not tell, or where what they
    tell is not what the plan counts."""
    sizes = {w.name: w.shape for w in layer.weights}
    kept = {t.name: t for t in state.tensors}
    try:
        found = _SHAPES[state.mechanism](sizes, kept["conv"], kept["recurrent"])
        dtypes = [t.dtype.name if t.dtype is not None else model_dtype for t in (kept["conv"], kept["recurrent"])]
        made = StateShape(
            state=state, mechanism=state.mechanism, channels=kept["conv"].elements // kept["conv"].columns, width=kept["conv"].columns,
            conv_dtype=dtypes[0], state_dtype=dtypes[1], **found,
        )  # fmt: skip
        counted = {name: math.prod(size) for name, (size, _) in made.tensors().items()}
        if counted == {name: t.elements for name, t in kept.items()} and made.channels == _channels(made) and {*dtypes} <= {"fp32", "bf16", "fp16"}:
            return made
    except (KeyError, IndexError, ZeroDivisionError, ValueError):
        pass
    raise UnsupportedModel("probe_kind", field=f"layers[{index}].caches", kind=f"state {state.mechanism}".strip(), layer=index)


def _channels(s: StateShape) -> int:
    keys = 0 if s.mechanism == "mamba1" else 2 * s.groups * s.key_dim
    return s.inner + keys


def _delta(sizes: dict[str, tuple[int, ...]], conv: StateTensor, state: StateTensor) -> dict[str, int]:
    heads, value = sizes["dt_bias_and_A_log"][1], sizes["gated_norm"][0]
    key = state.elements // (heads * value)
    return {"heads": heads, "value_dim": value, "key_dim": key, "groups": (conv.elements // conv.columns - heads * value) // (2 * key), "dt_rank": 0}


def _mamba2(sizes: dict[str, tuple[int, ...]], conv: StateTensor, state: StateTensor) -> dict[str, int]:
    heads, inner = sizes["dt_bias_A_log_D"][1], sizes["out_proj"][1]
    key = state.elements // inner
    return {"heads": heads, "value_dim": inner // heads, "key_dim": key, "groups": (conv.elements // conv.columns - inner) // (2 * key), "dt_rank": 0}


def _mamba1(sizes: dict[str, tuple[int, ...]], conv: StateTensor, state: StateTensor) -> dict[str, int]:
    inner = sizes["out_proj"][1]
    key = state.elements // inner
    return {"heads": inner, "value_dim": 1, "key_dim": key, "groups": 1, "dt_rank": sizes["x_proj"][0] - 2 * key}


_SHAPES = {"gated_delta_net": _delta, "mamba2": _mamba2, "mamba1": _mamba1}

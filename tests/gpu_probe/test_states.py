"""Recurrent states: real tensors of the right shape in the pool, stepped exactly, and their bytes as predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_probe import device, measure, proof, recurrent, reference_states
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import StatePages
from gpu_probe.result import ProbeRequest
from gpu_probe.run import run
from gpu_probe.shapes import build_shape, in_float32
from gpu_probe.states import StateShape
from planner.cache import State
from planner.dtypes import kv_layout
from planner.engines.probe import allocate, chosen_layers, predicted_kv_bytes
from planner.errors import UnsupportedModel
from planner.model import LayerSpec, Mlp, ModelSpec
from planner.readers import read_config
from planner.weights import Weight
from tests.gpu_probe.tiny import heads, keeps, model, paged

CONFIGS = Path(__file__).parents[1] / "configs"


def weight(name: str, *shape: int) -> Weight:
    return Weight(name=name, shape=shape, role="state")


def state_layer(mechanism: str) -> LayerSpec:
    """Small ones, whose bytes are worked out in `BY_HAND`."""
    from planner.readers.mamba import state_of

    if mechanism == "gated_delta_net":  # 2 key heads of 8, 4 value heads of 6, width 4: 2 x 16 + 24 = 56 channels
        config = json.loads((CONFIGS / "qwen3_next.json").read_text())
        real = next(x for x in read_config(config, "a").layers if x.caches[0].kind == "state").caches[0]
        assert isinstance(real, State)
        conv, matrix = real.tensors
        kept = replace(real, tensors=(replace(conv, elements=56 * 4, columns=4), replace(matrix, elements=4 * 8 * 6)))
        weights = (weight("dt_bias_and_A_log", 2, 4), weight("gated_norm", 6), weight("out_proj", 64, 24))
    elif mechanism == "mamba2":  # 4 heads of 6, 2 groups, 8 keys: 24 + 2 x 16 = 56 channels
        kept = state_of("mamba2", 56, 4, 4 * 6 * 8, groups=2, shared=16)
        weights = (weight("dt_bias_A_log_D", 3, 4), weight("out_proj", 64, 24))
    else:  # 24 channels, 8 keys, dt rank 5
        kept = state_of("mamba1", 24, 4, 24 * 8)
        weights = (weight("x_proj", 5 + 16, 24), weight("out_proj", 64, 24))
    return LayerSpec(caches=(kept,), mlp=Mlp(width=48), weights=weights)


MECHANISMS = ("gated_delta_net", "mamba2", "mamba1")
# fp32: the convolution's last inputs and the matrix, for each of two sequences and two layers.
BY_HAND = {"gated_delta_net": (56 * 4 + 192) * 4, "mamba2": (56 * 4 + 192) * 4, "mamba1": (24 * 4 + 192) * 4}


def hybrid(mechanism: str) -> ModelSpec:
    return in_float32(model(state_layer(mechanism), heads(), state_layer(mechanism), heads(window=21)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("sizes", [{}, {"prompt": 1, "output": 34, "batch": 3}, {"prompt": 3, "output": 2}])
def test_prefill_and_decode_equal_the_recomputation(mechanism: str, sizes: dict[str, int]) -> None:
    decoder, attention, trace = paged(hybrid(mechanism), dirt=0.0, **sizes)
    assert proof.logits_error(decoder, trace) < 1e-5
    assert trace.blocks_moved > 0
    for group in attention.cache.groups:
        group.pool.check()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_predicted_equals_measured_equals_by_hand(mechanism: str) -> None:
    spec = hybrid(mechanism)
    _, attention, _ = paged(spec)
    found = {h.kind: h for h in measure.held(attention.cache)}
    assert found["state"].held_bytes == 2 * 2 * BY_HAND[mechanism]
    assert found["state"].by_layer == {0: 2 * BY_HAND[mechanism], 2: 2 * BY_HAND[mechanism]}
    pools = allocate(spec, kv=kv_layout("fp32"), block_size=16)
    assert predicted_kv_bytes(pools, 2, 70) == sum(h.held_bytes for h in found.values())
    assert predicted_kv_bytes(pools[:1], 2, 70) == predicted_kv_bytes(pools[:1], 2, 7000)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_steps_agree_with_the_form_without_a_recurrence(mechanism: str) -> None:
    """The layer alone, in two pieces: what the second one starts from is the state that the first one left."""
    layer = build_shape(hybrid(mechanism), (0,), vocab=8, mlp_limit=8).layers[0]
    shape = layer.state
    assert shape is not None
    generator = torch.Generator().manual_seed(5)
    w = {name: torch.randn(size, generator=generator) / max(1, size[-1]) ** 0.5 for name, size in shape.weights(64).items()}
    x = torch.randn(1, 30, 64, generator=generator)
    held = {name: torch.zeros(1, *size) for name, (size, _) in shape.tensors().items()}
    first, held = recurrent.mix(shape, w, x[:, :11], held)
    second, held = recurrent.mix(shape, w, x[:, 11:], held)
    expected = reference_states.full_state_layer(shape, w, x[0])
    assert proof.relative_error(torch.cat([first, second], 1)[0], expected) < 1e-5
    forgotten, _ = recurrent.mix(shape, w, x[:, 11:], {name: torch.zeros_like(t) for name, t in held.items()})
    assert proof.relative_error(forgotten[0], expected[11:]) > 1e-2


class StatesMixedUp(PagedAttention):
    """Decode steps step the other sequence's state."""

    def begin(self, *args: object, **kw: bool) -> None:
        super().begin(*args, **kw)  # type: ignore[arg-type]
        if not kw.get("prefill"):
            for j, group in enumerate(self.cache.groups):
                if group.is_state:
                    self._views[j].slots = self._views[j].slots.flip(0)


class StateKept(PagedAttention):
    """Decode steps do not write the state back."""

    def state(self, layer: object, w: object, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 1:
            return super().state(layer, w, x)  # type: ignore[arg-type]
        pages = self.cache.state_of[layer.index].layers[layer.index]  # type: ignore[attr-defined]
        before = {name: t.clone() for name, t in pages.held.items()}  # type: ignore[union-attr]
        out = super().state(layer, w, x)  # type: ignore[arg-type]
        pages.held.update(before)  # type: ignore[union-attr]
        return out


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("broken", [StatesMixedUp, StateKept])
def test_a_broken_state_is_caught(mechanism: str, broken: type[PagedAttention]) -> None:
    decoder, _, trace = paged(hybrid(mechanism), attention=broken)
    assert proof.logits_error(decoder, trace) > 1e-3


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_text", "nemotron_h", "granitemoehybrid", "falcon_h1", "bamba", "mamba", "jamba", "falcon_mamba"])
def test_families_run_with_their_own_shapes(name: str) -> None:
    spec = in_float32(read_config(json.loads((CONFIGS / f"{name}.json").read_text()), name))
    spec = replace(spec, layers=tuple(spec.layers[i] for i in chosen_layers(spec, 2)))
    decoder, attention, trace = paged(spec, prompt=18, output=3)
    assert proof.logits_error(decoder, trace) < 1e-5
    pools = allocate(spec, kv=kv_layout("fp32"), block_size=16)
    assert predicted_kv_bytes(pools, 2, 21) == sum(h.held_bytes for h in measure.held(attention.cache))
    assert any(isinstance(p, StatePages) for g in attention.cache.groups for p in g.layers.values())


def test_a_run_of_a_hybrid_says_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """States in the model's own types: bf16 inputs of the convolution, fp32 matrices. The proof is a float32 run of its own."""
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)
    spec = model(state_layer("mamba2"), heads(), dtype="bf16")
    result = run(spec, ProbeRequest(device="cpu", prompt=40, output=6, batch=3, shared_prefix=32))
    assert result.bytes_agree
    assert all(row.predicted == row.measured for row in result.rows if row.exact)
    state, full = result.groups
    assert (state["kind"], state["measured_bytes"]) == ("state", 3 * (56 * 4 * 2 + 192 * 4))
    assert (state["shared_blocks"], full["shared_blocks"], state["held_blocks"]) == (0, 2, 3)
    assert (result.proof["own_run"], "probe_states" in {n["code"] for n in result.notes}) == (True, True)
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error < 1e-5
    assert [line["kind"] for line in result.lines] == ["state", "full"]


def test_a_fork_needs_the_state_of_just_so_many_tokens() -> None:
    _, attention, _ = paged(hybrid("mamba2"), prompt=20, output=4)
    with pytest.raises(ValueError, match="shared prefix"):
        attention.cache.fork(0, [7], 16)
    attention.cache.fork(0, [7], 24)
    for group in attention.cache.groups:
        group.pool.check()


@pytest.mark.parametrize("mechanism", ["kda", "lightning", "short_conv", ""])
def test_other_states_are_refused_by_name(mechanism: str) -> None:
    kept = state_layer("mamba2").caches[0]
    assert isinstance(kept, State)
    with pytest.raises(UnsupportedModel) as refused:
        allocate(model(heads(), keeps(replace(kept, mechanism=mechanism))), kv=kv_layout("fp32"), block_size=16)
    assert (refused.value.field, refused.value.args_by_name["kind"]) == ("layers[1].caches", f"state {mechanism}".strip())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_state_that_its_weights_do_not_explain_is_refused(mechanism: str) -> None:
    layer = state_layer(mechanism)
    (kept,) = layer.caches
    assert isinstance(kept, State)
    conv, matrix = kept.tensors
    more = replace(layer, caches=(replace(kept, tensors=(replace(conv, elements=conv.elements + 4), matrix)),))
    for broken in (replace(layer, weights=()), more):
        with pytest.raises(UnsupportedModel) as refused:
            build_shape(model(heads(), broken), (0, 1), vocab=8, mlp_limit=8)
        assert refused.value.field == "layers[1].caches"


def test_shapes_are_those_of_the_papers() -> None:
    def shape(mechanism: str) -> StateShape:
        found = build_shape(hybrid(mechanism), (0,), vocab=8, mlp_limit=8).layers[0].state
        assert found is not None
        return found

    assert {m: [size for size, _ in shape(m).tensors().values()] for m in MECHANISMS} == {
        "gated_delta_net": [(56, 4), (4, 8, 6)], "mamba2": [(56, 4), (4, 6, 8)], "mamba1": [(24, 4), (24, 8)],
    }  # fmt: skip

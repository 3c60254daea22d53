"""Measured bytes are found in the live cache; a wrong prediction does not meet them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_probe import measure
from planner.cache import Cross, Rows, State, StateTensor
from planner.dtypes import kv_layout
from planner.engines.probe import allocate, chosen_layers, predicted_kv_bytes, steady_blocks
from planner.errors import InvalidInput, UnsupportedModel
from tests.gpu_probe.tiny import MODELS, heads, keeps, latent, model, paged


def total(attention: object) -> int:
    return sum(h.held_bytes for h in measure.held(attention.cache))  # type: ignore[attr-defined]


# By hand: two sequences of 70 tokens in blocks of 16 hold 2 * 5 * 16 = 160 rows; window 21 keeps ceil(20 / 16) + 1 = 3 blocks, 96 rows.
BY_HAND = {
    "mha": 160 * 4 * (16 + 16) * 2,
    "gqa": 160 * 2 * (16 + 16) * 3,
    "mqa": 160 * 1 * (16 + 16) * 2,
    "odd head": 160 * 1 * (7 + 5) + 160 * 2 * (9 + 9),
    "mla": 160 * (24 + 8) * 3,
    "window": 96 * 2 * 32 * 2 + 160 * 2 * 32,
    "window of one": 32 * 2 * 32 + 160 * 2 * 32,
    "mla window": 96 * 32 + 160 * 32,
    "chunk": 96 * 2 * 32 + 160 * 2 * 32,
    "shared": 160 * 2 * 32 + 96 * 2 * 32,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("kv", "itemsize"), [("fp32", 4), ("bf16", 2), ("fp8", 1)])
def test_predicted_equals_measured_equals_by_hand(name: str, kv: str, itemsize: int) -> None:
    _, attention, _ = paged(MODELS[name], kv=kv)
    pools = allocate(MODELS[name], kv=kv_layout(kv), block_size=16)
    assert predicted_kv_bytes(pools, 2, 70) == total(attention) == BY_HAND[name] * itemsize


@pytest.mark.parametrize("name", ["gqa", "mla", "window"])
def test_a_prediction_without_one_layer_is_caught(name: str) -> None:
    _, attention, _ = paged(MODELS[name])
    short = replace(MODELS[name], layers=MODELS[name].layers[:-1])
    assert predicted_kv_bytes(allocate(short, kv=kv_layout("fp32"), block_size=16), 2, 70) != total(attention)


@pytest.mark.parametrize("name", ["mha", "gqa", "window"])
def test_a_prediction_without_v_is_caught(name: str) -> None:
    _, attention, _ = paged(MODELS[name])
    keys_only = replace(MODELS[name], layers=tuple(replace(x, caches=(replace(x.caches[0], v_dim=0),)) for x in MODELS[name].layers))
    assert predicted_kv_bytes(allocate(keys_only, kv=kv_layout("fp32"), block_size=16), 2, 70) != total(attention)


def test_a_tensor_that_the_plan_does_not_know_is_found() -> None:
    _, attention, _ = paged(MODELS["gqa"])
    group, before = attention.cache.groups[0], total(attention)
    group.layers[99] = {"hidden": [torch.zeros(group.pool.num_blocks, 3).fill_(1.0)]}  # type: ignore[assignment]
    assert total(attention) == before + 3 * 4 * len(group.pool.held())


def test_a_tensor_that_nobody_wrote_to_does_not_count() -> None:
    _, attention, _ = paged(MODELS["gqa"])
    group, before = attention.cache.groups[0], total(attention)
    group.layers[99] = torch.zeros(group.pool.num_blocks, 3)  # type: ignore[assignment]
    assert total(attention) == before


def test_blocks_that_no_live_sequence_holds_do_not_count() -> None:
    _, attention, _ = paged(MODELS["gqa"])
    before = total(attention)
    attention.cache.groups[0].pool.release(1)
    assert total(attention) == before // 2


@pytest.mark.parametrize("prompt", [15, 16, 17, 20, 21, 22, 80])
@pytest.mark.parametrize("output", [1, 12, 30])
def test_a_window_meets_its_prediction_wherever_it_starts(prompt: int, output: int) -> None:
    _, attention, trace = paged(MODELS["window"], prompt=prompt, output=output)
    pools = allocate(MODELS["window"], kv=kv_layout("fp32"), block_size=16)
    assert predicted_kv_bytes(pools, 2, prompt + output) == total(attention)
    assert trace.prefill_blocks == tuple(2 * p.groups[0].admission.units(prompt) for p in pools)


def test_steady_blocks() -> None:
    assert [steady_blocks(w, 16) for w in (1, 2, 16, 17, 18, 4096)] == [1, 2, 2, 2, 3, 257]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (State(tensors=(StateTensor(name="ssm", role="recurrent", elements=8),)), "state"),
        (Cross(heads=2, k_dim=4, v_dim=4), "cross"),
        (Rows(heads=1, k_dim=8, v_dim=0, format="index"), "index"),
        (Rows(heads=1, k_dim=8, v_dim=0, shard="copy", ratio=4), "compressed"),
    ],
)
def test_what_cannot_run_is_refused_by_name(kind: object, named: str) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        allocate(model(heads(), keeps(kind)), kv=kv_layout("fp32"), block_size=16)  # type: ignore[arg-type]
    assert (refused.value.args_by_name["kind"], refused.value.field) == (named, "layers[1].caches")


def test_two_caches_in_a_layer_are_refused() -> None:
    two = replace(heads(), caches=(heads().caches[0], latent().caches[0]))
    with pytest.raises(UnsupportedModel):
        allocate(model(two), kv=kv_layout("fp32"), block_size=16)


def test_chosen_layers_have_one_of_every_kind_first() -> None:
    spec = model(*[heads(window=9)] * 5, heads(), *[heads(window=9)] * 5, heads())
    assert chosen_layers(spec, 2) == (0, 5)
    assert chosen_layers(spec, 4) == (0, 1, 2, 5)
    assert chosen_layers(spec, None) == chosen_layers(spec, 99) == tuple(range(12))
    assert chosen_layers(MODELS["shared"], 3) == (0, 1, 2)
    with pytest.raises(InvalidInput):
        chosen_layers(spec, 0)


def test_scratch_of_backends_is_found_and_tables_are_not_counted_again() -> None:
    _, attention, _ = paged(MODELS["gqa"])
    before = measure.workspace_bytes(attention)
    (choice,) = attention.choices.values()
    choice.backend.kept = [torch.zeros(100), *(view.table for view in attention._views.values())]  # type: ignore[attr-defined]
    try:
        assert measure.workspace_bytes(attention) == before + 400
    finally:
        del choice.backend.kept  # type: ignore[attr-defined]  # it lives as long as the process

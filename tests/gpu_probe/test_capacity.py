"""The largest batch: the planner's inverse beside sequences that are really added."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_probe import answer, device
from gpu_probe.figures.capacity import capacity
from gpu_probe.pool import BlockPool, PoolExhausted
from gpu_probe.result import ProbeRequest
from gpu_probe.run import run
from planner.dtypes import kv_layout
from planner.engines.probe import allocate
from planner.readers import read_config
from tests.conftest import ROOT
from tests.gpu_probe.tiny import MODELS


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 70, 700])
def test_predicted_is_found(name: str, tokens: int) -> None:
    pools = allocate(MODELS[name], kv=kv_layout("fp32"), block_size=16)
    room = capacity(pools, tokens=tokens, block_size=16, budget_bytes=2**20 + 12_345)
    assert room["predicted"] == room["found"] >= 1
    assert room["pool_bytes"] <= 2**20 + 12_345
    assert 0 <= room["unused_fraction"] < 1


def test_long_sequences_are_found_too() -> None:
    pools = allocate(MODELS["gqa"], kv=kv_layout("fp32"), block_size=16)
    room = capacity(pools, tokens=200_000, block_size=16, budget_bytes=2**40)
    assert room["predicted"] == room["found"] == 4


def test_states_too() -> None:
    import json

    pools = allocate(read_config(json.loads((ROOT / "tests/configs/qwen3_next.json").read_text()), ""), kv=kv_layout("bf16"), block_size=16)
    room = capacity(pools, tokens=500, block_size=16, budget_bytes=2**28)
    assert room["predicted"] == room["found"] > 1


def test_by_hand() -> None:
    """Three layers of 256 bytes a token: blocks of 16 tokens are 12,288 bytes, 70 tokens are 5 of them. 17 blocks: 3 sequences, 2 over."""
    pools = allocate(MODELS["gqa"], kv=kv_layout("fp32"), block_size=16)
    room = capacity(pools, tokens=70, block_size=16, budget_bytes=17 * 12_288)
    assert (room["predicted"], room["found"], room["left_bytes"]) == (3, 3, 2 * 12_288)
    assert room["unused_fraction"] == pytest.approx((2 * 16 + 3 * 10) / (17 * 16))


@pytest.mark.parametrize(("tokens", "budget"), [(16, 16), (17, 34), (33, 36)])
def test_a_prediction_that_is_one_block_off_is_noticed(tokens: int, budget: int) -> None:
    """The term of the plan says one unit more than blocks really are: the planner's inverse then says fewer sequences."""
    pools = allocate(MODELS["gqa"], kv=kv_layout("fp32"), block_size=16)
    (group,) = pools[0].groups
    wrong = (replace(pools[0], groups=(replace(group, resident=replace(group.resident, extra_units=1)),)),)
    right, off = (capacity(p, tokens=tokens, block_size=16, budget_bytes=budget * 12_288) for p in (pools, wrong))
    assert right["predicted"] == right["found"]
    assert off["predicted"] != off["found"]


def test_a_pool_that_is_one_block_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BlockPool.extend

    def greedy(self: BlockPool, sequence: int, tokens: int, *, keep_all: bool = False) -> None:
        real(self, sequence, tokens + self.block_size, keep_all=keep_all)

    monkeypatch.setattr(BlockPool, "extend", greedy)
    pools = allocate(MODELS["gqa"], kv=kv_layout("fp32"), block_size=16)
    room = capacity(pools, tokens=64, block_size=16, budget_bytes=40 * 12_288)
    assert (room["predicted"], room["found"]) == (10, 8)


def test_a_sequence_that_does_not_fit_leaves_nothing_behind() -> None:
    pool = BlockPool(3, 16)
    pool.add(0)
    with pytest.raises(PoolExhausted):
        pool.extend(0, 49)
    assert pool.free() == 3


def test_a_run_says_it_and_a_fault_turns_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)

    def row_of() -> tuple[float | int | None, float | int | None, bool]:
        result = run(MODELS["window"], ProbeRequest(device="cpu", prompt=60, output=10))
        (row,) = (r for r in result.rows if r.name.startswith("Largest batch of 70 tokens"))
        assert (row.predicted, row.measured) == (result.capacity["predicted"], result.capacity["found"])
        return row.predicted, row.measured, row.exact

    predicted, measured, exact = row_of()
    assert predicted == measured
    assert exact
    real = capacity
    monkeypatch.setattr(answer, "capacity", lambda *a, **kw: {**real(*a, **kw), "found": real(*a, **kw)["found"] - 1})
    predicted, measured, _ = row_of()
    assert predicted != measured

"""Sensitivity: every row is a plan of its own, ranked by what it buys; bars are the rows again."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api import model_of
from planner.capacity import CapacityPlan, plan, replan
from planner.hardware import find
from planner.knobs import Outcome, outcome
from planner.notes import Note
from planner.scenario import from_options
from planner.sensitivity import PAIRS, Sensitivity, sensitivity
from planner.sources import load

PLANS = ({}, {"engine": "sglang"}, {"engine": "trtllm"}, {"engine": "llamacpp"}, {"engine": "transformers"}, {"engine": "architecture"}, {"tp": 2, "gpus": 4},
         {"kv_dtype": "fp8", "weight_dtype": "fp8"}, {"target_itl": 0.012, "prompt": 1000, "output": 200},
         {"sequences": 10_000}, {"enforce_eager": True})  # fmt: skip


def planned(model: str = "Llama-3.1-8B", **options: Any) -> CapacityPlan:
    return plan(model_of(load(f"catalog:{model}")), find("H100 SXM"), from_options(options))


def of(p: CapacityPlan) -> Sensitivity:
    found = sensitivity(p)
    assert isinstance(found, Sensitivity)
    return found


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_every_row_is_a_plan(options: dict[str, Any]) -> None:
    p = planned(**options)
    found = of(p)
    assert found.before == outcome(p)
    assert found.rows
    for r in found.rows:
        again = outcome(replan(p, **dict(r.turned.changes)))
        assert isinstance(again, Outcome)
        assert r.turned.after == again
        assert r.gained == again.best - found.before.best
        assert r.itl_added_s == again.itl_s - found.before.itl_s
        assert r.turned.text
        assert all(v != getattr(p.scenario, k) for k, v in r.turned.changes)
    gains = [r.gained for r in found.rows]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_bars_are_the_rows(options: dict[str, Any]) -> None:
    found = of(planned(**options))
    by_memory = not any(r.gained for r in found.rows)
    values = {r.turned.text: r.gained_memory if by_memory else r.gained for r in found.rows}
    for b in found.bars:
        assert b.low <= 0 <= b.high
        assert not b.high or values[b.high_text] == b.high
        assert not b.low or values[b.low_text] == b.low
    widths = [b.high - b.low for b in found.bars]
    assert widths == sorted(widths, reverse=True)
    assert {b.knob for b in found.bars} <= set(PAIRS.values())


def test_half_the_bytes_of_a_row_are_twice_the_sequences() -> None:
    """Memory binds by default: an fp8 cache doubles what the pool holds, to a block; twice the context halves it."""
    found = of(planned())
    by_code = {r.turned.code: r for r in found.rows}
    assert abs(by_code["fp8_cache"].turned.after.best - 2 * found.before.best) <= 1
    assert abs(by_code["double_context"].turned.after.best - found.before.best // 2) <= 1
    assert by_code["double_tp"].turned.after.gpus == 2
    assert by_code["double_replicas"].turned.after.best == 2 * found.before.best
    assert found.best is found.rows[0]


def test_a_target_moves_the_answer() -> None:
    """Under a tight ITL target memory buys nothing, and what shortens a step does."""
    found = of(planned(target_itl=0.0095, prompt=1000, output=200))
    assert found.before.binding == "itl"
    by_code = {r.turned.code: r for r in found.rows}
    assert by_code["higher_fraction"].gained == 0
    assert by_code["double_tp"].gained > 0
    assert by_code["fp8_weights"].gained > 0


def test_no_device_is_said() -> None:
    p = plan(model_of(load("catalog:Llama-3.1-8B")), None, from_options({"kv_memory": "40GiB"}))
    assert isinstance(sensitivity(p), Note)

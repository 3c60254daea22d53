"""Loads: Little's law and its edge, against the simulator too; speculation, split workers, replicas and prices by their own arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.api import answer
from planner.capacity import CapacityPlan
from planner.errors import InvalidInput
from planner.latency import Served, served
from planner.latency.load import times
from planner.load import HEADROOM, Arrivals, LoadPlan, load_of
from planner.load.arrivals import arrivals, slot_wait_s
from planner.load.disaggregated import NIC_BYTES_PER_S, cache_bytes
from planner.load.fleet import fleet
from planner.load.speculation import tokens_per_step
from planner.notes import Note
from planner.scenario import from_options
from planner.throughput import batch_limit
from tests.planner.test_latency import llama_plan
from tests.planner.test_simulator import plan_of, simulated


def served_by(p: CapacityPlan) -> Served:
    found = served(p)
    assert not isinstance(found, Note)
    return found


def load_by(p: CapacityPlan) -> LoadPlan:
    found = load_of(p)
    assert isinstance(found, LoadPlan)
    return found


def best_of(p: CapacityPlan) -> int:
    found = batch_limit(p)
    assert not isinstance(found, Note)
    return found.best


def at_share(p: CapacityPlan, share: float, **more: Any) -> Arrivals:
    own, best = served_by(p), best_of(p)
    return arrivals(own, best, share * arrivals(own, best, 1e-6).capacity, **more)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_little_s_law_holds_at_the_answer(share: float) -> None:
    a = at_share(llama_plan(prompt=1024, output=256, tokens=1280), share)
    assert a.sequences is not None
    assert a.ttft_s is not None
    assert a.itl_s is not None
    assert a.wait_s is not None
    assert a.sequences == pytest.approx(a.rate * (a.ttft_s - a.wait_s + 256 * a.itl_s), rel=0.03)
    assert a.sequences <= a.best
    assert a.headroom == pytest.approx(1 - share)
    assert a.output_tokens_per_s == pytest.approx(a.rate * 256)


@pytest.mark.parametrize(("model", "chosen"), [
    ("Llama-3.1-8B", {"gpu": "H100 SXM", "prompt": 1024, "output": 256}),
    ("Llama-3.1-8B", {"gpu": "A100 SXM 80GB", "prompt": 2048, "output": 256}),
    ("Llama-3.1-70B", {"gpu": "H200", "tp": 4, "gpus": 4, "prompt": 2048, "output": 256}),
    ("Qwen3-30B-A3B", {"gpu": "H200", "prompt": 1024, "output": 256}),
    ("Qwen2.5-7B", {"gpu": "L40S", "prompt": 1024, "output": 256}),
])  # fmt: skip
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_the_simulator_agrees(model: str, chosen: dict[str, Any], share: float) -> None:
    p = plan_of(model, **chosen)
    a = at_share(p, share)
    assert a.sequences is not None
    assert a.ttft_s is not None
    found = simulated(p, rate=a.rate, count=max(600, int(16 * a.sequences)))
    assert found.itl_s["mean"] == pytest.approx(a.itl_s, rel=0.10)
    assert found.mean_running == pytest.approx(a.sequences, rel=0.20)  # random arrivals: the number at once swings
    assert found.ttft_s["mean"] == pytest.approx(a.ttft_s, rel=0.25)


def test_more_arrivals_are_slower_and_the_edge_is_an_overload() -> None:
    p = llama_plan(prompt=1024, output=256, tokens=1280)
    found = [at_share(p, share) for share in (0.05, 0.3, 0.6, 0.79, 0.9, 0.99)]
    for name in ("sequences", "ttft_s", "itl_s", "wait_s"):
        values = [getattr(a, name) for a in found]
        assert values == sorted(values), name
    assert [a.tight for a in found] == [False] * 4 + [True] * 2
    assert [n.code for a in found for n in a.notes] == ["load_tight"] * 2
    for share in (1.0, 1.01, 50.0):
        over = at_share(p, share)
        assert over.overloaded
        assert (over.sequences, over.ttft_s, over.itl_s, over.output_tokens_per_s) == (None, None, None, None)
        assert [n.code for n in over.notes] == ["load_overload"]


def test_an_overload_is_seen_in_the_simulator_as_a_queue_that_grows() -> None:
    p = llama_plan(prompt=1024, output=64, tokens=1088, max_num_seqs=8)
    a = at_share(p, 1.5)
    found = simulated(p, rate=a.rate, count=400)
    calm = simulated(p, rate=a.rate / 3, count=400)
    assert found.most_waiting > 50
    assert calm.most_waiting < 8
    assert found.requests_per_s == pytest.approx(a.capacity, rel=0.15)


def test_waiting_for_a_slot() -> None:
    assert slot_wait_s(0.5, 1, 1.0, 1.0) == pytest.approx(1.0)  # M/M/1: rho / (1 - rho) x service
    assert slot_wait_s(0.5, 1, 1.0, 0.0) == pytest.approx(0.5)  # M/D/1
    assert slot_wait_s(1.0, 1, 1.0, 0.0) == float("inf")
    assert slot_wait_s(50.0, 100, 1.0, 1.0) < 1e-4
    p = llama_plan(prompt=1024, output=256, tokens=1280)
    assert (at_share(p, 0.95, variation=3.0).wait_s or 0) > 3 * (at_share(p, 0.95).wait_s or 0)


def test_prefix_hits_save_prefill_and_not_memory() -> None:
    none, half = llama_plan(), llama_plan(prefix_hit_rate=0.5)
    t, u = (times(o.stages, o.speeds, o.at(32)) for o in (served_by(none), served_by(half)))
    assert served_by(half).load.cached == 512
    assert float(u.prefill_s) < 0.75 * float(t.prefill_s)
    assert float(u.step_s) == float(t.step_s)
    assert half.max_sequences == none.max_sequences
    assert served_by(llama_plan(prefix_hit_rate=1.0)).load.cached == 1023


def test_tokens_a_step() -> None:
    assert tokens_per_step(0.0, 5) == 1
    assert tokens_per_step(1.0, 5) == 6
    assert tokens_per_step(0.5, 2) == 1.75
    assert tokens_per_step(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))


def test_speculation_helps_few_sequences_and_costs_many() -> None:
    few, many = (load_by(llama_plan(acceptance_rate=0.6, sequences=n)).speculation for n in (1, 256))
    assert few is not None
    assert many is not None
    assert few.drafted == 3
    assert few.drafter == "none"
    assert few.gain > many.gain
    assert few.verify_s >= few.plain_step_s
    assert few.itl_s == pytest.approx(few.verify_s / few.tokens_per_step, rel=0.01)
    better = load_by(llama_plan(acceptance_rate=0.9, sequences=1)).speculation
    assert better is not None
    assert better.itl_s < few.itl_s


def test_draft_layers_cost_time_and_have_a_break_even() -> None:
    p = plan_of("DeepSeek-V3", gpu="H200", tp=8, gpus=8, prompt=1024, output=512, sequences=32, num_speculative_tokens=1, acceptance_rate=0.8)
    s = load_by(p).speculation
    assert s is not None
    assert (s.drafter, s.drafted) == ("layers", 1)
    assert 0 < s.draft_s < s.verify_s / 10  # one layer of 61, and the output matrix
    assert s.break_even is not None
    assert 0 < s.break_even < 1

    def itl(rate: float) -> float:
        found = load_by(replace_scenario(p, acceptance_rate=rate)).speculation
        assert found is not None
        return found.itl_s

    assert itl(s.break_even) <= s.plain_itl_s
    assert itl(max(0.0001, s.break_even - 0.002)) > s.plain_itl_s


def replace_scenario(p: CapacityPlan, **changes: Any) -> CapacityPlan:
    return replace(p, scenario=replace(p.scenario, **changes))


def test_split_workers_match_and_the_cache_travels() -> None:
    p = plan_of("Llama-3.1-70B", gpu="H100 SXM", tp=4, gpus=4, prompt=8192, output=512, request_rate=10)
    s = load_by(p).split
    assert s is not None
    assert s.transfer_bytes == 8192 * 320 * 1024 == cache_bytes(p, 8192)
    assert s.transfer_s["network"] == pytest.approx(8192 * 320 * 1024 / NIC_BYTES_PER_S)
    assert s.transfer_s["network"] == pytest.approx(0.0537, rel=0.01)
    assert all(0 < s.exposed_s[k] <= s.transfer_s[k] for k in s.transfer_s)
    a, b = s.prefill_workers * s.prefill_rate, s.decode_workers * s.decode_rate
    assert s.idle == pytest.approx(1 - min(a, b) / max(a, b))
    assert s.itl_s < s.together_itl_s
    assert s.decode_rate == pytest.approx(s.sequences / (512 * s.itl_s))
    assert s.needed is not None
    assert (s.needed[0] - 1) * s.prefill_rate < 10 <= s.needed[0] * s.prefill_rate
    assert (s.needed[1] - 1) * s.decode_rate < 10 <= s.needed[1] * s.decode_rate


def test_replicas_and_prices() -> None:
    one = at_share(llama_plan(prompt=1024, output=256, tokens=1280), 0.1)
    cap = one.capacity
    for factor, wanted in ((0.5, (1, 1, 2)), (0.9, (1, 2, 2)), (1.0, (1, 2, 2)), (3.0, (3, 4, 4)), (7.9, (8, 10, 10))):
        f = fleet(one, factor * cap, 1, 4, 2.5)
        assert (f.least, f.with_headroom, f.one_lost) == wanted
        assert (f.one_lost - 1) * cap >= factor * cap * 0.999999
        assert f.with_headroom * cap * HEADROOM >= factor * cap * 0.999999
        assert f.cost_a_day == f.one_lost * 4 * 2.5 * 24
        assert f.cost_per_million_output_tokens == pytest.approx(f.cost_a_day / (factor * cap * 86_400 * 256) * 1e6)
        assert f.enough is False
    assert fleet(one, cap, 2, 4, None).cost_a_day is None
    assert fleet(one, cap, 2, 4, None).enough
    assert [fleet(one, 7.9 * cap, n, 4, None).carries for n in (7, 8, 9, 10)] == ["short", "bare", "bare", "lost"]
    assert [fleet(one, 0.5 * cap, n, 4, None).carries for n in (1, 2)] == ["spare", "lost"]


def test_the_rate_is_shared_by_the_replicas() -> None:
    one = load_by(plan_of("Llama-3.1-8B", gpu="H100 SXM", prompt=1024, output=256, request_rate=6)).arrivals
    four = load_by(plan_of("Llama-3.1-8B", gpu="H100 SXM", gpus=4, tp=1, sequences=16, prompt=1024, output=256, request_rate=24)).arrivals
    assert one is not None
    assert four is not None
    assert four.rate == one.rate
    assert four.sequences == pytest.approx(one.sequences)


def test_nothing_that_fits_carries_nothing() -> None:
    found = load_by(plan_of("Llama-3.1-8B", gpu="H100 SXM", prompt=1024, output=256, target_itl="1ms", request_rate=1))
    assert found.arrivals is None
    assert found.split is None
    assert [n.code for n in found.notes] == ["load_none_served"]


def test_the_answer_holds_it() -> None:
    base = {"gpu": "H100 SXM", "prompt": 1024, "output": 256, "sequences": 16}
    out = answer("plan", "catalog:Llama-3.1-8B", {**base, "request_rate": "1000", "price-per-gpu-hour": "3", "acceptance_rate": 0.7, "prefix-hit-rate": 0.3})
    assert out["load"]["arrivals"]["overloaded"] is True
    assert out["load"]["fleet"]["one_lost"] > 10
    assert any(n["code"] == "load_overload" for n in out["notes"])
    plain = answer("plan", "catalog:Llama-3.1-8B", base)
    assert plain["load"]["arrivals"] is plain["load"]["fleet"] is plain["load"]["speculation"] is None
    again = from_options(from_options({"request_rate": 12.5, "prefix_hit_rate": 0.3}).to_query())
    assert (again.request_rate, again.prefix_hit_rate) == (12.5, 0.3)


@pytest.mark.parametrize(("name", "value"), [
    *(("request_rate", bad) for bad in ("0", "nan", "-1", "1e99", True, [1])), ("prefix_hit_rate", "1.5"), ("acceptance_rate", "two"),
    ("price_per_gpu_hour", "inf"),
])  # fmt: skip
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as e:
        from_options({name: value})
    assert e.value.field == name

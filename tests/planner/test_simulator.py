"""The simulator against the closed form, against itself, and against what cannot be: pools are never overdrawn, every token is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.api import answer
from planner.capacity import CapacityPlan, plan, replan
from planner.errors import InvalidInput, PlannerError
from planner.hardware import find
from planner.latency import served
from planner.latency.load import times
from planner.latency.steps import launches, prefill
from planner.notes import Note
from planner.readers import read_config
from planner.scale import First, Scale
from planner.scenario import Scenario, from_options
from planner.simulator import Limits, Simulation, percentiles, simulate
from planner.simulator.clock import Clock
from planner.simulator.memory import memory_of
from planner.simulator.requests import Requests, trace
from planner.simulator.scheduler import Run, run
from planner.sources import load
from tests.planner.test_latency import llama_plan

H100, H200 = "H100 SXM", "H200"
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 1}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 8}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 64}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 128}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 4096, "output": 256, "sequences": 32}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 8000, "output": 192, "sequences": 24}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 32, "max_num_batched_tokens": 512}),
    ("Llama-3.1-8B", {"gpu": "A100 SXM 80GB", "prompt": 2048, "output": 512, "sequences": 32}),
    ("Llama-3.1-8B", {"gpu": H100, "prompt": 2048, "output": 256, "sequences": 48, "prefix_hit_rate": 0.5}),
    ("Llama-3.1-70B", {"gpu": H200, "tp": 4, "gpus": 4, "prompt": 2048, "output": 512, "sequences": 64}),
    ("Llama-3.1-70B", {"gpu": H100, "tp": 4, "pp": 2, "gpus": 8, "prompt": 2048, "output": 512, "sequences": 64}),
    ("Qwen3-32B", {"gpu": H100, "tp": 2, "gpus": 2, "prompt": 1000, "output": 500, "sequences": 48}),
    ("Qwen3-30B-A3B", {"gpu": H100, "prompt": 1024, "output": 512, "sequences": 32}),
    ("gpt-oss-120b", {"gpu": "B200", "prompt": 1024, "output": 512, "sequences": 64}),
    ("DeepSeek-V3", {"gpu": H200, "tp": 8, "gpus": 8, "prompt": 1024, "output": 512, "sequences": 64}),
    ("DeepSeek-V3", {"gpu": H200, "tp": 8, "gpus": 8, "dp_attention": 8, "prompt": 1024, "output": 512, "sequences": 256}),
    ("Gemma-3-27B", {"gpu": H100, "tp": 2, "gpus": 2, "prompt": 3000, "output": 300, "sequences": 32}),
    ("Mixtral-8x7B", {"gpu": H100, "tp": 2, "gpus": 2, "prompt": 1024, "output": 256, "sequences": 32}),
    ("Qwen2.5-7B", {"gpu": "L40S", "prompt": 1024, "output": 512, "sequences": 16}),
    ("Mistral-Nemo", {"gpu": H100, "engine": "trtllm", "prompt": 2048, "output": 512, "sequences": 32}),
    ("Qwen3-8B", {"gpu": H100, "engine": "sglang", "prompt": 512, "output": 512, "sequences": 32}),
    ("Qwen3-Next-80B-A3B", {"gpu": H200, "tp": 2, "gpus": 2, "prompt": 4096, "output": 512, "sequences": 32}),
]


def plan_of(model: str, **chosen: Any) -> CapacityPlan:
    s = from_options(chosen, Scenario(model=model))
    return plan(read_config(load(f"catalog:{model}").raw, model), find(s.gpu), s)


def simulated(p: CapacityPlan, **more: Any) -> Simulation:
    found = simulate(p, **more)
    assert isinstance(found, Simulation)
    return found


def served_run(p: CapacityPlan, prompts: list[int], outputs: list[int], *, together: int = 0, **more: Any) -> tuple[Run, Requests]:
    own = served(p)
    assert not isinstance(own, Note)
    memory = memory_of(p, len(own.stages))
    assert memory is not None
    asked = Requests(np.array(prompts), np.array(outputs), None if together else np.zeros(len(prompts)), together or None)
    values: dict[str, Any] = {"chunk": 8192, "policy": "chunked", "most": 256, "cached": np.zeros(len(prompts), int), "limits": Limits(), **more}
    return run(asked, Clock(own.stages, own.speeds), memory, **values), asked


@pytest.mark.parametrize(("model", "chosen"), CASES, ids=[f"{i}-{m}" for i, (m, _) in enumerate(CASES)])
def test_the_closed_form_is_within_ten_percent(model: str, chosen: dict[str, Any]) -> None:
    found = simulated(plan_of(model, **chosen))
    assert found.closed_form is not None
    assert found.finished > 0
    assert found.itl_s["mean"] == pytest.approx(found.closed_form["itl_s"], rel=0.10)
    assert found.output_tokens_per_s == pytest.approx(found.closed_form["output_tokens_per_s"], rel=0.10)


def test_there_are_twenty_cases() -> None:
    assert len(CASES) >= 20


def test_the_same_seed_gives_the_same_answer_and_another_one_does_not() -> None:
    p = llama_plan(lengths="200+100:3,2000+300:1", sequences=16)
    one, again, other = (simulated(p, seed=seed) for seed in (3, 3, 4))
    assert one.to_json() == again.to_json()
    assert one.itl_s != other.itl_s


def test_a_lone_request_takes_the_closed_forms_time() -> None:
    p = llama_plan(prompt=1000, output=50, sequences=1)
    found = simulated(p)
    assert found.closed_form is not None
    assert found.ttft_s["mean"] == pytest.approx(found.closed_form["ttft_s"], rel=0.02)
    assert found.most_waiting <= 1
    assert found.most_running == 1


def test_every_token_is_given_once_and_in_its_time() -> None:
    prompts, outputs = [100, 5000, 1, 700], [30, 7, 1, 200]
    done, _ = served_run(llama_plan(), prompts, outputs)
    assert done.finished == 4
    assert int(done.tokens.sum()) == sum(outputs)
    assert int(done.gap_n.sum()) == sum(outputs) - len(outputs)
    assert (done.first_s <= done.finish_s).all()
    assert done.finish_s[2] == done.first_s[2]
    assert (np.diff(done.step_end_s) > 0).all()
    assert done.end_s == pytest.approx(done.step_end_s[-1])


def test_a_step_takes_no_more_than_its_budget() -> None:
    """7 prompts of 1,000 tokens need 7 steps of 1,000 tokens, and 14 of 500; one token each is given at the end of a prompt."""
    for chunk, steps in ((1000, 7), (500, 14)):
        done, _ = served_run(llama_plan(), [1000] * 7, [1] * 7, chunk=chunk)
        assert done.steps == steps
    whole, _ = served_run(llama_plan(), [1000] * 7, [1] * 7, chunk=500, policy="whole")
    assert whole.steps == 7


def test_cached_tokens_need_no_prefill() -> None:
    done, _ = served_run(llama_plan(), [1000] * 4, [1] * 4, chunk=250, cached=np.array([0, 500, 750, 999]))
    assert done.steps == 8  # 1000 + 500 + 250 + 1 tokens, 250 a step: seven whole steps, and one for the last token
    assert done.finished == 4


def small_pool(blocks: int, **more: Any) -> CapacityPlan:
    p = llama_plan(prompt=100, output=100, tokens=200, sequences=8, max_model_len=400, **more)
    assert p.bytes_per_block is not None
    return llama_plan(prompt=100, output=100, tokens=200, sequences=8, max_model_len=400, kv_memory=blocks * p.bytes_per_block, **more)


def test_a_factor_of_the_ttft_alone_is_not_simulated_and_said() -> None:
    plain = llama_plan(prompt=1000, output=50, sequences=1)
    kept = Scale(factor=1.0, residual=0.0, points=3, of="points", gpu=H100, engine="vllm", model=plain.model.name,
                 first=First(factor=2.0, residual=0.0, points=3)).text()  # fmt: skip
    found, without = simulated(replan(plain, calibration=kept)), simulated(plain)
    assert (found.ttft_s, found.closed_form) == (without.ttft_s, without.closed_form)
    assert [n.code for n in found.notes] == ["simulate_first"]
    assert not without.notes


def test_samples_are_not_simulated_and_a_cut_trace_is_said() -> None:
    found = simulate(llama_plan(prompt=100, output=10, tokens=110, samples=4, sequences=2))
    assert isinstance(found, Note)
    assert found.code == "simulate_fan"
    asked = Requests(np.array([100] * 3), np.array([5] * 3), np.zeros(3), None, cut=True)
    assert [n.code for n in simulated(llama_plan(), requests=asked).notes] == ["simulate_cut"]


def test_a_full_pool_preempts_the_last_that_came_and_all_are_served_in_the_end() -> None:
    """8 requests of 200 tokens need 13 blocks of 16 each; the pool has 60 and its null block, so that 7 begin (7 blocks) and 4 can end."""
    done, _ = served_run(small_pool(61), [100] * 8, [100] * 8)
    assert done.preemptions > 0
    assert done.finished == 8
    assert done.refused == 0
    assert int(done.tokens.sum()) == 800
    assert done.used.max() <= 1.0
    assert done.used.max() > 0.9
    assert done.finish_s[0] < done.finish_s[7]
    assert done.running.max() == 8
    none, _ = served_run(small_pool(8 * 13 + 1), [100] * 8, [100] * 8)
    assert none.preemptions == 0
    assert none.used.max() == 1.0
    assert none.end_s < done.end_s


def test_who_was_preempted_comes_back_before_those_who_wait() -> None:
    done, _ = served_run(small_pool(61), [100] * 12, [100] * 12)
    assert done.preemptions > 0
    assert (np.diff(done.finish_s) >= 0).all()


def test_gaps_are_the_time_between_two_tokens() -> None:
    done, _ = served_run(llama_plan(), [500], [40])
    assert float((done.gap_s * done.gap_n).sum()) == pytest.approx(done.finish_s[0] - done.first_s[0])
    assert done.gap_s.max() < 0.02


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V2-Lite"])
def test_a_step_takes_the_time_of_its_operators(model: str) -> None:
    """Decode alone is the closed form's step; a piece of a prompt costs what `prefill` says of it, more the more tokens lie before it."""
    own = served(plan_of(model, gpu=H100, prompt=3000, output=1000, sequences=10))
    assert not isinstance(own, Note)
    clock, contexts = Clock(own.stages, own.speeds), np.full(10, 3500)
    assert clock.step_s(contexts, [], 10) == pytest.approx(float(times(own.stages, own.speeds, own.at(10)).step_s), rel=1e-9)
    alone = clock.step_s(contexts[:0], [(1000, 0)], 1)
    fixed = own.speeds.step_s + sum(launches(w, own.speeds) for w in own.stages)
    assert alone == pytest.approx(fixed + sum(float(prefill(w, own.speeds, 1000).total) for w in own.stages), rel=1e-9)
    later = clock.step_s(contexts[:0], [(1000, 2000)], 1)
    assert later == pytest.approx(fixed + sum(float(prefill(w, own.speeds, 1000, 1, 2000).total) for w in own.stages), rel=1e-9)
    assert later > alone


def test_blocks_are_whole() -> None:
    """A request of 1 + 1 tokens takes a block of 16: of 10 blocks beside the null block, ten run at once and no more."""
    done, _ = served_run(small_pool(11, max_num_seqs=64), [1] * 30, [3] * 30)
    assert done.running.max() == 10
    assert done.preemptions == 0
    assert done.finished == 30


def test_a_request_beyond_the_pool_is_refused_and_the_rest_goes_on() -> None:
    for together in (0, 2):
        done, _ = served_run(small_pool(61), [100, 2000, 100, 100], [10, 10, 10, 10], together=together)
        assert (done.refused, done.finished) == (1, 3)


def test_engines_that_reserve_never_preempt() -> None:
    p = llama_plan(engine="trtllm", prompt=100, output=100, tokens=200, sequences=8, max_model_len=400)
    assert p.bytes_per_block is not None
    tight = replace(p, kv_pool_bytes=41 * p.bytes_per_block, sizes=None)
    done, _ = served_run(tight, [100] * 8, [100] * 8)
    assert (done.preemptions, done.finished) == (0, 8)
    assert done.running.max() == 5  # 7 blocks of 32 tokens each


def test_slots_are_kept() -> None:
    done, _ = served_run(llama_plan(), [50] * 20, [20] * 20, most=3)
    assert done.running.max() == 3
    assert done.waiting.max() == 17
    slots = plan_of("Llama-3.1-8B", gpu="RTX 4090", engine="llamacpp", parallel=4, tokens=2000, sequences=4)
    found = simulated(slots)
    assert found.most_running <= slots.max_sequences
    assert found.preemptions == 0


@pytest.mark.parametrize(("limits", "stopped"), [(Limits(steps=50), "steps"), (Limits(simulated_s=0.2), "time"), (Limits(clock_s=-1.0), "clock")])
def test_it_ends(limits: Limits, stopped: str) -> None:
    found = simulated(llama_plan(prompt=1000, output=1000), limits=limits)
    assert found.stopped == stopped
    assert found.finished < found.requests
    assert any(n.code == "simulate_stopped" for n in found.notes)


def test_percentiles_are_of_the_weighted_values() -> None:
    got = percentiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 98.0, 1.0]))
    assert (got["p50"], got["p90"], got["p99"]) == (1.0, 1.0, 2.0)
    assert got["mean"] == pytest.approx(1.03)
    assert percentiles(np.zeros(0), np.zeros(0)) == {}


def test_the_timeline_is_short_and_holds_the_peaks() -> None:
    found = simulated(llama_plan(prompt=500, output=300, sequences=40, lengths=None))
    assert 0 < len(found.timeline) <= 240
    assert max(r["running"] for r in found.timeline) == found.most_running
    assert max(r["used"] for r in found.timeline) == found.most_used
    assert found.blocks is not None
    assert found.most_blocks is not None
    assert 0 < found.most_blocks <= found.blocks


def test_a_trace_keeps_its_order_and_its_times() -> None:
    own = trace(b"time,prompt,output\n12.5,30,3\n10,10,1\n11,20,2\n")
    assert own.arrival_s is not None
    assert (list(own.prompt), list(own.output), list(own.arrival_s)) == ([10, 20, 30], [1, 2, 3], [0.0, 1.0, 2.5])
    dates = trace(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n")
    assert dates.arrival_s is not None
    assert dates.arrival_s[1] == pytest.approx(4.314579, abs=1e-3)
    assert not own.cut
    long = trace(b"prompt,output\n" + b"1,1\n" * 20_001)
    assert (len(long.prompt), long.cut) == (20_000, True)
    loop = trace(b"prompt,output\n10,5\n20,6\n30,7\n", together=2)
    assert (loop.arrival_s, loop.together) == (None, 2)
    assert list(loop.output)[2] == 7


@pytest.mark.parametrize("data", [
    b"", b"prompt,output\n", b"time,prompt,output\nsoon,1,1\n", b"prompt,output\n-1,2\n", b"prompt,output\n1,nan\n", b"\x00\xff", b"a,b\n1,2\n",
    b"time,prompt,output\n1e400,1,1\n", b"prompt,output\n999999999,999999999\n", b"time,prompt,output\n,1,1\n",
])  # fmt: skip
def test_a_bad_trace_is_answered(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        trace(data)


def test_the_command_line_simulates(tmp_path: Any) -> None:
    options = {"gpu": H100, "prompt": 200, "output": 50, "sequences": 4}
    out = answer("plan", "catalog:Llama-3.1-8B", {**options, "simulate": True})
    assert out["simulation"]["finished"] == 16
    assert "simulation" not in answer("plan", "catalog:Llama-3.1-8B", options)
    file = tmp_path / "t.csv"
    file.write_text("time,prompt,output\n0,100,5\n1,100,6\n")
    out = answer("plan", "catalog:Llama-3.1-8B", {**options, "trace": str(file)})
    assert out["simulation"]["requests"] == 2
    for bad in (str(tmp_path), "/no/such/file", 7, "\0"):
        with pytest.raises(PlannerError):
            answer("plan", "catalog:Llama-3.1-8B", {**options, "trace": bad})
    with pytest.raises(InvalidInput, match="command line"):
        answer("plan", "catalog:Llama-3.1-8B", {**options, "trace": str(file)}, allow_paths=False)


def test_no_device_and_no_pool_are_said() -> None:
    assert isinstance(simulate(plan_of("Llama-3.1-70B", gpu="L4")), Note)

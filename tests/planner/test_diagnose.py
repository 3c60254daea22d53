"""Diagnosis: known bottlenecks are named from what a user sees, open ones are said to be open, and every remedy is a plan of its own."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import main
from planner.capacity import plan, replan
from planner.diagnose import FIXES, Diagnosis, Observed, diagnose, judge, observed, paste
from planner.errors import InvalidInput
from planner.hardware import find
from planner.knobs import FEWER_KV_HEADS, KNOBS, LOADS, Outcome, outcome, turned
from planner.messages import en
from planner.scenario import from_options
from tests.planner.diagnose_cases import CASES, OPEN, Case, at, model

ITL_ONLY = [c for c in CASES if c.shown == ("itl",)]


def of(c: Case) -> Diagnosis:
    return diagnose(c.plan(), c.seen())


def test_known_bottlenecks_are_named() -> None:
    """At least nine of ten, and never another one than the true one: what is left is said to be open."""
    got = {c.name: of(c).verdict for c in CASES}
    right = [c.name for c in CASES if got[c.name] == c.truth]
    assert len(CASES) >= 20
    assert len(right) >= 0.9 * len(CASES), got
    assert all(got[c.name] in (c.truth, "undecided") for c in CASES), got
    assert {c.truth for c in CASES} == {"weights", "cache", "launches", "links", "prefill", "queueing", "pool"}


@pytest.mark.parametrize("c", ITL_ONLY, ids=lambda c: c.name)
def test_the_truth_of_a_case_is_its_systems(c: Case) -> None:
    """The label is no opinion: it is the part that the true system's token time goes to."""
    assert c.heaviest() == c.truth


def test_on_any_load_the_answer_is_right_or_open() -> None:
    """Loads drawn at random, measured up to 12 % wrong: what is named is the part that the true system's token time goes to."""
    draw = random.Random(20)
    kinds = (("Llama-3.1-8B", {}), ("Llama-3.1-8B", {"gpu": "A100 SXM 80GB"}), ("Llama-3.1-70B", {"tp": 8, "gpus": 8}), ("Mixtral-8x7B", {"tp": 2, "gpus": 2}),
             ("DeepSeek-V3", {"tp": 8, "gpus": 8, "gpu": "H200 SXM"}), ("Llama-3.2-1B", {}), ("gpt-oss-120b", {"engine": "trtllm"}),
             ("Qwen2.5-7B", {"gpu": "L40S", "engine": "sglang"}))  # fmt: skip
    named = 0
    for i in range(80):
        name, options = draw.choice(kinds)
        load = at(draw.choice((1, 2, 8, 16, 32, 64, 128)), draw.choice((100, 500, 1000, 4000, 16_000, 30_000)), draw.choice((50, 200, 1000, 2000)))
        c = Case(name=str(i), truth="", model=name, options=options, load=load, off=draw.uniform(0.88, 1.12), other=draw.choice(({}, {"sequences": 5})))
        verdict = of(c).verdict
        assert verdict in (c.heaviest(), "undecided"), c
        named += verdict != "undecided"
    assert named >= 60


@pytest.mark.parametrize("c", OPEN, ids=lambda c: c.name)
def test_what_cannot_be_decided_is_said(c: Case) -> None:
    d = of(c)
    assert not d.decided
    assert d.asks, "it must be said which figure would decide"
    assert not d.fixes, "no remedy before a diagnosis"


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cache's part charged to the weights, cases turn: the test above can fail."""
    true = judge._itl

    def wrong(own: Any, predicted: Any, seen: Any, complaint: str) -> Any:
        parts = dict(predicted.parts_s)
        parts["weights"], parts["cache"] = parts["cache"], parts["weights"]
        return true(own, replace(predicted, parts_s=parts), seen, complaint)

    monkeypatch.setattr(judge, "_itl", wrong)
    assert sum(of(c).verdict == c.truth for c in CASES) < 0.7 * len(CASES)


def test_a_second_measurement_decides_what_one_leaves_open() -> None:
    """At one load the ITL of a slow cache kernel is above every range; at two the part that grows is told."""
    c = next(c for c in CASES if c.slower and c.truth == "cache")
    assert of(replace(c, other={})).verdict == "undecided"
    assert of(c).verdict == "cache"
    near = next(c for c in OPEN if c.name == "weights and cache alike")
    assert any(a.code == "ask_other_batch" for a in of(near).asks)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_every_remedy_is_a_plan(c: Case) -> None:
    """What is printed after a remedy is what the planner says of the plan with its changes; the one that helps most comes first."""
    d = of(c)
    if not d.decided:
        return
    assert d.fixes
    assert d.before == outcome(d.plan)
    for fix in d.fixes:
        changes = dict(fix.turned.changes)
        assert changes or fix.turned.code == FEWER_KV_HEADS
        again = outcome(replan(d.plan, **changes) if changes else plan(fix.turned.plan.model, d.plan.hardware, d.plan.scenario))
        assert isinstance(again, Outcome)
        assert again == fix.turned.after
        assert d.before
        if fix.itl_s is not None and d.seen.itl_s:
            assert fix.itl_s / d.seen.itl_s == pytest.approx(again.itl_s / d.before.itl_s)
        assert fix.turned.text
        assert fix.turned.cost
    assert json.dumps(d.to_json(), allow_nan=False)


def test_remedies_fit_the_bottleneck() -> None:
    """The articles' signals: weights -> fewer bytes of weights; cache -> a smaller cache; memory -> more room or fewer; the first token -> prompts."""
    first = {c.truth: {f.turned.code for f in of(c).fixes} for c in CASES if of(c).decided}
    assert {"fp8_weights", "double_tp"} & first["weights"]
    assert "fp8_cache" in first["cache"]
    assert {"fp8_cache", "half_context", "shared_prefix"} <= first["pool"]
    assert "graphs_on" in {f.turned.code for f in of(next(c for c in CASES if c.options.get("enforce_eager"))).fixes}
    assert "fp8_cache" not in first["prefill"] | first["launches"]


def test_fewer_kv_heads_are_another_model() -> None:
    """A quarter of the heads is a quarter of the bytes of a row, and so four times the sequences, to a block of each."""
    p = CASES[1].plan()
    (t,) = turned(p, [FEWER_KV_HEADS])
    assert t.plan.footprint.architecture_bytes * 4 == p.footprint.architecture_bytes
    assert t.after.memory == pytest.approx(4 * p.total_max_sequences, abs=4)
    assert t.text == "Another model: 2 KV heads for 8"
    assert not list(turned(replan(plan(model("DeepSeek-V3"), find("H200 SXM"), from_options({"tp": 8, "gpus": 8}))), [FEWER_KV_HEADS]))


def test_every_word_is_there() -> None:
    codes = {FEWER_KV_HEADS, *(code for code, _, _ in (*KNOBS, *LOADS))}
    assert set().union(*FIXES.values()) <= codes
    for code in codes:
        assert {f"knob.{code}", f"knob.{code}.cost"} <= set(en.TEXT)
    for verdict in (*FIXES, "undecided"):
        assert f"diagnose.verdict.{verdict}" in en.TEXT


def test_a_rate_and_a_batch_give_the_time_of_a_token() -> None:
    c = CASES[0]
    seen = c.seen()
    assert seen.itl_s
    rate = 1 * 512 / (0.05 + 512 * seen.itl_s)
    d = diagnose(c.plan(), Observed(sequences=1, prompt=128, output=512, ttft_s=0.05, tokens_per_s=rate, complaint="itl"))
    assert d.seen.itl_s == pytest.approx(seen.itl_s)
    assert d.verdict == "weights"


@pytest.mark.parametrize(("values", "field"), [({"ttft_s": -1}, "ttft_s"), ({"itl_s": float("nan")}, "itl_s"), ({"sequences": 10**9}, "sequences"),
                                               ({"kv_usage": 1.5}, "kv_usage"), ({"oom": "maybe"}, "oom"), ({"colour": 1}, "colour"),
                                               ({"prompt": "many"}, "prompt"), ({"waiting": True}, "waiting"), ({"itl_s": 10**400}, "itl_s")])  # fmt: skip
def test_bad_figures_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as e:
        observed(values)
    assert e.value.field == field


def test_nothing_seen_asks_for_something() -> None:
    d = diagnose(CASES[0].plan(), Observed())
    assert (d.verdict, [a.code for a in d.asks]) == ("undecided", ["ask_times"])


# -- pasted texts -----------------------------------------------------------------------------------------------------------

METRICS = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 60.0
vllm:num_requests_waiting{engine="0",model_name="m"} 12.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.99
vllm:num_preemptions_total{engine="0",model_name="m"} 37.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 5.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 100.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 250.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 20000.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 600.0
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 100.0
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 600000.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 100.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 219200.0
"""
SGLANG = """
sglang:num_running_reqs{model_name="m"} 8.0
sglang:num_queue_reqs{model_name="m"} 0.0
sglang:token_usage{model_name="m"} 0.28
sglang:gen_throughput{model_name="m"} 86.5
sglang:time_to_first_token_seconds_sum{model_name="m"} 2.0
sglang:time_to_first_token_seconds_count{model_name="m"} 10.0
sglang:prompt_tokens_total{model_name="m"} 8000.0
sglang:generation_tokens_total{model_name="m"} 1000.0
"""
BENCH = """
============ Serving Benchmark Result ============
Successful requests:                     100
Maximum request concurrency:             16
Benchmark duration (s):                  10.00
Total input tokens:                      102400
Total generated tokens:                  25600
Output token throughput (tok/s):         1,024.00
---------------Time to First Token----------------
Mean TTFT (ms):                          180.50
Median TTFT (ms):                        170.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          12.25
P99 TPOT (ms):                           20.00
"""


def test_a_scrape_of_vllm() -> None:
    p = paste.read(METRICS)
    assert p.kind == "metrics"
    assert p.seen == Observed(sequences=60, waiting=12, kv_usage=0.99, preemptions=37, ttft_s=2.5, itl_s=0.03, prompt=6000, output=2192)
    assert diagnose(CASES[0].plan(), p.seen).verdict == "pool"


def test_a_scrape_of_sglang() -> None:
    p = paste.read(SGLANG)
    assert p.seen == Observed(sequences=8, waiting=0, kv_usage=0.28, tokens_per_s=86.5, ttft_s=0.2, prompt=800, output=100)


def test_a_benchmarks_summary_and_its_json() -> None:
    expected = Observed(sequences=16, ttft_s=0.1805, itl_s=0.01225, tokens_per_s=1024.0, prompt=1024, output=256)
    assert paste.read(BENCH).seen == expected
    raw = {"completed": 100, "max_concurrency": 16, "total_input_tokens": 102_400, "total_output_tokens": 25_600, "output_throughput": 1024.0,
           "mean_ttft_ms": 180.5, "mean_tpot_ms": 12.25, "ttfts": [0.1] * 50, "errors": [""]}  # fmt: skip
    assert paste.read(json.dumps(raw)).seen == expected


@pytest.mark.parametrize("text", ["", "hello", "{", "[" * 50_000, "{" * 50_000, "vllm:num_requests_running NaN", "x" * 2_000_000, "\0" * 1000,
                                  "vllm:num_requests_running{" + "a" * 100_000, ("vllm:" + "a" * 70 + "{" * 100 + "\n") * 5000,
                                  ("Mean TTFT (ms)" + " " * 1500 + "\n") * 300, '{"mean_ttft_ms": "fast"}', '{"mean_ttft_ms": 1e999}'])  # fmt: skip
def test_texts_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as e:
        paste.read(text)
    assert e.value.field == "paste"


def test_a_hostile_figure_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInput) as e:
        paste.read("vllm:num_requests_running 1e30")
    assert e.value.field == "sequences"


def test_what_is_entered_goes_before_what_is_pasted() -> None:
    assert Observed(itl_s=0.02).over(Observed(itl_s=0.01, ttft_s=1.0)) == Observed(itl_s=0.02, ttft_s=1.0)


def test_cases_are_of_many_kinds() -> None:
    assert len({c.model for c in CASES}) >= 4
    assert at(1, 2, 3) == {"sequences": 1, "prompt": 2, "output": 3}


# -- the command line -------------------------------------------------------------------------------------------------------


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["diagnose", "catalog:Llama-3.1-8B", "--gpu", "H100 SXM", "--seen", "itl=33ms", "--seen", "sequences=32", "--prompt", "12000", "--output", "4000"]
    assert main([*words, "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["verdict"] == "cache"
    assert out["evidence"]
    assert out["remedies"][0]["seen_itl_s"] < 0.033
    assert main(words) == 0
    assert "Reading the cache binds" in capsys.readouterr().out
    scrape = tmp_path / "scrape.txt"
    scrape.write_text(METRICS)
    assert main(["diagnose", "catalog:Llama-3.1-8B", "--paste", str(scrape), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pool"


@pytest.mark.parametrize(("words", "field"), [(("--seen", "speed=3"), "seen"), (("--seen", "itl=fast"), "itl_s"), (("--seen", "itl=-3ms"), "itl_s"),
                                              (("--seen", "oom=never"), "oom"), (("--paste", "/nowhere/at/all"), "paste"),
                                              (("--seen", "itl"), "seen")])  # fmt: skip
def test_bad_words_are_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, str], field: str) -> None:
    assert main(["diagnose", "catalog:Llama-3.1-8B", "--json", *words]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["field"] == field


def test_sensitivity_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "catalog:Llama-3.1-8B", "--tokens", "8192", "--sensitivity", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)["sensitivity"]
    assert out["rows"][0]["gained"] == max(r["gained"] for r in out["rows"])
    assert out["before"]["best"] > 0

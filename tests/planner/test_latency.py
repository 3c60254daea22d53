"""The latency model: counts worked out by hand, properties of its floors and times, and the form of its answer."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.answers import plan_json
from planner.cache import Rows
from planner.capacity import CapacityPlan, plan
from planner.dtypes import DTYPES, kv_layout
from planner.errors import PlannerError
from planner.hardware import custom, find
from planner.latency import Latency, Served, estimate, floor_s, lengths, served, tokens_per_s
from planner.latency.load import Load, times
from planner.latency.speeds import speeds
from planner.latency.steps import decode, prefill
from planner.latency.work import Attend, Work, touched, work_of
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario
from planner.weights import weight_format
from tests.conftest import CONFIGS, small_configs

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MODELS = ("llama", "deepseek_v3", "deepseek_v32", "gpt_oss", "gemma3_text", "qwen3_next", "mamba2", "t5", "glm_moe_dsa")


@cache
def model_of(name: str) -> ModelSpec:
    return read_config(LLAMA if name == "llama" else json.loads((CONFIGS / f"{name}.json").read_text()), name)


@cache
def work(name: str, kv: str = "bf16", weights: str | None = None, **degrees: int) -> Work:
    model = model_of(name)
    return work_of(model, weight_format(model, weights, DTYPES["bf16"]), kv_layout(kv), Parallel(**degrees), encoder_tokens=100)


def llama_plan(gpu: str = "H100 SXM", **choices: Any) -> CapacityPlan:
    return plan(model_of("llama"), find(gpu), replace(Scenario(prompt=1024, output=1024, tokens=2048), **choices))


def answered(p: CapacityPlan) -> Latency:
    found = estimate(p)
    assert isinstance(found, Latency)
    return found


def served_plan(**choices: Any) -> Served:
    found = served(llama_plan(**choices))
    assert isinstance(found, Served)
    return found


# -- counts, by hand -----------------------------------------------------------------------------------------------------

# 32 x (q 4096 x 4096, k and v 1024 x 4096 each, o 4096 x 4096, three of 14336 x 4096)
LAYERS = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
HEAD = 128256 * 4096


def test_a_step_of_llama_reads_and_computes_what_paper_says() -> None:
    w = work("llama")
    assert w.weight_bytes_read(1) == w.weight_bytes_read(64) == 2 * (LAYERS + HEAD)  # no embedding
    assert w.cache_bytes_read(8192) == 2 * 32 * 8 * 128 * 8192 * 2 == 1_073_741_824
    assert w.decode_flops(3, 1000) == 3 * (2 * (LAYERS + HEAD) + 32 * 4 * 32 * 128 * 1000)
    assert (w.attentions, w.mlps, w.moes, w.reduces) == (32, 32, 0, 0)


def test_a_prefill_of_llama_takes_one_position_of_the_output_matrix() -> None:
    w, s = work("llama"), 1000
    assert w.linear_flops(s) == 2 * LAYERS * s + 2 * HEAD
    assert w.attention_flops(s) == 32 * 4 * 32 * 128 * (s * (s + 1) // 2)
    assert w.attention_flops(s, cached=500) == 32 * 4 * 32 * 128 * (s * 500 + s * (s + 1) // 2)


def test_ranks_share_what_can_be_shared() -> None:
    one, eight, sixteen = work("llama"), work("llama", tensor=8), work("llama", tensor=16)
    assert eight.weight_bytes_read(1) == one.weight_bytes_read(1) / 8
    assert eight.cache_bytes_read(100) * 8 == one.cache_bytes_read(100)
    assert sixteen.cache_bytes_read(100) == eight.cache_bytes_read(100)  # 8 KV heads: the second half are copies
    assert eight.reduces == 64
    assert eight.reduce_ranks == 8


def test_absorbed_mla_decodes_over_the_latent_and_prefills_over_heads() -> None:
    model = model_of("deepseek_v3")
    a = next(layer.attention for layer in model.layers if layer.attention)
    assert a.kv_rank is not None
    w, layers = work("deepseek_v3"), len(model.layers)
    assert w.cache_bytes_read(10) == layers * (a.kv_rank + a.rope_dim) * 2 * 10
    assert sum(x.layers * x.decode_flops for x in w.attends) == layers * 2 * a.q_heads * (2 * a.kv_rank + a.rope_dim)
    assert sum(x.layers * x.prefill_flops for x in w.attends) == layers * 2 * a.q_heads * (a.qk_dim + a.v_dim)
    assert sum(x.expand_flops for x in w.attends) == 2 * a.kv_rank * a.q_heads * (a.nope_dim + a.v_dim)
    two = work("deepseek_v3", tensor=2)
    assert two.cache_bytes_read(10) == w.cache_bytes_read(10)  # a copy on every rank
    assert sum(x.decode_flops for x in two.attends) * 2 == sum(x.decode_flops for x in w.attends)


def test_sparse_attention_reads_the_rows_that_were_chosen_and_all_index_keys() -> None:
    w = work("deepseek_v32")
    chosen = next(a.chosen for a in w.attends if a.chosen)
    main, index = (next(a for a in w.attends if a.latent is kind) for kind in (True, False))
    assert main.rows(10 * chosen) == chosen
    assert index.rows(10 * chosen) == 10 * chosen
    assert index.row_bytes == model_of("deepseek_v32").layers[0].caches[1].k_dim + 4  # type: ignore[union-attr]


@pytest.mark.parametrize(("experts", "k", "tokens", "want"), [(8, 2, 4, 5.5), (128, 8, 32, 112), (256, 8, 16, 102), (384, 8, 128, 358), (128, 4, 1, 4)])
def test_distinct_experts(experts: int, k: int, tokens: int, want: float) -> None:
    assert touched(experts, k, tokens) == pytest.approx(want, rel=0.01)


def test_a_window_reads_its_window() -> None:
    w = work("gpt_oss")
    limits = {a.limit for a in w.attends}
    assert None in limits
    assert len(limits) == 2
    window = next(a for a in w.attends if a.limit)
    assert window.limit
    assert window.rows(10 * window.limit) == window.limit
    s, n = 5 * window.limit, window.limit
    assert window.pairs(s) == sum(min(i, n) for i in range(1, s + 1))
    assert window.pairs(7, cached=n - 3) == (n - 2) + (n - 1) + 5 * n


def test_an_encoder_is_no_part_of_a_step() -> None:
    w = work("t5")
    assert w.encoder
    assert w.cross_bytes > 0
    assert w.cache_bytes_read(0) == w.cross_bytes


def test_file_bytes_replace_counted_ones() -> None:
    half = plan(model_of("llama"), find("H100 SXM"), Scenario(weight_bytes=8_030_261_248, prompt=10, output=10, tokens=20, sequences=1))
    whole = replace(half.scenario, weight_bytes=None)
    assert answered(half).parts_s["weights"] == pytest.approx(answered(plan(half.model, half.hardware, whole)).parts_s["weights"] / 2, rel=0.01)


# -- properties ------------------------------------------------------------------------------------------------------------


@given(s=st.integers(1, 10**6))
def test_growth_with_the_prompt(s: int) -> None:
    """n x n scores fourfold, causal pairs by 2 (2s + 1) / (s + 1), the whole prefill by less."""
    w = work("llama")
    a = w.attends[0]
    square = a.prefill_flops * s * s
    assert a.prefill_flops * (2 * s) * (2 * s) == 4 * square
    assert a.pairs(2 * s) * (s + 1) == a.pairs(s) * 2 * (2 * s + 1)
    assert w.prefill_flops(2 * s) * (s + 1) < w.prefill_flops(s) * 2 * (2 * s + 1)


@given(name=st.sampled_from(MODELS), tokens=st.integers(0, 10**6), kv=st.sampled_from(("bf16", "fp8", "fp8_per_token_head", "q8_0")))
def test_never_more_cache_is_read_than_is_stored(name: str, tokens: int, kv: str) -> None:
    model, layout = model_of(name), kv_layout(kv)
    w = work(name, kv)
    stored = sum(len(where) * kind.bytes_read_per_step(tokens, layout) for kind, where in model.cache_groups() if isinstance(kind, Rows))
    readers = sum(1 for layer in model.layers if layer.shares_with is not None)
    read = w.cache_bytes_read(tokens) - 2 * w.state_bytes - w.cross_bytes
    assert readers or read <= stored


@given(sequences=st.integers(1, 4096), context=st.integers(1, 10**6), faster=st.floats(1.0, 50.0), name=st.sampled_from(MODELS))
def test_more_bandwidth_never_slows_a_floor(sequences: int, context: int, faster: float, name: str) -> None:
    slow, fast = (
        speeds(custom("own", 80 * 2**30, bandwidth_bytes_per_s=b, flops_per_s={"bf16": 1e15}, link_bytes_per_s=9e11), "vllm", 2.0)
        for b in (2e12, 2e12 * faster)
    )
    w = work(name)
    assert decode(w, fast, sequences, context).total <= decode(w, slow, sequences, context).total * (1 + 1e-12)
    assert prefill(w, fast, context, 1.0).total <= prefill(w, slow, context, 1.0).total * (1 + 1e-12)


@given(sequences=st.integers(1, 2000), context=st.integers(2, 200_000), more=st.integers(1, 500), name=st.sampled_from(MODELS))
def test_times_rise_with_the_batch_and_the_context(sequences: int, context: int, more: int, name: str) -> None:
    v, stages = speeds(find("H200 SXM"), "vllm", 2.0), (work(name),)
    base = Load(prompt=context, output=100, sequences=sequences)
    t = times(stages, v, base)
    for other in (replace(base, sequences=sequences + more), replace(base, prompt=context + more)):
        later = times(stages, v, other)
        for field in ("ttft_s", "step_s", "itl_s"):
            assert getattr(later, field) >= getattr(t, field) * (1 - 1e-9), (field, other)


@given(rows=st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 4000), st.integers(1, 3000)), min_size=1, max_size=30), name=st.sampled_from(MODELS))
def test_arrays_and_single_loads_agree(rows: list[tuple[int, int, int]], name: str) -> None:
    v, stages = speeds(find("B200 SXM"), "sglang", 1.0), (work(name, tensor=2),)
    prompt, output, sequences = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    together = Load(prompt=prompt, output=output, sequences=sequences)
    many = times(stages, v, together)
    for i, (p, o, n) in enumerate(rows):
        load = Load(prompt=p, output=o, sequences=n)
        one = times(stages, v, load)
        for field in ("ttft_s", "step_s", "itl_s", "itl_p99_s"):
            assert float(getattr(one, field)) == float(getattr(many, field)[i])
        assert float(tokens_per_s(one, load)) == float(tokens_per_s(many, together)[i])


@given(
    limit=st.one_of(st.none(), st.integers(1, 300)),
    tokens=st.integers(1, 400),
    cached=st.integers(0, 400),
    ratio=st.integers(1, 4),
    chosen=st.one_of(st.none(), st.integers(1, 100)),
)
def test_pairs_are_the_sum_over_tokens(limit: int | None, tokens: int, cached: int, ratio: int, chosen: int | None) -> None:
    a = Attend(layers=1, row_bytes=1, decode_flops=1, prefill_flops=1, limit=limit, ratio=ratio, chosen=chosen)
    bound = min(x for x in (limit, chosen * ratio if chosen else None, 10**9) if x is not None)
    assert a.pairs(tokens, cached) == -(-sum(min(cached + i, bound) for i in range(1, tokens + 1)) // ratio)


# -- the answer ------------------------------------------------------------------------------------------------------------


def test_the_answer_has_a_range_and_says_what_binds() -> None:
    out = plan_json(llama_plan())["latency"]
    low, high = out["itl_range_s"]
    assert out["floor_s"] <= low < out["itl_s"] < high
    assert out["step_s"] <= out["itl_s"]
    assert out["ttft_range_s"][0] < out["ttft_s"] < out["ttft_range_s"][1]
    assert out["bound"] == max(out["parts_s"], key=out["parts_s"].get)
    assert sum(out["parts_s"].values()) == pytest.approx(out["itl_s"])


def test_every_family_gets_finite_times() -> None:
    """Windows, states, latents, encoders, experts and shared caches alike."""
    answers = 0
    for name, config in small_configs():
        s = Scenario(engine="architecture", prompt=300, output=20, tokens=320, sequences=3, encoder_tokens=50)
        try:
            found = answered(plan(read_config(config, name), find("H200 SXM"), s))
        except PlannerError:
            continue
        answers += 1
        for value in (found.ttft_s, found.step_s, found.itl_s, *found.itl_range_s, *found.parts_s.values(), found.output_tokens_per_s):
            assert isfinite(value), name
        assert 0 < found.floor_s < found.step_s <= found.itl_s, name
    assert answers > 150


def test_times_are_given_where_the_plan_does_not_fit() -> None:
    p = llama_plan(sequences=900, prompt=100_000, output=100, tokens=100_100)
    assert not p.fits
    assert answered(p).itl_s > 0


@pytest.mark.parametrize(
    ("gpu", "engine", "most"), [("H100 SXM", "vllm", 2.0), ("B200 SXM", "sglang", 2.0), ("RTX 4090", "llamacpp", 3.0), ("MI300X", "vllm", 3.0)]
)
def test_ranges_are_no_wider_than_promised(gpu: str, engine: str, most: float) -> None:
    low, high = answered(llama_plan(gpu, engine=engine)).itl_range_s
    assert high / low <= most


@pytest.mark.parametrize(("gpu", "engine", "most"), [("H100 SXM", "vllm", 2.0), ("RTX 4090", "llamacpp", 3.0), ("MI300X", "vllm", 3.0)])
def test_the_range_of_a_ttft_is_widest_where_nothing_was_measured(gpu: str, engine: str, most: float) -> None:
    low, high = answered(llama_plan(gpu, engine=engine)).ttft_range_s
    assert most - 0.1 < high / low <= most


def test_a_ttft_is_as_uncertain_as_its_parts() -> None:
    """In SGLang what others add is less certain than a prompt's own time; in TensorRT-LLM short requests are less certain than long ones."""
    few, many = (answered(llama_plan("H100 SXM", engine="sglang", sequences=n)).ttft_range_s for n in (1, 200))
    assert few[1] / few[0] < 1.7 < 2.4 < many[1] / many[0]
    short, long = (answered(llama_plan("H100 SXM", engine="trtllm", prompt=n, output=1024)).ttft_range_s for n in (7167, 7168))
    assert long[1] / long[0] < 2 < 3 < short[1] / short[0]
    own = served_plan(engine="trtllm")
    v = own.speeds.range_ttft
    low, high = v.of(np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([100, 10_000]))
    assert [(float(a), float(b)) for a, b in zip(low, high, strict=True)] == [
        pytest.approx((1 / v.short_alone[0] + 0.5 / v.short_wait[0], v.short_alone[1] + 0.5 * v.short_wait[1])),
        pytest.approx((2 / v.alone[0], 2 * v.alone[1])),
    ]


def test_a_device_without_a_rate_gets_a_note_instead() -> None:
    out = plan_json(llama_plan("L20"))
    assert out["latency"] is None
    assert out["batch_limit"] is None
    assert [n["code"] for n in out["notes"]].count("latency_unknown") == 1
    no_device = plan_json(plan(model_of("llama"), None, Scenario(kv_memory=2**34)))
    assert no_device["latency"] is None
    assert "latency_no_device" in [n["code"] for n in no_device["notes"]]


def test_what_is_not_measured_is_said_and_wider() -> None:
    known, other = answered(llama_plan()), answered(llama_plan("MI300X"))
    assert known.measured
    assert not other.measured
    assert "latency_unmeasured" in [n.code for n in other.notes]
    eager = answered(llama_plan(enforce_eager=True))
    assert not eager.measured
    assert eager.itl_s > known.itl_s


def test_lengths_come_from_the_mix_or_are_assumed_aloud() -> None:
    assert lengths(Scenario(prompt=7, output=5)) == (7, 5, False)
    assert lengths(Scenario(tokens=12, output=5)) == (7, 5, False)
    assert lengths(Scenario(tokens=8192)) == (7168, 1024, True)
    assert lengths(Scenario(lengths="100+10:1,300+30:3")) == (250, 25, False)
    assert "latency_lengths" in [n.code for n in answered(llama_plan(prompt=None, output=None)).notes]


def test_sequences_beyond_the_engines_slots_wait() -> None:
    within, beyond = answered(llama_plan(sequences=8, max_num_seqs=8)), answered(llama_plan(sequences=24, max_num_seqs=8))
    assert beyond.sequences == 8
    assert beyond.itl_s == within.itl_s
    life = within.ttft_s + 1024 * within.itl_s
    assert beyond.ttft_s == pytest.approx(within.ttft_s + 2 * life)


def test_a_cached_prefix_is_read_but_not_computed() -> None:
    base = Load(prompt=8000, output=100, sequences=8)
    own = served_plan()
    with_hit = times(own.stages, own.speeds, replace(base, cached=6000))
    without = times(own.stages, own.speeds, base)
    assert float(with_hit.ttft_s) < float(without.ttft_s)
    assert float(with_hit.step_s) == float(without.step_s)


def test_whole_prompts_or_chunks() -> None:
    own = served_plan()
    load = Load(prompt=16_384, output=256, sequences=16, chunk=2048)
    chunked, whole = (times(own.stages, own.speeds, replace(load, policy=policy)) for policy in ("chunked", "whole"))
    assert float(chunked.itl_p99_s) < float(whole.itl_p99_s) / 3
    assert float(chunked.prefill_s) > float(whole.prefill_s)


def codes(**choices: Any) -> set[str]:
    return {n.code for n in answered(llama_plan(**choices)).notes}


def test_what_the_times_leave_out_is_said() -> None:
    for choices in ({"beams": 2}, {"engine": "llamacpp", "n_gpu_layers": 3}, {"kv_offload": 2**31}):
        assert "latency_plain" in codes(**choices), choices
    assert not codes() & {"latency_plain", "latency_speculation", "latency_images", "latency_fan_shared"}
    seeing = {"model_type": "llava", "image_seq_length": 576, "image_token_index": 32000, "text_config": LLAMA, "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 336, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}}  # fmt: skip
    images = plan(read_config(seeing), find("H100 SXM"), Scenario(prompt=100, output=50, tokens=150, images=2))
    assert answered(images).prompt_tokens == 100 + 2 * 576
    assert "latency_images" in {n.code for n in answered(images).notes}


@pytest.mark.parametrize(("rate", "code"), [(None, "latency_speculation"), (0.7, "latency_speculation_apart")])
def test_speculation_is_told_apart_from_the_times(rate: float | None, code: str) -> None:
    model = model_of("deepseek_v3")
    drafting, plain = (
        plan(model, find("H100 SXM"), Scenario(prompt=100, output=50, tokens=150, num_speculative_tokens=n, acceptance_rate=rate)) for n in (2, 0)
    )
    assert code in {n.code for n in answered(drafting).notes}
    assert answered(drafting).itl_s == answered(plain).itl_s


def test_samples_decode_side_by_side_and_prefill_once_where_the_prompt_is_shared() -> None:
    """Four requests of eight samples: 32 sequences decode, four prompts come; without a prefix cache 32 come."""
    fan, many, few = (answered(llama_plan(**c)) for c in ({"sequences": 4, "samples": 8}, {"sequences": 32}, {"sequences": 4}))
    apart = answered(llama_plan(sequences=4, samples=8, prefix_caching=False))
    assert fan.step_s == apart.step_s == many.step_s
    assert few.step_s < fan.itl_s < apart.itl_s == pytest.approx(many.itl_s)
    assert few.ttft_s < fan.ttft_s < apart.ttft_s == pytest.approx(many.ttft_s)
    assert fan.output_tokens_per_s > few.output_tokens_per_s
    assert "latency_fan_shared" in codes(sequences=4, samples=8)
    assert "latency_fan_apart" in codes(sequences=4, samples=8, prefix_caching=False)
    assert served_plan(sequences=4, samples=8, max_num_seqs=20).most == 2
    assert served_plan(engine="trtllm", sequences=4, beams=3).load.fan == 3


def test_the_policy_is_the_engines_unless_asked_for() -> None:
    assert [served_plan(engine=e).load.policy for e in ("vllm", "llamacpp", "transformers")] == ["chunked", "chunked", "whole"]
    assert "latency_policy" in [n.code for n in answered(llama_plan(prefill_policy="whole")).notes]
    long = {"prompt": 60_000, "output": 100, "tokens": 60_100}
    assert answered(llama_plan(**long, prefill_policy="whole")).itl_p99_s > 3 * answered(llama_plan(**long)).itl_p99_s


def test_stages_add_up_and_halve_the_batch() -> None:
    one, two = served_plan(), served_plan(pp=2, gpus=2)
    assert len(two.stages) == 2
    assert sum(w.layers for w in two.stages) == 32
    assert two.stages[0].head is None
    assert two.stages[1].head is not None
    a, b = (float(times(s.stages, s.speeds, s.at(1)).step_s) for s in (one, two))
    assert a < b < 1.05 * a  # decode latency is not reduced by stages


def test_data_parallel_attention_exchanges_tokens_of_experts() -> None:
    w = work("deepseek_v3", tensor=4, attention_data=4, expert=4)
    assert w.exchanges == 2 * w.moes > 0
    assert w.attention_data == 4
    assert w.reduces == w.layers - w.moes  # dense feed-forward layers only


def test_the_floor_is_below_every_time() -> None:
    own = served_plan()
    for n in (1, 16, 256):
        assert floor_s(own, own.at(n)) < float(times(own.stages, own.speeds, own.at(n)).step_s)

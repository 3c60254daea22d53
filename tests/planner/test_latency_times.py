"""Times worked out on paper, from a small work and round speeds: 1 GB/s, 1 TFLOP/s, milliseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.hardware import custom, find
from planner.latency.load import Load, times
from planner.latency.ranges import FirstRange
from planner.latency.speeds import FORMS, PCIE_REDUCE_S, STAGE_S, Speeds, missing, speeds, table
from planner.latency.steps import decode, prefill
from planner.latency.work import Attend, Experts, Matrices, Work

V = Speeds(
    read=dict.fromkeys(FORMS, 1e9), read_experts=dict.fromkeys(FORMS, 5e8), multiply=dict.fromkeys(FORMS, 1e12), multiply_experts=dict.fromkeys(FORMS, 5e11),
    read_cache=1e9, read_latent=5e8, read_state=5e8, attend_prefill=1e12, attend_decode=1e12, attention_layer_s=1e-3, latent_layer_s=2e-3, state_layer_s=3e-3,
    mlp_layer_s=4e-3, moe_layer_s=5e-3, step_s=7e-3, prefill_layer_s=1e-4, first_layer_s=2e-4, serve_s=0.01, reduce_s=1e-3, link=1e9, wait_share=0.5,
    request_s=2e-3, prefill="chunked", measured=True, range_itl=(1.5, 1.5), range_ttft=FirstRange(alone=(1.5, 1.5), wait=(2.0, 3.0)),
)  # fmt: skip
W = Work(
    matrices=(Matrices(form="16", bytes=2_000_000, elements=1_000_000),),
    head=Matrices(form="16", bytes=4_000_000, elements=2_000_000),
    experts=(),
    attends=(Attend(layers=2, row_bytes=1000, decode_flops=100, prefill_flops=100),),
    layers=2,
    attentions=2,
    mlps=2,
    token_bytes=1000,
)


def test_a_step_adds_reading_products_and_fixed_times() -> None:
    p = decode(W, V, 3, 500)
    assert p.weights == pytest.approx(6e-3)  # 6 MB
    assert p.cache == pytest.approx(3e-3)  # 3 x 2 x 500 x 1000 bytes
    assert p.launches == pytest.approx(2 * (1e-3 + 4e-3))
    assert p.compute == 0
    assert p.links == 0
    assert p.total == pytest.approx(19e-3)


def test_products_take_over_where_they_are_longer() -> None:
    """2 x 3 M elements x 10,000 tokens at 1 TFLOP/s are 60 ms, reading 6."""
    p = decode(W, V, 10_000, 1)
    assert p.weights == 0
    assert p.compute == pytest.approx(60e-3)


def test_states_are_read_and_written_and_cross_rows_read() -> None:
    p = decode(replace(W, state_bytes=1000, cross_bytes=4000), V, 10, 0)
    assert p.cache == pytest.approx(10 * (2 * 1000 / 5e8 + 4000 / 1e9))


def test_experts_are_read_as_far_as_touched_by_all_attention_groups() -> None:
    w = replace(W, experts=(Experts(form="fp8", bytes=8_000_000, elements=8_000_000, experts=8, top_k=2),))
    for groups, tokens in ((1, 1), (4, 4)):
        more = decode(replace(w, attention_data=groups), V, 1, 0).weights - decode(W, V, 1, 0).weights
        assert more == pytest.approx(8e6 * (1 - 0.75**tokens) / 5e8)


def test_a_ring_moves_its_share_and_data_parallel_attention_exchanges() -> None:
    p = decode(replace(W, reduces=4, reduce_ranks=4), V, 3, 0)
    assert p.links == pytest.approx(4 * (1e-3 + 1.5 * 3 * 1000 / 1e9))
    p = decode(replace(W, exchanges=2, exchange_ranks=2, top_k=1), V, 3, 0)
    assert p.links == pytest.approx(2 * (1e-3 + 0.5 * 3 * 1000 / 1e9))  # one rank in two is its own


def test_a_prefill_is_products_pairs_and_host() -> None:
    p = prefill(W, V, 10_000)
    # matrices 2 x 1 M x 10,000 = 20 ms; the output matrix for one position: 4 MB read = 4 ms; pairs 2 layers x 100 x 10,000 x 10,001 / 2
    assert p.total == pytest.approx(20e-3 + 4e-3 + 2 * 100 * 10_000 * 10_001 / 2 / 1e12 + 2 * 1e-4)


def test_chunks_read_the_cache_of_those_before_them() -> None:
    one, four = prefill(W, V, 1000, 1.0), prefill(W, V, 1000, 4.0)
    assert four.cache - one.cache == pytest.approx(2 * 1000 * 1000 * 1.5 / 1e9)  # 250 x (1 + 2 + 3) tokens
    assert four.launches == pytest.approx(4 * one.launches)


def test_what_a_prefill_adds_to_a_step_is_less_than_alone() -> None:
    alone, beside = prefill(W, V, 100), prefill(W, V, 100, 1.0, 0, 64)
    assert beside.total < alone.total - 3e-3  # both matrices are read by the step anyway


def test_a_load_by_hand() -> None:
    """64 sequences, prompts of 1000, outputs of 100: c = 1050."""
    t = times((W,), V, Load(prompt=1000, output=100, sequences=64))
    step = 7e-3 + decode(W, V, 64, 1050).total
    add = prefill(W, V, 1000, 1.0, 0, 64).total
    alone = prefill(W, V, 1000)
    one = alone.total - alone.launches + 10e-3 + 7e-3 + 2 * 2e-4
    assert float(t.step_s) == pytest.approx(step)
    assert float(t.prefill_s) == pytest.approx(one)
    itl = float(t.itl_s)
    assert itl == pytest.approx(step + 100 * itl / (100 * itl + one) * 63 * add / 100, rel=1e-5)
    wait = 63 * (0.5 * (alone.total - alone.launches) + 2e-3)
    assert float(t.wait_s) == pytest.approx(wait)
    assert float(t.ttft_s) == pytest.approx(0.01 + one + step / 2 + wait)
    assert float(t.itl_p99_s) == pytest.approx(step + add)  # 64 chunks in 100 steps
    single = times((W,), V, Load(prompt=1000, output=1000, sequences=1))
    assert float(single.itl_s) == float(single.step_s)  # nobody else
    assert float(single.ttft_s) == pytest.approx(0.01 + one)


def test_no_step_takes_more_prompt_tokens_than_its_budget() -> None:
    """64 prompts of 9000 for outputs of 3: each step is full with 4500 tokens, and each prompt takes two of them."""
    load = Load(prompt=9000, output=3, sequences=64, chunk=4500)
    t = times((W,), V, load)
    linear = 2e6 * (4500 + 64) / 1e12 - 2e6 / 1e9 + 4e-3 - 4e-3  # what 4500 more tokens add to 64: reading was 2 ms
    pairs = (2 * 100 * 9000 * 9001 / 2 / 1e12 + 2 * 1000 * 9000 * 0.5 / 1e9) / 2
    assert float(t.itl_s) == pytest.approx(float(t.step_s) + linear + pairs + 2 * 1e-4)
    assert float(t.ttft_s) == pytest.approx(float(t.itl_s) * (64 * 2 - 3))
    assert float(times((W,), V, replace(load, policy="whole")).others_s) > 5 * float(t.others_s)


def test_attention_groups_share_the_batch() -> None:
    two = replace(W, attention_data=2)
    a, b = (times((w,), V, Load(prompt=1000, output=100, sequences=n)) for w, n in ((two, 64), (W, 32)))
    assert float(a.step_s) == float(b.step_s)


def test_stages_pass_micro_batches_on() -> None:
    t = times((W, W), V, Load(prompt=1000, output=100, sequences=64))
    assert float(t.step_s) == pytest.approx(7e-3 + STAGE_S + 2 * decode(W, V, 32, 1050).total)


def test_speeds_are_shares_of_the_peaks() -> None:
    h, t = find("H100 SXM"), table()
    own, fit, v = t["kernels"]["H100 SXM"], t["fitted"], speeds(find("H100 SXM"), "vllm", 2.0)
    assert h.bandwidth_bytes_per_s == 3.35e12
    assert v.read["16"] == 3.35e12 * own["weights_16"]
    assert v.read_cache == 3.35e12 * own["cache_16"]
    assert speeds(h, "vllm", 1.0).read_cache == 3.35e12 * own["cache_8"]
    assert v.link == 450e9 * fit["link_share"]
    assert v.multiply["fp8"] == 1979e12 * own["multiply_fp8"]  # more than elsewhere
    assert speeds(find("B200 SXM"), "vllm", 2.0).multiply["fp8"] == find("B200 SXM").flops_per_s["fp8"] * fit["multiply_fp8"]
    assert v.multiply["fp4"] == v.multiply["16"] == 989e12 * fit["multiply_16"]  # Hopper has no fp4


def test_what_a_device_lacks_is_taken_from_nobody() -> None:
    bare = custom("own", 2**34, bandwidth_bytes_per_s=1e12)
    assert missing(bare) == "flops_per_s"
    assert missing(custom("own", 2**34, flops_per_s={"fp16": 1e12})) == "bandwidth_bytes_per_s"
    own = speeds(custom("own", 2**34, bandwidth_bytes_per_s=1e12, flops_per_s={"fp16": 1e12}), "vllm", 2.0)
    assert own.reduce_s == PCIE_REDUCE_S
    assert not own.measured


def test_every_share_is_one() -> None:
    """No kernel of the table beats its peak, and every device can be looked up with every engine."""
    t = table()
    for part in (*t["kernels"].values(), *t["architectures"].values()):
        assert all(0 < x <= 1 for x in part.values() if isinstance(x, float))
    ranges = dict(t["range"])
    for name, bounds in (*((f"{e}.{k}", b) for e, own in ranges.pop("first").items() for k, b in own.items() if k != "short_tokens"), *ranges.items()):
        assert all(x >= 1 for x in bounds), name
    for like in (a["like"] for a in t["architectures"].values() if "like" in a):
        assert like in t["kernels"]
    for name in t["kernels"]:
        assert name == "other" or find(name).name == name

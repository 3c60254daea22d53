"""A device of the user's own as a text: read, written, refused; and what a driver's figures are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import hardware
from planner.api import answer
from planner.errors import InvalidInput, UnknownName
from planner.hardware import FLOP_DTYPES, find
from planner.owngpu import as_text, from_text, is_own, named, shown_name
from planner.scenario import OPTIONS, Scenario, from_options
from planner.units import GIB, MIB
from tests.conftest import refused


@pytest.mark.parametrize(
    ("text", "name", "memory", "bandwidth", "rates"),
    [
        ("own:My card 48GiB 960GB/s 181TFLOPS fp8=362TFLOPS", "My card", 48 * GIB, 960e9, {"fp16": 181e12, "bf16": 181e12, "fp8": 362e12}),
        ("OWN: 23.99gib", "own", 25_759_066_358, None, {}),  # 23.99 x 2^30 = 25,759,066,357.76
        ("own:H100 80GB HBM3 40448MiB 3.35TB/s", "H100 80GB HBM3", 40_448 * MIB, 3.35e12, {}),
        ("own:x 80GB bf16=1.5tflops", "x", 80 * 10**9, None, {"bf16": 1.5e12}),
        ("own:카드 1000000000B", "카드", 10**9, None, {}),
    ],
)
def test_a_text_is_a_device(text: str, name: str, memory: int, bandwidth: float | None, rates: dict[str, float]) -> None:
    h = find(text)
    assert (h.name, h.memory_bytes, h.bandwidth_bytes_per_s, h.flops_per_s, h.source) == (name, memory, bandwidth, rates, "user")


@pytest.mark.parametrize(
    "text",
    ["own:", "own:My card", "own:a 24GiB 24GiB", "own:a 24GiB 1GB/s 2GB/s", "own:a 24GiB 1TFLOPS fp16=2TFLOPS", "own:a 0GiB", "own:a 99999999999TiB",
     "own:a -5GiB", "own:a 24GiB 0GB/s", "own:a 24GiB fp7=1TFLOPS", "own:a 24 GiB", "own:" + "x" * 200 + " 24GiB", "own:a 1" + "0" * 400 + "GiB"],
)  # fmt: skip
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(text)
    assert caught.value.message
    assert caught.value.hint
    with refused(InvalidInput, caught.value.field):
        from_text(text)


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1, max_size=40),
    st.integers(1, 2**50),
    st.one_of(st.none(), st.floats(1e6, 1e14)),
    st.dictionaries(st.sampled_from(FLOP_DTYPES), st.floats(1e9, 1e16)),
)
def test_what_is_written_is_read_back(name: str, memory: int, bandwidth: float | None, rates: dict[str, float]) -> None:
    try:
        text = as_text(name, memory, bandwidth_bytes_per_s=bandwidth, flops_per_s=rates)
    except InvalidInput:
        return  # a name that reads like a figure, or a text too long for an address
    h = find(text)
    assert is_own(text)
    assert h.memory_bytes == memory
    assert (h.bandwidth_bytes_per_s or 0) == pytest.approx(bandwidth or 0, rel=1e-3)
    assert h.flops_per_s == pytest.approx(rates, rel=1e-3)
    s = from_options({"gpu": text})
    assert from_options(s.to_query()) == s == Scenario(gpu=text)
    assert len(text) <= OPTIONS["gpu"].high


def test_an_own_device_plans_like_the_table() -> None:
    """The same figures under another name: the same pool, to the byte, in an engine whose rules do not look at the device."""
    h = find("L40S")
    text = as_text("same", h.memory_bytes, bandwidth_bytes_per_s=h.bandwidth_bytes_per_s, flops_per_s=h.flops_per_s)
    options = {"engine": "transformers", "tokens": 4096, "sequences": 4}
    mine, theirs = (answer("plan", "catalog:Llama-3.1-8B", {**options, "gpu": gpu}) for gpu in (text, "L40S"))
    assert (mine["gpu"], theirs["gpu"]) == ("same", "L40S")
    assert mine["engine_bytes"] == theirs["engine_bytes"] == 2 * 32 * 8 * 128 * 4096 * 4 * 2
    assert mine["fits"] == theirs["fits"]


@pytest.mark.parametrize(
    ("printed", "memory", "text"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559 * MIB, "H100 SXM"),
        ("NVIDIA GeForce RTX 4090", 24_564 * MIB, "RTX 4090"),
        ("Apple M4 Max", 64 * GIB, "own:Apple M4 Max 64GiB 546GB/s"),
        ("Some Card", 8 * GIB, "own:Some Card 8GiB"),
    ],
)
def test_what_a_driver_prints_finds_its_row_or_becomes_a_text(printed: str, memory: int, text: str) -> None:
    assert named(printed, memory) == text
    assert find(text).memory_bytes == pytest.approx(memory, rel=0.01)


def test_names_in_sentences() -> None:
    assert [shown_name(t) for t in ("H100 SXM", "own:My card 48GiB", "own:broken")] == ["H100 SXM", "My card", "own:broken"]
    with refused(UnknownName, "gpu"):
        find("owned card")


def test_the_table_has_a_date() -> None:
    assert hardware.as_of() >= "2026-11-30"
    assert len(hardware.as_of()) == 10

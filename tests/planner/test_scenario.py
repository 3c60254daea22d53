"""A scenario survives the query string and JSON; bad values are refused under the option's name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InvalidInput
from planner.scale import Scale
from planner.scenario import OPTIONS, Option, Scenario, from_options
from planner.units import gib, memory, parse_bytes
from tests.conftest import refused

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs")), min_size=1, max_size=20)


def value_of(o: Option) -> st.SearchStrategy[Any]:
    return {
        "int": st.integers(int(o.low), int(o.high)),
        "bytes": st.integers(1, 2**50),
        "fraction": st.floats(0.01, 1.0, allow_nan=False),
        "seconds": st.floats(o.low, o.high, allow_nan=False),
        "number": st.floats(o.low, o.high, allow_nan=False),
        "flag": st.booleans(),
        "text": TEXT,
        "choice": st.sampled_from(o.choices or ("",)),
        "scale": st.builds(
            lambda f, r, n: Scale(factor=f, residual=r, points=n, of="points", gpu="H100 SXM", engine="vllm", model="M").text(),
            st.floats(0.2, 5.0),
            st.floats(0, 1.0),
            st.integers(3, 999),
        ),
    }[o.kind]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    chosen = draw(st.sets(st.sampled_from(sorted(OPTIONS)), max_size=10))
    return Scenario(**{name: draw(value_of(OPTIONS[name])) for name in chosen})


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # many options; a busy machine draws them slowly
@given(scenarios())
def test_query_and_json_are_lossless(s: Scenario) -> None:
    query = s.to_query()
    assert all(isinstance(v, str) for v in query.values())
    assert from_options(query) == s
    assert from_options(s.to_json()) == s


def test_the_default_has_an_empty_query() -> None:
    assert Scenario().to_query() == {}
    assert set(OPTIONS) == set(Scenario().to_json())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tokens": 0}, "tokens"), ({"tokens": -5}, "tokens"), ({"tokens": "many"}, "tokens"), ({"tokens": 10**12}, "tokens"), ({"tokens": True}, "tokens"),
        ({"tokens": [1]}, "tokens"), ({"tokens": float("nan")}, "tokens"), ({"memory_fraction": "nan"}, "memory_fraction"),
        ({"memory_fraction": 1.5}, "memory_fraction"), ({"memory_fraction": 0}, "memory_fraction"), ({"engine": "tgi"}, "engine"),
        ({"kv_dtype": "bf17"}, "kv_dtype"), ({"kv_memory": "forty"}, "kv_memory"), ({"kv_memory": -1}, "kv_memory"), ({"kv_memory": True}, "kv_memory"),
        ({"gpu": ""}, "gpu"), ({"gpu": 7}, "gpu"),
        ({"prefix_caching": "maybe"}, "prefix_caching"), ({"colour": "red"}, "colour"), ({"no_colour": 1}, "no_colour"),
        ({"model": "x" * 500}, "model"), ({"samples": 0}, "samples"), ({"samples": 10**9}, "samples"), ({"beams": "two"}, "beams"),
        ({"images": -1}, "images"), ({"kv_offload": "64 apples"}, "kv_offload"), ({"draft": "x" * 500}, "draft"), ({"draft": ["a"]}, "draft"),
        ({"cache_implementation": "hybrid"}, "cache_implementation"), ({"cache_nbits": 0}, "cache_nbits"), ({"max_lora_rank": 1e9}, "max_lora_rank"),
        ({"tokens": "1,5"}, "tokens"), ({"tokens": "1,0000"}, "tokens"), ({"tokens": "_1_"}, "tokens"), ({"tokens": "," * 1000 + "5"}, "tokens"),
        ({"window_pools": "perhaps"}, "window_pools"), ({"cross_kv_cache_fraction": 2}, "cross_kv_cache_fraction"),
    ],
)  # fmt: skip
def test_bad_values_name_their_option(options: dict[str, Any], field: str) -> None:
    with refused(InvalidInput, field):
        from_options(options)


def test_flag_names_of_the_command_line() -> None:
    s = from_options({"no-prefix-caching": True, "max-model-len": "8,192", "concurrency": "3", "kv_memory": "40GiB"})
    assert (s.prefix_caching, s.max_model_len, s.sequences, s.kv_memory) == (False, 8192, 3, 40 * 2**30)
    assert from_options({"no_prefix_caching": False}).prefix_caching is True
    assert [from_options({"tokens": t}).tokens for t in ("1,234,567", "10_000", " 42 ", "+7", "123456")] == [1_234_567, 10_000, 42, 7, 123_456]
    assert from_options({"prompt": 1000, "output": 24}).tokens == 1024
    assert from_options({"prompt": 1000, "output": 24, "tokens": 99}).tokens == 99


@pytest.mark.parametrize(("text", "value"), [("40GiB", 42_949_672_960), ("1.5 GiB", 1_610_612_736), ("80 GB", 80_000_000_000), ("4096", 4096), (7, 7)])
def test_amounts_of_memory(text: str | int, value: int) -> None:
    assert parse_bytes(text, "x") == value


def test_memory_on_screen_carries_its_unit() -> None:
    assert (gib(2**34), memory(819_200), memory(12)) == ("16.00 GiB", "800.00 KiB", "12 bytes")

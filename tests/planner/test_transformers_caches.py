"""Static and quantized caches of transformers: bytes as measured on its own layers, and by its own StaticCache where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.capacity import plan
from planner.errors import PlannerError
from planner.footprint import measure
from planner.hardware import find
from planner.readers import read_config
from planner.remedies import remedies
from planner.scenario import Scenario
from tests.conftest import small_configs

SMALL = dict(small_configs())


def config(**keys: Any) -> dict[str, Any]:
    """A Llama of 1 layer with 2 KV heads of 64."""
    return {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            "intermediate_size": 64, "vocab_size": 128, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", **keys}  # fmt: skip


def held(raw: dict[str, Any], tokens: int, **options: Any) -> int:
    s = Scenario(**{"engine": "transformers", "tokens": tokens, "sequences": 2, **options})
    return measure(read_config(raw, "m"), None, s).engine_bytes


# One layer's K (V is as large) of two sequences: prompt 100, then one token a step; quanto 0.2.7 and hqq 0.2.8 agree.
@pytest.mark.parametrize("backend", ["quanto", "hqq"])
@pytest.mark.parametrize(
    ("nbits", "tokens", "quantized", "full"),
    [
        (4, 100, 14_400, 0), (4, 101, 14_400, 512), (4, 226, 14_400, 64_512), (4, 227, 14_400, 65_024), (4, 228, 32_832, 0), (4, 229, 32_832, 512),
        (4, 355, 32_832, 65_024), (4, 356, 51_264, 0), (2, 100, 8_000, 0), (2, 227, 8_000, 65_024), (2, 228, 18_240, 0), (2, 356, 28_480, 0),
        (8, 100, 27_200, 0), (8, 228, 62_016, 0), (8, 355, 62_016, 65_024),
    ],
)  # fmt: skip
def test_the_sawtooth_as_measured(backend: str, nbits: int, tokens: int, quantized: int, full: int) -> None:
    options = {"cache_implementation": "quantized", "cache_backend": backend, "cache_nbits": nbits, "prompt": 100, "output": tokens - 100}
    if (backend, nbits) == ("quanto", 8):
        with pytest.raises(PlannerError) as e:
            held(config(), tokens, **options)
        assert (e.value.code, e.value.field) == ("nbits_not_in_backend", "cache_nbits")
        return
    assert held(config(), tokens, **options) == 2 * (quantized + full)


def test_the_peak_is_what_is_reserved_and_arrays_agree() -> None:
    s = Scenario(engine="transformers", tokens=300, prompt=100, output=200, sequences=2, cache_implementation="quantized")
    p = plan(read_config(config(), "m"), find("H100 SXM"), s)
    pool = p.pools[0]
    lengths = np.arange(0, 600)
    assert list(pool.bytes(2, lengths)) == [pool.bytes(2, int(n)) for n in lengths]
    assert all(pool.bytes(2, lengths, "admission") >= pool.bytes(2, lengths))
    assert {n.code for n in p.notes} >= {"cache_quantized"}


def test_without_a_prompt_it_says_what_it_takes() -> None:
    foot = measure(read_config(config(), "m"), None, Scenario(engine="transformers", tokens=227, sequences=2, cache_implementation="quantized"))
    assert foot.engine_bytes == 2 * 2 * 2 * 227 * 36  # two sequences, K and V, two heads of 36 bytes a 64 values
    assert "cache_quantized_prompt" in {n.code for n in foot.notes}


@pytest.mark.parametrize(
    ("family", "options", "error"),
    [
        ("gemma3_text", {"cache_implementation": "quantized"}, ("quantized_full_only", "cache_implementation")),
        ("jamba", {"cache_implementation": "quantized"}, ("quantized_full_only", "cache_implementation")),
        ("deepseek_v4", {"cache_implementation": "static"}, ("static_not_covered", "cache_implementation")),
        ("llama", {"cache_implementation": "quantized", "kv_dtype": "fp8"}, ("quantized_dtype", "kv_dtype")),
        ("llama", {"cache_implementation": "static", "engine": "vllm"}, ("option_not_in_engine", "cache_implementation")),
    ],
)
def test_refusals(family: str, options: dict[str, Any], error: tuple[str, str]) -> None:
    with pytest.raises(PlannerError) as e:
        held(SMALL[family], 64, **options)
    assert (e.value.code, e.value.field) == error
    assert e.value.message
    assert e.value.hint


def test_rows_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(PlannerError) as e:
        held(config(head_dim=80), 64, cache_implementation="quantized")
    assert e.value.code == "quantized_groups"


def test_a_static_cache_is_taken_whole() -> None:
    s = Scenario(engine="transformers", tokens=100, sequences=2, max_model_len=1000, cache_implementation="static")
    p = plan(read_config(config(), "m"), find("H100 SXM"), s)
    assert p.footprint.engine_bytes == 2 * 1000 * 512
    assert p.rank_bytes(3, 10) == 3 * 1000 * 512
    assert p.longest_context_tokens() == 1000
    assert plan(p.model, p.hardware, Scenario(engine="transformers", tokens=1001, max_model_len=1000, cache_implementation="static")).limited_by == "model"


def test_a_quantized_cache_is_a_remedy() -> None:
    s = Scenario(engine="transformers", tokens=2000, sequences=2, kv_memory=2000 * 512, max_model_len=4096)
    p = plan(read_config(config(), "m"), find("H100 SXM"), s)
    assert not p.fits
    assert {r.code: r.after.fits for r in remedies(p)}["quantized_cache"]
    windowed = plan(read_config(SMALL["gemma3_text"], "m"), find("H100 SXM"), Scenario(engine="transformers", tokens=64, kv_memory=1))
    assert "quantized_cache" not in {r.code for r in remedies(windowed)}  # its class refuses windows


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3", "llama4"])
@pytest.mark.parametrize("room", [7, 300])
def test_static_caches_as_transformers_makes_them(family: str, room: int) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    raw = dict(SMALL[family])
    made = transformers.AutoConfig.for_model(**raw).get_text_config(decoder=True)
    cache = transformers.StaticCache(config=made, max_cache_len=room)
    heads, dim = made.num_key_value_heads, getattr(made, "head_dim", None) or made.hidden_size // made.num_attention_heads
    row = torch.zeros(2, heads, 1, dim, dtype=torch.bfloat16)
    for layer in cache.layers:
        layer.lazy_initialization(row, row)
    true = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert held(raw, 5, cache_implementation="static", max_model_len=room, dtype="bf16") == true

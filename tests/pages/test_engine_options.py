"""Engines' own inputs and what a request brings along: drawn, counted, in the address; refused by name where an engine has no such thing."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import fresh, shown, values


def opened(**query: str) -> AppTest:
    at = fresh(**query)
    at.session_state["advanced"] = True
    return at.run()


def test_tensorrt_llm_is_an_engine_of_the_page() -> None:
    at = opened(engine="trtllm", model="Gemma-3-27B", gpus="4")
    assert not at.exception
    before = int(values(at)["Most sequences"].replace(",", ""))
    at.checkbox(key="window_pools").set_value(True).run()
    assert not at.exception
    assert int(values(at)["Most sequences"].replace(",", "")) != before  # two pools of half the memory each
    assert "n_gpu_layers" not in [n.key for n in at.number_input]


def test_transformers_caches() -> None:
    at = opened(engine="transformers", tokens="1000", sequences="100", model="Llama-3.1-8B")
    assert values(at)["KV cache of the load"] == "12.21 GiB"
    at.selectbox(key="cache_implementation").set_value("static").run()
    at.number_input(key="max_model_len").set_value(2000).run()
    assert values(at)["KV cache of the load"] == "24.41 GiB"
    at.selectbox(key="cache_implementation").set_value("quantized").run()
    assert values(at)["KV cache of the load"] == "3.43 GiB"  # 36 bytes for 64 values


@pytest.mark.parametrize(
    ("query", "size"),
    [
        ({"samples": "4", "prompt": "1000", "output": "24", "sequences": "10", "model": "Llama-3.1-8B"}, "1.37 GiB"),  # 70 blocks each, and one
        ({"images": "1", "tokens": "768", "sequences": "10", "model": "Gemma-3-27B", "engine": "architecture"}, "4.84 GiB"),  # 1,024 tokens
        ({"draft": "Llama-3.2-1B", "num_speculative_tokens": "2", "tokens": "1024", "sequences": "10", "model": "Llama-3.1-8B"}, "1.56 GiB"),
    ],
)
def test_what_a_request_brings_counts(query: dict[str, str], size: str) -> None:
    at = fresh(**query)
    assert not at.exception
    assert values(at)["KV cache of the load"] == size


def test_an_engine_without_it_says_so() -> None:
    at = fresh(engine="llamacpp", samples="4")
    assert not at.exception
    assert "llamacpp has no samples" in shown(at)
    at = fresh(engine="sglang", max_loras="2")
    assert "sglang has no max_loras" in shown(at)

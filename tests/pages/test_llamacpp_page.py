"""llama.cpp on the Plan page: its own inputs appear with it, count, and stay in the address."""

from __future__ import annotations

from tests.pages.conftest import fresh, values


def test_its_inputs_appear_with_the_engine() -> None:
    at = fresh(engine="llamacpp")
    at.session_state["advanced"] = True
    at.run()
    assert not at.exception
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    at.selectbox(key="cache_type_k").set_value("q8_0").run()
    at.selectbox(key="cache_type_v").set_value("q8_0").run()
    assert values(at)["KV cache of the load"] == "8.50 GiB"
    most = int(values(at)["Most sequences"])
    at.number_input(key="n_gpu_layers").set_value(17).run()
    assert not at.exception
    assert most < int(values(at)["Most sequences"]) == 256  # half the layers a sequence, up to what one context serves
    other = fresh(engine="vllm")
    other.session_state["advanced"] = True
    assert "n_gpu_layers" not in [n.key for n in other.run().number_input]


def test_a_link_brings_a_context_back() -> None:
    at = fresh(engine="llamacpp", parallel="4", max_model_len="4096", kv_unified="true", sequences="5", tokens="512")
    assert not at.exception
    assert "beyond the engine's slots" in [m.delta for m in at.metric]
    assert at.checkbox(key="kv_unified").value is True

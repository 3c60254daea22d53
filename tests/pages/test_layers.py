"""The Layers page: a map at first sight, the what-if table, and an edited model that is planned."""

from __future__ import annotations

import json

from tests.conftest import CONFIGS
from tests.pages.conftest import fresh


def test_the_page_at_first_sight() -> None:
    at = fresh()
    at.switch_page("layers.py").run()
    assert not at.exception
    text = " ".join(m.value for m in at.markdown)
    assert "32 full layers" in text.replace("\\", "")
    assert "GQA, 8 KV heads (this model)" in text.replace("\\", "")


def test_windows_and_states_are_told_apart() -> None:
    for model, word in (("Gemma-3-27B", "window"), ("Qwen3-Next-80B-A3B", "state"), ("DeepSeek-V3", "latent")):
        at = fresh(model=model)
        at.switch_page("layers.py").run()
        assert not at.exception
        assert f"| {word} |" in " ".join(m.value for m in at.markdown)


def test_edited_layers_are_planned() -> None:
    at = fresh()
    at.switch_page("layers.py").run()
    at.number_input(key="rule_every").set_value(4).run()
    at.button(key="use_rule").click().run()
    at.button(key="apply_layers").click().run()
    assert not at.exception
    rows = json.loads(at.session_state["paste"])["layer_rows"]
    assert [r["kind"] for r in rows[:4]] == ["window", "full", "window", "full"]
    text = " ".join(m.value for m in at.markdown)
    assert "| window |" in text
    assert "(edited)" in at.session_state["paste"]


def test_a_refused_config_can_be_finished_by_hand() -> None:
    at = fresh()
    refused = {"model_type": "brand_new_net", "architectures": ["NewForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
               "num_attention_heads": 4, "mystery_cache_width": 7}  # fmt: skip
    at.text_area(key="paste").set_value(json.dumps(refused)).run()
    assert "mystery" in at.error[0].value
    at.button(key="apply_refused").click().run()
    assert not at.error
    assert json.loads(at.session_state["paste"])["layer_rows"][0]["layers"] == 4


def test_the_map_stands_where_the_engine_refuses() -> None:
    config = json.loads((CONFIGS / "rwkv.json").read_text())
    at = fresh()
    at.text_area(key="paste").set_value(json.dumps(config)).run()
    at.switch_page("layers.py").run()
    assert not at.exception
    assert "| state |" in " ".join(m.value for m in at.markdown)
    assert "vllm" in " ".join(i.value for i in at.info)


def test_the_keys_that_decide_a_group_are_named() -> None:
    at = fresh(model="Llama-3.1-8B")
    at.switch_page("layers.py").run()
    assert not at.exception
    shown = " ".join(m.value for m in at.markdown).replace("\\", "")
    assert "num_key_value_heads = 8" in shown
    assert "num_hidden_layers = 32" in shown
    assert "vocab_size" not in shown

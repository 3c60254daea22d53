"""The Learn page: every figure is the user's model's; measurements of this session stand beside them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from planner.learn import CODES
from planner.messages import render
from tests.conftest import CONFIGS
from tests.pages.conftest import fresh
from tests.pages.test_validate import RESULT
from tests.suite_result import suite_result

NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def opened(**query: str) -> AppTest:
    page = fresh(**query).switch_page("learn.py").run()
    assert not page.exception
    return page


def text(page: AppTest) -> str:
    return "\n".join(m.value for m in (*page.markdown, *page.caption)).replace("\\", "")


def test_all_lessons_at_first_sight() -> None:
    page = opened()
    assert not page.error
    assert [s.value for s in page.subheader] == [render(f"learn.{code}") for code in CODES]
    charts = page.get("plotly_chart")
    assert len(charts) == 3
    assert all(c.proto.alt.startswith("Chart: ") for c in charts)


@pytest.mark.parametrize("other", ["Qwen3-8B", "Gemma-3-27B", "Llama-2-7B", "DeepSeek-V3"])
def test_another_model_changes_the_numbers(other: str) -> None:
    """Of every number that stands on the page, at least twelve are not there for another model; most, in fact."""
    page = opened()
    before = NUMBER.findall(text(page))
    page.selectbox(key="model").set_value(other).run()
    assert not page.exception
    gone = set(before) - set(NUMBER.findall(text(page)))
    assert len(gone) >= 12
    assert len(gone) > 0.3 * len(set(before)), sorted(set(before) - gone)


@pytest.mark.parametrize(("name", "value"), [("tokens", 5_000), ("sequences", 7)])
def test_the_load_changes_the_numbers(name: str, value: int) -> None:
    page = opened()
    before = set(NUMBER.findall(text(page)))
    page.number_input(key=name).set_value(value).run()
    assert len(before - set(NUMBER.findall(text(page)))) >= 12


@pytest.mark.parametrize("name", ["rwkv", "mamba2", "lfm2", "t5", "whisper", "deepseek_v3"])
def test_models_of_every_kind_are_explained(name: str, at: AppTest) -> None:
    path = CONFIGS / f"{name}.json"
    if not path.exists():
        pytest.skip("no such config")
    at.text_area(key="paste").set_value(path.read_text()).run()
    page = at.switch_page("learn.py").run()
    assert not page.exception
    assert len(page.subheader) == len(CODES)


def test_an_engine_that_refuses_is_said_and_the_lessons_stay() -> None:
    page = opened(gpus="3", tp="2")
    assert "does not run this model" in page.info[0].value
    assert len(page.subheader) == len(CODES)
    assert "the probe's own pool" in text(page)


def test_the_probes_own_measurements_stand_in_their_lessons() -> None:
    page = opened()
    assert "Measured by" not in text(page)
    page.session_state["_probe_results"] = [replace(RESULT, request={"batch": 2, "prompt": 64, "output": 8})]
    page.run()
    assert not page.exception
    said = text(page)
    assert "Prefill (TTFT): **500.0 ms**" in said
    captions = " ".join(c.value for c in page.caption)
    assert f"{RESULT.layers_run} of {RESULT.layers_total} layers, 2 x (64 + 8) tokens" in captions
    assert "1,310,720 bytes" in said
    page.session_state["_probe_results"] = [replace(RESULT, model={"name": "[other](http://x.example)"})]
    page.run()
    assert "500.0 ms" not in text(page)
    assert "](http" not in "".join(c.value for c in page.caption)


def test_the_suites_items_stand_in_their_lessons() -> None:
    page = opened()
    found = suite_result()
    page.session_state["_suite"] = found
    page.run()
    assert not page.exception
    said = text(page)
    first = [i for i in found["items"] if i["claims"][0] in ("C1", "C2", "C8", "C9", "C21")]
    assert first
    for i in first:
        assert i["says"] in said, i["name"]
        assert i["measured"] in said


def test_a_model_with_a_hostile_name_is_text() -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
              "vocab_size": 100,
              "intermediate_size": 128, "_name_or_path": "[x](http://x.example)"}  # fmt: skip
    at = fresh()
    at.text_area(key="paste").set_value(json.dumps(config)).run()
    page = at.switch_page("learn.py").run()
    assert not page.exception
    assert "](http" not in "\n".join(m.value for m in (*page.markdown, *page.caption))

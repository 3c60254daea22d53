"""The Serve page: what it says is the planner's, targets travel in the address, and hostile values are answered."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from planner.api import answer
from planner.units import count, seconds
from tests.pages.conftest import fresh, values


def serve(**query: str) -> AppTest:
    page = fresh(**query).switch_page("serve.py").run()
    assert not page.exception
    return page


def test_the_cards_are_the_plans() -> None:
    page = serve(prompt="1024", output="512", sequences="24")
    out = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "prompt": 1024, "output": 512, "sequences": 24})
    cards = values(page)
    assert cards["First token"] == seconds(out["latency"]["ttft_s"])
    assert cards["Each next token"] == seconds(out["latency"]["itl_s"])
    assert cards["Batch limit"] == count(out["batch_limit"]["best"])
    assert len(page.get("plotly_chart")) == 3


def test_targets_bind_and_stay_in_the_address() -> None:
    page = serve(prompt="1024", output="512")
    before = int(values(page)["Batch limit"].replace(",", ""))
    page.number_input(key="serve_target_itl").set_value(12.0).run()
    assert not page.exception
    after = int(values(page)["Batch limit"].replace(",", ""))
    assert 0 < after < before
    assert page.query_params["target_itl"] in ("0.012", ["0.012"])
    page.number_input(key="tokens").set_value(4096).run()
    assert page.number_input(key="serve_target_itl").value == 12.0
    page.number_input(key="serve_target_itl").set_value(None).run()
    assert int(values(page)["Batch limit"].replace(",", "")) > after
    assert "target_itl" not in page.query_params
    again = serve(prompt="1024", output="512", target_itl="12ms")
    assert int(values(again)["Batch limit"].replace(",", "")) == after


def test_lengths_become_the_scenarios() -> None:
    page = serve()
    page.number_input(key="serve_prompt").set_value(3000).run()
    page.number_input(key="serve_output").set_value(100).run()
    assert page.number_input(key="tokens").value == 3100
    assert not page.exception
    plan = page.switch_page("plan.py").run()
    assert plan.number_input(key="tokens").value == 3100


def test_a_target_that_nothing_meets_is_said() -> None:
    page = serve(target_itl="0.0001")
    assert values(page)["Batch limit"] == "0"
    assert any("Not even one sequence" in m.value for m in page.markdown)
    tornado = next(c for c in page.get("plotly_chart") if "Half the length" in c.proto.spec)
    assert "by memory alone" in tornado.proto.spec  # the table says that no knob helps; its bars are of something else


def test_a_plan_that_no_knob_helps_has_no_empty_chart_of_them() -> None:
    page = serve(model="Llama-3.1-70B", gpu="RTX 4090", gpus="2")
    assert "No single change buys more sequences" in " ".join(m.value.replace("\\", "") for m in page.markdown)
    assert len(page.get("plotly_chart")) == 2


def test_what_one_knob_makes_of_a_plan_that_serves_none_has_no_time_of_now() -> None:
    page = serve(model="DeepSeek-V3", gpu="H200 SXM", gpus="8", dp_attention="8", tokens="16384", sequences="64", target_ttft="2")
    said = " ".join(m.value.replace("\\", "") for m in page.markdown)
    assert "where this plan serves none" in said
    assert "- now" not in said
    assert any("plain tensor parallelism" in c.value for c in page.caption)


@pytest.mark.parametrize("query", [{"gpu": "L20"}, {"engine": "llamacpp", "gpu": "RTX 4090"}, {"gpu": "Apple M2 Ultra", "engine": "llamacpp"},
                                   {"tp": "8", "gpus": "8"},
                                   {"lengths": "100+20:3,4000+500:1"}, {"tokens": "100000000", "sequences": "1000000"}, {"pp": "2", "gpus": "2"},
                                   {"target_itl": "never"}, {"engine": "transformers"}, {"engine": "architecture"}, {"kv_memory": "40GiB"}])  # fmt: skip
def test_any_plan_gets_an_answer(query: dict[str, str]) -> None:
    page = serve(**query)
    assert page.metric or page.info
    assert not page.error


def test_a_plan_that_does_not_fit_has_times_only_as_if() -> None:
    assert "does not fit" in serve(model="Llama-3.1-405B").warning[0].value
    assert not serve(sequences="8").warning

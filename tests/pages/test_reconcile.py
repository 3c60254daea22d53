"""The Reconcile page: a log pasted or uploaded, its lines, what differs, and measured values into the plan."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import fresh, shown
from tests.planner.enginelogs import logs


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("reconcile.py").run()


def paste(page: AppTest, text: str) -> AppTest:
    key = next(a.key for a in page.text_area if str(a.key).startswith("log_paste"))
    page.text_area(key=key).set_value(text).run()
    assert not page.exception
    return page


def rows(page: AppTest) -> list[list[object]]:
    return [list(row) for row in page.dataframe[0].value.itertuples(index=False)]


def test_without_a_log_an_example_of_the_plan_stands_there(page: AppTest) -> None:
    assert not page.exception
    assert "An example until you paste yours" in page.info[0].value
    assert any("another type" in m.value for m in page.markdown)  # its cause is found
    assert any("KV memory of a rank 54\\.39 GiB" in c.value for c in page.caption)
    assert not any(b.key == "log_take" for b in page.button)
    tokens = next(row[2] for row in rows(page) if row[1] == "Tokens in the KV cache")
    page.selectbox(key="model").set_value("Qwen3-8B").run()
    assert next(row[2] for row in rows(page) if row[1] == "Tokens in the KV cache") != tokens


def test_an_engine_without_such_lines_has_no_example(page: AppTest) -> None:
    page.selectbox(key="engine").set_value("llamacpp").run()
    assert not page.exception
    assert "No log yet" in page.info[0].value


def test_a_good_log_agrees_with_itself_and_with_the_plan(page: AppTest) -> None:
    paste(page, logs.VLLM_V1)
    assert not page.error
    assert "none differs" in page.success[0].value
    told = rows(page)
    assert [6, "Tokens in the KV cache", "442,528", "442,528"] in [row[:4] for row in told]


def test_a_planted_figure_is_named_with_its_line(page: AppTest) -> None:
    paste(page, logs.VLLM_V1.replace("442,528", "452,528"))
    assert "lines 6" in shown(page)
    assert [6, "Tokens in the KV cache", "452,528", "442,528", "+10,000"] in [row[:5] for row in rows(page)]


def test_a_cause_is_shown_with_the_closed_difference(page: AppTest) -> None:
    paste(
        page, "INFO Available KV cache memory: 20.0 GiB\nINFO GPU KV cache size: 327,680 tokens\nINFO Maximum concurrency for 8,192 tokens per request: 40.00x"
    )
    told = [m.value for m in page.markdown if "another type" in m.value]
    assert told
    assert "327\\,680" in told[0]


def test_a_refusal_is_shown_with_its_words(page: AppTest) -> None:
    paste(page, logs.VLLM_REFUSED)
    assert any("needs more KV memory" in w.value for w in page.warning)


def test_measured_values_go_into_the_plans_inputs(page: AppTest) -> None:
    paste(page, logs.VLLM_V1)
    page.button(key="log_take").click().run()
    assert not page.exception
    assert any("kv" in s.value and "memory" in s.value for s in page.success)
    assert page.session_state["kv_memory"] == str(round(54.02 * 2**30))
    plan = page.switch_page("plan.py").run()
    assert not plan.exception
    assert plan.session_state["max_model_len"] == 8192


def test_an_upload_is_read_and_can_be_forgotten(page: AppTest) -> None:
    key = next(u.key for u in page.file_uploader if str(u.key).startswith("log_upload"))
    page.file_uploader(key=key).set_value(("server.log", logs.SGLANG.encode("utf-16"), "text/plain")).run()
    assert not page.exception
    assert "line 3" in shown(page)  # 16.00 GiB of weights, where this model has 14.96
    assert "sglang" in shown(page)
    page.button(key="log_clear").click().run()
    assert "An example until you paste yours" in page.info[0].value


def test_without_model_the_log_stands_against_itself(page: AppTest) -> None:
    paste(page, logs.VLLM_V1)
    page.checkbox(key="log_model").uncheck().run()
    assert not page.exception
    assert "KV memory that the log prints" not in str(rows(page))
    page.checkbox(key="log_model").check().run()
    page.checkbox(key="log_gpu").check().run()
    assert not page.exception
    assert any("from the device" in str(row) for row in rows(page))


@pytest.mark.parametrize("text", ["nothing of an engine", "<script>alert(1)</script> [x](javascript:1)"])
def test_a_text_that_is_no_log_is_refused_with_a_way_out(page: AppTest, text: str) -> None:
    paste(page, text)
    assert "No engine" in shown(page)


def test_secrets_of_a_log_are_not_on_the_page(page: AppTest) -> None:
    secret = "INFO non-default args: {'model': '/home/annsmith/m', 'api_key': ['very-secret'], 'max_model_len': 8192}\n"
    paste(page, secret + logs.VLLM_V1)
    everything = json.dumps([str(e.value) for kind in ("markdown", "caption", "error", "warning", "success", "info") for e in getattr(page, kind)])
    everything += "".join(str(d.value.to_string()) for d in page.dataframe)
    assert "very-secret" not in everything
    assert "annsmith" not in everything


def test_the_page_opens_by_its_address() -> None:
    at = fresh(model="Llama-3.1-8B")
    at.switch_page("reconcile.py").run()
    assert not at.exception


def test_iteration_stats_of_trtllm_are_read(page: AppTest) -> None:
    paste(page, '{"iter": 1, "kvCacheStats": {"maxNumBlocks": 7240, "tokensPerBlock": 64, "freeNumBlocks": 7000}}')
    assert not page.error
    assert [row[1:3] for row in rows(page)] == [["Blocks", "7240"], ["Block size", "64"]]

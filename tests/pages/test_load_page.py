"""The Serve page's load section: what it says is the planner's, its fields travel in the address, and an overload is said in words."""

from __future__ import annotations

import pytest

from planner.api import answer
from planner.units import count, rate, seconds
from tests.pages.conftest import fresh, shown
from tests.pages.test_serve import serve

BASE = {"prompt": "1024", "output": "256", "sequences": "16"}


def test_a_load_that_is_carried() -> None:
    page = serve(**BASE, request_rate="6", price_per_gpu_hour="2.5")
    out = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", **BASE, "request_rate": 6, "price_per_gpu_hour": 2.5})["load"]
    said = page.success[0].value.replace("\\", "")
    for text in (rate(out["arrivals"]["capacity"]), seconds(out["arrivals"]["itl_s"]), seconds(out["arrivals"]["ttft_s"])):
        assert text in said
    texts = [t.value for t in page.text]
    assert any(f"{count(out['fleet']['one_lost'])} so that one may be lost" in t for t in texts)
    assert any("120.00 a day" in t for t in texts)
    assert not page.error


def test_an_overload_is_said_in_words_and_gives_no_times() -> None:
    page = serve(**BASE, request_rate="100")
    assert page.error[0].value.replace("\\", "").startswith("Overload: 100 requests a second")
    assert not page.success
    assert serve(**BASE, request_rate="17").warning


def test_fields_stay_in_the_address() -> None:
    page = serve(**BASE)
    assert not page.success
    page.number_input(key="serve_request_rate").set_value(3.5).run()
    page.number_input(key="serve_acceptance_rate").set_value(0.7).run()
    assert not page.exception
    assert page.success
    assert any("2.53 tokens a step" in t.value for t in page.text)
    assert page.query_params["request_rate"] in ("3.5", ["3.5"])
    page.number_input(key="serve_request_rate").set_value(None).run()
    assert "request_rate" not in page.query_params
    assert page.query_params["acceptance_rate"] in ("0.7", ["0.7"])


@pytest.mark.parametrize("query", [{}, {"request_rate": "5"}, {"lengths": "100+20:3,1000+100:1"}, {"engine": "llamacpp", "gpu": "RTX 4090"}])
def test_the_simulation_is_drawn_when_it_is_asked_for(query: dict[str, str]) -> None:
    page = serve(**(BASE | query))
    before = len(page.get("plotly_chart"))
    page.toggle(key="serve_simulate").set_value(True).run()
    assert not page.exception
    assert len(page.get("plotly_chart")) == before + 1
    assert any("sequences" in m.value and "output tokens a second" in m.value for m in page.markdown)


@pytest.mark.parametrize("query", [{"request_rate": "never"}, {"prefix_hit_rate": "7"}, {"acceptance_rate": "-1"}, {"price_per_gpu_hour": "1e99"}])
def test_bad_values_in_an_address_are_said(query: dict[str, str]) -> None:
    page = fresh(**query).switch_page("serve.py").run()
    assert not page.exception
    assert page.warning


TRACE = "\n".join(["arrival_time,prompt,output", *(f"{i / 4},{500 + i},{40 + i}" for i in range(40))]).encode()


def test_a_trace_of_ones_own_drives_the_simulation() -> None:
    page = serve(**BASE)
    page.toggle(key="serve_simulate").set_value(True).run()
    before = len(page.get("plotly_chart"))
    page.file_uploader(key="serve_trace").set_value(("mine.csv", TRACE, "text/csv")).run()
    assert not page.exception
    assert not page.error
    assert len(page.get("plotly_chart")) == before
    assert any("40 requests of mine" in m.value.replace("\\", "") for m in page.markdown)
    page.file_uploader(key="serve_trace").set_value(("bad.csv", TRACE + b"\n9,many,3\n", "text/csv")).run()
    assert "Row 42, column prompt: 'many'" in shown(page)
    assert not page.exception
    assert len(page.get("plotly_chart")) == before - 1
    page.file_uploader(key="serve_trace").set_value(("cells.csv", b"prompt,tokens\n1,2\n", "text/csv")).run()
    assert "no column for the output tokens" in shown(page)

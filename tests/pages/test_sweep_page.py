"""The Sweep page: the default grid is answered, a changed one is swept at the press of the button, and hostile inputs are answered."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from planner.sweep.job import Job
from planner.units import count
from tests.pages.conftest import fresh, shown, values


def sweep(**query: str) -> AppTest:
    page = fresh(**query).switch_page("sweep.py").run()
    assert not page.exception
    return page


def start(page: AppTest) -> AppTest:
    page.button(key="sweep_start").click().run()
    for _ in range(20):
        if page.metric:
            break
        page.run()
    assert not page.exception
    return page


def test_the_page_begins_with_an_answer() -> None:
    page = sweep()
    cards = values(page)
    assert int(cards["Points"].replace(",", "")) == 3 * 4 * 9
    assert 0 < int(cards["Meet the targets"]) <= int(cards["Fit into memory"])
    assert len(page.get("plotly_chart")) == 1
    assert any("USD / M output tokens" in m.value for m in page.markdown)


def test_another_grid_is_swept_when_asked_and_said_to_be_old_before() -> None:
    page = sweep()
    before = values(page)
    page.text_input(key="sweep_tp").set_value("1,3").run()
    assert values(page) == before
    assert any("have changed" in i.value for i in page.info)
    page = start(page)
    assert values(page)["Points"] == count(3 * 2 * 9)
    assert values(page)["Refused"] == count(3 * 9)
    assert any("14,336" in m.value.replace("\\", "") for m in page.markdown)


def test_an_input_follows_the_choice_above_until_it_has_its_own_value_and_stays_when_the_page_is_left() -> None:
    page = sweep()
    page.text_input(key="sweep_tp").set_value("8").run()
    page.selectbox(key="model").set_value("Qwen3-8B").run()
    page.number_input(key="tokens").set_value(4096).run()
    assert (page.multiselect(key="sweep_model").value, page.text_input(key="sweep_tokens").value) == (["Qwen3-8B"], "4096")
    page.text_input(key="sweep_tokens").set_value("1024").run()
    page.number_input(key="tokens").set_value(2048).run()
    page.switch_page("plan.py").run()
    page.switch_page("sweep.py").run()
    assert not page.exception
    assert (page.text_input(key="sweep_tp").value, page.text_input(key="sweep_tokens").value) == ("8", "1024")
    page.number_input(key="sweep_target_itl").set_value(None).run()
    assert page.number_input(key="sweep_target_itl").value is None
    assert not page.error


def test_prices_and_targets_are_the_users() -> None:
    page = sweep()
    page.text_input(key="sweep_price").set_value("H100 SXM=1; H200 SXM=1; L40S=1000").run()
    page.number_input(key="sweep_target_itl").set_value(0.01).run()
    page = start(page)
    assert values(page)["Meet the targets"] == "0"
    assert any("Nothing in this grid meets the targets" in i.value for i in page.info)
    assert any("as given above" in m.value for m in page.markdown)


@pytest.mark.parametrize(("key", "text"), [("tp", "0"), ("tokens", "1..9999999"), ("more", "nonsense=1"), ("price", "H100 SXM=nan"), ("sequences", "a"),
                                           ("more", "tp=" + "9" * 900), ("price", "no such thing=3"), ("sequences", "1..10000")])  # fmt: skip
def test_what_cannot_be_is_said_in_its_place(key: str, text: str) -> None:
    page = sweep()
    page.text_input(key=f"sweep_{key}").set_value(text).run()
    assert not page.exception
    assert shown(page)
    page.text_input(key=f"sweep_{key}").set_value("" if key in ("more", "price") else "1").run()
    assert not shown(page)


@pytest.mark.parametrize("query", [{"lengths": "100+20:3,4000+500:1"}, {"engine": "llamacpp", "gpu": "RTX 4090"}, {"kv_memory": "40GiB"}, {"gpus": "8"},
                                   {"prompt": "1000", "output": "100", "target_itl": "20ms"}, {"model": "DeepSeek-V3", "tp": "8", "gpus": "8"},
                                   {"gpu": "own:My card 48GiB 960GB/s 181TFLOPS"}])  # fmt: skip
def test_any_plan_can_be_swept(query: dict[str, str]) -> None:
    page = sweep(**query)
    assert values(page)["Points"] != "0"
    assert not page.error


def test_a_job_ends_when_it_is_cancelled_and_keeps_its_error() -> None:
    job = Job()

    def endless(step):  # type: ignore[no-untyped-def]
        while step(1, 10):
            pass

    job.start(endless)
    assert job.running
    job.cancel()
    job.wait(5)
    assert not job.running
    assert job.fraction == 0.1

    def wrong(step):  # type: ignore[no-untyped-def]
        raise ValueError

    job.start(wrong)
    job.wait(5)
    assert isinstance(job.now.error, ValueError)

"""The expander with a mix of lengths: a text in the address, a CSV in the session, an answer beside the plan's."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from planner.scenario import Scenario
from tests.pages.conftest import fresh, shown, values

SHORT = "512+128:0.7,8192+1024:0.3"
LONG = "prompt,output\n" + "\n".join(f"{i},{i}" for i in range(1, 200))


def opened() -> AppTest:
    at = fresh()
    at.session_state["mix"] = True
    return at.run()


def give(at: AppTest, data: str) -> AppTest:
    return at.file_uploader(key="mix_csv").set_value([("mix.csv", data.encode(), "text/csv")][0]).run()


def test_the_first_page_draws_none_of_it(at: AppTest) -> None:
    assert "lengths" not in at.session_state
    assert "Guaranteed" not in values(at)


def test_a_link_shows_the_mix() -> None:
    at = fresh(lengths=SHORT)
    assert not at.exception
    assert (values(at)["Guaranteed"], values(at)["Typical"], values(at)["Mean length"]) == ("138", "147", "3,213")
    assert at.session_state["_current"].scenario == Scenario(lengths=SHORT)
    assert "lengths=512%2B128%3A0.7" in " ".join(t.value for t in at.code)
    chart = next(c for c in at.get("plotly_chart") if "of the requests" in c.proto.spec)
    bars = {t["name"]: t["y"] for t in json.loads(chart.proto.spec)["data"]}
    assert [round(v) for v in bars["of the requests"]] == [70, 30]
    assert [round(v) for v in bars["of the bytes"]] == [14, 86]
    assert values(at)["Most sequences"] == "54"  # the plan itself is as before
    page = at.switch_page("report.py").run()
    assert "all at full length" in page.markdown[0].value
    back = at.switch_page("plan.py").run()
    assert values(back)["Guaranteed"] == "138"


def test_a_text_is_typed_and_taken_away() -> None:
    at = opened()
    at.text_input(key="lengths").set_value("1000+24").run()
    assert not at.exception
    assert values(at)["Guaranteed"] == values(fresh(tokens="1024"))["Most sequences"]
    at.text_input(key="lengths").set_value("").run()
    assert "Guaranteed" not in values(at)


def test_a_bad_text_is_refused_in_words_and_the_plan_stands() -> None:
    for at in (fresh(lengths="512+x"), opened()):
        if "lengths" in at.session_state and not at.session_state["lengths"]:
            at.text_input(key="lengths").set_value("512+x").run()
        assert not at.exception
        assert "512+x" in shown(at)
        assert values(at)["Most sequences"] == "54"
        assert at.session_state["_current"].scenario.lengths is None


def test_a_short_csv_becomes_the_text_and_a_long_one_stays_in_the_session() -> None:
    at = give(opened(), "isl,osl,count\n512,128,7\n8192,1024,3\n")
    assert not at.exception
    assert at.text_input(key="lengths").value == "512+128:7,8192+1024:3"
    assert values(at)["Guaranteed"] == "138"
    give(at, LONG)
    assert not at.exception
    assert at.text_input(key="lengths").value == ""
    assert values(at)["Mean length"] == "200"
    assert len(at.code) == 1
    assert "lengths" not in " ".join(t.value for t in at.code)
    assert any("mix.csv" in i.value.replace("\\", "") for i in at.info)
    page = at.switch_page("report.py").run()
    assert "199 lengths from 199 rows" in page.markdown[0].value
    other = fresh()
    assert other.session_state["_mix"] is None


def test_a_bad_csv_names_its_row_and_the_plan_stands() -> None:
    at = give(opened(), "prompt,output\n5,1\n=cmd(),![x](http://example.com/x.png)\n")
    assert not at.exception
    assert "Row 3, column prompt" in shown(at)
    assert values(at)["Most sequences"] == "54"
    give(at, "prompt,output\n5,1\n")
    assert not at.error


def test_a_shared_prefix_counts_and_says_what_it_saves() -> None:
    at = fresh(shared_prefix="4096")
    assert values(at)["Most sequences"] == "107"
    assert "8,053,063,680 bytes" in " ".join(c.value for c in at.caption).replace("\\", "")
    assert "a shared prefix once" in " ".join(m.value for m in at.markdown)
    at.number_input(key="shared_prefix").set_value(9000).run()
    assert shown(at).startswith("**shared_prefix**")
    assert not at.exception


def test_a_saved_plan_brings_its_mix_and_prefix() -> None:
    from planner.report import render
    from tests.pages.conftest import upload

    c = fresh(lengths="512+128:7,8192+1024:3", shared_prefix="256").session_state["_current"]
    saved = render(c.plan(), "json", c.loaded.provenance, config=c.loaded.raw)
    at = upload(fresh(), ("kv-plan.json", saved))
    assert not at.exception
    assert at.text_input(key="lengths").value == "512+128:7,8192+1024:3"
    assert at.number_input(key="shared_prefix").value == 256
    assert values(at)["Guaranteed"] == str(json.loads(saved)["mix"]["sequences_guaranteed"])

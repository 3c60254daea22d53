"""The Compare page: filled at first sight, copies with one thing changed, refusals in their place, the address, uploads, what is taken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import language
from planner.compare import MOST, as_text, from_text
from planner.scenario import Scenario
from tests.pages.conftest import fresh, shown, upload
from tests.pages.hostile import changed


@pytest.fixture
def page(at: AppTest) -> AppTest:
    return at.switch_page("compare.py").run()


def opened(columns: list[str], **query: str) -> AppTest:
    return fresh(**query, column=columns).switch_page("compare.py").run()  # type: ignore[arg-type]


def rows(page: AppTest) -> dict[str, list[str]]:
    """label -> cells as they are read, of the first row with it; a cell that differs begins with a star."""
    assert not page.exception
    table = next(m.value for m in page.markdown if m.value.startswith("| Figure"))
    out: dict[str, list[str]] = {}
    for line in table.split("\n")[2:]:
        label, *cells = (c.strip().replace("\\", "").replace("\N{NO-BREAK SPACE}", " ") for c in line.strip("|").split(" | "))
        out.setdefault(label, [re.sub(r":blue-background\[\*\*(.*)\*\*\]", r"*\1", c) for c in cells])
    return out


def add(page: AppTest, field: str, value: Any = None, base: int = 0) -> AppTest:
    page.selectbox(key="column_base").set_value(base)
    page.selectbox(key="column_field").set_value(field).run()
    if value is not None:
        key = f"column_to_{field}_{base}"
        widget = next(w for kind in (page.selectbox, page.number_input, page.text_input) for w in kind if w.key == key)
        widget.set_value(value)
    return page.button(key="column_add").click().run()


def cards(page: AppTest) -> str:
    return "\n".join(m.value for m in page.markdown if not m.value.startswith("|")).replace("\\", "")


def test_it_starts_with_the_plan_and_an_instructive_copy(page: AppTest) -> None:
    found = rows(page)
    assert found["KV cache of the load, as held"] == ["16.00 GiB", "*8.00 GiB"]
    assert found["Most sequences at this length"] == ["54", "*108"]
    assert found["KV cache type"][0] == "auto"
    assert "**B** KV cache type: fp8" in cards(page)
    assert "B runs the most sequences at once, 108; A the fewest, 54" in cards(page)
    assert "column" not in page.query_params, "nothing was chosen yet"
    assert not page.error
    assert len(page.get("plotly_chart")) == 1
    assert page.get("plotly_chart")[0].proto.alt


def test_the_untouched_copy_follows_the_inputs(page: AppTest) -> None:
    page.selectbox(key="model").set_value("Qwen3-8B").run()
    assert rows(page)["Model"] == ["Qwen3-8B", "Qwen3-8B"]
    page.selectbox(key="engine").set_value("llamacpp").run()
    assert rows(page)["Engine"] == ["llamacpp", "llamacpp"]
    found = rows(page)["KV cache of the load, as held"]
    assert found[1].startswith("*"), "another type of cache is found for llama.cpp"


@pytest.mark.parametrize(
    ("field", "value", "label", "cell"),
    [("gpu", "L4", "GPU", "*L4"), ("engine", "sglang", "Engine", "*sglang"), ("sequences", 40, "Sequences at once", "*40"), ("tp", 2, "Tensor parallel", "*2"),
     ("model", "Gemma-3-27B", "Model", "*Gemma-3-27B"), ("memory_fraction", 0.5, "Memory fraction", "*0.5"), ("kv_memory", "40GiB", "KV pool of a rank",
     "*42,949,672,960"), ("prefix_caching", None, "Prefix caching", "*no")],
)  # fmt: skip
def test_a_copy_with_one_thing_changed(page: AppTest, field: str, value: Any, label: str, cell: str) -> None:
    add(page, field, value)
    found = rows(page)
    assert found[label][2] == cell
    assert not page.error
    assert from_text(page.query_params["column"][0]).to_query() == {"kv_dtype": "fp8"}
    assert len(page.query_params["column"]) == 2


def test_a_copy_of_a_copy(page: AppTest) -> None:
    add(page, "sequences", 100, base=1)
    assert rows(page)["KV cache type"] == ["auto", "*fp8", "*fp8"]
    assert rows(page)["Sequences at once"] == ["16", "16", "*100"]


def test_a_value_that_cannot_be_is_refused_and_nothing_is_added(page: AppTest) -> None:
    add(page, "kv_memory", "lots")
    assert "kv_memory" in shown(page)
    assert len(rows(page)["Model"]) == 2
    add(page, "sequences", 2)
    assert not page.error


def test_a_refused_column_says_why_and_the_others_stand(page: AppTest) -> None:
    before = rows(page)
    add(page, "tp", 3)
    add(page, "gpus", 4, base=2)
    found = rows(page)
    assert "D" in shown(page)
    assert "gpus" in shown(page)
    assert "REFUSED" in cards(page)
    assert found["KV cache of the load, as held"][3] == "-"
    assert found["GPUs"] == ["1", "1", "1", "*4"]
    assert found["KV cache of the load, as held"][:2] == before["KV cache of the load, as held"]


def test_a_model_that_is_nowhere_spoils_its_column_only() -> None:
    at = opened(["kv_dtype=fp8", "model=no-such-model"])
    assert "C" in shown(at)
    assert "no-such-model" in shown(at)
    assert rows(at)["Most sequences at this length"] == ["54", "*108", "-"]


def test_the_current_plan_refused_leaves_the_copies(page: AppTest) -> None:
    add(page, "sequences", 8)
    page.number_input(key="gpus").set_value(3).run()
    at = opened(["kv_dtype=fp8"], gpus="3", tp="2")
    assert rows(at)["Most sequences at this length"] == ["-", "108"]


def test_six_columns_and_no_more(page: AppTest) -> None:
    for n in range(MOST - 2):
        add(page, "sequences", 20 + n)
    assert len(rows(page)["Model"]) == MOST
    assert not [b for b in page.button if b.key == "column_add"]
    page.button(key="column_remove_3").click().run()
    assert rows(page)["Sequences at once"] == ["16", "16", "*20", "*22", "*23"]
    page.button(key="column_start").click().run()
    assert len(rows(page)["Model"]) == 2
    assert "column" not in page.query_params


def test_the_address_holds_the_columns() -> None:
    wanted = [Scenario(kv_dtype="fp8"), Scenario(model="DeepSeek-V3", gpus=8, tp=8, memory_fraction=0.9, prefix_caching=False)]
    at = opened([as_text(s) for s in wanted], sequences="4")
    assert rows(at)["Model"] == ["Llama-3.1-8B", "Llama-3.1-8B", "*DeepSeek-V3"]
    assert rows(at)["Sequences at once"] == ["4", "*16", "*16"]
    assert [from_text(t) for t in at.query_params["column"]] == wanted
    again = opened(list(at.query_params["column"]), sequences="4")
    assert rows(again) == rows(at)


@pytest.mark.parametrize("bad", ["nonsense", "tokens=-1", "kv_dtype=fp99", "x=" + "y" * 9_000, "[click](http://x.example)=1"])
def test_a_bad_column_of_an_address_is_left_out_and_said(bad: str) -> None:
    at = opened([bad, "sequences=3"])
    assert rows(at)["Sequences at once"] == ["16", "*3"]
    assert len(at.warning) == 1
    assert "](http" not in at.warning[0].value


def test_too_many_columns_in_an_address_are_cut_and_said() -> None:
    at = opened([f"sequences={n}" for n in range(1, 40)])
    assert len(rows(at)["Model"]) == MOST
    assert "39" in at.warning[0].value


def test_a_column_is_taken_into_the_plan(page: AppTest) -> None:
    add(page, "gpu", "H200 SXM", base=1)
    page.button(key="column_take_2").click().run()
    taken = page.session_state["_current"].scenario
    assert (taken.gpu, taken.kv_dtype) == ("H200 SXM", "fp8")
    assert rows(page)["GPU"] == ["H200 SXM", "*H100 SXM", "H200 SXM"]
    page.switch_page("plan.py").run()
    assert page.session_state["_current"].scenario == taken


def test_copies_of_an_upload_keep_their_config(at: AppTest) -> None:
    """They stay what they are when the upload goes, and are not in the address."""
    page = upload(at, ("mine.json", changed(num_hidden_layers=16))).switch_page("compare.py").run()
    add(page, "sequences", 8)
    before = rows(page)["Each further token"]
    assert before[0] == "65,536 bytes"
    assert "B, C" in "".join(c.value for c in page.caption).replace("\\", "").replace("A, ", "")
    assert "column" not in page.query_params
    page.button(key="leave_own").click().run()
    assert rows(page)["Each further token"] == ["131,072 bytes", *(f"*{x.strip('*')}" if x.strip("*") != "131,072 bytes" else x for x in before[1:])]
    page.button(key="column_take_2").click().run()
    assert not page.exception
    assert rows(page)["Each further token"][0] == "65,536 bytes"


def test_only_rows_that_differ(page: AppTest) -> None:
    page.checkbox(key="column_only").check().run()
    found = rows(page)
    assert "GPU" not in found
    assert all(cells[1].startswith("*") for cells in found.values() if any(cells))


def test_the_sources_stand_there_when_opened(page: AppTest) -> None:
    assert not page.table
    page.session_state["compare_sources"] = True
    page.run()
    said = page.table[0].value.to_string().replace("\\", "")
    assert "2 x 32 layers x 8 KV heads" in said
    assert "vLLM 0.33" in said


def test_both_exports_are_offered(page: AppTest) -> None:
    assert [b.label for b in page.get("download_button")] == ["CSV", "JSON"]
    assert all(b.proto.url or b.proto.deferred_file_id for b in page.get("download_button"))


def test_a_pasted_model_can_be_compared(at: AppTest) -> None:
    at.text_area(key="paste").set_value(json.dumps({**json.loads(changed()), "num_key_value_heads": 32})).run()
    page = at.switch_page("compare.py").run()
    assert rows(page)["Each further token"] == ["524,288 bytes", "*262,144 bytes"]


# -- a comparison as a file ----------------------------------------------------------------------------------------------------


def exported(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the page's Download (JSON) gives: the work that it hands to the button."""
    works: list[Callable[[], bytes]] = []
    with monkeypatch.context() as m:
        m.setattr(language, "kept", lambda work: works.append(work) or work)
        page.run()
    assert not page.exception
    return next(data for data in (work() for work in works) if data.startswith(b"{"))


def test_a_comparison_is_kept_as_a_file_and_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload first, a copy of it, a model of the catalog, a plan that no engine runs, and a model that cannot be had."""
    at = opened(["model=DeepSeek-V3&gpus=8&tokens=4096", "gpus=3&tp=2", "model=no-such-model", "kv_dtype=fp8&gpu=own%3AMine+48GiB"])
    at.switch_page("plan.py").run()
    upload(at, ("mine.json", changed(num_hidden_layers=16)))
    at.switch_page("compare.py").run()
    at.selectbox(key="column_field").set_value("sequences").run()
    at.button(key="column_add").click().run()
    assert not at.exception
    before, shown_before = exported(at, monkeypatch), [m.value for m in at.markdown]
    other = fresh().switch_page("compare.py").run()
    other.file_uploader(key="column_file").set_value([("kv-compare.json", before, "application/json")]).run()
    assert not other.exception
    assert [m.value for m in other.markdown] == shown_before
    assert exported(other, monkeypatch) == before
    assert len(json.loads(before)["columns"]) == 6


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"{}", "format"), (b"[1]", ""), (b"{", ""), (b'{"format": "kvledger-comparison", "columns": []}', "columns"),
        (b'{"format": "kvledger-comparison", "columns": [1]}', "columns"),
        (b'{"format": "kvledger-comparison", "columns": [{"scenario": {"tokens": -1}}]}', "tokens"),
        (b'{"format": "kvledger-comparison", "columns": [{"scenario": {"tokens": 5}, "provenance": 7}]}', "provenance"),
        (
            b'{"format": "kvledger-comparison", "columns": [{"scenario": {"tokens": 5}, "provenance": {"kind": "upload"}, "config": {"model_type": "llama"}}]}',
            "num_hidden_layers",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_comparison_changes_nothing(data: bytes, field: str) -> None:
    at = fresh().switch_page("compare.py").run()
    before = [m.value for m in at.markdown]
    at.file_uploader(key="column_file").set_value([("x.json", data, "application/json")]).run()
    assert not at.exception
    assert len(at.error) == 1
    assert field in shown(at)
    assert [m.value for m in at.markdown] == before

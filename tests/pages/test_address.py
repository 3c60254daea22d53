"""The address: on every page it keeps every field of a scenario, so a reload there is the same plan."""

from __future__ import annotations

from typing import Any

import pytest

from planner.report import render
from planner.scenario import OPTIONS, Scenario, from_options
from tests.conftest import ROOT
from tests.pages.conftest import fresh, upload

PAGES = sorted(p.name for p in (ROOT / "pages").glob("*.py") if p.name not in ("router.py", "__init__.py"))
MIX = "512+128:0.7,8192+1024:0.3"
TEXTS = {"model": "GPT-2", "gpu": "A100 SXM 40GB", "engine_version": "0.10.0", "lengths": MIX, "draft": "Llama-3.2-1B"}


def other_than_default(name: str) -> Any:
    """A value of every field, new ones included, that is not the one it has without asking."""
    o, default = OPTIONS[name], getattr(Scenario(), name)
    if o.kind == "text":
        return TEXTS[name]
    if o.kind == "flag":
        return not default
    if o.kind == "choice":
        return next(c for c in o.choices[::-1] if c != default)
    return {"int": int(min(o.high, max(o.low, 3))), "bytes": 3 * 2**30, "fraction": 0.7, "seconds": 0.25, "number": 2.5,
            "scale": "1.2500;0.0300;3;points;H100 SXM;vllm;Llama-3.1-8B"}[o.kind]  # fmt: skip


CHOSEN = {name: other_than_default(name) for name in OPTIONS if name != "engine"}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("engine", ["llamacpp", "sglang"])
def test_every_page_keeps_every_field(page: str, engine: str) -> None:
    wanted = Scenario(**CHOSEN, engine=engine)
    assert set(wanted.to_query()) == set(OPTIONS)
    at = fresh(**wanted.to_query())
    at.switch_page(page).run()
    for _ in range(2):  # a widget that the first page drew loses its parameter only after the second page's first run
        assert at.session_state["_current"].scenario == wanted
        assert from_options(at.query_params) == wanted
        at.run()


@pytest.mark.parametrize("page", [p for p in PAGES if p != "plan.py"])
def test_a_mix_typed_on_the_plan_page_goes_along(page: str) -> None:
    at = fresh(lengths="100")
    at.text_input(key="lengths").set_value(MIX).run()
    assert at.query_params["lengths"] == MIX
    at.switch_page(page).run().run()
    assert at.query_params["lengths"] == MIX
    at.switch_page("plan.py").run()
    assert at.text_input(key="lengths").value == MIX
    at.text_input(key="lengths").set_value("").run()
    assert "lengths" not in at.query_params
    at.switch_page(page).run().run()
    assert "lengths" not in at.query_params


def test_prompt_and_output_leave_with_another_length() -> None:
    at = fresh(prompt="600", output="300")
    assert at.session_state["_current"].scenario == Scenario(prompt=600, output=300, tokens=900)
    at.number_input(key="tokens").set_value(1000).run()
    assert at.session_state["_current"].scenario == Scenario(tokens=1000)
    assert not {"prompt", "output"} & set(at.query_params)


def test_one_bad_field_of_an_address_takes_no_other_along() -> None:
    at = fresh(prompt="600", output="300", tp="many")
    assert len(at.warning) == 1
    assert at.session_state["_current"].scenario == Scenario(prompt=600, output=300, tokens=900)


@pytest.mark.parametrize("opened", [True, False])
def test_a_saved_plan_writes_fields_whose_widgets_were_not_there(opened: bool) -> None:
    """llama.cpp's inputs are not drawn for another engine; a saved plan may hold their values all the same."""
    wanted = Scenario(parallel=4, swa_full=True, kv_dtype="fp8")
    c = fresh(**wanted.to_query()).session_state["_current"]
    saved = render(c.plan(), "json", c.loaded.provenance, config=c.loaded.raw)
    at = upload(fresh(**({"block_size": "32"} if opened else {})), ("plan.json", saved))
    assert at.session_state["_current"].scenario == wanted
    at.run()
    assert at.session_state["_current"].scenario == wanted
    assert {"parallel": "4", "swa_full": "true"}.items() <= at.query_params.items()


def test_what_a_browser_drops_too_early_is_told_to_it_again() -> None:
    """On a change of page it drops the parameters of widgets that it has not drawn yet (tests/browser/test_sessions.py)."""
    asked = {"sequences": "32", "kv_dtype": "fp8", "max_num_seqs": "99", "lengths": MIX, "lang": "ko"}
    at = fresh(**asked)
    at.query_params.clear()
    at.switch_page("serve.py").run()
    assert asked.items() <= at.query_params.items()
    at.selectbox(key="kv_dtype").set_value("auto").run()
    del at.query_params["kv_dtype"]  # as the browser does
    at.run()
    assert at.session_state["_current"].scenario == Scenario(sequences=32, max_num_seqs=99, lengths=MIX)

"""How figures are set on the pages: cards that say what is true of a plan that does not fit, ticks, signs, units. No page is run."""

from __future__ import annotations

import pytest

from pages.parts import tables
from pages.parts.charts import legend
from pages.parts.headline import _delta, load_delta, state_help
from pages.parts.serve_charts import log_axis
from planner.api import model_of
from planner.capacity import CapacityPlan, plan
from planner.hardware import find
from planner.messages import render
from planner.report.content import state_of
from planner.scenario import from_options
from planner.sources import load
from planner.units import count, gib


def planned(**options: str) -> CapacityPlan:
    s = from_options({"model": "Llama-3.1-8B", **options})
    return plan(model_of(load(s.model, allow_paths=False), ()), find(s.gpu), s)


def short(p: CapacityPlan) -> str:
    return render(f"page.state.delta.{_delta(p, state_of(p))}", {"free": gib(p.free_bytes), "short": gib(p.shortfall_bytes), "limit": "-"})


def test_a_load_that_does_not_fit_needs_bytes_and_holds_none() -> None:
    fits, over, none = planned(), planned(sequences="100"), planned(model="Llama-3.1-70B", gpu="RTX 4090", gpus="2")
    assert "holds" in state_help(fits)
    assert state_help(over).endswith(f"The load needs {count(over.footprint.per_rank_bytes[0])} bytes.")
    assert f"{count(-none.kv_pool_bytes)} bytes more" in state_help(none)
    assert "-" not in state_help(none)
    assert (short(fits), short(none)) == ("38.39 GiB free", "66.10 GiB short a rank")


def test_pools_of_fixed_shares_say_that_one_of_them_is_short() -> None:
    """SGLang cuts its memory into full tokens and window tokens: what one pool lacks is less than what would have to be added."""
    p = planned(model="gpt-oss-20b", gpu="RTX 4090", engine="sglang", tokens="32768", sequences="8")
    assert short(p) == "4.07 GiB short in one pool"
    assert count(p.shortfall_bytes) in state_help(p)
    enough = planned(model="gpt-oss-20b", gpu="RTX 4090", engine="sglang", tokens="32768", sequences="8", kv_memory=str(p.kv_pool_bytes + p.shortfall_bytes))
    assert not enough.fits


@pytest.mark.parametrize(("options", "code"), [({}, "delta"), ({"model": "DeepSeek-V3", "gpu": "H200 SXM", "gpus": "8"}, "delta.more"),
                                               ({"model": "Mistral-7B-v0.1", "engine": "transformers", "tokens": "16384"}, "delta.bounded")])  # fmt: skip
def test_the_bytes_of_a_token_stand_where_they_lead_to_the_bytes_of_the_load(options: dict[str, str], code: str) -> None:
    p = planned(**options)
    assert load_delta(p) == f"page.metric.kv_load.{code}"
    each = p.footprint.bytes_per_token_unbounded * p.scenario.tokens * p.scenario.sequences
    assert (abs(p.load_bytes / (each or 1) - 1) < 0.01) is (code == "delta")


def test_the_line_at_the_end_of_the_bar_is_in_its_legend() -> None:
    assert "end of the device" in legend(planned())
    assert "end of the pool" in legend(planned(kv_memory="40GiB"))


@pytest.mark.parametrize(("values", "ticks"), [((4.0, 30.0), ["1", "2", "5", "10", "20", "50", "100", "200", "500"]),
                                               ((0.2, 0.9), ["0.1", "0.2", "0.5", "1", "2", "5"]), ((), None), ((0.0,), None),
                                               ((3.0, 90_000.0), ["1", "10", "100", "1,000", "10,000", "100,000"])])  # fmt: skip
def test_ticks_of_powers_are_whole_figures(values: tuple[float, ...], ticks: list[str] | None) -> None:
    axis = log_axis(values)
    assert axis["type"] == "log"
    if ticks is None:
        assert "tickvals" not in axis
    else:
        assert axis["ticktext"] == ticks
        assert [float(t.replace(",", "")) for t in ticks] == pytest.approx(axis["tickvals"])


def test_a_figure_stays_with_its_unit_and_nothing_has_no_sign() -> None:
    blank = "\N{NO-BREAK SPACE}"
    assert tables.together("498.1 ms (398.4 ms to 772.0 ms)") == f"498.1{blank}ms (398.4{blank}ms to 772.0{blank}ms)"
    assert tables.together("1.06 s, 34.4 %, 2 sequences") == f"1.06{blank}s, 34.4{blank}%, 2 sequences"
    assert (tables._two_digits(-0.0004), tables._two_digits(-0.11)) == ("0.00", "-0.11")


def test_no_table_explains_a_gap_that_is_not_there() -> None:
    assert not tables.gap_rows(planned(engine="architecture")).rows
    assert [row["bytes"] for row in tables.gap_rows(planned()).rows] == [2_097_152]

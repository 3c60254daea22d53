"""The Plan page: an answer at first sight, every input counts, what does not fit has a way out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from planner.capacity import plan, replan
from planner.hardware import find
from planner.heatmap import heat_map
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from tests.pages.conftest import deltas, fresh, shown, upload, values
from tests.pages.hostile import changed


def test_an_answer_at_first_sight(at: AppTest) -> None:
    shown_first = {"This plan": "FITS", "KV cache of the load": "16.00 GiB", "KV a sequence": "1.00 GiB", "Most sequences": "54", "Longest context": "131,072"}
    assert values(at) == shown_first
    assert "131,072 bytes" in deltas(at)["KV cache of the load"]
    formula = at.text[0].value
    assert formula.startswith("2 x 32 layers x 8 KV heads x 128 x 8,192 tokens x 16 sequences x 2 bytes = 16.00 GiB")
    assert "architecture 16.00 GiB + 2.00 MiB (one unused block a rank) = vllm holds 16.00 GiB" in formula
    assert not at.error
    assert not at.warning


CHANGES: dict[str, Callable[[AppTest], object]] = {
    "model": lambda at: at.selectbox(key="model").set_value("Llama-2-13B"),
    "gpu": lambda at: at.selectbox(key="gpu").set_value("L4"),
    "gpus": lambda at: at.number_input(key="gpus").set_value(2),
    "engine": lambda at: at.selectbox(key="engine").set_value("transformers"),
    "tokens": lambda at: at.number_input(key="tokens").set_value(4096),
    "sequences": lambda at: at.number_input(key="sequences").set_value(8),
    "kv_dtype": lambda at: at.selectbox(key="kv_dtype").set_value("fp8"),
    "weight_dtype": lambda at: at.selectbox(key="weight_dtype").set_value("fp8"),
    "dtype": lambda at: at.selectbox(key="dtype").set_value("fp32"),
    "memory_fraction": lambda at: at.number_input(key="memory_fraction").set_value(0.5),
    "kv_memory": lambda at: at.text_input(key="kv_memory").set_value("40GiB"),
    "max_num_seqs": lambda at: at.number_input(key="max_num_seqs").set_value(64),
    "max_num_batched_tokens": lambda at: at.number_input(key="max_num_batched_tokens").set_value(65536),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_input_changes_the_headline(at: AppTest, name: str) -> None:
    before = (values(at), deltas(at))
    at.session_state["advanced"] = True
    at.run()
    CHANGES[name](at)
    at.run()
    assert not at.exception
    assert not at.error
    assert (values(at), deltas(at)) != before


def test_a_named_source_shows_both_figures_and_which_is_exact() -> None:
    at = fresh(model="Llama-2-13B", tokens="4000", sequences="1")
    assert deltas(at)["KV cache of the load"] == "819,200 bytes a token"
    notes = " ".join(c.value for c in at.caption).replace("\\", "")
    assert "about 1 MB a token" in notes
    assert "819,200 bytes a token and 3.05 GiB at 4,000 tokens" in notes


def test_what_does_not_fit_shows_the_shortfall_and_remedies_that_do(at: AppTest) -> None:
    at.number_input(key="sequences").set_value(64).run()
    assert (values(at)["This plan"], deltas(at)["This plan"]) == ("DOES NOT FIT", "9.61 GiB short")
    assert not [b for b in at.button if b.key and b.key.startswith("take_")]
    at.button(key="remedies").click().run()
    takes = [b.key for b in at.button if b.key and b.key.startswith("take_")]
    fitting = [m for m in at.markdown if "green[" in m.value]
    assert len(takes) >= len(fitting) >= 3
    for key in takes[:3]:
        other = fresh(sequences="64")
        other.button(key="remedies").click().run()
        other.button(key=key).click().run()
        assert not other.exception
        assert values(other)["This plan"] in ("FITS", "TIGHT"), key


def test_a_link_restores_the_plan() -> None:
    s = Scenario(model="DeepSeek-V3", gpus=16, tp=8, pp=2, kv_dtype="bf16", tokens=4096, memory_fraction=0.9, prefix_caching=False, kv_memory=40 * 1024**3)
    at = fresh(**s.to_query())
    assert not at.exception
    raw = load("catalog:DeepSeek-V3").raw
    p = plan(read_config(raw, "DeepSeek-V3"), find(s.gpu), s)
    assert values(at)["Most sequences"] == f"{p.max_sequences:,}"
    assert at.session_state["_current"].scenario == s


def test_memory_that_others_hold_stops_the_start() -> None:
    at = fresh(used_memory_bytes="10GiB")
    assert not at.exception
    assert values(at)["This plan"] == "DOES NOT FIT"
    assert deltas(at)["This plan"] == "3.96 GiB short"
    assert values(fresh(used_memory_bytes="3GiB"))["This plan"] == "FITS"


def test_a_link_with_rubbish_says_so_and_shows_the_default() -> None:
    at = fresh(tokens="-5", kv_dtype="nonsense", sequences="abc")
    assert not at.exception
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    said = "".join(w.value for w in at.warning).replace("\\", "")
    assert all(name in said for name in ("tokens", "kv_dtype", "sequences"))


def test_prompt_and_output_in_a_link_make_the_length() -> None:
    at = fresh(prompt="3000", output="1096")
    assert at.number_input(key="tokens").value == 4096
    assert at.session_state["_current"].scenario == Scenario(tokens=4096, prompt=3000, output=1096)


@pytest.mark.parametrize(("query", "field"), [({"gpu": "B9000 Ultra"}, "gpu"), ({"gpus": "3", "tp": "2"}, "gpus"), ({"kv_memory": "lots"}, "kv_memory")])
def test_choices_that_cannot_be_name_their_field(query: dict[str, str], field: str) -> None:
    at = fresh(**query)
    assert not at.exception
    assert shown(at).startswith(f"**{field}**")
    assert not at.metric


def test_a_click_on_the_heat_map_takes_the_cell(at: AppTest) -> None:
    spec = json.loads(at.get("plotly_chart")[1].proto.spec)
    markers = next(t for t in spec["data"] if t.get("mode") == "markers+text")
    assert [4096, 32] in markers["customdata"]
    assert {t.get("name") for t in spec["data"]} >= {"most that fits", "this plan"}
    assert spec["layout"]["xaxis"]["title"]["text"] == "tokens a sequence"


@pytest.mark.parametrize(
    ("name", "more"),
    [("Llama-3.1-8B", {}), ("Gemma-3-27B", {}), ("DeepSeek-V3", {"gpus": 32, "tp": 8, "dp_attention": 2}), ("Qwen3-Next-80B-A3B", {"gpus": 4}),
     ("Llama-3.1-8B", {"engine": "transformers"})],
)  # fmt: skip
def test_fifty_random_cells_of_the_heat_map_are_plans(name: str, more: dict[str, object]) -> None:
    p = plan(read_config(load(f"catalog:{name}").raw, name), find("H100 SXM"), Scenario(model=name, **more))  # type: ignore[arg-type]
    h = heat_map(p)
    for seed in range(50):
        pick = random.Random(seed)
        i, j = pick.randrange(len(h.sequences)), pick.randrange(len(h.tokens))
        q = replan(p, tokens=h.tokens[j], sequences=h.sequences[i])
        assert h.rank_bytes[i][j] == q.footprint.per_rank_bytes[q.binding_rank], (h.sequences[i], h.tokens[j])
        if q.limited_by not in ("start", "model"):
            assert h.fits[i][j] == q.fits


def test_the_line_of_the_heat_map_is_the_last_that_fits() -> None:
    p = plan(read_config(load("catalog:Gemma-3-27B").raw, "Gemma-3-27B"), find("H100 SXM"), Scenario(model="Gemma-3-27B"))
    for tokens, most in heat_map(p).line[::5]:
        assert replan(p, tokens=tokens, sequences=most).limited_by in (None, "start")
        assert replan(p, tokens=tokens, sequences=most + 1).limited_by == "pool"


def test_a_saved_plan_is_taken_up_again(at: AppTest) -> None:
    from planner.report import render

    upload(at, ("mine.json", changed(num_hidden_layers=16)))
    at.number_input(key="sequences").set_value(24).run()
    before = values(at)
    c = at.session_state["_current"]
    saved = render(c.plan(), "json", c.loaded.provenance, config=c.loaded.raw)
    other = upload(fresh(), ("kv-plan_mine.json", saved))
    assert not other.exception
    assert values(other) == before
    assert other.number_input(key="sequences").value == 24
    c = fresh(model="Qwen3-8B").session_state["_current"]
    catalog = upload(fresh(), ("p.json", render(c.plan(), "json", c.loaded.provenance, config=c.loaded.raw)))
    assert catalog.selectbox(key="model").value == "Qwen3-8B"
    assert catalog.session_state["_own"] is None


def test_the_smallest_memory_is_found_and_taken() -> None:
    at = fresh(tokens="1024", sequences="4", max_model_len="1024")
    at.button(key="smallest").click().run()
    assert not at.exception
    assert "257 blocks" not in shown(at)
    assert "538,968,064 bytes" in " ".join(m.value for m in at.markdown).replace("\\", "")
    at.button(key="take_smallest_1").click().run()
    assert not at.exception
    assert at.session_state["kv_memory"] == "538968064"


def test_stages_stand_side_by_side_and_the_deciding_one_is_named() -> None:
    at = fresh(model="DeepSeek-V3", gpu="H200 SXM", gpus="8", tp="2", pp="4", tokens="16384")
    assert not at.exception
    columns = [list(t.value.columns) for t in at.table]
    ledger = next(c for c in columns if any("which decides" in str(name) for name in c))
    assert sum("equal ranks" in str(name) for name in ledger) == 4

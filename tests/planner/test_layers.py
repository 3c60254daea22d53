"""The layer map, rows that describe a model and come back as the same layers, and the what-if table by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.describe import by_rule, config_of, rows_of
from planner.dtypes import DTYPES, kv_layout
from planner.errors import PlannerError, UnsupportedModel
from planner.footprint import measure
from planner.layermap import cells, groups
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import catalog, load
from planner.whatif import variants
from tests.conftest import refused

BF16 = kv_layout("bf16")


def model(name: str) -> Any:
    return read_config(load(f"catalog:{name}").raw, name)


def caches(m: Any) -> list[Any]:
    return [layer.caches for layer in m.layers]


@pytest.mark.parametrize("name", catalog.names())
def test_rows_of_a_model_read_back_as_the_same_caches(name: str) -> None:
    m = model(name)
    try:
        rows = rows_of(m)
    except UnsupportedModel:
        assert any(len(layer.caches) > 1 for layer in m.layers)
        return
    again = read_config(config_of(m, rows), name)
    for tokens in (1, 5000, 200_000):
        s = Scenario(engine="architecture", tokens=tokens, sequences=3, kv_dtype="bf16")
        assert measure(again, None, s).architecture_bytes == measure(m, None, s).architecture_bytes
    assert (len(again.layers), again.hidden_size, again.max_context_tokens) == (len(m.layers), m.hidden_size, m.max_context_tokens)
    assert rows_of(again) == rows
    assert not again.verified


def test_a_rule_makes_every_sixth_layer_full() -> None:
    m = model("Llama-3.1-8B")
    again = read_config(config_of(m, by_rule(m, 6, 1024)))
    assert [i for i, c in enumerate(caches(again)) if c[0].kind == "full"] == [5, 11, 17, 23, 29]
    assert {c[0].window for c in caches(again)} == {None, 1024}


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "layer_rows"),
        ("x", "layer_rows"),
        ([{"kind": "full", "k_dim": 64}], "layer_rows[0].kv_heads"),
        ([{"kind": "full", "kv_heads": 4, "k_dim": 64}, {"kind": "odd"}], "layer_rows[1].kind"),
        ([{"kind": "window", "kv_heads": 4, "k_dim": 64}], "layer_rows[0].window"),
        ([{"kind": "full", "kv_heads": -1, "k_dim": 64}], "layer_rows[0].kv_heads"),
        ([{"kind": "full", "kv_heads": 4, "k_dim": 64, "colour": 3}], "layer_rows[0].colour"),
        ([{"layers": 5000, "kind": "none"}], "layer_rows[0].layers"),
        ([{"layers": 4000, "kind": "none"}, {"layers": 4000, "kind": "none"}], "layer_rows"),
        ([{"kind": "state"}], "layer_rows[0].state_bytes"),
    ],
)
def test_rows_that_cannot_be(rows: Any, field: str) -> None:
    with refused(PlannerError, field):
        read_config({"model_type": "kvledger_layers", "hidden_size": 64, "vocab_size": 100, "layer_rows": rows})


def test_the_map_adds_up_to_the_cache() -> None:
    m = model("Gemma-3-27B")
    found, equal = cells(m, BF16, DTYPES["bf16"], 8192), groups(m, BF16, DTYPES["bf16"], 8192)
    assert sum(c.bytes for c in found) == sum(g.bytes for g in equal) == 1_107_296_256
    assert [c.index for c in found if c.kind == "full"] == [5, 11, 17, 23, 29, 35, 41, 47, 53, 59]
    assert {g.kind.kind: g.places for g in equal}["full"] == "5, 11 ... 59 (+6)"
    assert found[5].bytes == 8192 * 16 * 256 * 2
    assert found[0].bytes == 1024 * 16 * 256 * 2


def test_what_if_by_hand() -> None:
    """Llama-3.1-8B: 32 layers, 32 query heads of 128; 2 x 32 x 128 elements a token and layer as MHA."""
    forms = {v.code + str(dict(v.args).get("heads", "")): v for v in variants(model("Llama-3.1-8B"), BF16, 1000, 2, Parallel(tensor=8))}
    assert {k: v.elements for k, v in forms.items()} == {"mha32": 8192, "gqa8": 2048, "gqa4": 1024, "gqa2": 512, "mqa1": 256, "mla": 576}
    assert forms["mha32"].bytes == 32 * 1000 * 2 * 8192 * 2
    assert forms["gqa8"].ratio == 0.25
    assert [k for k, v in forms.items() if v.own] == ["gqa8"]
    # on one of eight ranks: one KV head of GQA-8, a whole head of MQA, the whole latent
    assert forms["gqa8"].rank_bytes * 8 == forms["gqa8"].bytes
    assert forms["mqa1"].rank_bytes == forms["mqa1"].bytes
    assert forms["mla"].rank_bytes == forms["mla"].bytes


def test_what_if_spreads_as_the_plan_does() -> None:
    """16 GPUs as 8 tensor ranks by 2 stages: a rank has half the layers, and one of the 8 KV heads. Data-parallel attention over 8 ranks: a
    rank has the whole latent of its own sequences only; two replicas have half the sequences each."""
    staged = {v.code + str(dict(v.args).get("heads", "")): v for v in variants(model("Llama-3.1-8B"), BF16, 1000, 16, Parallel(tensor=8, pipeline=2))}
    assert staged["gqa8"].rank_bytes == staged["gqa8"].bytes // 16
    assert staged["mqa1"].rank_bytes == staged["mqa1"].bytes // 2
    apart = next(v for v in variants(model("DeepSeek-V3"), BF16, 1000, 16, Parallel(tensor=8, attention_data=8)) if v.own)
    assert apart.rank_bytes == apart.bytes // 8
    twice = next(v for v in variants(model("DeepSeek-V3"), BF16, 1000, 16, Parallel(tensor=4), 2) if v.own)
    assert twice.rank_bytes == twice.bytes // 2
    shared = next(v for v in variants(model("Llama-3.1-8B"), BF16, 1000, 16, Parallel(tensor=4, context=4)) if v.code == "mqa")
    assert shared.rank_bytes == shared.bytes // 4


def test_what_if_knows_the_own_form_of_mla() -> None:
    forms = variants(model("DeepSeek-V3"), BF16, 1000, 1)
    assert [(v.code, v.elements) for v in forms if v.own] == [("mla", 576)]
    assert next(v for v in forms if v.code == "mha").elements == 2 * 128 * 128
    assert all(v.caution and v.name for v in forms)


@pytest.mark.parametrize("kind", ["window", "chunk"])
@pytest.mark.parametrize("v_dim", [64, 32])
def test_every_limited_row_has_its_formula(kind: str, v_dim: int) -> None:
    rows = [{"layers": 2, "kind": kind, "kv_heads": 4, "k_dim": 64, "v_dim": v_dim, "window": 128}]
    m = read_config({"model_type": "kvledger_layers", "hidden_size": 64, "vocab_size": 100, "layer_rows": rows})
    (line,) = measure(m, None, Scenario(engine="architecture", tokens=1000, sequences=1)).formula
    assert f"128 tokens ({kind})" in line.text
    assert line.bytes == 2 * 4 * (64 + v_dim) * 128 * 2

"""SGLang 0.5.23: every executed row of the corpus, and the tables that name its classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cache import State
from planner.capacity import CapacityPlan, plan
from planner.engines.sglang.models import class_of, is_native
from planner.errors import PlannerError
from planner.hardware import find
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import from_options
from planner.sources import load
from tests.conftest import corpus_file, corpus_rows
from tests.planner.sglang_cases import SMALL, codes, config

# -- executed rows -------------------------------------------------------------------------------------------------------

GPUS = {"H100 80GB": "H100 SXM", "A100 80GB": "A100 SXM 80GB", "L4 24GB": "L4", "B200 180GB": "B200 SXM"}
PRINTED = ("max_total_num_tokens", "swa_max_total_num_tokens", "max_mamba_cache_size", "max_running_requests")
REFUSED_AT_MOST = 0.03


def executed_plan(r: dict[str, str], model: ModelSpec) -> CapacityPlan:
    options: dict[str, Any] = {
        "engine": "sglang", "gpu": GPUS[r["device"]], "gpus": int(r["tp"]), "tp": int(r["tp"]), "dp_attention": int(r["dp"]), "tokens": 1, "sequences": 1,
        "kv_dtype": r["kv_dtype"], "kv_memory": int(r["kv_budget_bytes"]), "max_model_len": int(r["context_len"]),
        "max_num_seqs": 64 if r["variant"].startswith("radix") else None, "prefix_caching": r["variant"] != "radix_off_64_requests",
    }  # fmt: skip
    s = from_options(options)
    return plan(model, find(s.gpu), s)


def executed_rows() -> tuple[int, list[str], list[str], int]:
    """(rows that SGLang's own sizing gave for a class that it has and that are answered exactly, the wrong ones, the refused ones, rows whose
    static fraction was compared too). Compared: tokens, window tokens, state slots, running requests, page, KV dtype, and the fraction where
    the file tells it."""
    models: dict[str, ModelSpec] = {}
    right, wrong, refused, fractions = 0, [], [], 0
    for r in corpus_rows("sglang_executed.csv"):
        if r["route"] != "executed" or r["native_class"] != "True" or not (r["max_total_num_tokens"] or r["error"].startswith("sizing")):
            continue
        model = models.setdefault(r["file"], read_config(load(str(corpus_file(f"configs/{r['file']}"))).raw) if r["file"] not in models else models[r["file"]])
        try:
            p = executed_plan(r, model)
        except PlannerError:
            refused.append(r["file"])
            continue
        figures = dict(p.sizes.printed) if p.sizes else {}
        got = {k: figures.get(k) for k in PRINTED if r[k] and not r["error"]} | {"page": p.setting.block_size}
        want: dict[str, Any] = {k: int(r[k]) for k in PRINTED if r[k] and not r["error"]} | {"page": int(r["page_size"])}
        if r["error"]:
            got, want = {"tokens": p.kv_tokens}, {"tokens": 0}
        if "sglang_vision_unknown" not in codes(p):
            fractions += 1
            got["fraction"], want["fraction"] = round(p.setting.memory_fraction, 9), round(float(r["mem_fraction_static"]), 9)
        bytes_of = {"bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}[r["kv_dtype_resolved"]]
        got["element"], want["element"] = p.setting.kv.element.block_bytes, bytes_of
        right += got == want
        if got != want:
            wrong.append(f"{r['file']} {r['device']} tp{r['tp']} dp{r['dp']} {r['kv_dtype']} {r['variant']}: {got} != {want}")
    return right, wrong, refused, fractions


@pytest.mark.corpus
def test_executed_rows() -> None:
    right, wrong, refused, fractions = executed_rows()
    assert not wrong, wrong[:5]
    assert fractions > 0.85 * right
    assert len(refused) <= REFUSED_AT_MOST * (right + len(refused))


@pytest.mark.corpus
def test_built_pools() -> None:
    """What the pools that SGLang built on the meta device hold: the shares, a page more, and the table of windows; pointer tables of a few
    KB lie beside."""
    seen = 0
    for r in corpus_rows("sglang_executed.csv"):
        if not r["allocated_kv_bytes"] or r["route"] != "executed" or r["native_class"] != "True" or r["configurator"] == "DSV4PoolConfigurator":
            continue
        model = read_config(load(str(corpus_file(f"configs/{r['file']}"))).raw)
        try:
            p = executed_plan(r, model)
        except PlannerError:
            continue
        assert p.sizes is not None
        above = next((dict(n.args)["bytes"] for n in p.notes if n.code == "sglang_above_budget"), 0)
        tokens = sum(share for pool, share in zip(p.pools, p.sizes.shares, strict=True) if pool.name != "state")
        states = sum(share for pool, share in zip(p.pools, p.sizes.shares, strict=True) if pool.name == "state")
        assert 0 <= int(r["allocated_kv_bytes"]) - tokens - above <= 16_384, (r["file"], r["tp"], r["kv_dtype"])
        assert states == int(r["allocated_state_bytes"] or 0)
        seen += 1
    assert seen > 300


def test_the_tables_name_classes() -> None:
    model = read_config(config())
    assert is_native(model)
    assert not is_native(replace(model, architecture="JambaForCausalLM"))
    assert class_of(replace(model, architecture="Olmo3ForCausalLM")) == "Olmo2ForCausalLM"
    assert any(isinstance(k, State) for k, _ in read_config(SMALL["mamba"]).cache_groups())

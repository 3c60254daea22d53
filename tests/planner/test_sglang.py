"""SGLang 0.5.23: one pool worked out on paper from its own sizing, refusals, notes, the launch line, and every small config."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import Any

import pytest

from planner.answers import plan_json
from planner.api import answer
from planner.cache import max_sequences
from planner.errors import PlannerError
from planner.model import ModelSpec
from planner.readers import read_config
from planner.sources import load
from tests.conftest import corpus_file
from tests.planner.sglang_cases import FORTY_GIB, SMALL, codes, config, planned, printed, refused

# -- one pool ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "tokens", "page"),
    [
        ("Llama-3.1-8B", {}, 327_680, 1),  # 131,072 B a token
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8}, 2_621_440, 1),  # one head of eight a rank
        ("Llama-3.1-8B", {"kv_dtype": "fp8"}, 655_360, 1),
        ("Llama-3.1-8B", {"kv_dtype": "nvfp4"}, 40 * 2**30 // 36_864, 1),  # 9 bytes for 16 values
        ("Llama-3.1-8B", {"block_size": 48}, 327_648, 48),  # 327,680 down to whole pages
        ("Llama-3.1-8B", {"gpu": "B200 SXM"}, 327_680, 64),
        ("Llama-3.1-8B", {"gpu": "B200 SXM", "block_size": 48}, 327_680, 64),  # not a page of this backend
        ("Gemma-3-27B", {}, 84_562, 1),  # 507,904 B: 62 layers in full, windows or not
        ("DeepSeek-V3", {}, 611_191, 1),  # 70,272 B
        ("DeepSeek-V3", {"gpus": 8, "tp": 8}, 611_191, 1),  # a latent is on every rank
        ("DeepSeek-V3", {"kv_dtype": "fp8_e4m3"}, 40 * 2**30 // 35_136, 1),
        ("DeepSeek-V3", {"gpu": "B200 SXM"}, 611_136, 64),
        ("MiniCPM3-4B", {}, 40 * 2**30 // 35_712, 1),  # the latent, where vLLM expands it
        ("Mistral-7B-v0.1", {}, 327_680, 1),
    ],
)
def test_tokens_of_one_pool(name: str, options: dict[str, Any], tokens: int, page: int) -> None:
    p = planned(name, **options)
    assert (p.kv_tokens, p.setting.block_size) == (tokens, page)


def test_a_page_more_than_the_tokens_lies_above_the_budget() -> None:
    above = {n.code: dict(n.args) for n in planned("Llama-3.1-8B", gpu="B200 SXM").notes}["sglang_above_budget"]
    assert above["bytes"] == 64 * 131_072


@pytest.mark.parametrize(
    ("tokens", "context", "asked", "dp", "running"),
    [
        (327_680, 131_072, None, 1, 2048),  # 1,280 at least 2,048
        (970_903, 131_072, None, 1, 3792),
        (40 * 2**30 // 35_712, 32_768, None, 1, 4096),
        (327_680, 131_072, 100, 1, 100),
        (327_680, 131_072, 100, 8, 12),
    ],
)
def test_running_requests(tokens: int, context: int, asked: int | None, dp: int, running: int) -> None:
    """int(tokens / context x 512) between 2,048 and 4,096, at most half the tokens; asked for: shared out over the attention groups."""
    name = {970_903: "gpt-oss-20b", 327_680: "Llama-3.1-8B"}.get(tokens, "MiniCPM3-4B")
    p = planned(name, max_model_len=context, max_num_seqs=asked, dp_attention=dp, tp=dp, gpus=dp)
    assert printed(p, "max_total_num_tokens", "max_running_requests") == (tokens, running)


def test_no_more_requests_than_half_the_tokens() -> None:
    assert printed(planned("Llama-3.1-8B", kv_memory=101 * 131_072), "max_total_num_tokens", "max_running_requests") == (101, 50)


def test_a_load_beyond_the_running_requests_waits() -> None:
    assert "sglang_running" in codes(planned("Llama-3.1-8B", max_num_seqs=4, sequences=5))
    assert "sglang_running" not in codes(planned("Llama-3.1-8B", max_num_seqs=4, sequences=4))


def test_layers_without_a_cache_are_priced_like_the_others() -> None:
    model = read_config(config())
    bare = replace(model, layers=(model.layers[0], replace(model.layers[1], caches=())))
    shared = replace(model, layers=(model.layers[0], replace(model.layers[1], caches=(), shares_with=0)))
    for changed in (bare, shared):
        assert planned("", changed).kv_tokens == planned("", model).kv_tokens == 40 * 2**30 // 128
        assert "sglang_layers_charged" in codes(planned("", changed))


def test_layers_of_different_rows_are_refused() -> None:
    assert refused("", model=_uneven()) == "uneven_rows"


def _uneven() -> ModelSpec:
    model = read_config(config())
    wide = replace(model.layers[1].caches[0], heads=4)
    return replace(model, layers=(model.layers[0], replace(model.layers[1], caches=(wide,))))


# -- refusals, notes, launch ---------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    assert refused("Llama-3.1-8B", tp=3, gpus=3) == "kv_heads_no_split"
    assert refused("Llama-3.1-8B", tp=8, gpus=8, dcp=2) == "option_not_covered"
    assert refused("gpt-oss-20b", pp=2, gpus=2) == "option_not_covered"
    assert refused("Qwen3-Next-80B-A3B", pp=2, gpus=2) == "option_not_covered"
    assert refused("Llama-3.1-8B", kv_dtype="int8") == "kv_dtype_not_in_engine"
    assert refused("", model=read_config(SMALL["rwkv"])) in ("kind_not_in_engine", "no_class")
    assert refused("", model=read_config(SMALL["jamba"])) == "no_class"
    assert refused("", model=read_config(SMALL["mamba"]), block_size=16) == "page_of_one"


def test_query_heads_that_do_not_divide_are_a_warning() -> None:
    p = planned("Qwen2.5-7B", tp=8, gpus=8)  # 28 query heads, 4 KV heads
    assert p.kv_tokens == 2_995_931
    assert "sglang_query_heads" in codes(p)
    assert "sglang_query_heads" not in codes(planned("Qwen2.5-7B", tp=4, gpus=4))


def test_rules_that_were_only_read_say_so() -> None:
    assert "sglang_rule_read" in codes(planned("Llama-3.1-8B", pp=2, gpus=2))
    assert "sglang_rule_read" in codes(planned("Llama-3.1-8B", kv_dtype="nvfp4"))
    assert "sglang_device_not_run" in codes(planned("Llama-3.1-8B", gpu="V100 SXM2 32GB"))
    assert not {"sglang_rule_read", "sglang_device_not_run"} & codes(planned("Llama-3.1-8B"))


def test_pipeline_stages_share_the_layers() -> None:
    p = planned("Llama-3.1-8B", pp=2, gpus=2)
    assert (p.kv_tokens, len(p.footprint.allocation.stages)) == (655_360, 2)


@pytest.mark.corpus
def test_the_gap_of_deepseek_v4_has_no_line_below_nothing_but_the_layout() -> None:
    p = planned("", read_config(load(str(corpus_file("configs/deepseek-ai__DeepSeek-V4-Flash.json"))).raw), tokens=131_072, sequences=40)
    assert all(g.bytes >= 0 for g in p.gap if g.code != "row_layout")
    assert all(i["holds"] for i in plan_json(p)["identities"])


def test_the_launch_line() -> None:
    def words(**options: Any) -> list[str]:
        out = plan_json(planned("Llama-3.1-8B", **options))
        return shlex.split(out["launch"]["sglang"])

    line = words(kv_memory=None, tp=4, gpus=4, dp_attention=2, kv_dtype="fp8", max_num_seqs=7, prefix_caching=False, block_size=16)
    assert line[:5] == ["python", "-m", "sglang.launch_server", "--model-path", "meta-llama/Llama-3.1-8B"]
    pairs = dict(itertools.pairwise(line))
    assert (pairs["--tp-size"], pairs["--attn-dp-size"], pairs["--kv-cache-dtype"], pairs["--max-running-requests"]) == ("4", "2", "fp8_e4m3", "7")
    assert (pairs["--page-size"], pairs["--context-length"], line[-1]) == ("16", "131072", "--disable-radix-cache")
    assert 0.5 < float(pairs["--mem-fraction-static"]) < 0.9
    assert dict(zip(w := words(), w[1:], strict=False))["--max-total-tokens"] == "327680"
    hostile = replace(planned("Llama-3.1-8B"), model=replace(planned("Llama-3.1-8B").model, name="a; rm -rf /"))
    assert "'a; rm -rf /'" in plan_json(hostile)["launch"]["sglang"]


def test_the_answer_in_json() -> None:
    out = answer("plan", "catalog:gpt-oss-20b", {"engine": "sglang", "kv_memory": FORTY_GIB, "tokens": 1024})
    assert out["printed"] == {"max_total_num_tokens": 970_903, "swa_max_total_num_tokens": 776_722, "max_running_requests": 3792}
    assert [(p["name"], p["tokens"]) for p in out["pools"]] == [("full", 970_903), ("window", 776_722)]
    assert all(i["holds"] for i in out["identities"])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_small_config_is_planned_whole_or_refused(name: str) -> None:
    """Ledgers sum, gaps explain, pools stay within the budget; nothing but a PlannerError stops a plan."""
    model = read_config(SMALL[name])
    for options in ({}, {"prefix_caching": False, "max_num_seqs": 8}, {"gpu": "B200 SXM", "kv_memory": None}, {"kv_dtype": "fp8", "tp": 2, "gpus": 2}):
        try:
            p = planned("", model, **{"tokens": 64, "kv_memory": 2**30, **options})
        except PlannerError:
            continue
        assert all(i["holds"] for i in plan_json(p)["identities"]), options
        assert p.sizes is not None
        assert sum(p.sizes.shares) <= max(0, p.kv_pool_bytes)
        most = min(max_sequences(pools, 64, size) for pools, size in p.parts)
        assert p.max_sequences == most * p.setting.parallel.attention_data

"""vLLM 0.33: the goldens that were executed, rank rules by hand, refusals, and (with the corpus) every executed row that is answered."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api import answer
from planner.capacity import CapacityPlan, plan
from planner.engines.shared import version_tuple
from planner.engines.vllm.groups import group
from planner.engines.vllm.specs import Spec
from planner.errors import PlannerError
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import corpus_file, corpus_rows, small_configs

FORTY_GIB = 40 * 2**30


def planned(name: str, **options: Any) -> CapacityPlan:
    loaded = load(f"catalog:{name}")
    s = Scenario(**{"kv_memory": FORTY_GIB, "sequences": 1, "tokens": 1024, "max_num_batched_tokens": 8192, **options})
    return plan(read_config(loaded.raw, name), find(s.gpu), s)


# Executed by vLLM 0.33's own planner at 40 GiB: model, options, bytes a block, blocks a request, blocks, printed tokens.
GOLDENS = [
    ("Llama-3.1-8B", {"max_model_len": 131072}, 2097152, 8192, 20480, 327680),
    ("Gemma-3-27B", {"max_model_len": 131072}, 1310720, 14726, 32768, 291658),
    ("Gemma-3-27B", {"max_model_len": 131072, "async_scheduling": False}, 1310720, 11654, 32768, 368540),
    ("Gemma-3-27B", {"max_model_len": 131072, "hybrid_kv_cache_manager": False}, 8126464, 8192, 5285, 84560),
    ("Gemma-2-27B", {"max_model_len": 8192}, 3014656, 1025, 14246, 113856),
    ("gpt-oss-120b", {"max_model_len": 131072}, 589824, 9225, 72817, 1034609),
    ("Mistral-7B-v0.1", {"max_model_len": 32768}, 2097152, 1281, 20480, 523878),
    ("Llama-4-Scout", {"max_model_len": 131072}, 786432, 12800, 54613, 559237),
    ("Llama-4-Scout", {"max_model_len": 131072, "hybrid_kv_cache_manager": False}, 3145728, 8192, 13653, 218448),
    ("Qwen3-Next-80B-A3B", {"max_model_len": 262144, "gpu": "A100 SXM 80GB"}, 13369344, 488, 3212, 1725423),
    ("Qwen3-Next-80B-A3B", {"max_model_len": 262144, "prefix_caching": False}, 13369344, 485, 3212, 1736095),
    ("DeepSeek-V3", {"max_model_len": 131072}, 1124352, 8192, 38199, 611184),
    ("DeepSeek-V3", {"max_model_len": 131072, "kv_dtype": "fp8"}, 2248704, 2048, 19099, 1222336),
    ("DeepSeek-V3", {"max_model_len": 131072, "gpu": "B200 SXM"}, 2248704, 4096, 19099, 611168),
    ("MiniCPM3-4B", {"max_model_len": 32768}, 16 * 952320, 2048, 2818, 45088),
]


@pytest.mark.parametrize(("name", "options", "block_bytes", "per_request", "blocks", "tokens"), GOLDENS)
def test_goldens(name: str, options: dict[str, Any], block_bytes: int, per_request: int, blocks: int, tokens: int) -> None:
    p = planned(name, **options)
    assert (p.bytes_per_block, p.blocks_per_request, p.num_blocks, p.kv_tokens) == (block_bytes, per_request, blocks, tokens)


@pytest.mark.parametrize(
    ("name", "tp", "per_rank"),
    [
        ("Llama-3.1-8B", 1, 1_073_741_824),  # 8,192 tokens x 32 layers x 8 heads x 128 x 2 x 2
        ("Llama-3.1-8B", 8, 134_217_728),  # one KV head a rank
        ("Llama-3.1-8B", 16, 134_217_728),  # replicated: it shrinks no further
        ("DeepSeek-V3", 1, 575_668_224),
        ("DeepSeek-V3", 8, 575_668_224),  # the latent is on every rank
        ("DeepSeek-V3", 16, 575_668_224),
        # blocks of 10 layers x 16 tokens x 2 heads x 128 x K, V x 2: 512 for the full group, 63 + 1 + 1 for each of six window groups
        ("Gemma-3-27B", 8, 163_840 * (512 + 6 * 65)),
    ],
)
def test_bytes_of_one_sequence_on_one_rank(name: str, tp: int, per_rank: int) -> None:
    p = planned(name, tp=tp, gpus=tp, tokens=8192)
    null = sum(q.block_bytes for q in p.pools)
    assert p.footprint.per_rank_bytes == (per_rank + null,) * tp


def test_data_parallel_attention_ends_the_duplication_of_the_latent() -> None:
    tensor = planned("DeepSeek-V3", tp=8, gpus=8, tokens=8192, sequences=8)
    data = planned("DeepSeek-V3", tp=8, gpus=8, dp_attention=8, tokens=8192, sequences=8)
    null = tensor.pools[0].block_bytes
    assert tensor.footprint.engine_bytes - 8 * null == 8 * (data.footprint.engine_bytes - 8 * null)
    assert data.max_sequences == 8 * tensor.max_sequences


def test_attention_groups_take_sequences_in_turn_and_every_ledger_line_is_positive() -> None:
    p = planned("DeepSeek-V3", tp=8, gpus=8, dp_attention=4, tokens=8192, sequences=6)
    assert p.setting.parallel.spread(6) == [2, 2, 2, 2, 1, 1, 1, 1]
    assert all(line.bytes >= 0 for rank in p.ledgers for line in rank)
    assert [rank[0].bytes for rank in p.ledgers] == [2 * 575_668_224] * 4 + [575_668_224] * 4


def test_pipeline_stages_follow_positions_and_the_poorest_decides() -> None:
    p = planned("DeepSeek-V3", pp=4, gpus=4, tp=1)
    layers = [sum(len(g.layers) for g in pools[0].groups) for pools in p.footprint.allocation.stages]
    assert layers == [15, 15, 16, 15]
    assert p.binding_rank == 2


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("Llama-3.1-8B", {"tp": 3, "gpus": 3}, "tp"),
        ("Phi-4", {"tp": 4, "gpus": 4}, "tp"),  # 10 KV heads over 4 ranks
        ("Llama-3.1-8B", {"tp": 2, "gpus": 3}, "gpus"),
        ("Llama-3.1-8B", {"pp": 64, "gpus": 64, "tp": 1}, "pp"),
        ("Llama-3.1-8B", {"tp": 4, "gpus": 4, "dp_attention": 3}, "dp_attention"),
        ("DeepSeek-V3", {"kv_dtype": "fp8", "block_size": 16}, "block_size"),
        ("Qwen3-Next-80B-A3B", {"hybrid_kv_cache_manager": False}, "hybrid_kv_cache_manager"),
        ("Llama-3.1-8B", {"tp": 2, "gpus": 2, "dcp": 2}, "dcp"),  # 8 KV heads: two ranks hold different heads
        ("Gemma-3-27B", {"tp": 4, "gpus": 4, "dcp": 2}, "dcp"),
        ("DeepSeek-V3", {"tp": 8, "gpus": 8, "dcp": 3}, "dcp"),
        ("Falcon-7B", {"tp": 3, "gpus": 3}, "tp"),
        ("Llama-3.1-8B", {"kv_dtype": "q8_0"}, "kv_dtype"),
        ("Llama-3.1-8B", {"engine_version": "newest"}, "engine_version"),
    ],
)
def test_refused_as_the_engine_refuses(name: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(PlannerError) as caught:
        planned(name, **options)
    assert caught.value.field == field


def test_encoders_and_window_mixes_are_refused_as_vllm_does() -> None:
    configs = dict(small_configs())
    for config, field in (({**configs["qwen2"], "is_causal": False}, "is_causal"), (configs["qwen2_windowed"], "max_window_layers")):
        with pytest.raises(PlannerError) as caught:
            plan(read_config(config), find("H100 SXM"), Scenario(tokens=16))
        assert caught.value.field == field


def test_groups_are_equal_in_size_and_cover_every_layer_once() -> None:
    p = planned("Gemma-3-27B")
    groups = p.pools[0].groups
    assert sorted(len(g.layers) for g in groups) == [8, 8, 9, 9, 9, 9, 10]
    assert sorted(i for g in groups for i in g.layers) == list(range(62))


def test_a_bucket_less_than_half_as_large_again_sets_the_group_size() -> None:
    full = Spec(type="full", kind="full", block_size=16, page_bytes=64)
    window = Spec(type="window", kind="window", block_size=16, page_bytes=64, window=128)
    sizes = lambda a, b: sorted(len(g.members) for g in group([(full, i) for i in range(a)] + [(window, a + i) for i in range(b)]))  # noqa: E731
    assert sizes(19, 18) == [18, 19]
    assert sizes(10, 15) == [7, 8, 10]
    assert sizes(10, 14) == [10, 14]


def test_another_version_is_answered_with_a_note() -> None:
    p = planned("Llama-3.1-8B", engine_version="0.19.1")
    said = {n.code: n for n in p.notes}
    older = dict(said["engine_version_older"].args)["changed"]
    assert older == sum(n.code == "engine_version_rule" for n in p.notes) > 0
    assert "engine_version_nearest" not in said
    newer = {n.code: n for n in planned("Llama-3.1-8B", engine_version="0.99.0").notes}
    assert "engine_version_older" not in newer
    assert newer["engine_version_nearest"].text == "The rules of version 0.33.0 are used for 0.99.0, which has none of its own here."
    assert p.setting.memory_fraction == 0.90
    assert version_tuple("v0.33.0rc1") == (0, 33, 0)


REFUSED_AT_MOST = 0.02
GPUS = {"H100 stub SM9.0": "H100 SXM", "stub SM8.0": "A100 SXM 80GB", "stub SM10.0": "B200 SXM"}


def executed_rows() -> tuple[int, list[str], list[str]]:
    """(plans of vLLM's own planner that are answered to the byte, the wrong ones, the refused ones)."""
    right, wrong, refused = 0, [], []
    for r in corpus_rows("vllm_executed.csv"):
        if not r["num_blocks"]:
            continue
        options: dict[str, Any] = {
            "engine": "vllm", "engine_version": "0.33.0", "gpu": GPUS[r["device"]], "gpus": int(r["tp"]), "tp": int(r["tp"]),
            "kv_memory": int(r["kv_memory_bytes"]), "kv_dtype": r["kv_dtype"], "max_model_len": int(r["max_model_len"]),
            "max_num_batched_tokens": int(r["max_num_batched_tokens"]), "no_hybrid_kv_cache_manager": r["variant"] == "hybrid_manager_off",
            "no_prefix_caching": r["variant"] == "prefix_caching_off", "no_async_scheduling": r["max_concurrent_batches"] == "1",
        }  # fmt: skip
        try:
            out = answer("plan", str(corpus_file(f"configs/{r['file']}")), options)
        except PlannerError:
            refused.append(r["file"])
            continue
        got = (out["bytes_per_block"], out["blocks_per_request"], out["num_blocks"], out["kv_tokens"])
        want = tuple(int(r[k]) for k in ("bytes_per_block", "blocks_per_request", "num_blocks", "printed_tokens"))
        right += got == want
        if got != want:
            wrong.append(f"{r['file']} tp{r['tp']} {r['kv_dtype']}: {got} != {want}")
    return right, wrong, refused


@pytest.mark.corpus
def test_executed_rows() -> None:
    """Every row of vLLM's own planner is answered exactly or refused; none is wrong."""
    right, wrong, refused = executed_rows()
    assert not wrong
    assert len(refused) <= REFUSED_AT_MOST * (right + len(refused))


def test_a_refused_start_says_what_it_needs_and_what_would_fit() -> None:
    """Llama-3.1-8B at 131,072 tokens needs 8,192 blocks of 2 MiB: 16.00 GiB. In 10 GiB (one block is the null block) 5,119 blocks fit."""
    p = planned("Llama-3.1-8B", max_model_len=131072, kv_memory=10 * 2**30)
    said = {n.code: dict(n.args) for n in p.notes}["start_needs"]
    assert (said["needs"], said["available"], said["fits"]) == ("16.00 GiB", "10.00 GiB", 5119 * 16)
    assert (p.fits, p.limited_by) == (False, "start")
    at_most = planned("Llama-3.1-8B", max_model_len=5119 * 16, kv_memory=10 * 2**30)
    assert at_most.fits
    assert "start_needs" not in {n.code for n in at_most.notes}
    assert not planned("Llama-3.1-8B", max_model_len=5119 * 16 + 1, kv_memory=10 * 2**30).fits

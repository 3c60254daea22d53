"""TensorRT-LLM: the way from free bytes to blocks as public start-up logs print it, pools worked out on paper, refusals, launch lines."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from planner.answers import plan_json
from planner.api import answer
from planner.backwards import smallest
from planner.capacity import CapacityPlan, plan, replan
from planner.errors import PlannerError
from planner.hardware import find
from planner.launch import launch
from planner.model import ModelSpec
from planner.readers import read_config
from planner.remedies import remedies
from planner.scenario import Scenario
from planner.sources import load
from planner.units import parse_bytes
from tests.conftest import corpus_file, corpus_rows, small_configs

GIB = 2**30
SMALL = dict(small_configs())


def planned(name: str, model: ModelSpec | None = None, **options: Any) -> CapacityPlan:
    model = model or read_config(load(f"catalog:{name}").raw, name)
    s = Scenario(**{"engine": "trtllm", "kv_memory": 40 * GIB, "sequences": 1, "tokens": 1024, **options})
    return plan(model, find(s.gpu), s)


def small(name: str, **keys: Any) -> ModelSpec:
    return read_config({**SMALL[name], **keys}, name)


def codes(p: CapacityPlan) -> set[str]:
    return {n.code for n in p.notes}


def blocks(p: CapacityPlan) -> dict[str, int]:
    assert p.sizes is not None
    return {k.removeprefix("blocks_"): n for k, n in p.sizes.printed if k.startswith("blocks_")}


def refused(name: str, model: ModelSpec | None = None, **options: Any) -> tuple[str, str]:
    with pytest.raises(PlannerError) as e:
        planned(name, model, **options)
    assert e.value.message
    assert e.value.hint
    return e.value.code, e.value.field


# -- public start-up logs (0.x: whole tokens, then blocks, the last one rounded up) -----------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "free", "fraction", "size", "tokens"),
    [
        # TensorRT-LLM docs/source/reference/memory.md: available 70.48 GiB -> 4060 blocks of 64, 63.44 GiB, 262,144 bytes a token
        ("Llama-2-7B", {"kv_dtype": "fp8"}, "70.48GiB", 0.9, 64, 259_840),
        # a benchmark log of Mixtral-8x22B's shape at 0.99: available 63.62 GiB -> 4607 blocks, 62.99 GiB
        ("Mixtral-8x22B", {}, "63.62GiB", 0.99, 64, 294_848),
        # grps_trtllm docs: available 1.42 GiB -> 82 blocks, 1.28 GiB
        ("Llama-2-7B", {"kv_dtype": "fp8"}, "1.42GiB", 0.9, 64, 5_248),
    ],
)
def test_tokens_of_a_log(name: str, options: dict[str, Any], free: str, fraction: float, size: int, tokens: int) -> None:
    pool = int(parse_bytes(free, "free") * fraction)
    p = planned(name, kv_memory=pool, engine_version="0.18", max_model_len=2048, block_size=size, **options)
    assert p.kv_tokens == tokens


# Model, release, tokens a block, bytes of a token. The first log prints its bytes; of the others, the least bytes that give the tokens.
LOGS = {"trt_1400_a100": ("Llama-2-7B", "0.8", 64, 524_288), "trt_dynamo_220480": ("Llama-3.1-8B", "0.17", 64, 131_072),
        "trt_llama2_7b_a10": ("Llama-2-7B", "0.5", 16, 524_288)}  # fmt: skip


@pytest.mark.parametrize("ident", sorted(LOGS))
def test_the_corpus_logs(ident: str) -> None:
    """Start-up logs and the table made from them: bytes of so many tokens give the printed tokens back, and a token's bytes less do not."""
    name, version, block, each = LOGS[ident]
    text = corpus_file(f"log_samples/{ident}.log").read_text()
    printed_tokens = int(next(m[1] or m[2] for m in re.finditer(r"Using (\d+) tokens|paged KV cache \((\d+)\)", text)))
    told = re.search(r"Allocate (\d+) bytes", text)
    size = int(told[1]) if told else printed_tokens * each
    options: dict[str, Any] = {"engine_version": version, "max_model_len": 1024, "block_size": block}
    assert planned(name, kv_memory=size, **options).kv_tokens == printed_tokens
    assert planned(name, kv_memory=size - block * each, **options).kv_tokens == printed_tokens - block
    row = next(r for r in corpus_rows("engine_logs.csv") if r["id"] == ident)
    assert printed_tokens == int(row["log_kv_tokens"])
    if row["log_available_kv_gib"]:
        assert round(size / GIB, 2) == float(row["log_available_kv_gib"])


# -- pools of 1.x by hand ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "tokens"),
    [
        ("Llama-3.1-8B", {}, 327_680),  # 40 GiB / 131,072
        ("Llama-3.1-8B", {"kv_memory": 40 * GIB - 1}, 327_648),  # a block of 32 less
        ("Llama-3.1-8B", {"block_size": 64, "kv_memory": 40 * GIB - 1}, 327_616),
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8}, 8 * 327_680),
        ("Llama-3.1-8B", {"gpus": 16, "tp": 16}, 8 * 327_680),  # each head twice
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8, "dp_attention": 8}, 327_680),
        ("Llama-3.1-8B", {"kv_dtype": "fp8"}, 655_360),
        ("Llama-3.1-8B", {"kv_dtype": "nvfp4"}, 40 * GIB // 36_864 // 32 * 32),  # 9 bytes for 16 values
        ("Gemma-3-27B", {}, 40 * GIB // 507_904 // 32 * 32),  # 62 layers in full
        ("DeepSeek-V3", {}, 40 * GIB // 70_272 // 32 * 32),
        ("DeepSeek-V3", {"gpus": 8, "tp": 8}, 40 * GIB // 70_272 // 32 * 32),
        ("DeepSeek-V3", {"kv_dtype": "nvfp4"}, 40 * GIB // (61 * 324) // 32 * 32),  # 288 + 36
    ],
)
def test_tokens_of_one_pool(name: str, options: dict[str, Any], tokens: int) -> None:
    p = planned(name, **options)
    assert p.kv_tokens == tokens
    assert all(i["holds"] for i in plan_json(p)["identities"])
    assert "trtllm_read" in codes(p)


def test_window_pools_share_the_memory_evenly() -> None:
    """gpt-oss-20b: 12 layers of 128 tokens and 12 full ones, 2,048 B a token and layer: 20 GiB each are 27,306 blocks of 32."""
    p = planned("gpt-oss-20b", window_pools=True, tokens=8192)
    assert blocks(p) == {"window_128": 27_306, "full": 27_306}
    window, full = p.pools
    # a block goes back once a whole one lies behind the window: 128 + 31 tokens at most are 5 blocks; the prompt is held whole
    assert (window.groups[0].resident.units(8192), window.groups[0].admission.units(8192), full.groups[0].resident.units(8192)) == (5, 256, 256)
    assert planned("gpt-oss-20b", tokens=8192).pools[0].groups[0].resident.units(8192) == 256
    assert "trtllm_windows_full" in codes(planned("gpt-oss-20b"))


def test_states_are_taken_for_the_largest_batch_before_tokens() -> None:
    """Qwen3-Next: 36 states of 1,073,152 B (bf16): 64 slots come off; 12 full layers of 2,048 B follow."""
    p = planned("Qwen3-Next-80B-A3B", max_num_seqs=64)
    slot = p.pools[1].block_bytes
    assert slot == 39_518_208
    assert p.kv_tokens == (40 * GIB - 64 * slot) // 24_576 // 32 * 32
    assert p.parts[1][1] == 64 * slot
    large = planned("Qwen3-Next-80B-A3B")  # 2,048 slots: 75 GiB
    assert (large.fits, large.kv_tokens) == (False, 0)
    assert "trtllm_states_too_large" in codes(large)
    assert "fewer_slots" in {r.code for r in remedies(large) if r.after.fits}
    assert not planned("Qwen3-Next-80B-A3B", max_num_seqs=64, sequences=65).fits


def test_layers_that_remain_go_to_the_first_stages() -> None:
    """61 layers over 4 stages: 16, 15, 15, 15 (torch.tensor_split), so that the first stage decides."""
    p = planned("DeepSeek-V3", gpus=4, tp=1, pp=4)
    assert [sum(len(g.layers) for g in pools[0].groups) for pools in p.footprint.allocation.stages] == [16, 15, 15, 15]
    assert p.kv_tokens == 40 * GIB // (16 * 1152) // 32 * 32


def test_sparse_rows_keep_their_index_beside() -> None:
    p = planned("", small("deepseek_v32"), tokens=64)
    index = {k.k_dim: len(where) for k, where in p.model.cache_groups() if k.kind == "index"}
    (dim, layers), latent = next(iter(index.items())), next(k for k, _ in p.model.cache_groups() if k.kind == "latent")
    full = len(p.model.layers) * latent.k_dim * 2
    assert p.pools[0].block_bytes == 32 * (full + layers * (dim + 4 * -(-dim // 128)))


def test_cross_rows_have_their_fraction_of_the_blocks() -> None:
    model = small("whisper")
    options: dict[str, Any] = {"engine_version": "0.18", "cross_kv_cache_fraction": 0.4, "encoder_tokens": 1500, "tokens": 64, "kv_memory": GIB}
    p = planned("", model, **options)
    own, cross = p.pools
    whole = -(-(GIB * 64 // own.block_bytes) // 64)
    assert blocks(p) == {"full": int(whole * 0.6), "cross": int(whole * 0.4) * own.block_bytes // cross.block_bytes}
    assert refused("", model, tokens=64) == ("cross_by_version", "engine_version")
    assert refused("", model, tokens=64, engine_version="0.18") == ("option_missing", "cross_kv_cache_fraction")


# -- budget -------------------------------------------------------------------------------------------------------------------


def test_the_fraction_is_of_what_is_left_free() -> None:
    p = planned("Llama-3.1-8B", kv_memory=None, tokens=8192)
    line = {x.code: x.bytes for x in p.ledgers[0]}
    free = line["free_slack"] + p.kv_pool_bytes
    assert line["free_slack"] == free - int(free * 0.9)
    assert free == find("H100 SXM").memory_bytes - sum(line[c] for c in ("driver_gap", "weights", "activation", "non_torch"))
    assert {x.kind for x in p.ledgers[0] if x.code in ("activation", "non_torch")} == {"assumed"}


def test_what_a_small_pool_leaves_used_as_reported() -> None:
    """TensorRT-LLM issue 2330: gemma-2-9b in int4 with a fraction of 0.01 on an A100 takes 10,109 MiB, 10,748 under Triton."""
    p = planned("Gemma-2-9B", gpu="A100 SXM 80GB", kv_memory=None, weight_dtype="int4", memory_fraction=0.01, engine_version="0.13", tokens=1024)
    used = sum(x.bytes for x in p.ledgers[0] if x.code in ("weights", "activation", "non_torch")) + p.kv_pool_bytes
    assert 0.98 * 10_109 <= used / 2**20 <= 1.02 * 10_748


def test_state_slots_come_off_before_the_fraction() -> None:
    p = planned("Qwen3-Next-80B-A3B", kv_memory=None, gpus=4, tp=4, max_num_seqs=64, tokens=8192)
    line = {x.code: x.bytes for x in p.ledgers[0]}
    states = 64 * p.pools[1].block_bytes
    free = line["free_slack"] + p.kv_pool_bytes - states
    assert line["free_slack"] == free - int(free * 0.9)
    others = planned("Qwen3-Next-80B-A3B", kv_memory=None, gpus=4, tp=4, max_num_seqs=64, tokens=8192, used_memory_bytes=8 * GIB)
    assert p.kv_pool_bytes - others.kv_pool_bytes == pytest.approx(8 * GIB * 0.9, abs=2)


def test_a_length_that_does_not_fit_is_lowered_not_refused() -> None:
    p = planned("Llama-3.1-8B", kv_memory=GIB)  # 8,192 tokens of 131,072
    assert p.fits
    assert ("longest", 131_072) in next(n.args for n in p.notes if n.code == "trtllm_shortened")
    assert p.longest_context_tokens() == 8192
    assert not planned("Llama-3.1-8B", kv_memory=GIB, tokens=8193).fits


def test_backwards_and_remedies_plan_again() -> None:
    p = planned("Llama-3.1-8B", kv_memory=None, tokens=32_768, sequences=200)
    assert not p.fits
    fitting = [r for r in remedies(p) if r.after.fits]
    assert {"fewer_sequences", "shorter"} <= {r.code for r in fitting}
    ok = planned("Llama-3.1-8B", kv_memory=None, tokens=32_768, sequences=4)
    least = smallest(ok)
    assert least.kv_memory == 4 * 1024 * 32 * 131_072
    assert least.memory_fraction is not None
    assert replan(ok, memory_fraction=least.memory_fraction).fits
    assert not replan(ok, memory_fraction=least.memory_fraction - 1e-4).fits


def test_a_pool_for_each_window_is_a_remedy() -> None:
    """Gemma-3-27B: the 52 windowed layers of 62 keep every token until their windows have pools."""
    p = planned("Gemma-3-27B", tokens=65_536, sequences=3)
    found = {r.code: r.after for r in remedies(p)}
    assert not p.fits
    assert found["window_pools"].fits


# -- refusals and versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("Llama-3.1-8B", {"block_size": 48}, ("block_power_of_two", "block_size")),
        ("Llama-3.1-8B", {"memory_fraction": 1.0}, ("fraction_below_one", "memory_fraction")),
        ("Llama-3.1-8B", {"kv_dtype": "int8"}, ("kv_dtype_not_in_engine", "kv_dtype")),
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8, "dp_attention": 4}, ("attention_dp_all_ranks", "dp_attention")),
        ("Llama-3.1-8B", {"gpus": 8, "tp": 8, "dcp": 2}, ("option_not_covered", "dcp")),
        ("Phi-4", {"gpus": 4, "tp": 4}, ("kv_heads_no_split", "tp")),
        ("Qwen3-Next-80B-A3B", {"window_pools": True}, ("option_not_covered", "window_pools")),
        ("gpt-oss-20b", {"window_pools": True, "kv_dtype": "nvfp4"}, ("option_not_covered", "window_pools")),
        ("Llama-3.1-8B", {"engine_version": "new"}, ("version_unreadable", "engine_version")),
    ],
)
def test_refusals_name_their_option(name: str, options: dict[str, Any], error: tuple[str, str]) -> None:
    assert refused(name, **options) == error


@pytest.mark.parametrize(("family", "code"), [("gemma4", "head_sizes_differ"), ("jamba", "no_class"), ("deepseek_v4", "head_sizes_differ")])
def test_models_that_its_managers_cannot_hold(family: str, code: str) -> None:
    name = next(n for n in SMALL if n.startswith(family))
    assert refused("", small(name), tokens=64)[0] in (code, "kind_not_in_engine")


def test_versions() -> None:
    assert planned("Llama-3.1-8B", engine_version="0.9").setting.block_size == 64
    assert planned("Llama-3.1-8B", engine_version="0.9", kv_dtype="int8").setting.kv.name == "int8"
    assert planned("Llama-2-7B", engine_version="0.5", block_size=16, kv_memory=10_718 * 524_288, max_model_len=1024).kv_tokens == 10_718
    newer = planned("Llama-3.1-8B", engine_version="1.9")
    assert (newer.setting.block_size, "engine_version_nearest" in codes(newer)) == (32, True)
    assert "engine_version_nearest" not in codes(planned("Llama-3.1-8B", engine_version="1.2.0rc1"))


# -- launch lines ------------------------------------------------------------------------------------------------------------------


def options_of(line: str) -> dict[str, Any]:
    words = shlex.split(line)
    assert words[:2] == ["printf", "%s"]
    found: dict[str, Any] = json.loads(words[2])
    assert words[3:6] == [">", "trtllm-options.yaml", "&&"]
    return found


def test_the_launch_line_carries_what_the_plan_assumed() -> None:
    p = planned("Llama-3.1-8B", kv_memory=None, gpus=4, tp=2, pp=2, max_model_len=8192, kv_dtype="fp8", prefix_caching=False)
    line = launch(p, "org/model")["trtllm"]
    words = shlex.split(line)
    assert options_of(line) == {"kv_cache_config": {"free_gpu_memory_fraction": 0.9, "tokens_per_block": 32, "enable_block_reuse": False, "dtype": "fp8"}}
    for pair in (("--tp_size", "2"), ("--pp_size", "2"), ("--max_seq_len", "8192"), ("--max_batch_size", "2048"), ("--max_num_tokens", "8192")):
        assert words[words.index(pair[0]) + 1] == pair[1]
    windowed = options_of(launch(planned("gpt-oss-20b", window_pools=True), "m")["trtllm"])["kv_cache_config"]
    assert windowed["max_attention_window"] == [128, 131_072] * 12
    assert windowed["max_tokens"] == planned("gpt-oss-20b", window_pools=True).kv_tokens
    assert options_of(launch(planned("Llama-3.1-8B", gpus=8, tp=8, dp_attention=8), "m")["trtllm"])["enable_attention_dp"] is True


def test_a_hostile_name_stays_one_word() -> None:
    evil = "$(rm -rf ~); 'x' `id` && echo"
    words = shlex.split(launch(planned("Llama-3.1-8B"), evil)["trtllm"])
    assert words[words.index("trtllm-serve") + 1] == evil


def test_no_line_where_it_does_not_fit_or_must_be_built() -> None:
    assert launch(planned("Llama-3.1-8B", kv_memory=GIB, tokens=100_000), "m") == {}
    assert launch(planned("Llama-3.1-8B", engine_version="0.18"), "m") == {}


def test_the_command_line_answers_for_it() -> None:
    out = answer("kv", "catalog:Llama-3.1-8B", {"engine": "trtllm", "tokens": 8192, "batch": 2})
    assert (out["engine"], out["engine_version"], out["engine_bytes"]) == ("trtllm", "1.2", 2 * 256 * 32 * 131_072)

"""Plans: worked figures, the identities of every plan, and that the vectorised path is the plan's own."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.answers import identities, plan_json
from planner.capacity import CapacityPlan, plan, replan
from planner.errors import InvalidInput, PlannerError
from planner.footprint import measure
from planner.hardware import find
from planner.model import ModelSpec
from planner.readers import read_config
from planner.remedies import remedies
from planner.scenario import Scenario
from planner.sources import catalog, load

GIB = 2**30
NAMES = tuple(e.name for e in catalog.entries())


@cache
def model(name: str) -> ModelSpec:
    return read_config(load(f"catalog:{name}").raw, name)


def planned(name: str, **options: Any) -> CapacityPlan:
    s = Scenario(**options)
    return plan(model(name), find(s.gpu), s)


@pytest.mark.parametrize(
    ("name", "tokens", "sequences", "bytes_", "line"),
    [
        ("Llama-3.1-8B", 8192, 16, 16 * GIB, "2 x 32 layers x 8 KV heads x 128 x 8,192 tokens x 16 sequences x 2 bytes = 16.00 GiB"),
        ("Llama-3.1-8B", 8192, 1, GIB, "2 x 32 layers x 8 KV heads x 128 x 8,192 tokens x 1 sequence x 2 bytes = 1.00 GiB"),
        ("Llama-2-13B", 1, 1, 819_200, "2 x 40 layers x 40 KV heads x 128 x 1 token x 1 sequence x 2 bytes = 800.00 KiB"),
        ("DeepSeek-V3", 8192, 1, 575_668_224, "(512 + 64) x 61 layers x 8,192 tokens x 1 sequence x 2 bytes = 0.54 GiB"),
        ("Gemma-3-27B", 8192, 1, 1_107_296_256, "2 x 52 layers x 16 KV heads x 128 x 1,024 tokens (window) x 1 sequence x 2 bytes = 0.41 GiB"),
        ("gpt-oss-20b", 131072, 1, 3_224_371_200, "2 x 12 layers x 8 KV heads x 64 x 131,072 tokens x 1 sequence x 2 bytes = 3.00 GiB"),
    ],
)
def test_the_formula_with_its_numbers(name: str, tokens: int, sequences: int, bytes_: int, line: str) -> None:
    foot = measure(model(name), None, Scenario(engine="architecture", tokens=tokens, sequences=sequences))
    assert foot.architecture_bytes == foot.engine_bytes == bytes_
    assert line in [f.text for f in foot.formula]
    assert sum(f.bytes for f in foot.formula) == bytes_


@pytest.mark.parametrize(
    ("name", "per_token"),
    # kv-cache facts, section E: bytes a token of the layers that grow for ever, bf16
    [("Llama-2-7B", 524_288), ("Llama-2-13B", 819_200), ("Llama-3.1-405B", 516_096), ("Mistral-Nemo", 163_840), ("Qwen3-32B", 262_144),
     ("Qwen3-235B-A22B", 192_512), ("Gemma-2-27B", 188_416), ("Gemma-3-1B", 4_096), ("gpt-oss-120b", 36_864), ("Phi-4", 204_800),
     ("DeepSeek-V2-Lite", 31_104), ("Kimi-K2", 70_272), ("MiniCPM3-4B", 35_712), ("Qwen3-Next-80B-A3B", 24_576), ("Llama-4-Scout", 49_152),
     ("Falcon-7B", 8_192), ("StarCoder", 20_480), ("OPT-13B", 819_200), ("BLOOM-176B", 4_014_080), ("GPT-2", 36_864)],
)  # fmt: skip
def test_bytes_a_token(name: str, per_token: int) -> None:
    assert measure(model(name), None, Scenario(engine="architecture", tokens=1, sequences=1, kv_dtype="bf16")).bytes_per_token_unbounded == per_token


def test_the_default_plan() -> None:
    p = planned("Llama-3.1-8B")
    assert p.fits
    assert p.footprint.architecture_bytes == 16 * GIB
    assert p.footprint.engine_bytes == 16 * GIB + 2 * 2**20  # one null block
    assert p.weights_bytes_per_rank == (8_030_261_248 * 2,)
    assert sum(line.bytes for line in p.ledgers[0]) == find("H100 SXM").memory_bytes


SCENARIOS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(["vllm", "architecture", "transformers"]),
        "gpu": st.sampled_from(["H100 SXM", "A100 SXM 80GB", "B200 SXM", "L4", "RTX 4090", "MI300X"]),
        "tp": st.sampled_from([1, 1, 2, 4, 8]),
        "pp": st.sampled_from([1, 1, 2]),
        "kv_dtype": st.sampled_from(["auto", "bf16", "fp8", "fp32"]),
        "tokens": st.integers(1, 200_000),
        "sequences": st.integers(1, 3_000),
        "max_model_len": st.one_of(st.none(), st.integers(1, 200_000)),
        "hybrid_kv_cache_manager": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), SCENARIOS)
def test_the_identities_of_every_plan(name: str, options: dict[str, Any]) -> None:
    try:
        p = planned(name, gpus=options["tp"] * options["pp"], **options)
    except PlannerError:
        assume(False)
    assert all(i["holds"] for i in identities(p))
    if p.fits:
        assert p.shortfall_bytes == 0
        assert p.footprint.per_rank_bytes[p.binding_rank] <= p.kv_pool_bytes
        assert p.max_sequences >= p.sequences_per_replica
    else:
        assert p.limited_by
        assert p.shortfall_bytes > 0 or p.limited_by == "model"
    n = p.max_sequences
    each = p.setting.parallel.attention_data
    if n:
        assert p.rank_bytes(n, p.scenario.tokens) <= p.kv_pool_bytes < p.rank_bytes(n + each, p.scenario.tokens)
    if all(k.kind in ("full", "latent") for k, _ in p.model.cache_groups()):  # windows may keep a row less, states a narrower dtype
        assert sum(p.footprint.per_rank_bytes) >= p.footprint.architecture_bytes


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(["architecture", "vllm", "transformers"]), st.integers(1, 100_000), st.integers(1, 300))
def test_more_tokens_or_sequences_never_take_less(name: str, engine: str, tokens: int, sequences: int) -> None:
    s = Scenario(engine=engine, tokens=tokens, sequences=sequences)
    try:
        one = measure(model(name), find(s.gpu), s).engine_bytes
    except PlannerError:
        assume(False)
    assert one <= measure(model(name), find(s.gpu), replace(s, tokens=tokens + 1)).engine_bytes
    assert one < measure(model(name), find(s.gpu), replace(s, sequences=sequences + 1)).engine_bytes


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3", "Qwen3-Next-80B-A3B", "Llama-4-Scout"])
def test_fifty_cells_of_the_heat_map_equal_plans_of_their_own(name: str) -> None:
    tp = 8
    p = planned(name, tp=tp, gpus=tp, tokens=4096)
    random.seed(name)
    tokens = np.array([random.randint(1, 131_072) for _ in range(50)])
    sequences = np.array([random.randint(1, 512) for _ in range(50)])
    cells = p.rank_bytes(sequences, tokens)
    for cell, t, n in zip(cells.tolist(), tokens.tolist(), sequences.tolist(), strict=True):
        alone = replan(p, tokens=t, sequences=n)
        assert cell == alone.footprint.per_rank_bytes[alone.binding_rank]


def test_what_does_not_fit_says_by_how_much_and_every_remedy_is_a_plan() -> None:
    p = planned("Llama-3.1-70B", tokens=8192, sequences=16)
    assert (p.fits, p.limited_by) == (False, "weights")
    assert p.shortfall_bytes > 70 * GIB
    found = remedies(p)
    assert len(found) >= 3
    assert found[0].after.fits
    for r in found:
        again = replan(p, **dict(r.changes))
        assert (again.fits, again.shortfall_bytes) == (r.after.fits, r.after.shortfall_bytes)
        assert again.shortfall_bytes < p.shortfall_bytes


@pytest.mark.parametrize(
    ("options", "limited"),
    [
        ({"sequences": 200}, "pool"),
        ({"tokens": 200_000}, "model"),
        ({"tokens": 9_000, "max_model_len": 8_192}, "model"),
        ({"gpu": "RTX 4090", "sequences": 1, "tokens": 2_048}, "start"),
        ({"gpu": "T4"}, "weights"),
        ({"kv_memory": GIB, "sequences": 4}, "pool"),
    ],
)
def test_what_limits(options: dict[str, Any], limited: str) -> None:
    p = planned("Llama-3.1-8B", **options)
    assert (p.fits, p.limited_by) == (False, limited)
    found = remedies(p)
    assert any(r.after.fits for r in found)
    assert limited == "model" or len(found) >= 3
    assert len({tuple(sorted(r.changes)) for r in found}) == len(found)


def test_replicas_share_the_load() -> None:
    p = planned("Llama-3.1-8B", gpus=4, tp=2, sequences=9)
    assert (p.replicas, p.sequences_per_replica) == (2, 5)
    assert p.footprint.architecture_bytes == 5 * GIB


def test_a_pool_given_by_hand_makes_a_ledger_of_the_pool_alone() -> None:
    p = planned("Llama-3.1-8B", kv_memory=40 * GIB)
    assert [line.code for line in p.ledgers[0]] == ["kv_rows", "kv_blocks", "kv_free"]
    assert sum(line.bytes for line in p.ledgers[0]) == 40 * GIB


def test_a_plan_without_a_device_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(model("GPT-2"), None, Scenario())
    assert caught.value.field == "gpu"


def test_plan_json_holds_the_keys_of_the_contract() -> None:
    out = plan_json(planned("Llama-3.1-8B"), remedies=True)
    keys = """fits shortfall_bytes rank_ledgers binding_rank kv_pool_bytes bytes_per_block num_blocks blocks_per_request max_concurrency kv_tokens
        longest_context_tokens pools weights_bytes_per_rank latency remedies launch notes""".split()
    assert set(keys) <= set(out)
    assert out["longest_context_tokens"] == 131072

"""Shared prefixes: blocks counted once, against an allocator that shares them by reference; plans, ledgers and maps that count with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.answers import identities, plan_json
from planner.api import answer
from planner.cache import Group, Pool, Term, max_sequences, max_tokens
from planner.capacity import CapacityPlan, plan, replan
from planner.errors import InvalidInput
from planner.hardware import find
from planner.heatmap import heat_map
from planner.readers import read_config
from planner.remedies import remedies
from planner.report import render
from planner.scenario import Scenario
from planner.sources import load
from tests.planner.allocator import Layers, run

GIB = 2**30


def planned(name: str = "Llama-3.1-8B", **options: Any) -> CapacityPlan:
    s = Scenario(model=name, **options)
    return plan(read_config(load(f"catalog:{name}").raw, name), find(s.gpu), s)


def group_of(g: Layers, layers: int = 1, unit_bytes: int = 1) -> Group:
    """The group that an engine with block tables makes of `g` (as planner/engines/vllm/specs.py)."""
    if g.kind == "state":
        term = Term(unit_bytes=unit_bytes, unit_tokens=None, extra_units=g.slots)
    else:
        cap = {"full": None, "window": g.window - 1 + g.block, "chunk": g.window}[g.kind]
        term = Term(unit_bytes=unit_bytes, unit_tokens=g.block, cap_tokens=cap)
    return Group(kind=g.kind, layers=tuple(range(layers)), admission=term, resident=term)


LAYERS = st.one_of(
    st.builds(Layers, kind=st.just("full"), block=st.integers(1, 9)),
    st.builds(Layers, kind=st.just("window"), block=st.integers(1, 9), window=st.integers(1, 40)),
    st.builds(Layers, kind=st.just("chunk"), block=st.integers(1, 9), window=st.integers(1, 40)),
    st.builds(Layers, kind=st.just("state"), slots=st.integers(1, 3)),
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, list[Layers]]:
    layers = draw(st.lists(LAYERS, min_size=1, max_size=3))
    groups = tuple(group_of(g, draw(st.integers(1, 3)), draw(st.integers(1, 50))) for g in layers)
    price = max(len(g.layers) * g.resident.unit_bytes for g in groups)
    if draw(st.booleans()):
        return Pool(name="kv", groups=groups, priced="pooled", block_bytes=price, null_blocks=1, block_size=1), layers
    return Pool(name="kv", groups=groups, block_size=1), layers


@settings(max_examples=300, deadline=None)
@given(pools(), st.integers(1, 4), st.integers(1, 90), st.integers(1, 90))
def test_what_is_saved_is_what_an_allocator_shares(made: tuple[Pool, list[Layers]], sequences: int, tokens: int, prefix: int) -> None:
    """Blocks of all sequences, with every prefix block that is still needed held by all of them, against no sharing at all."""
    pool, layers = made
    prefix = min(prefix, tokens)
    unit = math.lcm(*(g.block for g in layers if g.kind != "state")) if pool.priced == "pooled" else 1
    shared_tokens = min(prefix // unit * unit, tokens - 1)  # a hit ends where a block of every group ends, and before the last token
    apart = together = 0
    for i, (g, made_group) in enumerate(zip(layers, pool.groups, strict=True)):
        held = [run(i, g, tokens, shared_tokens // g.block, sequence)[0] for sequence in range(sequences)]
        apart += pool.price(made_group) * sum(map(len, held))
        together += pool.price(made_group) * len(set().union(*held))
    assert pool.bytes(sequences, tokens) - pool.bytes(sequences, tokens, prefix=prefix) == apart - together


@settings(max_examples=200, deadline=None)
@given(st.lists(LAYERS.filter(lambda g: g.kind != "chunk"), min_size=1, max_size=3), st.integers(1, 90))
def test_units_are_the_most_that_an_allocator_held(layers: list[Layers], tokens: int) -> None:
    for i, g in enumerate(layers):
        assert group_of(g).resident.units(tokens) == run(i, g, tokens)[1]


@given(pools(), st.integers(0, 60), st.integers(1, 200), st.lists(st.integers(0, 8), min_size=1, max_size=4), st.lists(st.integers(1, 300), min_size=1))
def test_arrays_are_the_same_as_numbers(made: tuple[Pool, list[Layers]], prefix: int, one: int, sequences: list[int], tokens: list[int]) -> None:
    pool, _ = made
    for dtype in (np.int64, object):
        cells = pool.bytes(np.array(sequences, dtype=dtype)[:, None], np.array(tokens, dtype=dtype)[None, :], prefix=prefix)
        assert np.broadcast_to(cells, (len(sequences), len(tokens))).tolist() == [[pool.bytes(n, t, prefix=prefix) for t in tokens] for n in sequences]
    assert pool.bytes(0, one, prefix=prefix) == pool.block_bytes * pool.null_blocks
    assert pool.bytes(1, one, prefix=prefix) == pool.bytes(1, one)


@settings(max_examples=200, deadline=None)
@given(pools(), st.integers(1, 60), st.integers(0, 60), st.integers(0, 30_000))
def test_the_most_sequences_are_those_that_brute_force_finds(made: tuple[Pool, list[Layers]], tokens: int, prefix: int, budget: int) -> None:
    pool, _ = made
    prefix = min(prefix, tokens)
    found = max_sequences((pool,), tokens, budget, prefix=prefix)
    n = 0
    while pool.bytes(n + 1, tokens, prefix=prefix) <= budget:
        n += 1
    assert found == n


@settings(max_examples=200, deadline=None)
@given(pools(), st.integers(1, 6), st.integers(0, 60), st.integers(0, 6_000), st.integers(1, 120))
def test_the_longest_length_is_the_one_that_brute_force_finds(made: tuple[Pool, list[Layers]], sequences: int, prefix: int, budget: int, limit: int) -> None:
    pool, _ = made
    fitting = [t for t in range(max(1, prefix), limit + 1) if pool.bytes(sequences, t, prefix=prefix) <= budget]
    assert max_tokens((pool,), sequences, budget, limit, prefix=prefix) == max(fitting, default=0)


@pytest.mark.parametrize(
    ("g", "tokens", "prefix", "shared"),
    [
        (Layers("full", 16), 8192, 4096, 256),
        (Layers("full", 16), 8192, 4095, 255),
        (Layers("full", 16), 8192, 15, 0),
        (Layers("full", 16), 4096, 4096, 255),  # the whole sequence: its last token is computed anew, and with it the last block
        (Layers("full", 16), 4097, 4096, 256),
        (Layers("window", 16, 1024), 4096, 4000, 58),  # the window begins at token 3,073, in block 192; the prefix ends with block 249
        (Layers("window", 16, 1024), 5024, 4000, 0),  # it has left the prefix
        (Layers("window", 16, 1024), 512, 256, 16),  # not full yet
        (Layers("chunk", 16, 8192), 8000, 4096, 256),
        (Layers("chunk", 16, 8192), 8192, 4096, 0),  # the next token begins a chunk
        (Layers("chunk", 16, 8192), 9000, 8800, 38),  # blocks 512 to 549
        (Layers("state", slots=3), 9000, 8800, 0),
    ],
)
def test_shared_blocks_by_hand(g: Layers, tokens: int, prefix: int, shared: int) -> None:
    assert group_of(g).shared_units(tokens, prefix) == shared


def test_a_compressors_state_that_lives_in_blocks_is_not_shared_either() -> None:
    term = Term(unit_bytes=1, unit_tokens=8, cap_tokens=20)
    assert Group(kind="state", layers=(0,), admission=term, resident=term).shared_units(100, 99) == 0


def test_one_token_beyond_the_prefix_its_last_block_is_shared() -> None:
    """Five windows of 9 in blocks of 4: at 16 tokens they share one block, at 17 two; 7 blocks are enough for 17 tokens and not for 16."""
    pool = Pool(name="kv", groups=(group_of(Layers("window", 4, 9)),), block_size=4)
    assert [pool.bytes(5, t, prefix=16) for t in (16, 17, 19, 20)] == [11, 7, 7, 11]
    assert max_tokens((pool,), 5, 7, 100, prefix=16) == 19
    assert max_tokens((pool,), 5, 7, 16, prefix=16) == 0
    assert max_tokens((pool,), 5, 11, 16, prefix=16) == 16


def test_a_plan_of_llama() -> None:
    """16 sequences of 8,192 tokens behind one prompt of 4,096: 15 x 256 blocks of 2 MiB are not held again."""
    saved = 15 * 256 * 2**21
    p = planned(shared_prefix=4096)
    apart = planned()
    assert p.footprint.prefix_bytes_saved == saved == 15 * GIB // 2
    assert p.footprint.engine_bytes == apart.footprint.engine_bytes - saved
    assert p.free_bytes == apart.free_bytes + saved
    assert p.footprint.admission_bytes == apart.footprint.admission_bytes
    assert p.blocks_per_request == apart.blocks_per_request
    assert p.max_sequences == (27_850 - 1 - 256) // 256 == 107 > apart.max_sequences
    assert [(g.code, g.bytes) for g in p.gap if g.bytes] == [("null_blocks", 2**21), ("shared_prefix", -saved)]
    lines = {line.code: line.bytes for line in p.ledgers[0]}
    assert (lines["kv_rows_once"], lines["kv_blocks"]) == (16 * GIB - saved, 2**21)
    assert all(i["holds"] for i in identities(p))
    out = plan_json(p)
    assert out["shared_prefix_bytes_saved"] == saved
    assert next(n for n in out["notes"] if n["code"] == "prefix_shared")["text"].count(f"{saved:,}") == 1
    assert f"{saved:,}" in render(p, "md", {}, created="2026-01-02").decode()


def test_windows_share_while_they_cover_the_prefix_and_states_never() -> None:
    gemma = [planned("Gemma-3-27B", tokens=t, sequences=2, shared_prefix=4096).footprint for t in (4200, 8192)]
    block = gemma[0].allocation.stages[0][0]
    windows = [g for g in block.groups if g.kind == "window"]
    # (4,200 - 1,023) // 16 = 198: 58 blocks of the prefix are in the window of each windowed group; full groups share 256.
    full = len(block.groups) - len(windows)
    assert gemma[0].prefix_bytes_saved == block.block_bytes * (256 * full + 58 * len(windows))
    assert gemma[1].prefix_bytes_saved == block.block_bytes * 256 * full
    hybrid = planned("Qwen3-Next-80B-A3B", gpus=4, sequences=2, shared_prefix=4096)
    assert hybrid.footprint.prefix_bytes_saved == 4 * hybrid.pools[0].block_bytes * (4096 // hybrid.pools[0].block_size)  # type: ignore[operator]
    assert "prefix_states" in {n.code for n in hybrid.notes}


def test_each_attention_group_shares_within_itself() -> None:
    options: dict[str, Any] = {"gpus": 8, "tp": 8, "sequences": 7, "shared_prefix": 1024}
    p = planned("DeepSeek-V3", gpu="H200", dp_attention=4, **options)
    block = p.pools[0].block_bytes
    per_block = 1024 // (p.pools[0].block_size or 1)
    assert p.setting.parallel.spread(7) == [2, 2, 2, 2, 2, 2, 1, 1]
    assert p.footprint.prefix_bytes_saved == 6 * per_block * block  # the groups of two save once on each of their two ranks
    assert p.max_sequences % 4 == 0
    assert p.rank_bytes(p.max_sequences, p.scenario.tokens) <= max(0, p.kv_pool_bytes) or not p.max_sequences


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"engine": "transformers"}, "prefix_no_blocks"),
        ({"engine": "architecture"}, "prefix_no_blocks"),
        ({"prefix_caching": False}, "prefix_caching_off"),
    ],
)
def test_what_shares_nothing_says_so(options: dict[str, Any], code: str) -> None:
    p, apart = planned(shared_prefix=4096, **options), planned(**options)
    assert p.footprint.prefix_bytes_saved == 0
    assert (p.footprint.engine_bytes, p.max_sequences, p.ledgers, p.gap) == (apart.footprint.engine_bytes, apart.max_sequences, apart.ledgers, apart.gap)
    assert code in {n.code for n in p.notes}


@pytest.mark.parametrize(
    ("options", "tokens"), [({"tokens": 100, "shared_prefix": 101}, 100), ({"tokens": 300, "prompt": 200, "output": 100, "shared_prefix": 201}, 200)]
)
def test_a_prefix_longer_than_what_it_begins_is_refused(options: dict[str, Any], tokens: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        planned(**options)
    assert caught.value.field == "shared_prefix"
    assert str(tokens) in caught.value.message


def test_a_prompt_that_is_the_prefix_computes_its_last_block_anew() -> None:
    """vLLM looks up num_tokens - 1 tokens: of a prompt of 4,096 only 255 blocks."""
    a = planned(tokens=4224, prompt=4096, output=128, sequences=2, shared_prefix=4096)
    b = planned(tokens=4224, prompt=4097, output=127, sequences=2, shared_prefix=4096)
    assert b.footprint.prefix_bytes_saved - a.footprint.prefix_bytes_saved == a.pools[0].block_bytes


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Gemma-3-27B", "Llama-4-Scout", "DeepSeek-V3"])
def test_cells_of_the_heat_map_are_plans(name: str) -> None:
    p = planned(name, gpus=8, tp=8, tokens=8192, shared_prefix=3000)
    h = heat_map(p)
    assert min(h.tokens) >= 3000
    for i in range(0, len(h.sequences), 3):
        for j in range(0, len(h.tokens), 2):
            q = replan(p, tokens=h.tokens[j], sequences=h.sequences[i])
            assert h.rank_bytes[i][j] == q.footprint.per_rank_bytes[q.binding_rank]
    for tokens, most in h.line[::6]:
        assert replan(p, tokens=tokens, sequences=most).limited_by in (None, "start")
        assert replan(p, tokens=tokens, sequences=most + 1).limited_by == "pool"


def test_a_prefix_near_the_only_length_leaves_one_column() -> None:
    assert heat_map(planned(tokens=131_072, shared_prefix=131_072, sequences=1)).tokens == (131_072,)
    assert heat_map(planned(tokens=131_000, max_model_len=131_000, shared_prefix=130_000)).tokens


def test_remedies_stay_plans_beside_a_prefix() -> None:
    for options in ({"tokens": 200_000, "shared_prefix": 150_000}, {"sequences": 300, "shared_prefix": 4096}, {"tokens": 9000, "sequences": 400}):
        found = remedies(planned(**options))
        assert found
        assert any(r.after.fits for r in found)


def test_kv_and_plan_answer_with_it() -> None:
    out = answer("kv", "catalog:Llama-3.1-8B", {"tokens": 8192, "batch": 4, "engine": "vllm", "shared-prefix": 1024})
    assert out["shared_prefix_bytes_saved"] == 3 * 64 * 2**21
    assert out["engine_bytes"] == (4 * 512 + 1 - 3 * 64) * 2**21
    assert out["resident_bytes"] == out["engine_bytes"]
    assert answer("plan", "catalog:Llama-3.1-8B", {})["shared_prefix_bytes_saved"] == 0

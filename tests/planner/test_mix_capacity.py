"""Mixes of lengths: what a plan holds of one, held against an allocator that works block by block; on the command line and in reports."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.__main__ import main
from planner.answers import plan_json
from planner.api import answer
from planner.cache import Pool
from planner.capacity import replan
from planner.errors import InvalidInput
from planner.mix import MAX_POINTS, Mix, from_text, mix, read
from planner.mix_capacity import Loads, _most, apportion, mix_capacity
from planner.report import FORMATS, render
from tests.conftest import ROOT
from tests.planner.allocator import Allocator, Layers, run
from tests.planner.test_mix import SHORT
from tests.planner.test_prefix import LAYERS, group_of, planned

MODELS = ("Llama-3.1-8B", "Gemma-3-27B", "Qwen3-Next-80B-A3B", "Llama-4-Scout", "DeepSeek-V3")


# -- apportioning ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2000), st.integers(1, 1000), st.integers(1, 1000))
def test_two_points_get_their_largest_remainders(n: int, a: int, b: int) -> None:
    counts = apportion(n, [a, b], np.array([1, 2]))
    exact = [Fraction(n * a, a + b), Fraction(n * b, a + b)]
    floors = [int(x) for x in exact]
    extra = 1 if exact[1] - floors[1] >= exact[0] - floors[0] else 0
    floors[extra] += n - sum(floors)
    assert counts == floors


@given(st.integers(0, 500), st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=8))
def test_one_sequence_more_never_needs_less(n: int, points: list[tuple[int, int]]) -> None:
    weights, cost = [w for w, _ in points], np.array([c for _, c in points])
    now, then = (apportion(k, weights, cost) for k in (n, n + 1))
    assert sum(now) == n
    assert min(now) >= 0
    assert sum(a * c for a, c in zip(now, cost.tolist(), strict=True)) <= sum(a * c for a, c in zip(then, cost.tolist(), strict=True))
    # The cheapest k points together are within half a sequence of their share.
    order = np.argsort(cost, kind="stable")
    for k in range(1, len(order) + 1):
        share = Fraction(n * sum(weights[i] for i in order[:k]), sum(weights))
        assert abs(sum(now[i] for i in order[:k]) - share) <= Fraction(1, 2)


def test_few_sequences_of_many_lengths_are_spread_over_all() -> None:
    counts = apportion(5, [1] * 100, np.arange(100))
    assert [i for i, c in enumerate(counts) if c] == [10, 30, 50, 70, 90]


# -- capacity against an allocator -------------------------------------------------------------------------------------


def brute_force(layers: list[Layers], m: Mix, blocks: int) -> int:
    """Sequences go into the pool one by one, in the proportions of the mix, each block by block up to the most that it ever holds;
    how many are in when the pool first has no block left. Null block: one of `blocks`."""
    peaks = {(p.prompt, p.output): [run(i, g, p.tokens)[1] for i, g in enumerate(layers)] for p in m.points}
    allocator = Allocator(blocks=blocks - 1)
    whole, n = m.weight, 0
    while True:
        # Largest remainder for n + 1: whose turn it is.
        n += 1
        shares = [Fraction(n * p.weight, whole) for p in m.points]
        counts = [int(x) for x in shares]
        for i in sorted(range(len(shares)), key=lambda i: (counts[i] - shares[i], -i))[: n - sum(counts)]:
            counts[i] += 1
        allocator.held.clear()
        for p, number in zip(m.points, counts, strict=True):
            for sequence in range(number):
                for group, most in enumerate(peaks[p.prompt, p.output]):
                    for block in range(most):
                        if not allocator.take((group, p, sequence, block)):
                            return n - 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LAYERS.filter(lambda g: g.kind != "chunk"), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=2),
    st.integers(1, 250),
)
def test_mixes_agree_with_an_allocator_within_one_sequence(layers: list[Layers], points: list[tuple[int, int, int]], blocks: int) -> None:
    groups = tuple(group_of(g) for g in layers)
    pool = Pool(name="kv", groups=groups, priced="pooled", block_bytes=10, null_blocks=1, block_size=1)
    m = mix(points)
    loads = Loads((pool,), m, 0)
    each, once = loads.full()
    found = _most(loads.weights, each, once, 10 * blocks + 9)
    assert abs(found - brute_force(layers, m, blocks)) <= 1

    def size(n: int) -> int:
        """To the sequence, by the pool's own bytes."""
        return 10 + sum(c * (pool.bytes(1, p.tokens) - 10) for c, p in zip(apportion(n, loads.weights, each), m.points, strict=True))

    assert not found or size(found) <= 10 * blocks + 9
    assert size(found + 1) > 10 * blocks + 9


@settings(max_examples=100, deadline=None)
@given(
    st.lists(LAYERS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9)).filter(lambda p: p[0] + p[1] > 0), min_size=1, max_size=4),
    st.integers(0, 50),
)
def test_the_mean_over_the_decode_is_the_mean(layers: list[Layers], points: list[tuple[int, int, int]], prefix: int) -> None:
    pool = Pool(name="kv", groups=tuple(group_of(g) for g in layers), priced="pooled", block_bytes=10, null_blocks=1, block_size=1)
    m = mix(points)
    mean, parts, once = Loads((pool,), m, prefix).typical()
    want = Fraction(0)
    shared_blocks: set[tuple[int, int]] = set()
    for p in m.points:
        shared = pool.aligned(max(0, min(prefix, p.prompt - 1)))
        moments = range(p.prompt + 1, p.tokens + 1) if p.output else [p.prompt]
        for s in moments:
            own = sum(g.resident.units(s) - g.shared_units(s, shared) for g in pool.groups)
            want += Fraction(10 * own * p.weight, m.weight * len(moments))
        for i, g in enumerate(pool.groups):  # at its first moment a request needs the most of the prefix
            first = g.first_unit(moments[0])
            shared_blocks |= {(i, block) for block in range(first, first + g.shared_units(moments[0], shared))}
    assert Fraction(mean, parts) == want
    assert once == 10 + 10 * len(shared_blocks)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("more", [{}, {"shared_prefix": 700}, {"block_size": 64, "tokens": 100}])
def test_one_point_is_the_plan_of_that_length(name: str, more: dict[str, Any]) -> None:
    p = planned(name, gpus=8, tp=8, **({} if name == "Qwen3-Next-80B-A3B" and "block_size" in more else more))
    for prompt, output in ((1000, 1), (5000, 3000), (900, 100_000)):
        alone = replan(p, tokens=prompt + output)
        c = mix_capacity(p, from_text(f"{prompt}+{output}"))
        assert c.sequences_guaranteed == alone.max_sequences
        assert c.sequences_typical >= c.sequences_guaranteed
        assert c.held_bytes == alone.rank_bytes(alone.max_sequences, prompt + output)


@pytest.mark.parametrize("engine", ["architecture", "transformers"])
def test_one_point_on_engines_without_blocks(engine: str) -> None:
    p = planned("Gemma-3-27B", gpu="B200 SXM", engine=engine)
    assert mix_capacity(p, from_text("5000+3000")).sequences_guaranteed == replan(p, tokens=8000).max_sequences


def test_attention_groups_and_replicas() -> None:
    p = planned("DeepSeek-V3", gpu="H200", gpus=16, tp=8, dp_attention=4)
    c = mix_capacity(p, from_text("5000+3000"))
    assert c.sequences_guaranteed == replan(p, tokens=8000).max_sequences
    assert c.total_guaranteed == 2 * c.sequences_guaranteed


def test_a_mix_by_hand() -> None:
    """Llama-3.1-8B in blocks of 16: 27,849 blocks, 40 and 576 a sequence, seven to three."""
    c = mix_capacity(planned(), from_text(SHORT))
    n = c.sequences_guaranteed
    assert n == 27_849 // ((7 * 40 + 3 * 576) / 10) == 138
    assert c.held_bytes == (97 * 40 + 41 * 576 + 1) * 2**21
    # decode: 512 + k fills 32.5 blocks and up: the mean of ceil((512 + k) / 16) over k = 1 ... 128 is 36.5, of the long one 544.5
    assert c.sequences_typical == int(27_849 / (0.7 * 36.5 + 0.3 * 544.5)) == 147
    assert (c.waste_bytes, c.window_saved_bytes, c.state_bytes, c.prefix_saved_bytes) == (0, 0, 0, 0)
    assert c.tokens_held == 97 * 640 + 41 * 9216
    odd = mix_capacity(planned(), from_text("501+128"))
    assert odd.waste_bytes == odd.sequences_guaranteed * (640 - 629) * 131_072


def test_windows_states_and_prefixes_are_counted_apart() -> None:
    p = planned("Gemma-3-27B", gpus=2, tp=2)
    c = mix_capacity(p, from_text("9000+1000"))
    n, block = c.sequences_guaranteed, p.pools[0].block_bytes
    windows = sum(g.kind == "window" for g in p.pools[0].groups)
    assert c.window_saved_bytes == n * windows * (625 - 65) * block
    q = planned("Qwen3-Next-80B-A3B", gpus=4)
    c = mix_capacity(q, from_text(SHORT))
    states = [g for g in q.pools[0].groups if g.kind == "state"]
    assert c.state_bytes == c.sequences_guaranteed * q.pools[0].block_bytes * sum(g.resident.extra_units for g in states) > 0
    r = planned(shared_prefix=2048)
    c = mix_capacity(r, from_text("512+128:1,4096+1024:1"))  # the short ones share only 511 tokens of it
    long = c.sequences_guaranteed - c.sequences_guaranteed // 2
    assert c.prefix_saved_bytes == ((c.sequences_guaranteed - long) * 31 + long * 128 - 128) * 2**21


def test_the_longest_request_may_be_out_of_reach() -> None:
    c = mix_capacity(planned(), from_text("100+100:9,130000+9000:1"))
    assert c.limited_by == "model"
    assert c.sequences_guaranteed > 0
    assert mix_capacity(planned("Llama-3.1-70B"), from_text("1+1")).limited_by == "weights"
    assert mix_capacity(planned("Llama-3.1-70B"), from_text("1+1")).sequences_guaranteed == 0


def test_a_prefix_longer_than_every_prompt_is_shared_as_far_as_they_go() -> None:
    c = mix_capacity(planned(shared_prefix=1000), from_text("100+100"))
    assert c.prefix_saved_bytes == (c.sequences_guaranteed - 1) * (99 // 16) * 2**21
    assert c.sequences_guaranteed == mix_capacity(planned(shared_prefix=100), from_text("100+100")).sequences_guaranteed


def test_thousands_of_lengths_take_seconds() -> None:
    pick = random.Random(7)
    m = mix((pick.randrange(1, 10**8 - 10**7), pick.randrange(1, 10**7), 1) for _ in range(MAX_POINTS))
    p = planned()
    start = time.perf_counter()
    assert mix_capacity(p, m).sequences_guaranteed == 0
    assert time.perf_counter() - start < 20


# -- command line, JSON, reports ---------------------------------------------------------------------------------------


def test_the_command_line_takes_a_text_and_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mix.csv"
    path.write_text("isl,osl\n" + "512,128\n" * 7 + "8192,1024\n" * 3)
    base = ["plan", "catalog:Llama-3.1-8B", "--json", "--lengths"]
    outs = []
    for lengths in (SHORT, str(path)):
        assert main([*base, lengths]) == 0
        outs.append(json.loads(capsys.readouterr().out))
    a, b = (o["mix"] for o in outs)
    assert {k: v for k, v in a.items() if k != "rows"} == {k: v for k, v in b.items() if k != "rows"}
    assert (a["points"], a["rows"], b["rows"], a["sequences_guaranteed"], a["sequences_typical"]) == (2, 2, 10, 138, 147)
    assert (a["mean_tokens"], a["p50_tokens"], a["p99_tokens"], a["waste_bytes"]) == (3212.8, 640, 9216, 0)
    assert outs[1]["scenario"]["lengths"] == "512+128:7,8192+1024:3"
    assert sum(x["bytes"] for x in a["by_length"]) == pytest.approx(1)
    assert main(["plan", "catalog:Llama-3.1-8B", "--lengths", SHORT]) == 0
    assert "138 sequences at full length, 147 typically" in capsys.readouterr().out


def test_a_long_mix_is_planned_without_a_text(tmp_path: Path) -> None:
    path = tmp_path / "mix.csv"
    path.write_text("prompt,output\n" + "\n".join(f"{i},{i}" for i in range(1, 200)))
    out = answer("plan", "catalog:Llama-3.1-8B", {"lengths": str(path)})
    assert out["scenario"]["lengths"] is None
    assert (out["mix"]["points"], out["mix"]["lengths"]) == (199, None)
    with pytest.raises(InvalidInput) as caught:
        answer("plan", "catalog:Llama-3.1-8B", {"lengths": str(path)}, allow_paths=False)
    assert caught.value.field == "lengths"


@pytest.mark.parametrize("lengths", ["none.csv", "", 5, ["1+1"], "a\0b", str(ROOT)])
def test_lengths_that_cannot_be_are_refused(lengths: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(lengths, allow_paths=True)
    assert caught.value.field == "lengths"
    with pytest.raises(InvalidInput):
        answer("kv", "catalog:Llama-3.1-8B", {"tokens": 16, "lengths": "1+1"})


def test_a_batch_takes_both(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    source = {"command": "plan", "source": "catalog:Llama-3.1-8B"}
    path.write_text("\n".join(json.dumps(source | more) for more in ({"lengths": SHORT, "shared_prefix": 256}, {"lengths": "1+"})))
    assert main(["batch", str(path), "--json"]) == 0
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["mix"]["shared_prefix_bytes_saved"] == (good["mix"]["sequences_guaranteed"] - 1) * 16 * 2**21
    assert bad["error"]["field"] == "lengths"


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in ("xlsx", "pdf")])  # packed: tests/planner/test_report_formats.py
def test_reports_have_a_section(fmt: str) -> None:
    body = render(planned(lengths=SHORT), fmt, {}, created="2026-01-02").decode()
    assert ("sequences_guaranteed" if fmt == "json" else "all at full length") in body
    other = render(planned(), fmt, {}, created="2026-01-02", mix=from_text("64+64")).decode()
    assert ("sequences_guaranteed" if fmt == "json" else "all at full length") in other
    plain = render(planned(), fmt, {}, created="2026-01-02").decode()
    assert "all at full length" not in plain
    if fmt == "csv":
        rows = [r for r in csv.reader(io.StringIO(body.lstrip("\ufeff"))) if r[0] == "mix"]
        assert ["mix", "Sequences, all at full length", "138"] in rows


def test_a_report_by_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    words = ["report", "catalog:Llama-3.1-8B", "--format", "json", "-o", str(out), "--lengths", SHORT]
    subprocess.run([sys.executable, "-m", "planner", *words], cwd=ROOT, check=True, timeout=60)
    assert json.loads(out.read_text())["mix"]["sequences_guaranteed"] == 138
    assert plan_json(planned())["mix"] is None

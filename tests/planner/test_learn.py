"""The lessons: their figures against figures found another way, no literal figure in a text, every family has them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from planner.capacity import plan
from planner.errors import PlannerError
from planner.hardware import find
from planner.learn import CLAIMS, CODES, Figures, Lesson, figures, lessons
from planner.messages import en_learn
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import CONFIGS

ALLOWED = ("n^2",)


def of(name: str = "Llama-3.1-8B", **chosen: Any) -> Figures:
    s = Scenario(model=name, **chosen)
    model = read_config(load(f"catalog:{name}").raw, name)
    return figures(model, s, plan(model, find(s.gpu), s))


def lesson(f: Figures, code: str) -> Lesson:
    return next(x for x in lessons(f) if x.code == code)


def cells(x: Lesson) -> str:
    return " | ".join(c for r in x.rows for c in r)


def test_no_figure_stands_in_a_text() -> None:
    for code, text in en_learn.TEXT.items():
        bare = re.sub(r"\{[^}]*\}", "", text)
        for word in ALLOWED:
            bare = bare.replace(word, "")
        assert not re.search(r"\d", bare), code


def test_every_lesson_is_there_and_every_claim_stands_once() -> None:
    assert tuple(x.code for x in lessons(of())) == CODES == tuple(CLAIMS)
    claims = [c for one in CLAIMS.values() for c in one]
    assert len(claims) == len(set(claims))


def test_phases_by_hand() -> None:
    """Llama-3.1-8B, a prompt of 7,168 tokens: n (n + 1) / 2 pairs; 2 x 32 layers x 8 heads x 128 x 2 bytes a token; all weights but the
    embedding are read: 8,030,261,248 elements less 128,256 x 4,096 of it and 65 norms of 4,096."""
    x = lesson(of(), "phases")
    text = " ".join(x.texts)
    assert "25,693,696 pairs" in text
    assert "4.00 times the attention" in text
    assert "15,009,316,864 bytes" in cells(x)
    assert 15_009_316_864 == 2 * (8_030_261_248 - 128_256 * 4_096 - 65 * 4_096)
    assert f"{131_072 * 7_168:,} bytes" in cells(x)
    assert x.chart is not None
    assert "7,158" in x.chart.title
    assert (15_009_316_864 // (16 * 131_072)) + 1 == 7_158, "where the cache of 16 sequences is more than the weights"


def test_the_five_steps_by_hand() -> None:
    x = lesson(of(), "steps")
    assert len(x.rows) == 5
    assert f"{32 * 32 * 8_192:,} scores" in cells(x), "heads x layers x kept tokens"
    assert f"({32 * 32 * 8_192 * 2:,} bytes)" in " ".join(x.texts)
    assert "131,072 bytes: 8,191 tokens become 8,192" in cells(x)


def test_absorption_by_hand() -> None:
    """DeepSeek-V3: 512 + 64 elements for 128 heads of (128 + 64) + 128."""
    x = lesson(of("DeepSeek-V3", gpus=8), "absorption")
    assert "576 elements a token and layer instead of 40,960" in x.texts[0]
    assert x.texts[0].endswith("71.11 times less.")
    assert f"{61 * 8_192 * 576 * 2:,} bytes" in cells(x)
    assert f"| {2 * 128 * (2 * 512 + 64):,} |" in cells(x)
    other = lesson(of(), "absorption")
    assert other.texts[0].startswith("This model keeps K and V")


def test_a_latent_is_copied_unless_attention_is_data_parallel() -> None:
    x = lesson(of("DeepSeek-V3", gpus=8), "ranks")
    one = 61 * 576 * 2 * 8_192 * 16
    assert x.rows[3][0] == "8"
    assert f"{8 * one:,} bytes" in x.rows[3][2]
    assert f"{one:,} bytes" in x.rows[3][4]
    even = lesson(of("Llama-2-7B"), "ranks")
    assert all(r[2] == even.rows[0][2] for r in even.rows), "32 KV heads go evenly over 16 ranks"


def test_degrees_that_engines_refuse_have_no_figures() -> None:
    """GPT-2 has 12 heads: 8 and 16 ranks cannot share them out, 12 can. All ranks together never hold less than one copy."""
    x = lesson(of("GPT-2", tokens=1_000), "ranks")
    assert [r[0] for r in x.rows] == ["1", "2", "4", "8", "12", "16"]
    assert [r[2] == "-" for r in x.rows] == [False, False, False, True, False, True]
    assert {r[2] for r in x.rows if r[2] != "-"} == {r[4] for r in x.rows}, "even shares"
    assert x.texts[-1].startswith("A dash: 12 query heads")
    assert x.chart is not None
    assert x.chart.x == ("1", "2", "4", "12")
    phi = lesson(of("Phi-4"), "ranks")
    assert {r[0]: r[2] == "-" for r in phi.rows} == {"1": False, "2": False, "4": True, "8": True, "10": False, "16": True}, "10 KV heads"
    alone = lesson(of("Falcon-7B", tokens=1_000), "ranks")
    assert alone.chart is None
    assert "71 query heads" in alone.texts[0]


def test_regions_hold_no_unused_block_and_no_less_than_the_load() -> None:
    x = lesson(of(), "paging")
    assert f"({16 * 131_072 * 131_072:,} bytes)" in cells(x)
    beyond = lesson(of("GPT-2", tokens=8_192), "paging")
    assert "the largest length, 8,192 tokens" in beyond.texts[1], "the load is longer than the model's own 1,024"


def test_windows_and_states_are_told_as_they_are() -> None:
    windows = lesson(of("Mistral-7B-v0.1", tokens=16_384), "phases")
    assert "In 0 of 32 attention layers" in windows.texts[0]
    assert "of 4,096 tokens at most" in windows.texts[0]
    gone = lesson(of("Mistral-7B-v0.1", tokens=16_384), "prefix")
    assert not gone.rows
    assert gone.texts[0].startswith("Nothing is saved here")
    hybrid = {x.code: " ".join(x.texts) for x in lessons(of("Qwen3-Next-80B-A3B", gpus=2, tp=2))}
    assert "writes its states anew" in hybrid["phases"]
    assert "states are read and written" in hybrid["steps"]
    model = read_config(json.loads((CONFIGS / "mamba2.json").read_text()), "mamba2")
    only = {x.code: x for x in lessons(figures(model, Scenario(), None))}
    assert not only["steps"].rows
    assert "no K and V to keep" in only["steps"].texts[0]
    assert "KV heads" not in only["ranks"].texts[0]


def test_paging_and_sharing_are_the_plans_pools() -> None:
    f = of(tokens=8_201, sequences=4)
    x = lesson(f, "paging")
    assert [r[1] for r in x.rows[:4]] == ["16", "513", "2,052", "7"]
    assert f.plan is not None
    assert f"{f.plan.footprint.per_rank_bytes[0]:,} bytes" in cells(x)
    saved = lesson(of(shared_prefix=4_096), "prefix")
    shared = of(shared_prefix=4_096).plan
    assert shared is not None
    assert f"({shared.footprint.prefix_bytes_saved:,} bytes)" in saved.rows[-1][1]


def test_what_lies_between_leads_to_what_is_held() -> None:
    f = of("Qwen3-Next-80B-A3B", gpus=8)
    x = lesson(f, "held")
    assert f.plan is not None
    between = sum(int(re.search(r"\((-?[\d,]+) bytes", r[1])[1].replace(",", "")) for r in x.rows)  # type: ignore[index]
    assert f.plan.footprint.architecture_bytes + between == f.plan.footprint.engine_bytes


def test_measurements_stand_in_their_lessons() -> None:
    f = of()
    probe = {"ttft_s": 0.5, "itl_s": {"p50": 0.02}, "prefill_tokens_per_s": 1234.0, "decode_tokens_per_s": 99.0, "layers_run": 2, "layers_total": 32,
             "predicted_kv_bytes": 4096, "measured_kv_bytes": 4096, "absorbed_vs_expanded_max_rel_error": 1e-3,
             "fragmentation": {"held_bytes": 77, "contiguous_bytes": None}}  # fmt: skip
    with_probe = {x.code: x for x in lessons(figures(f.model, f.scenario, f.plan, probe))}
    assert ("Prefill (TTFT)", "500.0 ms") in with_probe["phases"].measured
    assert [v for _, v in with_probe["steps"].measured] == ["4.00 KiB (4,096 bytes)"] * 2
    assert [v for _, v in with_probe["paging"].measured] == ["77 bytes (77 bytes)"]
    assert not with_probe["absorption"].measured, "no latent was run"
    assert not any(x.measured for x in lessons(f))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda p: p.stem)
def test_every_family_has_its_lessons(path: Any) -> None:
    try:
        model = read_config(json.loads(path.read_text()), path.stem)
    except PlannerError:
        pytest.skip("refused by the reader")
    for chosen in ({}, {"tokens": 1, "sequences": 1}, {"engine": "transformers", "prompt": 1, "output": 9_999, "tokens": 10_000}):
        s = Scenario(**chosen)  # type: ignore[arg-type]
        try:
            p = plan(model, find(s.gpu), s)
        except PlannerError:
            p = None
        for x in lessons(figures(model, s, p)):
            assert x.texts
            assert all(len(r) == len(x.columns) for r in x.rows)
            assert x.chart is None or all(len(values) == len(x.chart.x) for _, _, values in x.chart.series)

"""The caches that transformers 5.24 was measured to hold, and the parameters of the models it builds (needs the corpus)."""

from __future__ import annotations

import json

import pytest

from planner.api import model_of
from planner.errors import PlannerError
from planner.footprint import measure
from planner.model import ModelSpec
from planner.scenario import Scenario
from planner.sources import load
from planner.weights import parameters
from tests.conftest import corpus_file, corpus_rows

FAMILIES = frozenset(
    "llama mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3 gemma3_text phi3 falcon gpt2 gpt_bigcode opt bloom gpt_neox deepseek_v2 "
    "deepseek_v3 kimi_k2 minicpm3 gpt_oss qwen3_next llama4".split()
)
ANSWERED_AT_LEAST, PARAMETERS_AT_LEAST = 130, 139


def number(row: dict[str, str], key: str) -> int:
    return int(float(row[key] or 0))


def model_at(name: str) -> ModelSpec:
    return model_of(load(str(corpus_file(f"configs/{name}"))))


def measured_caches(tokens: int) -> tuple[int, list[str], list[str]]:
    """(configs whose cache of one sequence is that which transformers held, the wrong ones, the refused ones); cross caches apart."""
    right, wrong, refused = 0, [], []
    for r in corpus_rows("transformers_measured.csv"):
        if r["error"] or number(r, "cross_layers"):
            continue
        if r["model_type"] == "deepseek_v4" and tokens % 128:
            continue  # a compressor's buffer between whole chunks is not in the table; test_compressed.py has it
        expected = number(r, "kv_bytes_per_token_bf16_uncapped") * tokens
        expected += min(number(r, "windowed_bytes_per_token") * tokens, number(r, "windowed_bytes_capped"))
        expected += number(r, "const_state_bytes_native_dtype") or number(r, "const_state_bytes_per_seq")
        try:
            model = model_at(r["file"])
            got = measure(model, None, Scenario(engine="transformers", tokens=tokens, sequences=1, kv_dtype="bf16")).engine_bytes
        except PlannerError:
            refused.append(r["model_type"])
            continue
        right += got == expected
        if got != expected:
            wrong.append(f"{r['file']}: {got} != {expected}")
    return right, wrong, refused


@pytest.mark.corpus
@pytest.mark.parametrize("tokens", [1, 17, 4096, 131072])
def test_measured_caches(tokens: int) -> None:
    right, wrong, refused = measured_caches(tokens)
    assert not wrong
    assert not FAMILIES & set(refused)
    assert right >= ANSWERED_AT_LEAST


def counted_parameters() -> tuple[int, list[str], list[str]]:
    """(models whose parameters are those of the built one, the wrong ones, the refused ones and the estimates)."""
    right, wrong, refused = 0, [], []
    for r in corpus_rows("transformers_measured.csv"):
        if r["error"] or not number(r, "params_total"):
            continue
        try:
            p = parameters(model_at(r["file"]))
        except PlannerError:
            refused.append(r["file"])
            continue
        if not p.exact:
            refused.append(r["file"])
            continue
        whole, language = number(r, "params_total"), number(r, "params_language")
        if p.total not in (whole, language or whole):
            wrong.append(f"{r['file']}: {p.total} != {whole} / {language}")
        else:
            right += 1
    return right, wrong, refused


@pytest.mark.corpus
def test_parameters_equal_the_built_model() -> None:
    right, wrong, _ = counted_parameters()
    assert not wrong
    assert right >= PARAMETERS_AT_LEAST


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("table", "folder"), [("transformers_measured.csv", "configs"), ("transformers_defaults_measured.csv", "defaults"), ("derived_by_hand.csv", "configs")]
)
def test_an_estimate_says_how_far_it_may_be_off(table: str, folder: str) -> None:
    """Where a count is an estimate the built model lies in its band, and the band has a reason."""
    outside, seen = [], 0
    for r in corpus_rows(table):
        if r.get("error"):
            continue
        try:
            model = model_of(load(str(corpus_file(f"{folder}/{r['file']}"))))
        except PlannerError:
            continue
        p = parameters(model)
        assert (p.low, p.high) == (p.total, p.total) or not p.exact, r["file"]
        if p.exact:
            continue
        assert any(n.code.startswith("doubt_") for n in model.notes), r["file"]
        assert p.low <= p.total <= p.high, r["file"]
        assert p.low < p.high, r["file"]
        whole = number(r, "params_total")
        outside += [f"{r['file']}: {whole} is not in {p.low} to {p.high}"] if whole and not p.low <= whole <= p.high else []
        seen += 1
    assert not outside
    assert seen >= 1


def derived_by_hand() -> tuple[int, list[str], list[str]]:
    right, wrong, refused = 0, [], []
    for r in corpus_rows("derived_by_hand.csv"):
        try:
            foot = measure(model_at(r["file"]), None, Scenario(engine="architecture", tokens=4096, sequences=1, kv_dtype="bf16"))
        except PlannerError:
            refused.append(r["file"])
            continue
        same = foot.bytes_per_token_unbounded == number(r, "kv_bytes_per_token_bf16_uncapped") + number(r, "extra_bytes_per_token")
        right += same
        wrong += [] if same else [r["file"]]
    return right, wrong, refused


@pytest.mark.corpus
def test_configs_derived_by_hand_are_exact_or_refused() -> None:
    right, wrong, _ = derived_by_hand()
    assert not wrong
    assert right


def class_defaults() -> tuple[int, list[str], list[str]]:
    right, wrong, refused = 0, [], []
    for r in corpus_rows("transformers_defaults_measured.csv"):
        if r["error"] or number(r, "cross_layers"):
            continue
        raw = json.loads(corpus_file(f"defaults/{r['file']}").read_text())
        try:
            model = model_of(load(json.dumps(raw)))
        except PlannerError:
            refused.append(r["file"])
            continue
        foot = measure(model, None, Scenario(engine="transformers", tokens=131072, sequences=1, kv_dtype="bf16"))
        expected = number(r, "kv_bytes_per_token_bf16_uncapped") * 131072 + number(r, "const_state_bytes_native_dtype")
        expected += min(number(r, "windowed_bytes_per_token") * 131072, number(r, "windowed_bytes_capped"))
        right += foot.engine_bytes == expected
        wrong += [] if foot.engine_bytes == expected else [r["file"]]
    return right, wrong, refused


@pytest.mark.corpus
def test_class_defaults_are_exact_or_refused() -> None:
    right, wrong, _ = class_defaults()
    assert not wrong
    assert right

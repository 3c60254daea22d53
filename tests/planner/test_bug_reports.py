"""Public reports of people doing this job (kinds parsing, auth, ui): each is answered here as a planner should, or listed with the
reason why it is not yet. Reports on the hub's answers are tested in test_sources_hub.py, on uploads in test_sources.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.answers import plan_json
from planner.api import answer
from planner.capacity import plan, replan
from planner.enginelogs import read_log
from planner.errors import MissingField, NotAConfig
from planner.footprint import measure
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load, load_bytes
from tests import gguf_file as make
from tests.conftest import CONFIGS, ROOT, corpus_rows

LLAMA = json.loads((CONFIGS / "llama.json").read_text())


def kv_dtype(quantization: dict[str, Any]) -> str:
    model = read_config({**LLAMA, "quantization_config": quantization})
    return measure(model, find("H100 SXM"), Scenario(tokens=16, sequences=1)).setting.kv.name


def b022() -> None:
    assert kv_dtype({"quant_method": "compressed-tensors"}) == "bf16"


def b023() -> None:
    assert kv_dtype({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}) == "fp8"


def b025() -> None:
    assert answer("read", str(CONFIGS / "llama.json"), {})["parameters"]["total"] > 0
    assert load_bytes(json.dumps(LLAMA).encode(), "config.json").raw == LLAMA


def b092() -> None:
    p = plan(read_config(load("catalog:Llama-3.1-405B").raw), find("H100 SXM"), Scenario())
    assert not p.fits
    assert "latency_as_if" in {n["code"] for n in plan_json(p)["notes"]}  # times, but never as if it fitted


def b100() -> None:
    """Saved weight memory becomes tokens: both figures can be read."""
    p = plan(read_config(load("catalog:Llama-3.1-8B").raw), find("H100 SXM"), Scenario())
    after = replan(p, weight_dtype="int4")
    assert p.kv_tokens is not None
    assert after.kv_tokens is not None
    assert after.kv_tokens > p.kv_tokens + 50_000


def b113() -> None:
    out = answer("plan", "catalog:Llama-3.1-8B", {"kv_memory": 20 * 2**30, "gpu": "H100 SXM", "tokens": 8192})
    assert "--kv-cache-memory-bytes 21474836480" in out["launch"]["vllm"]


def b125() -> None:
    out = answer("plan", str(CONFIGS / "llama.json"), {"max_model_len": 8192, "tokens": 1024})
    assert (out["fits"], out["limited_by"]) == (False, "model")
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in n["text"] for n in out["notes"])


def b127() -> None:
    inner = json.loads((CONFIGS / "deepseek_v3.json").read_text())
    spec = read_config({"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"], "text_config": inner, "vision_config": {}})
    assert {k.kind for k, _ in spec.cache_groups()} == {"latent"}


def b135() -> None:
    for key in ("text_config", "llm_config", "language_config"):
        assert len(read_config({"model_type": "some_vlm", key: LLAMA, "vision_config": {"hidden_size": 8}}).layers) == 8
    # llava-hf files are written as differences from LlamaConfig: what they leave out equals its defaults, and each one used is a note.
    llava = read_config({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32000}})
    assert len(llava.layers) == 32
    assert "text_config.num_hidden_layers" in {n.field for n in llava.notes if n.level == "derived"}
    with pytest.raises(MissingField) as caught:  # any other model that leaves its layers out is refused
        read_config({"model_type": "some_vlm", "text_config": {"model_type": "llama", "vocab_size": 32000}})
    assert caught.value.field == "text_config.num_hidden_layers"


def b136() -> None:
    spec = read_config({"model_type": "some_vlm", "text_config": {**LLAMA, "max_position_embeddings": 262_144}})
    assert spec.max_context_tokens == 262_144
    out = answer("plan", json.dumps({k: v for k, v in LLAMA.items() if k != "max_position_embeddings"}), {})
    assert "no_context_limit" in {n["code"] for n in out["notes"]}


def b137() -> None:
    for rope in ({"rope_type": "default"}, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "new_key": 1}):
        assert read_config({**LLAMA, "rope_scaling": rope}).layers == read_config(LLAMA).layers


def b191() -> None:
    row = load("catalog:Llama-2-7B")
    assert read_config(row.raw).layers[0].attention.kv_heads == 32  # type: ignore[union-attr]
    assert row.provenance["source"]


def b013() -> None:
    """Gemma-4-12B from its GGUF: 40 windowed layers of 8 KV heads of 256, 8 full ones of one of 512, by the lists in the header."""
    windowed = [i % 6 != 5 for i in range(48)]
    metadata = {
        "general.architecture": "gemma4", "gemma4.block_count": 48, "gemma4.embedding_length": 3840, "gemma4.attention.head_count": 16,
        "gemma4.attention.head_count_kv": [8 if w else 1 for w in windowed], "gemma4.attention.key_length": 512, "gemma4.attention.value_length": 512,
        "gemma4.attention.key_length_swa": 256, "gemma4.attention.value_length_swa": 256, "gemma4.attention.sliding_window": 1024,
        "gemma4.attention.sliding_window_pattern": windowed, "gemma4.feed_forward_length": 15360, "gemma4.vocab_size": 262_144,
    }  # fmt: skip
    source = json.dumps({"model_type": "gguf", "metadata": metadata, "tensors": {}})
    found = answer("kv", source, {"tokens": 131_072, "dtype": "bf16"})["architecture_bytes"]
    assert found == 40 * 8 * 2 * 256 * 2 * 1024 + 8 * 1 * 2 * 512 * 2 * 131_072


def b227() -> None:
    """The first megabytes of a GGUF are enough, and what is no GGUF is told."""
    whole = make.of(make.llama()) + b"\0" * (5 << 20)
    assert read_config(load_bytes(whole, "model.gguf").raw).layers
    with pytest.raises(NotAConfig):
        load_bytes(b"GGUF" + b"\0" * 64, "model.gguf")


def b033() -> None:
    """OPT-125M on a card of 24 GB: the pool takes whatever the fraction gives; the smallest fraction for 2,048 tokens is told."""
    raw = {"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
           "vocab_size": 50_272, "word_embed_proj_dim": 768, "max_position_embeddings": 2048, "torch_dtype": "float16"}  # fmt: skip
    options = {"gpu": "RTX 4090", "tokens": 2048, "sequences": 1, "max_num_seqs": 1, "backwards": True}
    out = answer("plan", json.dumps(raw), options)
    least = out["backwards"]
    assert out["kv_pool_bytes"] > 15 * 2**30
    assert least["smallest_memory_fraction"] < 0.2
    assert least["smallest_kv_memory"] == 129 * 16 * 12 * 2 * 768 * 2


def b073() -> None:
    """SGLang: the pool is what it prints as max_total_num_tokens, and the fraction moves it."""
    small, large = (answer("plan", "catalog:Llama-3.1-8B", {"engine": "sglang", "gpu": "H100 SXM", "memory_fraction": f}) for f in (0.7, 0.8))
    for out in (small, large):
        assert out["printed"]["max_total_num_tokens"] * 131_072 <= out["kv_pool_bytes"]
    more = large["printed"]["max_total_num_tokens"] - small["printed"]["max_total_num_tokens"]
    assert more * 131_072 == pytest.approx(0.1 * find("H100 SXM").memory_bytes, rel=0.05)


def b198() -> None:
    """TensorRT-LLM's iteration stats are read as a log: blocks of the primary pool and tokens of each."""
    read = read_log(b'{"iter": 1, "kvCacheStats": {"maxNumBlocks": 7240, "tokensPerBlock": 64, "freeNumBlocks": 7000}}')
    assert read.engine == "trtllm"
    assert {f.name: f.value for f in read.figures} == {"num_blocks": 7240, "block_size": 64}


ANSWERED: dict[str, Callable[[], None]] = {
    "B013": b013, "B022": b022, "B023": b023, "B025": b025, "B092": b092, "B100": b100, "B113": b113, "B125": b125, "B127": b127, "B135": b135, "B136": b136,
    "B137": b137, "B138": b137, "B161": b113, "B191": b191, "B227": b227, "B033": b033, "B034": b033,
    "B073": b073, "B198": b198,
}  # fmt: skip
ELSEWHERE = {  # tested against the fake hub
    "B129": "test_sources_hub.py", "B131": "test_sources_hub.py", "B132": "test_sources_hub.py", "B133": "test_sources_hub.py",
}  # fmt: skip
NOT_YET = {
    "B102": "a version of another tool; no tool is named to the user here",
    "B117": "whether scales lie in the checkpoint decides accuracy, no size; the config says nothing of them",
}


@pytest.mark.parametrize("report", sorted(ANSWERED))
def test_answered(report: str) -> None:
    ANSWERED[report]()


# Of these, what a user does on a page: tested there with the real widgets.
ON_PAGES = {
    "B025": ("test_models.py", "test_an_upload_becomes_the_model_and_can_be_left"),
    "B033": ("test_plan.py", "test_the_smallest_memory_is_found_and_taken"),
    "B034": ("test_plan.py", "test_the_smallest_memory_is_found_and_taken"),
    "B092": ("test_serve.py", "test_a_plan_that_does_not_fit_has_times_only_as_if"),
    "B100": ("test_compare_page.py", "test_it_starts_with_the_plan_and_an_instructive_copy"),
    "B113": ("test_plan.py", "test_each_input_changes_the_headline"),
    "B161": ("test_plan.py", "test_each_input_changes_the_headline"),
    "B198": ("test_reconcile.py", "test_iteration_stats_of_trtllm_are_read"),
    "B227": ("test_models.py", "test_the_beginning_of_a_gguf_is_a_model"),
}


@pytest.mark.parametrize("report", ON_PAGES)
def test_what_is_done_on_a_page_is_tested_there(report: str) -> None:
    file, name = ON_PAGES[report]
    assert f"def {name}(" in (ROOT / "tests" / "pages" / file).read_text()


@pytest.mark.corpus
def test_every_report_of_these_kinds_is_answered_or_listed() -> None:
    wanted = {r["id"] for r in corpus_rows("bug_reports.csv") if r["kind"] in ("parsing", "auth", "ui")}
    assert wanted == set(ANSWERED) | set(ELSEWHERE) | set(NOT_YET)

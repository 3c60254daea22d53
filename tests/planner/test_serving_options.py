"""What a request brings along beside its tokens: images, adapters, a draft model, host memory for its blocks. By hand, and refused by name."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from planner.answers import plan_json
from planner.api import answer
from planner.capacity import CapacityPlan, plan, replan
from planner.draft import attach
from planner.engines.options import ONLY, for_engine
from planner.errors import PlannerError
from planner.footprint import measure
from planner.hardware import find
from planner.knobs import KNOBS, turned
from planner.launch import launch
from planner.model import ModelSpec
from planner.readers import read_config
from planner.remedies import remedies
from planner.scenario import ENGINE_NAMES, OPTIONS, Scenario
from planner.sources import Loaded, load
from tests.conftest import small_configs

SMALL = dict(small_configs())
LLAMA = 131_072  # bytes of a token of Llama-3.1-8B


def catalog(name: str) -> ModelSpec:
    return read_config(load(f"catalog:{name}").raw, name)


def opened(name: str) -> Loaded:
    return load(f"catalog:{name}", allow_paths=False)


def planned(name: str = "Llama-3.1-8B", model: ModelSpec | None = None, **options: Any) -> CapacityPlan:
    s = Scenario(**{"tokens": 1024, "sequences": 2, "max_model_len": 8192, **options})
    joined, s = attach(model or catalog(name), s, {}, opened)
    return plan(joined, find(s.gpu), s)


def refused(**options: Any) -> tuple[str, str]:
    with pytest.raises(PlannerError) as e:
        planned(**options)
    assert e.value.message
    assert e.value.hint
    return e.value.code, e.value.field


def line(p: CapacityPlan, code: str) -> int:
    return sum(x.bytes for x in p.ledgers[0] if x.code == code)


# -- engines without an option refuse it -----------------------------------------------------------------------------------


VALUES: dict[str, Any] = {
    "window_pools": True, "cross_kv_cache_fraction": 0.5, "cache_implementation": "static", "cache_backend": "hqq", "cache_nbits": 2,
    "cache_residual": 64, "samples": 2, "beams": 2, "kv_offload": 2**36, "max_loras": 2, "max_lora_rank": 8, "draft": "Llama-3.2-1B",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ONLY))
def test_an_engine_without_an_option_refuses_it_by_name(name: str) -> None:
    assert set(VALUES) == set(ONLY) <= set(OPTIONS)
    model = catalog("Llama-3.1-8B")
    for engine in ENGINE_NAMES:
        if engine not in ONLY[name]:
            with pytest.raises(PlannerError) as e:
                measure(model, None, Scenario(engine=engine, tokens=64, **{name: VALUES[name]}))
            assert (e.value.code, e.value.field) == ("option_not_in_engine", name)
            assert getattr(for_engine(Scenario(**{name: VALUES[name]}), engine), name) == getattr(Scenario(), name)


# -- images ------------------------------------------------------------------------------------------------------------------


def test_images_lengthen_the_prompt_and_are_planned_once() -> None:
    """Gemma 3: 256 tokens an image; the scenario that was planned holds them, the one that was asked for its images."""
    p = planned("Gemma-3-27B", gpus=2, images=3, prompt=1000, output=24)
    assert (p.scenario.tokens, p.scenario.prompt, p.scenario.images) == (1024 + 768, 1768, 0)
    plain = planned("Gemma-3-27B", gpus=2, tokens=1792, prompt=1768, output=24)
    assert replan(p).footprint.engine_bytes == p.footprint.engine_bytes == plain.footprint.engine_bytes
    assert sum(n.code == "images_added" for n in p.notes) == 1
    assert (p.asked.tokens, p.asked.prompt, p.asked.images) == (1024, 1000, 3)
    assert plan(p.model, p.hardware, p.asked) == p


@pytest.mark.parametrize("tokens", [4096, 100_000, 200])
def test_what_a_remedy_or_a_knob_changes_is_taken_over_with_the_images_there(tokens: int) -> None:
    """Their lengths are those asked for, without the images' tokens; one too short for the images does without them."""
    p = planned("Gemma-3-27B", gpus=1, gpu="RTX 4090", kv_memory=2**30, images=3, tokens=tokens, prompt=tokens - 100, output=100, sequences=64)
    assert not p.fits
    found = [(dict(r.changes), r.after) for r in remedies(p)] + [(dict(t.changes), t.plan) for t in turned(p, [code for code, _, _ in KNOBS]) if t.changes]
    assert any("tokens" in changes for changes, _ in found)
    for changes, after in found:
        again = plan(p.model, after.hardware, replace(p.asked, **changes))
        assert again.scenario == after.scenario
        assert (again.fits, again.shortfall_bytes, again.max_sequences) == (after.fits, after.shortfall_bytes, after.max_sequences)


@pytest.mark.parametrize(
    ("raw", "each"),
    [
        ({**SMALL["llava"], "image_seq_length": 576, "vision_config": {}}, 576),
        ({**SMALL["llava"], "image_seq_length": None, "vision_config": {"image_size": 336, "patch_size": 14}}, 576),
        ({**SMALL["llava"], "image_seq_length": None, "vision_config": {"image_size": 336, "patch_size": 14}, "vision_feature_select_strategy": "full"}, 577),
        ({**SMALL["llava"], "image_seq_length": None, "vision_config": {"image_size": 337, "patch_size": 14}}, 0),
        ({**SMALL["gemma3"], "mm_tokens_per_image": 64, "vision_config": {}}, 64),
        ({**SMALL["llava"], "image_seq_length": True, "vision_config": {"image_size": "big", "patch_size": [14]}}, 0),
        (SMALL["llama"], None),
    ],
)
def test_tokens_of_an_image(raw: dict[str, Any], each: int | None) -> None:
    assert read_config(raw, "m").server.image_tokens == each


def test_images_that_cannot_be_counted_are_refused() -> None:
    assert refused(images=1) == ("no_images", "images")
    raw = {**SMALL["qwen3_vl"]}
    raw.setdefault("vision_config", {"patch_size": 16})
    assert refused(model=read_config(raw, "m"), images=1, tokens=64, max_model_len=None) == ("image_tokens_vary", "images")


# -- host memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "block"), [("vllm", 16), ("sglang", 1), ("trtllm", 32)])
def test_the_host_tier_in_tokens(engine: str, block: int) -> None:
    size = 64 * 2**30 + block * LLAMA - 1  # one byte less than another block
    tier = planned(engine=engine, kv_offload=size).footprint.offload
    assert tier is not None
    assert (tier.tokens, tier.blocks, tier.sequences) == (524_288, 524_288 // block, 512)
    two = planned(engine=engine, kv_offload=size, gpus=2, tp=2).footprint.offload
    assert two is not None
    assert two.tokens == (size // (block * LLAMA // 2)) * block
    assert planned(engine=engine).footprint.offload is None


@pytest.mark.parametrize("name", ["Gemma-3-27B", "Qwen3-Next-80B-A3B"])
def test_several_pools_or_groups_have_no_tier_here(name: str) -> None:
    assert refused(name=name, gpus=4, kv_offload=2**36) == ("offload_one_pool", "kv_offload")


# -- adapters ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        # rank x (in + out) of q, k, v, o, gate, up, down: 1,310,720 values of a layer at rank 16
        ({}, 32 * 1_310_720),
        # two ranks: A of q, k, v, gate, up and B of o, down are whole
        ({"tp": 2, "gpus": 2}, 32 * 16 * ((4096 + 2048) + 2 * (4096 + 512) + (2048 + 4096) + 2 * (4096 + 7168) + (7168 + 4096))),
    ],
)
def test_lora_slots_by_hand(options: dict[str, Any], layers: int) -> None:
    p, without = planned(max_loras=4, **options), planned(**options)
    outer = 16 * 2 * (128_256 + 4096)
    assert line(p, "lora") == 4 * 2 * (layers + outer)
    assert without.kv_pool_bytes - p.kv_pool_bytes == line(p, "lora")
    found = next(x for x in p.ledgers[0] if x.code == "lora")
    assert (found.kind, found.low_bytes) == ("assumed", 4 * 2 * layers)
    assert all(i["holds"] for i in plan_json(p)["identities"])


def test_slots_that_are_not_known_are_refused() -> None:
    assert refused(max_loras=1, max_lora_rank=20) == ("lora_rank", "max_lora_rank")
    assert refused(name="Mixtral-8x7B", gpus=4, max_loras=1) == ("lora_layers", "max_loras")
    assert refused(name="DeepSeek-V2-Lite", max_loras=1) == ("lora_layers", "max_loras")


# -- a draft model -----------------------------------------------------------------------------------------------------------


def test_a_draft_stands_in_the_pool_and_beside_the_weights() -> None:
    """Llama-3.2-1B beside Llama-3.1-8B: 16 layers of 8 heads of 64, so a block of 16 tokens has half as many bytes more again."""
    p, alone = planned(draft="Llama-3.2-1B", num_speculative_tokens=3), planned()
    assert alone.bytes_per_block == 16 * LLAMA
    assert p.bytes_per_block == 16 * (LLAMA + 16 * 2 * 8 * 64 * 2)
    one_b = read_config(load("catalog:Llama-3.2-1B").raw, "d")
    size = sum(w.elements for w in (*one_b.weights, *(w for layer in one_b.layers for w in layer.weights))) * 2
    assert line(p, "weights") - line(alone, "weights") == size
    assert "draft_model" in {n.code for n in p.notes}
    assert all(i["holds"] for i in plan_json(p)["identities"])


def test_stored_bytes_are_those_of_both() -> None:
    provenance = {"safetensors_parameters": {"BF16": 8_030_261_248}}
    s = Scenario(draft="Llama-3.2-1B", num_speculative_tokens=1)
    _, chosen = attach(catalog("Llama-3.1-8B"), s, provenance, opened)
    assert chosen.weight_bytes == 2 * 8_030_261_248 + 2 * 1_235_814_400
    _, given = attach(catalog("Llama-3.1-8B"), Scenario(draft="Llama-3.2-1B", num_speculative_tokens=1, weight_bytes=7), provenance, opened)
    assert given.weight_bytes == 7


def test_drafts_that_cannot_run_are_refused() -> None:
    assert refused(draft="Llama-3.2-1B") == ("draft_needs_tokens", "num_speculative_tokens")
    assert refused(draft="Llama-3.2-1B", num_speculative_tokens=1, pp=2, gpus=2) == ("draft_one_stage", "pp")
    with pytest.raises(PlannerError) as e:
        plan(catalog("Llama-3.1-8B"), find("H100 SXM"), Scenario(draft="Llama-3.2-1B", num_speculative_tokens=1))
    assert (e.value.code, e.value.field) == ("draft_not_loaded", "draft")
    with pytest.raises(PlannerError):
        answer("plan", "catalog:Llama-3.1-8B", {"draft": "no such; model", "num_speculative_tokens": 1}, allow_paths=False)


def test_the_command_line_reads_the_draft() -> None:
    out = answer("kv", "catalog:Llama-3.1-8B", {"tokens": 100, "draft": "Llama-3.2-1B", "num_speculative_tokens": 2})
    assert out["engine_bytes"] == 100 * (LLAMA + 16 * 2 * 8 * 64 * 2)


# -- launch lines ------------------------------------------------------------------------------------------------------------


def words(p: CapacityPlan) -> list[str]:
    return shlex.split(next(iter(launch(p, "m").values())))


def after(p: CapacityPlan, flag: str) -> str:
    found = words(p)
    return found[found.index(flag) + 1]


def test_launch_lines_carry_them() -> None:
    p = planned(max_loras=4, max_lora_rank=32, kv_offload=2**36, gpus=2, tp=2, draft="Llama-3.2-1B", num_speculative_tokens=2)
    assert "--enable-lora" in words(p)
    assert (after(p, "--max-loras"), after(p, "--max-lora-rank"), after(p, "--kv-offloading-size")) == ("4", "32", "128.0")  # of both ranks
    assert json.loads(after(p, "--speculative-config")) == {"model": "Llama-3.2-1B", "num_speculative_tokens": 2}
    assert after(planned(engine="sglang", kv_offload=64 * 10**9), "--hicache-size") == "64"
    options = json.loads(words(planned(engine="trtllm", kv_offload=2**36, beams=4, prompt=1000, output=24))[2])
    assert (options["kv_cache_config"]["host_cache_size"], options["max_beam_width"]) == (2**36, 4)


def test_a_hostile_draft_name_stays_one_word() -> None:
    evil = "Llama-3.2-1B'; $(id) #"
    s = Scenario(tokens=1024, sequences=2, max_model_len=8192, draft=evil, num_speculative_tokens=1)
    joined, s = attach(catalog("Llama-3.1-8B"), s, {}, lambda _: opened("Llama-3.2-1B"))
    assert json.loads(after(plan(joined, find("H100 SXM"), s), "--speculative-config"))["model"] == evil


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
@pytest.mark.parametrize("evil", ["a b", "$(rm -rf ~)", "x; id", "`id`", "'\"\\", "-rf", "a\nb", "\u202etxt"])
def test_hostile_model_names_stay_one_word(engine: str, evil: str) -> None:
    found = shlex.split(launch(planned(engine=engine), evil)[engine])
    assert sum(word in (evil, evil + ".gguf") for word in found) == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_only_a_plan_that_fits_has_a_line(engine: str) -> None:
    assert launch(planned(engine=engine), "m").keys() == {engine}
    assert launch(planned(engine=engine, kv_memory=2**20, max_model_len=None), "m") == {}

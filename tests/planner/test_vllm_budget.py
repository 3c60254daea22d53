"""What comes off before vLLM's pool: each term worked out by hand, each release's rule turned, what others hold by each engine's own rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.api import answer
from planner.backwards import smallest
from planner.capacity import CapacityPlan, plan
from planner.engines.settings import LedgerLine
from planner.engines.vllm import activation, overhead
from planner.engines.vllm.versions import runner
from planner.hardware import find
from planner.launch import launch
from planner.readers import read_config
from planner.readers.vision import vision_part
from planner.remedies import remedies
from planner.scenario import Scenario, from_options
from planner.sources import load
from planner.units import GIB, MIB
from tests.budget_configs import GRANITE_VISION, KIMI_VL, MISTRAL_SMALL

H100 = {"gpu": "H100 SXM", "max_model_len": 8192, "tokens": 8192, "sequences": 1, "memory_fraction": 0.95}


def planned(name: str, raw: dict[str, Any] | None = None, **options: Any) -> CapacityPlan:
    s = Scenario(**H100 | options)
    return plan(read_config(raw or load(f"catalog:{name}").raw, name), find(s.gpu), s)


def line(p: CapacityPlan, code: str) -> LedgerLine:
    return next(found for found in p.ledgers[p.binding_rank] if found.code == code)


def codes(p: CapacityPlan) -> list[str]:
    return [found.code for found in p.ledgers[p.binding_rank]]


# -- the peak ----------------------------------------------------------------------------------------------------------

T, S = 8192, 1024  # the API server's defaults on an H100


def test_the_sampler_binds_for_large_vocabularies() -> None:
    """Qwen3-8B, 0.19: 14 bytes for each of 1,024 x 151,936 logits, 132 rows of the filter's buffer, hidden states of 8,192 x 4,096."""
    p = planned("Qwen3-8B", engine_version="0.19.0")
    assert line(p, "activation").bytes == 14 * S * 151_936 + 132 * 151_936 * 4 + 2 * T * 4096 + 46 * MIB


@pytest.mark.parametrize(("version", "each", "rows"), [("0.15.0", 38, 0), ("0.17.0", 14, 132), ("0.20.0", 14, 132), ("0.21.0", 14, 0)])
def test_filters_by_release(version: str, each: int, rows: int) -> None:
    p = planned("Qwen2.5-7B", engine_version=version)
    assert line(p, "activation").bytes == each * S * 152_064 + rows * 152_064 * 4 + 2 * T * 3584 + 46 * MIB


def test_the_forward_pass_binds_for_small_vocabularies() -> None:
    """Llama-2-7B: gate, up and product of 11,008, four hidden states."""
    p = planned("Llama-2-7B", engine_version="0.19.0", max_model_len=4096, tokens=4096)
    assert line(p, "activation").bytes == 2 * T * (3 * 11_008 + 3 * 4096) + 2 * T * 4096 + 46 * MIB


def test_experts_keep_a_workspace() -> None:
    """Qwen3-30B-A3B: 8,192 tokens x 8 experts x (2,048 + 2,048) x 2 bytes; two ranks do not shrink it, since the hidden width is the larger."""
    p = planned("Qwen3-30B-A3B", engine_version="0.19.0")
    m = next(layer.mlp for layer in p.model.layers if layer.mlp)
    assert activation.experts_workspace(m, p.model, p.setting, T) == T * 8 * (2048 + 2048) * 2 == GIB // 2
    dense = 14 * S * 151_936 + 132 * 151_936 * 4 + 2 * T * 2048 + 46 * MIB
    assert line(p, "activation").bytes == dense + GIB // 2
    assert line(planned("Qwen3-30B-A3B", engine_version="0.11.0"), "activation").bytes == 38 * S * 151_936 + 2 * T * 2048 + 46 * MIB  # not kept then


def test_mixtral_on_two_ranks() -> None:
    """1.21 GiB by a log: the forward pass has no dense layer, the workspace is of half of 14,336."""
    p = planned("Mixtral-8x7B", engine_version="0.19.0", gpus=2, tp=2)
    assert line(p, "activation").bytes / GIB == pytest.approx(1.21, abs=0.02)


def test_gpt_oss_needs_no_workspace_on_hopper() -> None:
    hopper, ampere = (planned("gpt-oss-20b", engine_version="0.19.0", gpu=g, max_num_batched_tokens=T, max_num_seqs=S) for g in ("H100 SXM", "A100 SXM 80GB"))
    assert line(hopper, "activation").bytes / GIB == pytest.approx(2.87, abs=0.01)
    assert line(ampere, "activation").bytes > line(hopper, "activation").bytes


def test_a_pipeline_keeps_what_comes_in() -> None:
    """Llama-3.1-8B on two stages: 2.01 GiB by a log, 1.89 alone; non-torch 0.07."""
    one, two = planned("Llama-3.1-8B", engine_version="0.19.0"), planned("Llama-3.1-8B", engine_version="0.19.0", gpus=2, tp=1, pp=2)
    assert line(two, "activation").bytes - line(one, "activation").bytes == 2 * 2 * T * 4096
    assert line(two, "non_torch").bytes / GIB == pytest.approx(0.07, abs=0.005)


def test_small_devices_profile_smaller_batches() -> None:
    p = planned("Llama-3.1-8B", gpu="RTX 4090", engine_version="0.21.0")
    assert activation.batch(p.setting) == (2048, 256)
    assert line(p, "activation").bytes == 14 * 256 * 128_256 + 2 * 2048 * 4096 + 22 * MIB
    assert line(p, "activation").bytes < line(planned("Llama-3.1-8B", engine_version="0.21.0"), "activation").bytes


def test_runner_2_by_release_and_family() -> None:
    llama, experts = planned("Llama-3.1-8B").model, planned("Qwen3-30B-A3B").model
    assert [runner(llama, v)[0] for v in ("0.22.0", "0.23.0", "0.25.0", None)] == [1, 2, 2, 2]
    assert [runner(experts, v)[0] for v in ("0.25.0", "0.28.0", "0.29.0", None)] == [1, 1, 2, 2]
    assert runner(llama, "0.27.0") == (2, False, False)  # no estimate of graphs, no filter
    assert runner(llama, "0.33.0") == (2, True, True)


def test_runner_2_keeps_counts_of_tokens() -> None:
    p = planned("Llama-3.1-8B")
    assert line(p, "sampler_state").bytes == 1024 * (4 * 128_256 + 4 * 4008)
    early = planned("Llama-3.1-8B", engine_version="0.23.0")
    assert codes(early).index("sampler_state") < codes(early).index("weights")  # out of the share: not measured then
    assert "sampler_state" not in codes(planned("Llama-3.1-8B", engine_version="0.21.0"))


# -- weights and their neighbours --------------------------------------------------------------------------------------


def test_tables_stand_beside_the_weights() -> None:
    """Llama-3.1-8B: "model loading took 14.9889 GiB", 131,072 x 128 angles in bf16 beside the 14.9577 of the file."""
    p = planned("Llama-3.1-8B", engine_version="0.17.0")
    assert line(p, "weights_beside").bytes == 131_072 * 128 * 2
    assert (line(p, "weights").bytes + line(p, "weights_beside").bytes) / GIB == pytest.approx(14.9889, abs=0.0005)


def test_a_linear_scaling_lengthens_the_table() -> None:
    """Gemma-3-27B: 8 x 131,072 positions x 128 x 2 bytes for full layers, 131,072 for windowed ones. Llama's own scaling does not."""
    p = planned("Gemma-3-27B", engine_version="0.17.0")
    assert p.model.server.rope_factor == 8
    assert line(p, "weights_beside").bytes == (8 + 1) * 131_072 * 128 * 2
    assert planned("Llama-3.1-8B").model.server.rope_factor == 1
    for bad in ({"rope_type": "linear", "factor": "x"}, {"type": "linear", "factor": float("inf")}, {"full_attention": 3}, [], {"rope_type": "linear"}):
        raw = load("catalog:Llama-3.1-8B").raw | {"rope_scaling": bad}
        assert read_config(raw, "x").server.rope_factor == 1


def test_a_latent_is_kept_by_heads_too() -> None:
    """DeepSeek-V2-Lite, 27 layers: 512 x 16 x (128 + 128) x 2 bytes each; half of it on two ranks."""
    found = [line(planned("DeepSeek-V2-Lite", engine_version="0.17.0", gpus=n, tp=n), "weights_beside").bytes for n in (1, 2)]
    assert found[0] - found[1] == 27 * 512 * 8 * 256 * 2


@pytest.mark.parametrize(("gpu", "gib"), [("H100 SXM", 13.47), ("A100 SXM 80GB", 13.72)])
def test_mxfp4_experts_are_padded(gpu: str, gib: float) -> None:
    """gpt-oss-20b by logs of two devices: 2,880 becomes 3,072, and 2,944 for the other width where Marlin runs it."""
    p = planned("gpt-oss-20b", engine_version="0.17.0", gpu=gpu)
    assert (line(p, "weights").bytes + line(p, "weights_beside").bytes) / GIB == pytest.approx(gib, abs=0.04)


@pytest.mark.parametrize(("raw", "took"), [(MISTRAL_SMALL, 44.76), (GRANITE_VISION, 5.54), (KIMI_VL, 30.95)])
def test_the_vision_part_is_counted(raw: dict[str, Any], took: float) -> None:
    """ "Model loading took" of logs (Kimi-VL's on two ranks, doubled less its buffers)."""
    p = planned("vision", raw, engine_version="0.19.0")
    assert sum(line(p, code).bytes for code in ("weights", "weights_beside", "weights_vision")) / GIB == pytest.approx(took, rel=0.01)


def test_towers_by_hand() -> None:
    """Mistral's: 24 gated blocks of 1,024 and 4,096, patches of 14, a merger of 2 x 2 and a projection to 5,120."""
    part = vision_part(MISTRAL_SMALL, 5120)
    assert part is not None
    block = 4 * 1024**2 + 3 * 1024 * 4096 + 9 * 1024 + 4096
    assert part.parameters == 24 * block + 3 * 14**2 * 1024 + 110**2 * 1024 + 4096 * 4096 + 4096 * 5120
    assert part.pixels_per_token == 28 * 28


@pytest.mark.parametrize(
    "section",
    [{}, {"hidden_size": True}, {"num_hidden_layers": 10**12, "hidden_size": 8, "patch_size": 1}, {"depth": 2, "embed_dim": 8, "mlp_ratio": float("nan")},
     {"merge_kernel_size": "xx"}, {"patch_size": -1}, {"merge_kernel_size": []}],
)  # fmt: skip
def test_towers_that_say_too_little_are_not_guessed(section: dict[str, Any]) -> None:
    part = vision_part({"vision_config": section, "downsample_ratio": 0.0}, 64)
    assert part is not None
    assert part.parameters is None
    p = planned("Llama-3.1-8B", {**MISTRAL_SMALL, "vision_config": section}, engine_version="0.19.0")
    unknown = line(p, "weights_vision")
    assert (unknown.bytes, unknown.high_bytes) == (0, 2 * GIB)


def test_no_tower_where_there_is_none() -> None:
    assert vision_part({"vision_config": "x"}, 8) is None
    assert vision_part({"vision_config": {"depth": 1}, "language_model_only": True}, 8) is None
    assert "weights_vision" not in codes(planned("Llama-3.1-8B"))
    assert "weights_vision" not in codes(planned("v", MISTRAL_SMALL, weight_bytes=48_000_000_000))


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_graphs_inside_the_share_since_0_20() -> None:
    before, after = (planned("Qwen3-8B", engine_version=v) for v in ("0.19.0", "0.20.0"))
    assert before.kv_pool_bytes - after.kv_pool_bytes == line(after, "cuda_graphs").bytes == line(before, "cuda_graphs_after").bytes
    assert "cuda_graphs" not in codes(before)


@pytest.mark.parametrize(("name", "sequences", "ranks", "gib"), [("Qwen3-8B", 1024, 1, 0.96), ("Llama-3.1-8B", 256, 4, 0.62), ("Llama-3.1-8B", 128, 4, 0.44)])
def test_graphs_by_logs(name: str, sequences: int, ranks: int, gib: float) -> None:
    p = planned(name, engine_version="0.21.0", max_num_seqs=sequences, gpus=ranks, tp=ranks)
    assert line(p, "cuda_graphs").bytes / GIB == pytest.approx(gib, rel=0.2)


def test_eager_has_no_graphs() -> None:
    p, eager = planned("Qwen3-8B"), planned("Qwen3-8B", enforce_eager=True)
    assert eager.kv_pool_bytes - p.kv_pool_bytes == line(p, "cuda_graphs").bytes
    assert "--enforce-eager" in launch(eager, "m")["vllm"]
    assert "--enforce-eager" not in launch(p, "m")["vllm"]


def test_graphs_beyond_what_lies_outside_are_said() -> None:
    crowded, roomy = (planned("Qwen3-8B", engine_version="0.19.0", memory_fraction=f) for f in (0.985, 0.90))
    assert [any(n.code == "graphs_beyond_share" for n in p.notes) for p in (crowded, roomy)] == [True, False]


# -- what others hold --------------------------------------------------------------------------------------------------


def test_vllm_refuses_a_share_that_is_not_free() -> None:
    """79.19 GiB seen, 0.9 asked: 71.271 must be free; 10 GiB held and 0.3 of context leave 68.89."""
    p = planned("Llama-3.1-8B", memory_fraction=0.9, used_memory_bytes=10 * GIB)
    assert (p.fits, p.limited_by) == (False, "free")
    assert p.shortfall_bytes / GIB == pytest.approx(71.271 - 68.89, abs=0.001)
    lower = next(r for r in remedies(p) if r.code == "lower_fraction")
    assert lower.after.setting.memory_fraction == 0.86
    assert planned("Llama-3.1-8B", memory_fraction=0.9, used_memory_bytes=7 * GIB).fits


def test_vllm_does_not_charge_others_to_the_pool_since_0_9_1() -> None:
    held = {"used_memory_bytes": 6 * GIB, "memory_fraction": 0.9}
    for version, charged in (("0.9.2", 0), ("0.8.5", 6 * GIB)):
        alone, beside = planned("Llama-3.1-8B", engine_version=version, memory_fraction=0.9), planned("Llama-3.1-8B", engine_version=version, **held)
        assert alone.kv_pool_bytes - beside.kv_pool_bytes == charged


@pytest.mark.parametrize(("engine", "share"), [("sglang", 0.5), ("llamacpp", 1.0), ("transformers", 1.0)])
def test_other_engines_count_from_what_is_free(engine: str, share: float) -> None:
    one = {"engine": engine, "memory_fraction": 0.5 if engine == "sglang" else None}
    alone, beside = planned("Llama-3.1-8B", **one), planned("Llama-3.1-8B", **one, used_memory_bytes=8 * GIB)
    assert alone.kv_pool_bytes - beside.kv_pool_bytes == pytest.approx(8 * GIB * share, abs=2)
    assert line(beside, "used_memory").bytes == 8 * GIB


@pytest.mark.parametrize("engine", ["architecture", "vllm", "sglang", "trtllm", "llamacpp", "transformers"])
def test_no_engine_overlooks_it_and_lines_sum(engine: str) -> None:
    p = planned("Llama-3.1-8B", engine=engine, used_memory_bytes=3 * GIB, memory_fraction=0.9 if engine in ("vllm", "sglang", "trtllm") else None)
    assert line(p, "used_memory").bytes == 3 * GIB
    assert p.hardware is not None
    assert sum(found.bytes for found in p.ledgers[0]) == p.hardware.memory_bytes


def test_the_option_by_all_names() -> None:
    assert from_options({"used-memory": "3GiB"}) == from_options({"used_memory_bytes": 3 * GIB}) == Scenario(used_memory_bytes=3 * GIB)
    assert from_options(Scenario(used_memory_bytes=5).to_query()) == Scenario(used_memory_bytes=5)
    out = answer("plan", "catalog:Llama-3.1-8B", {"used_memory": "3GiB"})
    assert any(found["code"] == "used_memory" for found in out["rank_ledgers"][0])


def test_the_smallest_fraction_is_one_that_is_free() -> None:
    """40 GiB held: 0.3 and something holds the load and is free; with 75 held none is."""
    p = planned("Llama-3.1-8B", used_memory_bytes=40 * GIB)
    found = smallest(p).memory_fraction
    assert found is not None
    assert planned("Llama-3.1-8B", used_memory_bytes=40 * GIB, memory_fraction=found).fits
    assert not planned("Llama-3.1-8B", used_memory_bytes=40 * GIB, memory_fraction=found - 0.0002).fits
    assert smallest(planned("Llama-3.1-8B", used_memory_bytes=75 * GIB)).memory_fraction is None


# -- bands and defaults ------------------------------------------------------------------------------------------------


def test_every_line_that_is_not_exact_has_a_band_around_it() -> None:
    for version in ("0.8.5", "0.11.0", "0.17.0", "0.19.0", "0.25.0", None):
        for ranks in (1, 2, 8):
            for found in planned("Llama-3.1-70B", engine_version=version, gpus=ranks, tp=ranks).ledgers[0]:
                assert found.kind == "derived" or found.code in ("driver_gap", "weights") or found.low_bytes is not None
                assert found.low_bytes is None or found.high_bytes is None or found.low_bytes <= found.bytes <= found.high_bytes, found


@pytest.mark.parametrize(
    ("gpu", "version", "batched", "sequences"),
    [("B200 SXM", "0.27.0", 8192, 1024), ("B200 SXM", "0.28.0", 16384, 1024), ("A100 SXM 80GB", "0.8.5", 8192, 1024), ("A100 SXM 80GB", "0.9.0", 2048, 256),
     ("DGX Spark GB10", "0.31.0", 8192, 1024), ("DGX Spark GB10", "0.33.0", 2048, 256), ("L4", "0.8.5", 2048, 256)],
)  # fmt: skip
def test_defaults_by_release_and_device(gpu: str, version: str, batched: int, sequences: int) -> None:
    s = planned("Llama-3.1-8B", gpu=gpu, engine_version=version).setting
    assert (s.max_num_batched_tokens, s.max_num_seqs) == (batched, sequences)


def test_non_torch_by_device() -> None:
    """The fused all-reduce is that of NVLink devices: four L4 hold little."""
    large, small = (line(planned("Llama-3.1-8B", engine_version="0.22.0", gpu=g, gpus=4, tp=4), "non_torch").bytes / GIB for g in ("H100 SXM", "L4"))
    assert large == pytest.approx(2.19, abs=0.01)
    assert small < 0.5


def test_hostile_files_take_no_time() -> None:
    raw = json.loads(json.dumps(MISTRAL_SMALL))
    raw["vision_config"] = {"hidden_size": 10**6, "num_hidden_layers": 10**4, "intermediate_size": 10**6, "patch_size": 10**6, "image_size": 10**9}
    assert planned("big", raw).limited_by in ("weights", "start", None)
    assert overhead.graph_sizes(1) == (3, 1)

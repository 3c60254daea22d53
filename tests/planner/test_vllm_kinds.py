"""What vLLM 0.33's planner makes of every kind of cache: executed goldens on hand-built layers, and each rule on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cache import Cross, Kind, Rows, State, StateTensor
from planner.capacity import CapacityPlan, plan
from planner.dtypes import DTYPES
from planner.errors import PlannerError
from planner.hardware import find
from planner.model import Attention, LayerSpec, ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario
from tests.planner.test_drafts import config

FORTY_GIB = 40 * 2**30


def rows(heads: int, k: int, v: int | None = None, **more: Any) -> Rows:
    return Rows(heads=heads, k_dim=k, v_dim=k if v is None else v, **more)


def latent(dim: int, **more: Any) -> Rows:
    return Rows(heads=1, k_dim=dim, v_dim=0, shard="copy", **more)


def mla() -> Attention:
    return Attention(q_heads=128, kv_heads=128, qk_dim=192, v_dim=128, kv_rank=512, nope_dim=128, rope_dim=64)


def model(layers: list[tuple[Kind, ...]], attention: Attention | None = None, context: int = 10_000_000, **more: Any) -> ModelSpec:
    made = tuple(LayerSpec(caches=caches, attention=attention) for caches in layers)
    return ModelSpec(name="made", model_type="made", architecture="", hidden_size=1024, vocab_size=1000, max_context_tokens=context, layers=made, weights=(),
                     dtype=DTYPES["bf16"], tied_embeddings=False, **more)  # fmt: skip


def planned(m: ModelSpec, **options: Any) -> CapacityPlan:
    s = Scenario(**{"kv_memory": FORTY_GIB, "sequences": 1, "tokens": 256, "max_num_batched_tokens": 8192, **options})
    return plan(m, find(s.gpu), s)


def every(period: int, number: int, full: Rows, near: Rows) -> list[tuple[Kind, ...]]:
    return [(full if (i + 1) % period == 0 else near,) for i in range(number)]


GEMMA_3N = every(5, 20, rows(2, 256), rows(2, 256, window=512))
GEMMA_4_31B = every(6, 60, rows(4, 512), rows(16, 256, window=1024))
GEMMA_4_26B = every(6, 30, rows(2, 512), rows(8, 256, window=1024))
GPT_OSS = [(rows(8, 64) if i % 2 else rows(8, 64, window=128),) for i in range(36)]
MIMO = [(rows(4, 192, 128),)] * 9 + [(rows(8, 192, 128, window=128),)] * 39
WHISPER = [(rows(20, 64), Cross(heads=20, k_dim=64, v_dim=64, source_tokens=1500))] * 32
V4_FLASH: list[tuple[Kind, ...]] = [
    (latent(512, window=128),) if i < 2
    else (latent(512, window=128), latent(512, ratio=4), Rows(heads=1, k_dim=128, v_dim=0, shard="copy", format="index", ratio=4)) if i % 2 == 0
    else (latent(512, window=128), latent(512, ratio=128))
    for i in range(43)
]  # fmt: skip
V32: list[tuple[Kind, ...]] = [(latent(576), Rows(heads=1, k_dim=128, v_dim=0, shard="copy", format="index"))] * 61

# kv-cache facts, section G: executed on hand-built specs at 40 GiB, TP 1, bf16.
GOLDENS: list[tuple[list[tuple[Kind, ...]], dict[str, Any], tuple[int, int, int, int]]] = [
    (GEMMA_3N, {"max_model_len": 32768}, (131072, 6276, 327680, 1710869)),
    (GEMMA_4_31B, {"max_model_len": 262144}, (2621440, 13637, 16384, 314949)),
    (GEMMA_4_26B, {"max_model_len": 262144}, (655360, 13637, 65536, 1259798)),
    (GPT_OSS, {"max_model_len": 131072}, (589824, 9225, 72817, 1034609)),
    ([*GPT_OSS, (rows(8, 64),)], {"max_model_len": 131072}, (622592, 9225, 68985, 980162)),
    (MIMO, {"max_model_len": 131072}, (737280, 9261, 58254, 824475)),
    (V4_FLASH, {"max_model_len": 131072}, (1002240, 7194, 42853, 780765)),
    (V4_FLASH, {"max_model_len": 1048576}, (1002240, 10778, 42853, 4169106)),
    (WHISPER, {"max_model_len": 448, "max_num_batched_tokens": 1500, "async_scheduling": False}, (2621440, 122, 16384, 60164)),
]


@pytest.mark.parametrize(("layers", "options", "expected"), GOLDENS)
def test_goldens_on_hand_built_layers(layers: list[tuple[Kind, ...]], options: dict[str, Any], expected: tuple[int, int, int, int]) -> None:
    p = planned(model(layers), **options)
    assert (p.bytes_per_block, p.blocks_per_request, p.num_blocks, p.kv_tokens) == expected


def test_sparse_latent_rows_and_their_index_keys_make_one_group() -> None:
    """Executed: 64 tokens x 61 layers x (656 + 132) packed on Hopper, (1152 + 132) in bf16, (576 + 132) plain fp8 on Blackwell."""
    m = model(V32, mla())
    for options, row in (({"kv_dtype": "fp8"}, 656 + 132), ({}, 1152 + 132), ({"kv_dtype": "fp8", "gpu": "B200 SXM"}, 576 + 132)):
        p = planned(m, max_model_len=163840, **options)
        assert (p.bytes_per_block, p.blocks_per_request, len(p.pools[0].groups)) == (64 * 61 * row, 2560, 1), options
    assert planned(m, max_model_len=163840, kv_dtype="fp8").kv_tokens == 893504
    with pytest.raises(PlannerError) as caught:
        planned(m, gpu="A100 SXM 80GB")
    assert caught.value.code == "no_backend"


def test_glm_takes_fp8_by_itself_on_blackwell_only() -> None:
    raw = config("glm_moe_dsa")
    assert planned(read_config(raw)).setting.kv.name == "bf16"
    assert planned(read_config(raw), gpu="B200 SXM").setting.kv.name == "fp8_e4m3"
    assert planned(read_config(config("deepseek_v32")), gpu="B200 SXM").setting.kv.name == "bf16"


# -- states ------------------------------------------------------------------------------------------------------------


def mamba2(heads: int, dim: int, groups: int, state: int, width: int = 4, asked: str | None = "fp32") -> State:
    channels = heads * dim + 2 * groups * state
    return State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=channels * width, columns=width, groups=groups, group_elements=2 * state * width),
            StateTensor(name="recurrent", role="recurrent", elements=heads * dim * state, dtype=DTYPES["fp32"], asked=DTYPES[asked] if asked else None),
        ),
        mechanism="mamba2",
    )


def nemotron(state: State, full: Rows, layers: str = "MMM*" * 4) -> ModelSpec:
    return model([(state,) if c == "M" else (full,) for c in layers])


def test_the_attention_page_is_raised_to_hold_a_state() -> None:
    """Nemotron-H-8B: 3 x 10,240 x 2 + 128 x 64 x 128 x 4 = 4,255,744 bytes; 65 x 16 tokens of 4,096 bytes hold it. Three slots."""
    p = planned(nemotron(mamba2(128, 64, 8, 128), rows(8, 128), "MMMMMM*" * 4), max_model_len=8192)
    assert p.pools[0].groups[0].resident.unit_bytes == 1040 * 4096 == 4_259_840
    assert p.bytes_per_block == 17_039_360
    assert p.blocks_per_request == 8 + 6 * 3
    assert planned(nemotron(mamba2(128, 64, 8, 128), rows(8, 128), "MMMMMM*" * 4), max_model_len=8192, prefix_caching=False).blocks_per_request == 8 + 6


def test_a_state_nobody_asks_fp32_for_is_kept_in_the_models_dtype() -> None:
    """(3 x 10,240 + 1,048,576) x 2 = 2,158,592 bytes need 33 x 16 tokens."""
    p = planned(nemotron(mamba2(128, 64, 8, 128, asked=None), rows(8, 128)), max_model_len=8192)
    assert p.pools[0].groups[0].resident.unit_bytes == 528 * 4096


def test_groups_of_a_state_are_padded_to_the_ranks() -> None:
    """n_groups 1 on 4 ranks: each keeps one group, (128 x 64 / 4 + 2 x 128) channels."""
    conv = mamba2(128, 64, 1, 128).tensors[0]
    assert conv.elements_on_rank(1) == (8192 + 256) * 4
    assert conv.elements_on_rank(4) == (8192 // 4 + 256) * 4
    assert mamba2(128, 64, 8, 128).tensors[0].elements_on_rank(4) == (8192 + 8 * 256) // 4 * 4


def test_drafted_tokens_take_state_slots_convolution_columns_and_window() -> None:
    raw = config("qwen3_5_text", mtp_num_hidden_layers=1)
    without, drafting = planned(read_config(raw), max_model_len=4096), planned(read_config(raw), max_model_len=4096, num_speculative_tokens=2)
    slots = [g.admission.extra_units for p in (without, drafting) for g in p.pools[0].groups if g.kind == "state"]
    assert set(slots) == {3, 5}
    near = model([(rows(8, 64, window=128),)] * 4, draft_layers=(LayerSpec(caches=(rows(8, 64, window=128),)),))
    plain, more = planned(near, max_model_len=131072), planned(near, max_model_len=131072, num_speculative_tokens=16)
    assert more.pools[0].groups[0].admission.cap_tokens == plain.pools[0].groups[0].admission.cap_tokens + 16  # type: ignore[operator]


def test_a_model_without_attention_keeps_one_slot_a_sequence() -> None:
    m = model([(mamba2(64, 64, 1, 128, asked=None),)] * 3)
    p = planned(m, max_model_len=4096)
    slot = 3 * (64 * 64 + 256) * 2 + 64 * 64 * 128 * 2
    assert (p.bytes_per_block, p.blocks_per_request) == (3 * slot, 1)
    assert "state_rule_not_run" not in {n.code for n in p.notes}


def test_hybrids_where_the_rule_was_only_read_say_so() -> None:
    raw = config("qwen3_next")
    assert "state_rule_not_run" not in {n.code for n in planned(read_config(raw)).notes}
    assert "state_rule_not_run" in {n.code for n in planned(read_config(raw), gpu="B200 SXM").notes}
    assert "state_rule_not_run" in {n.code for n in planned(read_config(config("kimi_linear"))).notes}


def test_a_latent_hybrid_aligns_its_block_to_128() -> None:
    """Kimi-Linear-48B: 2,170,880 bytes of state, 15 x 128 tokens of 1,152 bytes (executed: block 1920, page 2,211,840)."""
    kda = State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=3 * 4096 * 4, columns=4),
            StateTensor(name="recurrent", role="recurrent", elements=32 * 128 * 128, dtype=DTYPES["fp32"], asked=DTYPES["fp32"]),
        ),
        mechanism="kda",
    )
    p = planned(model([(latent(576),) if i % 4 == 3 or i == 26 else (kda,) for i in range(27)], mla()), max_model_len=1048576)
    assert (p.bytes_per_block, p.blocks_per_request, p.num_blocks, p.kv_tokens) == (15482880, 553, 2774, 5259945)


# -- ranks -------------------------------------------------------------------------------------------------------------


def test_context_ranks_share_out_the_tokens_of_a_latent() -> None:
    """dcp 4: a block spans 4 x 16 tokens, a rank holds a quarter of the rows, capacity is four times as large."""
    m = model([(latent(576),)] * 61, mla())
    one, four = (planned(m, tp=8, gpus=8, dcp=d, max_model_len=131072, tokens=131072) for d in (1, 4))
    assert (one.blocks_per_request, four.blocks_per_request) == (8192, 2048)
    assert four.bytes_per_block == one.bytes_per_block
    assert four.kv_tokens == 4 * one.kv_tokens  # type: ignore[operator]
    held = four.footprint.per_rank_bytes[0] - four.pools[0].block_bytes
    assert held == (131072 // 4) * 1152 * 61
    assert all(i["holds"] for i in __import__("planner.answers", fromlist=["identities"]).identities(four))


def test_context_ranks_of_gqa_need_more_ranks_than_kv_heads() -> None:
    a = Attention(q_heads=64, kv_heads=8, qk_dim=128, v_dim=128)
    m = model([(rows(8, 128),)] * 4, a)
    assert planned(m, tp=16, gpus=16, dcp=2, max_model_len=4096, tokens=4096).blocks_per_request == 128
    with pytest.raises(PlannerError) as caught:
        planned(m, tp=8, gpus=8, dcp=2)
    assert caught.value.code == "context_ranks_gqa"


def test_a_feed_forward_width_that_does_not_divide_is_refused() -> None:
    with pytest.raises(PlannerError) as caught:
        planned(read_config(config("llama", intermediate_size=2815)), tp=2, gpus=2)
    assert (caught.value.code, caught.value.field) == ("mlp_not_divisible", "tp")


def test_falcon_keeps_its_dtype_whatever_is_asked() -> None:
    p = planned(read_config(config("falcon_old")), kv_dtype="fp8")
    assert p.setting.kv.name == "bf16"
    assert "engine_ignores_kv_dtype" in {n.code for n in p.notes}


def test_kimi_k3_has_kernels_of_its_own() -> None:
    """Executed on SM9.0: block 5,760 and three slots a group. 96 heads: 6,512,640 bytes need 45 x 128 tokens of 1,152."""
    kda = State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=3 * 96 * 128 * 4, columns=4),
            StateTensor(name="recurrent", role="recurrent", elements=96 * 128 * 128, dtype=DTYPES["fp32"], asked=DTYPES["fp32"]),
        ),
        mechanism="kda",
    )
    layers: list[tuple[Kind, ...]] = [(latent(576),) if i % 4 == 3 else (kda,) for i in range(8)]
    for name, slots in (("kimi_k3", 3), ("kimi_linear", 2)):
        p = planned(replace(model(layers, mla()), model_type=name), max_model_len=131072)
        sizes = {g.kind: (g.resident.unit_tokens, g.admission.extra_units) for g in p.pools[0].groups}
        assert sizes["latent"][0] == 5760
        assert sizes["state"][1] == slots
        assert ("state_rule_not_run" in {n.code for n in p.notes}) == (name == "kimi_linear")

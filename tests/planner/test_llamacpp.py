"""llama.cpp: contexts, windows and types by hand, refusals, and a config held against the GGUF that it is converted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.cache import Rows
from planner.engines.llamacpp import archs as llamacpp_archs
from planner.errors import InvalidInput, PlannerError, UnsupportedModel, UnsupportedValue
from planner.model import Attention, LayerSpec, ModelSpec
from planner.readers import TABLE, read_config
from planner.readers.gguf.table import ARCHITECTURES
from tests import gguf_file
from tests.planner.llamacpp_cases import MIB, ROW, by_kind, catalog, config, held, planned, rows_model

# -- the context, by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "n_ctx", "n_ctx_seq", "size"),
    [
        ({"max_model_len": 500}, 512, 512, 512 * ROW),
        ({"max_model_len": 500, "parallel": 4}, 1024, 256, 1024 * ROW),  # 512 // 4 = 128, padded up
        ({"max_model_len": 4096, "parallel": 3}, 4608, 1536, 4608 * ROW),
        ({"max_model_len": 4096, "parallel": 4, "kv_unified": True}, 4096, 4096, 4096 * ROW),
        ({"max_model_len": 4096, "max_num_seqs": 3}, 4608, 1536, 4608 * ROW),
        ({"sequences": 3, "tokens": 1000}, 3072, 1024, 3072 * ROW),  # sized for the load
        ({"sequences": 3, "tokens": 1000, "kv_unified": True}, 3072, 3072, 3072 * ROW),
        ({"sequences": 3, "tokens": 900, "kv_unified": True}, 2816, 2816, 2816 * ROW),  # 2,700 padded once
        ({"sequences": 2, "tokens": 1000, "parallel": 4}, 4096, 1024, 4096 * ROW),
    ],
)
def test_the_context_by_hand(options: dict[str, Any], n_ctx: int, n_ctx_seq: int, size: int) -> None:
    f = held(rows_model(), **options)
    c = f.setting.context
    assert c is not None
    assert (c.n_ctx, c.n_ctx_seq, f.engine_bytes) == (n_ctx, n_ctx_seq, size)


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ({"max_model_len": 8192}, 1536),  # 1,024 + 512
        ({"max_model_len": 8192, "n_ubatch": 4096}, 3072),  # clamped to the batch of 2,048
        ({"max_model_len": 8192, "n_ubatch": 0}, 3072),
        ({"max_model_len": 8192, "max_num_batched_tokens": 128}, 1280),
        ({"max_model_len": 8192, "swa_full": True}, 8192),
        ({"max_model_len": 1024}, 1024),
        ({"max_model_len": 8192, "parallel": 4}, 4 * 1536),
        ({"max_model_len": 8192, "parallel": 4, "kv_unified": True}, 4608),  # 4 x 1,024 + 512
        ({"sequences": 4, "tokens": 2048, "kv_unified": True}, 4608),
        ({"sequences": 4, "tokens": 64, "kv_unified": True}, 256),
    ],
)
def test_cells_of_a_window(options: dict[str, Any], cells: int) -> None:
    assert held(rows_model("gemma3", window=1024), **options).engine_bytes == cells * ROW


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"cache_type_k": "q8_0", "cache_type_v": "q4_0"}, 32 * (34 + 18)),
        ({"kv_dtype": "q5_1"}, 2 * 32 * 24),
        ({"kv_dtype": "bf16"}, 2 * 1024 * 2),
        ({"cache_type_k": "f32"}, 1024 * (4 + 2)),
        ({"cache_type_v": "iq4_nl", "kv_dtype": "q4_1"}, 32 * (20 + 18)),
    ],
)
def test_k_and_v_have_types_of_their_own(options: dict[str, Any], row: int) -> None:
    f = held(rows_model(), max_model_len=256, **options)
    assert f.engine_bytes == 4 * 256 * row
    assert f.architecture_bytes == 4 * 4096 * row
    assert sum(line.bytes for line in f.formula) == f.architecture_bytes


def test_the_formula_names_both_types() -> None:
    (line,) = held(rows_model(), cache_type_k="q8_0", cache_type_v="f16").formula
    assert "(128 x 34/32 + 128 x 2 bytes) x 4 layers" in line.text


def test_v_is_padded_without_flash_attention() -> None:
    """V of 8 and of 4 heads, and a layer without heads: all as wide as the widest (run: 4 layers of a pruned model)."""
    wide = rows_model().layers[0]
    narrow = LayerSpec(caches=(Rows(heads=4, k_dim=128, v_dim=128),), attention=Attention(q_heads=32, kv_heads=4, qk_dim=128, v_dim=128))
    model = replace(rows_model("deci"), layers=(wide, wide, LayerSpec(caches=()), narrow))
    assert held(model, max_model_len=4096).engine_bytes == 4096 * 2 * (2 * 2048 + 1024)
    f = held(model, max_model_len=4096, flash_attn="off")
    assert f.engine_bytes == 4096 * 2 * (2 * 1024 + 512 + 4 * 1024)
    assert held(replace(model, architecture="jamba"), max_model_len=4096, flash_attn="off").engine_bytes == 4096 * 2 * (2 * 1024 + 512 + 3 * 1024)


def test_windows_count_only_where_the_architecture_uses_them() -> None:
    full, near = 4096 * ROW, 1536 * ROW
    for arch, size in (("llama", full), ("qwen2", full), ("phi3", full), ("starcoder2", full), ("exaone4", full), ("gemma2", near), ("lfm2", near)):
        f = held(rows_model(arch, window=1024), max_model_len=4096)
        assert f.engine_bytes == size, arch
        assert ("llamacpp_window_unused" in [n.code for n in f.notes]) is (size == full)
    sixty_four = replace(rows_model("exaone4", window=1024), layers=rows_model(window=1024).layers * 16)
    assert held(sixty_four, max_model_len=4096).engine_bytes == 16 * near


def test_mistral_keeps_every_token() -> None:
    f = held(catalog("Mistral-7B-v0.1"), max_model_len=32768, tokens=32768)
    assert f.engine_bytes == 32 * 32768 * 4096
    assert f.architecture_bytes == 32 * 4096 * 4096


def layers_by_window(model: ModelSpec, **options: Any) -> list[int]:
    """The layers whose cells end at the window."""
    pools = held(model, max_model_len=65536, **options).allocation.stages[0]
    return sorted(i for pool in pools for g in pool.groups if g.kind in ("window", "chunk") for i in g.layers)


def test_the_step_of_the_architecture_holds_where_the_converter_writes_no_list() -> None:
    """Gemma-3 with a list of its own: llama.cpp takes every sixth layer as full all the same. EXAONE-4's and OLMo-3's lists are written."""
    types = ["full_attention"] * 2 + ["sliding_attention"] * 10
    gemma = read_config(config("gemma3", text_config=config("gemma3")["text_config"] | {"layer_types": types, "num_hidden_layers": 12}))
    assert layers_by_window(gemma) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    olmo = read_config(config("olmo3", num_hidden_layers=12, layer_types=types))
    assert layers_by_window(olmo) == list(range(2, 12))


def test_constants_override_the_file() -> None:
    llama4 = config("llama4")
    llama4["text_config"]["attention_chunk_size"] = 4096
    f = held(read_config(llama4), max_model_len=32768)
    assert f.engine_bytes == (2 * 32768 + 6 * 8704) * 4 * 64 * 2 * 2  # 8,192 + 512 cells
    gemma = read_config(config("gemma3n_text"))
    assert sum(layer.shares_with is None for layer in gemma.layers) == 5
    owned = {i for p in held(gemma).allocation.stages[0] for g in p.groups for i in g.layers}
    assert owned == set(range(10))  # the first twenty own a cache


def test_minimax_m3_keeps_values_beside_its_index_keys() -> None:
    """5 of 8 layers: 128 index values in the K type and 128 in the V type."""
    f = held(read_config(config("minimax_m3")), max_model_len=1024, cache_type_k="q8_0")
    assert by_kind(f)["index"] == f"{1024 * 5 * (4 * 34 + 256) / MIB:.2f}"
    assert f.engine_bytes == 1024 * (8 * (16 * 34 + 1024) + 5 * (4 * 34 + 256))


def test_t5_counts_the_layers_of_its_encoder() -> None:
    t5 = config("t5", num_layers=6, num_decoder_layers=4)
    f = held(read_config(t5), max_model_len=512, encoder_tokens=100)
    assert f.engine_bytes == 6 * 512 * 2 * 8 * 64 * 2
    with pytest.raises(UnsupportedModel) as caught:
        held(read_config(config("t5")))
    assert caught.value.code == "llamacpp_decoder_deeper"


def test_an_encoder_keeps_nothing() -> None:
    p = planned(rows_model("bert"))
    assert (p.footprint.engine_bytes, p.fits) == (0, True)


def test_state_snapshots() -> None:
    """Three copies where the architecture can roll back, one where it cannot."""
    three, one = (held(read_config(config("lfm2")), max_model_len=256, parallel=2, n_rs_seq=n) for n in (2, 0))
    state = next(g for g in one.allocation.stages[0][0].groups if g.kind == "state")
    assert three.engine_bytes - one.engine_bytes == 2 * 2 * len(state.layers) * state.resident.unit_bytes
    jamba = read_config(config("jamba"))
    assert held(jamba, max_model_len=256, n_rs_seq=2).engine_bytes == held(jamba, max_model_len=256).engine_bytes


# -- refusals ----------------------------------------------------------------------------------------------------------

LATENT = {"heads": 1, "k_dim": 576, "v_dim": 0, "shard": "copy"}
REFUSED: list[tuple[str, Callable[[], ModelSpec], dict[str, Any], type[PlannerError], str, str]] = [
    ("sequences", rows_model, {"parallel": 257}, InvalidInput, "llamacpp_sequences", "parallel"),
    ("sequences by vLLM's name", rows_model, {"max_num_seqs": 1000}, InvalidInput, "llamacpp_sequences", "max_num_seqs"),
    ("V without flash attention", rows_model, {"cache_type_v": "q8_0", "flash_attn": "off"}, InvalidInput, "llamacpp_v_needs_flash", "flash_attn"),
    ("V of a latent", lambda: rows_model("deepseek2", **LATENT), {"kv_dtype": "q8_0", "flash_attn": "off"}, InvalidInput, "llamacpp_v_needs_flash",
     "flash_attn"),
    ("types of a latent", lambda: rows_model("deepseek2", **LATENT), {"cache_type_k": "q8_0"}, InvalidInput, "llamacpp_types_differ", "cache_type_v"),
    ("head size", lambda: rows_model(k_dim=80, v_dim=80), {"cache_type_k": "q8_0"}, InvalidInput, "llamacpp_block", "cache_type_k"),
    ("V head size", lambda: rows_model(v_dim=80), {"kv_dtype": "q4_0"}, InvalidInput, "llamacpp_block", "cache_type_v"),
    ("abort", lambda: rows_model(heads=1, k_dim=80, v_dim=80), {"cache_type_k": "q8_0", "flash_attn": "off"}, UnsupportedValue, "llamacpp_abort",
     "cache_type_k"),
    ("grok has no flash attention", lambda: rows_model("grok"), {"cache_type_v": "q8_0"}, InvalidInput, "llamacpp_v_needs_flash", "flash_attn"),
    ("fp8", rows_model, {"kv_dtype": "fp8"}, UnsupportedValue, "kv_dtype_not_in_engine", "kv_dtype"),
    ("drafts", lambda: read_config(config("glm4_moe", num_nextn_predict_layers=1)), {"num_speculative_tokens": 2}, InvalidInput, "llamacpp_speculation",
     "num_speculative_tokens"),
    ("ranks", rows_model, {"tp": 2}, InvalidInput, "one_device_only", "tp"),
    ("no rule", lambda: read_config(config("zamba2")), {}, UnsupportedModel, "llamacpp_architecture", "model_type"),
    ("a latent in a family without one", lambda: rows_model("llama", **LATENT), {}, UnsupportedModel, "kind_not_in_engine", "engine"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "options", "error", "code", "field"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refusals(name: str, model: Callable[[], ModelSpec], options: dict[str, Any], error: type[PlannerError], code: str, field: str) -> None:
    with pytest.raises(error) as caught:
        held(model(), **options)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.message
    assert caught.value.hint


def test_head_sizes_of_80_run_without_flash_attention() -> None:
    f = held(rows_model(k_dim=80, v_dim=80), max_model_len=4096, cache_type_k="q8_0", flash_attn="off")
    assert f.engine_bytes == 4 * 4096 * (20 * 34 + 640 * 2)  # a row of 640 values is 20 blocks


# -- the same model as config and as GGUF ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", gguf_file.names())
def test_a_config_is_planned_as_the_file_that_it_is_converted_to(name: str) -> None:
    gguf, hf = read_config(gguf_file.head(name)), read_config(config(name))
    try:
        arch = llamacpp_archs.architecture(hf)
    except UnsupportedModel:
        pytest.fail(f"{name} is converted, but has no row")
    assert arch == gguf.architecture
    for options in ({}, {"flash_attn": "off", "parallel": 3}, {"kv_unified": True, "sequences": 4}, {"kv_dtype": "q8_0"}, {"swa_full": True}):
        assert held(gguf, tokens=3000, **options).engine_bytes == held(hf, tokens=3000, **options).engine_bytes


def test_every_family_with_a_row_has_a_reader_and_an_architecture() -> None:
    assert set(llamacpp_archs.FAMILIES) <= set(TABLE)
    known = set(ARCHITECTURES) | llamacpp_archs.OTHERS | llamacpp_archs.STATES_ONLY
    assert set(llamacpp_archs.FAMILIES.values()) <= known
    assert known >= llamacpp_archs.LATENT | llamacpp_archs.HYBRID | llamacpp_archs.ROLLBACK | llamacpp_archs.STEP_ALONE

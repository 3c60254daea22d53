"""llama.cpp: every executed context to the byte, public logs to the printed digit, rules by hand, refusals, and planted faults."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.__main__ import main
from planner.api import answer, plan_json
from planner.cache import Rows, Slots, max_sequences, max_tokens
from planner.capacity import CapacityPlan, plan
from planner.dtypes import DTYPES
from planner.engines import llamacpp
from planner.engines.llamacpp import archs as llamacpp_archs
from planner.engines.llamacpp import rows as llamacpp_rows
from planner.engines.llamacpp.budget import compute
from planner.errors import InvalidInput, PlannerError, UnsupportedModel, UnsupportedValue
from planner.footprint import Footprint, measure
from planner.hardware import find
from planner.heatmap import heat_map
from planner.launch import launch
from planner.model import Attention, LayerSpec, ModelSpec
from planner.readers import TABLE, read_config
from planner.readers.gguf.table import ARCHITECTURES
from planner.remedies import remedies
from planner.report.content import facts, verdict
from planner.scenario import Scenario
from planner.sources import load
from tests import gguf_file
from tests.conftest import CONFIGS, corpus_rows, small_configs
from tests.planner.llamacpp_cases import model_of, reason_of, scenario_of

MIB = 2**20


def config(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return {k: v for k, v in (found | changes).items() if v is not None}


def catalog(name: str) -> ModelSpec:
    return read_config(load(f"catalog:{name}").raw, name)


def held(model: ModelSpec, **options: Any) -> Footprint:
    return measure(model, None, Scenario(**{"engine": "llamacpp", "sequences": 1, "tokens": 4096, **options}))


def planned(model: ModelSpec, **options: Any) -> CapacityPlan:
    return plan(model, find("H100 SXM"), Scenario(**{"engine": "llamacpp", "sequences": 1, "tokens": 4096, **options}))


def rows_model(architecture: str = "llama", **row: Any) -> ModelSpec:
    """Four equal layers of one cache."""
    rows = Rows(**{"heads": 8, "k_dim": 128, "v_dim": 128, **row})
    a = Attention(q_heads=32, kv_heads=rows.heads, qk_dim=rows.k_dim, v_dim=rows.v_dim)
    return ModelSpec(name="x", model_type="", architecture=architecture, hidden_size=1024, vocab_size=32000, max_context_tokens=None, weights=(),
                     layers=(LayerSpec(caches=(rows,), attention=a),) * 4, dtype=DTYPES["bf16"], tied_embeddings=True)  # fmt: skip


# -- contexts that were really created ---------------------------------------------------------------------------------


def wrong_rows() -> list[str]:
    """The rows whose bytes, padded sizes or refusal are not the executed ones."""
    wrong = []
    for r in corpus_rows("llamacpp_executed.csv"):
        try:
            f = measure(model_of(r), None, scenario_of(r))
            c = f.setting.context
            assert c is not None
            got: tuple[Any, ...] = (f.engine_bytes, c.n_ctx, c.n_ctx_seq, min(int(r["n_ctx_asked"]), c.batch))
        except PlannerError as e:
            got = (e.code,)
        want = (reason_of(r),) if r["outcome"] != "ok" else tuple(int(r[k]) for k in ("total_bytes_if_exact", "n_ctx_got", "n_ctx_seq_got", "n_ubatch_got"))
        if got != want:
            wrong.append(f"{r['case']} {got} {want}")
    return wrong


def test_every_executed_context_to_the_byte() -> None:
    rows = corpus_rows("llamacpp_executed.csv")
    assert len(rows) >= 50
    assert len({r["arch"] for r in rows}) >= 20
    assert wrong_rows() == []


FAULTS: list[tuple[str, Any, str, Any]] = [
    ("cells are not padded", llamacpp, "PAD", 1),
    ("no window is used", llamacpp_archs, "windows_of", lambda arch, layers: None),
    ("every latent is expanded or unknown", llamacpp_archs, "LATENT", frozenset()),
    ("index keys never have values, or always", llamacpp_archs, "INDEX_WITH_VALUES", frozenset(("deepseek32", "glm-dsa"))),
    ("every architecture can roll back", llamacpp_archs, "ROLLBACK", frozenset(ARCHITECTURES)),
    ("all convolution columns are kept", llamacpp_rows, "state_bytes", lambda kind: kind.bytes_per_sequence(DTYPES["fp32"], 0)),
    ("states in half precision", llamacpp_rows, "state_bytes", lambda kind: kind.bytes_per_sequence(DTYPES["fp16"], 1)),
    ("DeepSeek-V4 without its buffers", llamacpp_rows, "compressor_state_bytes", lambda layer: 0),
    ("types are not checked", llamacpp_rows, "check_types", lambda *args, **kw: None),
    ("V is as wide as K", llamacpp_rows.Row, "v_width", property(lambda row: row.k_width)),
]


@pytest.mark.parametrize(("fault", "where", "name", "planted"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_seen(fault: str, where: Any, name: str, planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, name, planted)
    assert wrong_rows(), fault


# -- public logs -------------------------------------------------------------------------------------------------------

GPT_OSS = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072}
GEMMA_12B = {"num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 1,
             "num_kv_shared_layers": 0, "sliding_window": 1024}  # fmt: skip
GEMMA_E4B = {"num_hidden_layers": 42, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512,
             "num_global_key_value_heads": None, "attention_k_eq_v": None, "num_kv_shared_layers": 18}  # fmt: skip
FALCON = {"num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 2048, "mamba_d_ssm": 3072,
          "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4}  # fmt: skip
NANO = {"num_hidden_layers": 56, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "sliding_window": 2048}
GEMMA_2B = {"num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256}

LOGS: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ("gpt-oss-20b", "gpt_oss", GPT_OSS | {"num_hidden_layers": 24}, {"max_model_len": 8192, "n_ubatch": 128, "kv_dtype": "q8_0"},
     {"full": "102.00", "window": "3.19"}),
    ("gpt-oss-120b, four slots on one cache", "gpt_oss", GPT_OSS | {"num_hidden_layers": 36},
     {"max_model_len": 65535, "parallel": 4, "kv_unified": True}, {"full": "2304.00", "window": "36.00"}),
    ("Gemma-4-12B", "gemma4_text", GEMMA_12B, {"max_model_len": 8192, "parallel": 4, "kv_unified": True, "kv_dtype": "q8_0"},
     {"full": "68.00", "window": "765.00"}),
    ("Gemma-4 E4B", "gemma4_text", GEMMA_E4B, {"max_model_len": 8192, "kv_dtype": "q8_0"}, {"window": "21.25"}),
    ("Falcon-H1-1.5B", "falcon_h1", FALCON, {"max_model_len": 32768}, {"full": "768.00", "state": "72.98"}),
    ("Trinity-Nano", "afmoe", NANO, {"max_model_len": 131072}, {"full": "1792.00", "window": "105.00"}),
    ("Gemma-1.1-2B", "gemma", GEMMA_2B, {"max_model_len": 4096}, {"full": "72.00"}),
]  # fmt: skip


def by_kind(f: Footprint, sequences: int = 1) -> dict[str, str]:
    """MiB of each kind of cache, as the log prints them."""
    out: dict[str, int] = {}
    for pools in (*f.allocation.stages, f.allocation.host):
        for pool in pools:
            for g in pool.groups:
                out[g.kind] = out.get(g.kind, 0) + pool.group_bytes(g, sequences, 1)
    return {kind: f"{size / MIB:.2f}" for kind, size in out.items()}


@pytest.mark.parametrize(("name", "family", "changes", "options", "printed"), LOGS, ids=[row[0] for row in LOGS])
def test_what_public_logs_print(name: str, family: str, changes: dict[str, Any], options: dict[str, Any], printed: dict[str, str]) -> None:
    found = by_kind(held(read_config(config(family, **changes)), **options))
    assert {k: found[k] for k in printed} == printed


@pytest.mark.parametrize(("slots", "cells", "size"), [(3, 1536, "27.00"), (4, 1024, "18.00")])
def test_slots_of_gemma_3_270m(slots: int, cells: int, size: str) -> None:
    """A public report on a context of 1,024: three slots take more than four. 18 layers of one head of 256."""
    shape = {"num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512}
    text = config("gemma3")["text_config"] | shape
    f = held(read_config(config("gemma3", text_config=text)), max_model_len=1024, parallel=slots)
    assert f.setting.context is not None
    assert (f.setting.context.n_ctx, f"{f.engine_bytes / MIB:.2f}") == (cells, size)


def test_deepseek_r1_keeps_one_latent_row() -> None:
    """61 layers x 32,768 x 576 x 34/32 bytes; the log says 1166.62."""
    f = held(catalog("DeepSeek-V3"), max_model_len=32768, kv_dtype="q8_0")
    assert f.engine_bytes == 61 * 32768 * 576 * 34 // 32
    assert abs(f.engine_bytes / MIB - 1166.62) < 0.01  # cut, not rounded, by the log


def test_a_split_between_gpu_and_host_as_a_log_shows_it() -> None:
    """36 layers of Qwen3-8B at 131,072: 9,728 MiB on the GPU (19 layers), 8,704 on the CPU. The output layer is the twentieth."""
    model = read_config(config("qwen3", num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=131072))
    f = held(model, max_model_len=131072, n_gpu_layers=20)
    assert (f.per_rank_bytes, f.host_bytes) == ((9728 * MIB,), 8704 * MIB)
    assert f.engine_bytes == 18432 * MIB
    assert f.allocation.device_layers == range(17, 36)


@pytest.mark.parametrize(
    ("vocab", "heads", "cells", "seen"), [(256000, 8, 4096, 509.01), (256000, 16, 2048, 506), (49152, 48, 2048, 220), (151936, 32, 131072, 9240)]
)
def test_compute_buffers_of_public_logs_lie_in_the_band(vocab: int, heads: int, cells: int, seen: float) -> None:
    model = rows_model()
    model = replace(model, vocab_size=vocab, layers=tuple(replace(x, attention=replace(x.attention, q_heads=heads)) for x in model.layers))  # type: ignore[type-var]
    s = Scenario(engine="llamacpp", sequences=1, tokens=1, max_model_len=cells, flash_attn="off")
    line = compute(model, s, llamacpp.settle(model, None, s))
    assert line.kind == "assumed"
    assert line.low_bytes is not None
    assert line.high_bytes is not None
    assert line.low_bytes < seen * MIB < line.high_bytes
    assert 0.94 < line.bytes / MIB / seen < 1.34


# -- the context, by hand ----------------------------------------------------------------------------------------------

ROW = 4 * 8 * 256 * 2  # bytes of a cell in all layers of rows_model


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


# -- layers on the device ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "device"), [(None, range(8)), (9, range(8)), (100, range(8)), (8, range(1, 8)), (3, range(6, 8)), (1, range(8, 8)),
                                           (0, range(8, 8))])  # fmt: skip
def test_the_last_layers_go_to_the_device_the_output_first(n: int | None, device: range) -> None:
    model = read_config(config("qwen3"))
    f = held(model, n_gpu_layers=n)
    row = 8 * 4096 * 4 * 128 * 2 * 2
    assert f.allocation.device_layers == device
    assert (f.per_rank_bytes[0], f.host_bytes) == (row * len(device) // 8, row * (8 - len(device)) // 8)


def test_draft_blocks_of_a_gguf_take_the_first_places() -> None:
    gguf = read_config(gguf_file.head("glm4_moe"))
    device = held(gguf, n_gpu_layers=3).allocation.device_layers
    assert device is not None
    assert len(device) == 1  # the output, one MTP block, one layer


@pytest.mark.parametrize("tied", [True, False])
def test_weights_follow_their_layers(tied: bool) -> None:
    """Llama of 8 layers: what is on the device are its layers, the last norm, and the output, which is the embedding again where it is tied."""
    model = read_config(config("llama", tie_word_embeddings=tied))
    layer = sum(w.elements for w in model.layers[0].weights) * 2
    outer = {w.role: w.elements * 2 for w in model.weights}
    output = outer["norm"] + outer["embedding" if tied else "lm_head"]
    for n, expected in ((None, 8 * layer + output), (3, 2 * layer + output), (1, output), (0, 0)):
        p = planned(model, n_gpu_layers=n)
        assert p.weights_bytes_per_rank == (expected,)
        assert next(line.bytes for line in p.ledgers[0] if line.code == "weights") == expected


# -- plans -------------------------------------------------------------------------------------------------------------

CHOICES: list[dict[str, Any]] = [
    {}, {"parallel": 4, "max_model_len": 4096}, {"parallel": 4, "max_model_len": 4096, "kv_unified": True, "n_gpu_layers": 4},
    {"flash_attn": "off", "sequences": 3, "tokens": 700}, {"swa_full": True, "kv_dtype": "bf16", "sequences": 2}, {"kv_memory": 2**30, "tokens": 300},
]  # fmt: skip


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_identities_hold_for_every_family(options: dict[str, Any]) -> None:
    answered = 0
    for name, raw in small_configs():
        try:
            p = planned(read_config(raw, name), **{"tokens": 500, **options})
        except PlannerError:
            continue
        answered += 1
        assert all(i["holds"] for i in plan_json(p)["identities"]), name
        assert p.footprint.engine_bytes == p.footprint.architecture_bytes + sum(g.bytes for g in p.gap), name
    assert answered > 90


def gap(p: CapacityPlan) -> dict[str, int]:
    return {line.code: line.bytes for line in p.gap if line.bytes}


def test_the_gap_is_told_apart() -> None:
    """Four slots of 1,024 cells, two of them with 300 tokens of Gemma-like windows of 128: cells for 512 are the sequence's own."""
    p = planned(rows_model(), parallel=4, max_model_len=4096, sequences=2, tokens=300)
    assert gap(p) == {"last_block": 2 * 212 * ROW, "empty_cells": (4096 - 1024) * ROW}
    near = planned(rows_model("gemma3", window=128), sequences=2, tokens=4096)
    assert gap(near) == {"window_slack": 2 * (768 - 128) * ROW}  # 128 + 512 cells, padded
    unused = planned(rows_model("llama", window=1024), tokens=4096)
    assert gap(unused) == {"window_slack": 3072 * ROW}
    f32 = planned(rows_model(), max_model_len=256, tokens=256, kv_dtype="q8_0")
    assert gap(f32) == {}
    deci = replace(rows_model("deci"), layers=(*rows_model().layers, LayerSpec(caches=())))
    assert gap(planned(deci, tokens=256, flash_attn="off")) == {"padding": 256 * 2048}


def test_a_load_beyond_the_context_does_not_fit() -> None:
    model = rows_model()
    assert planned(model, parallel=4, max_model_len=4096, sequences=4, tokens=1024).fits
    more = planned(model, parallel=4, max_model_len=4096, sequences=5, tokens=1024)
    assert (more.fits, more.limited_by, more.shortfall_bytes, more.max_sequences) == (False, "slots", 0, 4)
    longer = planned(model, parallel=4, max_model_len=4096, sequences=4, tokens=1025)
    assert (longer.fits, longer.limited_by, longer.max_sequences) == (False, "model", 0)
    together = planned(model, parallel=4, max_model_len=4096, kv_unified=True, sequences=3, tokens=1400)
    assert (together.limited_by, together.max_sequences) == ("slots", 2)
    assert planned(model, sequences=257, tokens=16).limited_by == "slots"
    fewer = [r for r in remedies(more) if r.code == "fewer_sequences"]
    assert [dict(r.changes) for r in fewer] == [{"sequences": 4}]
    assert any("do not go into" in n["text"] for n in plan_json(more)["notes"])


def test_longest_and_most_by_bisection() -> None:
    p = planned(rows_model(), kv_memory=10_000 * ROW, tokens=1000, sequences=1)
    assert p.max_sequences == 9  # 1,024 cells each
    assert p.longest_context_tokens() == 39 * 256
    fixed = planned(rows_model(), kv_memory=10_000 * ROW, tokens=1000, sequences=1, parallel=2, max_model_len=4096)
    assert (fixed.max_sequences, fixed.longest_context_tokens(), fixed.kv_tokens) == (2, 2048, 4096)
    tight = planned(rows_model(), kv_memory=4095 * ROW, tokens=1000, sequences=1, parallel=2, max_model_len=4096)
    assert (tight.fits, tight.limited_by, tight.shortfall_bytes, tight.max_sequences) == (False, "pool", ROW, 0)


def test_slots_as_a_value() -> None:
    pools = llamacpp.allocate(rows_model(), llamacpp.settle(rows_model(), None, Scenario(engine="llamacpp"))).stages[0]
    assert pools[0].slots == Slots(most=256)
    assert max_sequences(pools, 256, 10**15) == 256
    assert max_tokens(pools, 2, 2 * 512 * ROW, 10**6) == 512


@pytest.mark.parametrize("options", [{}, {"parallel": 8, "max_model_len": 65536}, {"kv_unified": True}, {"n_gpu_layers": 4}])
def test_the_heat_map_is_made_of_plans(options: dict[str, Any]) -> None:
    model = read_config(config("gemma3"))
    base = Scenario(engine="llamacpp", gpu="T4", tokens=4096, sequences=2, **options)
    p = plan(model, find("T4"), base)
    m = heat_map(p)
    for j, tokens in enumerate(m.tokens):
        for i in range(0, len(m.sequences), 3):
            cell = plan(model, find("T4"), replace(base, tokens=tokens, sequences=m.sequences[i]))
            assert m.rank_bytes[i][j] == cell.footprint.per_rank_bytes[0]
            if cell.limited_by != "model":
                assert m.fits[i][j] == cell.fits


def test_remedies_of_llamacpp() -> None:
    p = plan(catalog("Llama-3.1-8B"), find("RTX 4090"), Scenario(engine="llamacpp", gpu="RTX 4090", tokens=131072, sequences=1))
    assert p.limited_by == "pool"
    found = {r.code: r for r in remedies(p)}
    assert set(found) >= {"shorter", "q8_cache", "fewer_gpu_layers", "int4_weights"}
    assert "fp8_cache" not in found
    best = dict(found["fewer_gpu_layers"].changes)["n_gpu_layers"]
    assert found["fewer_gpu_layers"].after.fits
    assert not plan(p.model, p.hardware, replace(p.scenario, n_gpu_layers=best + 1)).fits


def test_a_mix_of_lengths_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "lengths": "512+128:0.5,4096+256:0.5"})
    assert (caught.value.code, caught.value.field) == ("lengths_equal_slots", "lengths")


def test_reports_name_the_hosts_part() -> None:
    """17 layers counted with the output: 16 of 32 on the GPU."""
    p = planned(catalog("Llama-3.1-8B"), max_model_len=8192, n_gpu_layers=17)
    found = {label: exact for label, _, exact in facts(p)}
    assert found["KV cache in the host's memory"].startswith("536,870,912")
    slots = planned(rows_model(), parallel=1, sequences=2)
    assert "do not go into the engine's slots" in verdict(slots)


# -- the launch line, the command line ---------------------------------------------------------------------------------


def test_the_launch_line() -> None:
    p = planned(rows_model("gemma3", window=512), parallel=4, max_model_len=4096, sequences=4, tokens=1024, cache_type_k="q8_0", n_gpu_layers=3,
                n_ubatch=256, swa_full=True)  # fmt: skip
    words = shlex.split(launch(p, "org/My model")["llamacpp"])
    assert words == ["llama-server", "-m", "My model.gguf", "-c", "4096", "-np", "4", "-ctk", "q8_0", "-ctv", "f16", "-ngl", "3", "-b", "2048", "-ub", "256",
                     "-fa", "auto", "--no-kv-unified", "--swa-full"]  # fmt: skip
    line = launch(planned(rows_model(), kv_unified=True), "x.GGUF")["llamacpp"]
    assert "-m x.GGUF" in line
    assert "-ngl all" in line
    assert "--kv-unified" in line
    assert launch(planned(rows_model(), sequences=300, tokens=8), "x") == {}


def test_answers_of_the_command_line() -> None:
    kv = answer("kv", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "tokens": 4096, "batch": 2, "cache-type-k": "q8_0", "cache-type-v": "q8_0"})
    assert kv["engine_bytes"] == 2 * 4096 * 32 * 2 * 1024 * 34 // 32
    assert (kv["host_bytes"], kv["per_rank_bytes"]) == (0, [kv["engine_bytes"]])
    out = answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "max_model_len": 8192, "parallel": 4, "n_gpu_layers": 17})
    assert (out["fits"], out["kv_tokens"], out["scenario"]["sequences"], out["scenario"]["tokens"]) == (True, 8192, 4, 2048)
    assert out["per_rank_bytes"] == [out["host_bytes"]] == [16 * 8192 * 4096]
    assert out["launch"]["llamacpp"].startswith("llama-server -m ")
    whole = answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "max-model-len": "8192", "parallel": "4", "kv-unified": "true"})
    assert (whole["fits"], whole["scenario"]["sequences"], whole["scenario"]["tokens"]) == (True, 1, 8192)
    with pytest.raises(InvalidInput) as caught:
        answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "parallel": "many"})
    assert caught.value.field == "parallel"


def test_flags_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kv", "Llama-3.1-8B", "--engine", "llamacpp", "--tokens", "1000", "--batch", "3", "--json"]
    sizes = []
    for more in ([], ["--kv-unified"], ["--cache-type-k", "q8_0"], ["--parallel", "4"]):
        assert main([*words, *more]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["engine_bytes"] // (32 * 2048))
    assert sizes == [3072 * 2, 3072 * 2, 3072 * 17 // 32 + 3072, 4096 * 2]
    assert main([*words, "--cache-type-k", "f8"]) == 2

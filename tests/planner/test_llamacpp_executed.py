"""llama.cpp: every executed context to the byte, public logs to the printed digit, and planted faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.dtypes import DTYPES
from planner.engines import llamacpp
from planner.engines.llamacpp import archs as llamacpp_archs
from planner.engines.llamacpp import rows as llamacpp_rows
from planner.engines.llamacpp.budget import compute
from planner.errors import PlannerError
from planner.footprint import measure
from planner.readers import read_config
from planner.readers.gguf.table import ARCHITECTURES
from planner.scenario import Scenario
from tests.conftest import corpus_rows
from tests.planner.llamacpp_cases import MIB, by_kind, catalog, config, held, model_of, reason_of, rows_model, scenario_of

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

"""Public reports whose formula was wrong (kind formula): the right figure, or the reason why it is not answered yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.api import answer
from planner.errors import PlannerError
from planner.footprint import measure
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from planner.units import gib
from tests.conftest import CONFIGS, corpus_rows

CAUSAL: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 250_002}


def kv(source: str, tokens: int, **options: Any) -> dict[str, Any]:
    return answer("kv", source, {"tokens": tokens, **options})


def b006() -> None:
    assert kv("catalog:Llama-3.1-8B", 1)["bytes_per_token_unbounded"] == 128 * 1024


def b008() -> None:
    """int8 weights leave the cache in 16 bits: 57,344 bytes a token, 0.164 GiB for 3,072 tokens."""
    raw = {**load("catalog:Qwen2.5-7B").raw, "quantization_config": {"quant_method": "gptq", "bits": 8}}
    out = kv(json.dumps(raw), 3072)
    assert out["bytes_per_token_unbounded"] == 57_344
    assert gib(out["architecture_bytes"], 3) == "0.164 GiB"


def b009() -> None:
    """Two figures: what a request needs, and what the engine prints for a pool."""
    out = answer("plan", "catalog:Gemma-3-27B", {"gpu": "H100 SXM", "gpus": 2, "tp": 2, "tokens": 8192})
    assert out["architecture_bytes"] == 1_107_296_256
    assert out["kv_tokens"] not in (None, out["kv_pool_bytes"] // (81_920 // 2))


def b016() -> None:
    with pytest.raises(PlannerError):
        read_config({"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], **CAUSAL})


def two_slopes() -> None:
    """Full layers at the context, windows at the smaller of context and window: one token costs all layers, further ones only the full."""
    model = read_config(json.loads((CONFIGS / "gemma4_text.json").read_text()))
    at = [measure(model, None, Scenario(engine="architecture", tokens=t, sequences=1)) for t in (1, 2, 50_000, 50_001)]
    every, after = (at[1].architecture_bytes - at[0].architecture_bytes), (at[3].architecture_bytes - at[2].architecture_bytes)
    assert after == at[0].bytes_per_token_unbounded
    assert every == after + sum(w["bytes_per_token"] for w in at[0].windowed)


def b047() -> None:
    """gpt-oss-120b at 131,072 tokens with 1,024 batched ones: 18 full layers and the windowed pages, 4.54 GiB."""
    options = {"gpu": "H100 SXM", "max_num_batched_tokens": 1024, "max_model_len": 131_072, "kv_memory": "1.71GiB", "no_async_scheduling": True, "tokens": 1}
    out = answer("plan", "catalog:gpt-oss-120b", options)
    assert (out["fits"], out["limited_by"]) == (False, "start")
    assert gib(out["blocks_per_request"] * out["bytes_per_block"]) == "4.54 GiB"


def b088() -> None:
    """Only the layers marked * grow; M layers keep a state of constant size."""
    out = kv(str(CONFIGS / "shapes" / "Nemotron-H-8B.json"), 8192)
    assert out["bytes_per_token_unbounded"] == 4 * 2 * 8 * 128 * 2
    assert out["state_bytes_per_sequence"] == 102_137_856


def b183() -> None:
    small, large = (kv(str(CONFIGS / "granitemoehybrid.json"), t) for t in (16_384, 131_072))
    assert small["state_bytes_per_sequence"] == large["state_bytes_per_sequence"] > 0
    assert large["architecture_bytes"] - small["architecture_bytes"] == (131_072 - 16_384) * small["bytes_per_token_unbounded"]


def b210() -> None:
    config = {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 92_544,
              "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336, "max_position_embeddings": 32_768,
              "torch_dtype": "bfloat16"}  # fmt: skip
    assert gib(kv(json.dumps(config), 204_800)["architecture_bytes"]) == "25.00 GiB"


def b057() -> None:
    """fp8 halves the attention pages only: a state's page stays, so a request of a few tokens needs as many bytes as before."""
    options = {"gpu": "A100 SXM 80GB", "kv_memory": "10GiB", "tokens": 32_768}
    for config in ("qwen3_next", "falcon_h1"):
        long, short = (
            [answer("plan", str(CONFIGS / f"{config}.json"), options | {"max_model_len": n, "kv_dtype": d, "tokens": n}) for d in ("bf16", "fp8")]
            for n in (4096, 16)
        )
        gain = [fp8["max_concurrency"] / bf16["max_concurrency"] for bf16, fp8 in (long, short)]
        assert gain[1] < 1.1 < gain[0] < 2, (config, gain)


def b143() -> None:
    """Blocks of a request: ceil(length / block) of the attention groups plus the state slots of the others (3 with prefix caching)."""
    options = {"gpu": "H100 SXM", "kv_memory": "40GiB", "max_model_len": 4096, "tokens": 4096}
    for caching, slots in ((True, 3), (False, 1)):
        out = answer("plan", str(CONFIGS / "nemotron_h.json"), options | {"prefix_caching": caching})
        groups = out["pools"][0]["groups"]
        states = [g for g in groups if g["kind"] == "state"]
        rows = [g for g in groups if g["kind"] == "full"]
        assert out["blocks_per_request"] == slots * len(states) + sum(-(-4096 // g["block_size"]) for g in rows)
        assert states
        assert rows


def b196() -> None:
    """Bytes a token are the stack's and the draft layers' together while the model drafts."""
    source = json.dumps({**load("catalog:DeepSeek-V3").raw, "num_nextn_predict_layers": 1})
    assert [kv(source, 100, engine="architecture", num_speculative_tokens=n)["architecture_bytes"] for n in (0, 1)] == [61 * 115_200, 62 * 115_200]


def b204() -> None:
    """DeepSeek-V2-Lite: heads padded to 256 before vLLM knew MLA (442,368 bytes a token), 31,104 since."""
    options = {"gpu": "H100 SXM", "kv_memory": "35.42GiB", "max_model_len": 8192, "tokens": 8192}
    old, new = (answer("plan", "catalog:DeepSeek-V2-Lite", options | {"engine_version": v}) for v in ("0.6.4", "0.33.0"))
    assert (old["bytes_per_block"], new["bytes_per_block"]) == (16 * 442_368, 16 * 31_104)
    assert old["num_blocks"] in range(5372, 5375)
    assert round(old["max_concurrency"], 2) == 10.49 or round(old["max_concurrency"], 2) == 10.5


ANSWERED: dict[str, Callable[[], None]] = {
    "B006": b006, "B008": b008, "B009": b009, "B016": b016, "B021": two_slopes, "B047": b047, "B088": b088, "B090": b088, "B181": two_slopes, "B183": b183,
    "B188": b183, "B210": b210, "B057": b057, "B143": b143, "B196": b196, "B204": b204,
}  # fmt: skip
NOT_YET = {
    "B012": "llama.cpp's cells and slots",
    "B038": "weights tensor by tensor with lists of unquantized modules",
    "B063": "unsettled in the thread",
    "B120": "a Qwen3.8 file is not at hand",
    "B166": "SGLang's state slots",
    "B224": "SGLang's two pools",
    "B226": "experts kept off the device",
}


@pytest.mark.parametrize("report", sorted(ANSWERED))
def test_answered(report: str) -> None:
    ANSWERED[report]()


@pytest.mark.corpus
def test_every_report_of_this_kind_is_answered_or_listed() -> None:
    assert {r["id"] for r in corpus_rows("bug_reports.csv") if r["kind"] == "formula"} == set(ANSWERED) | set(NOT_YET)

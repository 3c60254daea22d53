"""Public reports on ranks and on waste (kinds parallelism and fragmentation): the right behaviour, or why it is not answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.api import answer
from planner.errors import PlannerError
from planner.sources import load
from tests.conftest import CONFIGS, corpus_rows

POOL = 8_690_000_000


def planned(source: str, **options: Any) -> dict[str, Any]:
    return answer("plan", source, {"gpu": "H100 SXM", "kv_memory": POOL, "max_model_len": 8192, "tokens": 4096, **options})


def b028() -> None:
    """Two GPUs do not double the tokens of one pool size: each rank holds half of the heads, so the same GiB a rank holds twice the
    tokens, and the plan says both: bytes of each rank, tokens of the group."""
    one, two = (planned("catalog:Qwen2.5-7B", gpus=n, tp=n) for n in (1, 2))
    assert two["kv_pool_bytes"] == one["kv_pool_bytes"] == POOL
    assert two["bytes_per_block"] * 2 == one["bytes_per_block"]
    assert two["kv_tokens"] // one["kv_tokens"] == 2
    assert len(two["per_rank_bytes"]) == 2


def b076() -> None:
    """A latent under tensor parallelism is on every rank; with data-parallel attention eight pools hold eight times as many."""
    tensor, data = (planned("catalog:DeepSeek-V3", gpus=8, tp=8, dp_attention=d) for d in (1, 8))
    assert data["max_sequences"] == 8 * tensor["max_sequences"]


def b079() -> None:
    """Data-parallel attention copies the attention weights: more weight bytes on a rank."""
    tensor, data = (planned("catalog:DeepSeek-V3", gpus=8, tp=8, dp_attention=d, kv_memory=None, gpu="B200 SXM") for d in (1, 4))
    assert data["weights_bytes_per_rank"][0] > tensor["weights_bytes_per_rank"][0]


def b081() -> None:
    """Qwen3-32B on 4 ranks: 2 of 8 KV heads each, so a block is a quarter of a whole one and there are four times as many."""
    one, four = (planned("catalog:Qwen3-32B", gpus=n, tp=n) for n in (1, 4))
    assert four["bytes_per_block"] == 16 * 64 * 2 * 2 * 128 * 2
    assert four["num_blocks"] // one["num_blocks"] == 4


def b083() -> None:
    """2 KV heads on 4 ranks: one head on each, four in all; the model's own total stays 2."""
    raw = {**json.loads((CONFIGS / "llama.json").read_text()), "num_key_value_heads": 2}
    alone, four = (planned(json.dumps(raw), gpus=n, tp=n) for n in (1, 4))
    assert four["architecture_bytes"] == alone["architecture_bytes"]
    assert 2 * four["bytes_per_block"] == alone["bytes_per_block"]
    copies = next(g["bytes"] for g in four["gap"] if g["code"] == "copies")
    assert copies == four["architecture_bytes"]


def b124() -> None:
    """40 heads divide by 5, the vocabulary of 151,936 does not."""
    raw = {**load("catalog:Qwen3-8B").raw, "num_attention_heads": 40, "num_key_value_heads": 5, "intermediate_size": 17_400, "vocab_size": 151_936}
    with pytest.raises(PlannerError) as caught:
        planned(json.dumps(raw), gpus=5, tp=5)
    assert (caught.value.code, caught.value.field) == ("vocab_not_divisible", "tp")


def b151() -> None:
    high, low = (planned("catalog:Llama-3.1-8B", memory_fraction=f) for f in (0.97, 0.92))
    assert "memory_fraction_high" in {n["code"] for n in high["notes"]} - {n["code"] for n in low["notes"]}


ANSWERED: dict[str, Callable[[], None]] = {
    "B028": b028, "B076": b076, "B077": b076, "B079": b079, "B081": b081, "B083": b083, "B124": b124, "B151": b151,
}  # fmt: skip
NOT_YET = {
    "B145": "vLLM on Ascend pages states in its own way; only CUDA was executed",
    "B146": "as B145",
    "B147": "vLLM on TPU: pages of another kernel",
    "B150": "releases of 2023, which measured free memory in another way",
    "B215": "TensorRT-LLM's overhead on the first GPU; unsettled in the thread",
}


@pytest.mark.parametrize("report", sorted(ANSWERED))
def test_answered(report: str) -> None:
    ANSWERED[report]()


@pytest.mark.corpus
def test_every_report_of_these_kinds_is_answered_or_listed() -> None:
    assert {r["id"] for r in corpus_rows("bug_reports.csv") if r["kind"] in ("parallelism", "fragmentation")} == set(ANSWERED) | set(NOT_YET)

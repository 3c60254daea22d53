"""Real ranks under torchrun (gloo): what each keeps, by hand, by `planner.parallel` and by vLLM's rules; and that all say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gpu_probe import dist
from gpu_probe.errors import ProbeTimeLimit
from planner.errors import InvalidInput
from planner.footprint import measure
from planner.hardware import find
from planner.readers import read_config
from planner.scenario import Scenario
from tests.conftest import ROOT

COMMON = {
    "torch_dtype": "bfloat16", "hidden_size": dist.HIDDEN, "num_hidden_layers": dist.LAYERS, "intermediate_size": dist.MLP, "vocab_size": dist.VOCAB,
    "max_position_embeddings": 1024, "num_attention_heads": 8,
}  # fmt: skip
LLAMA = {**COMMON, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 16}
CONFIGS: dict[str, dict[str, Any]] = {
    "gqa": {**LLAMA, "num_key_value_heads": 4},
    "gqa 2": {**LLAMA, "num_key_value_heads": 2},
    "mqa": {**LLAMA, "num_key_value_heads": 1},
    "mla": {
        **COMMON, "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "num_key_value_heads": 8, "kv_lora_rank": 32, "q_lora_rank": None,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "first_k_dense_replace": 2,
    },
}  # fmt: skip
COPIES = {
    2: {("mla", "tp"): 2.0, ("gqa", "tp"): 1.0, ("gqa 2", "tp"): 1.0, ("mqa", "tp"): 2.0},
    4: {("mla", "tp"): 4.0, ("gqa", "tp"): 1.0, ("gqa 2", "tp"): 2.0, ("mqa", "tp"): 4.0},
}
"""Of one copy, over all ranks: the latent is on every rank, KV heads only where there are fewer than ranks."""
ROW_BYTES = {"mla": 4 * (32 + 8), "gqa": 4 * 4 * 32, "gqa 2": 4 * 2 * 32, "mqa": 4 * 32}


def vllm_bytes(name: str, mode: str, ranks: int) -> list[int]:
    """vLLM's rule for the same load in bf16, without its null block: what twice the sequences hold, less what they hold once."""

    def held(sequences: int) -> tuple[int, ...]:
        s = Scenario(engine="vllm", gpu="A100 SXM 80GB", tp=ranks, dp_attention=ranks if mode == "dp" else 1, sequences=sequences,
                     tokens=dist.PROMPT + dist.OUTPUT, block_size=dist.BLOCK_SIZE)  # fmt: skip
        return measure(read_config(CONFIGS[name], name), find(s.gpu), s).per_rank_bytes

    return [b - a for a, b in zip(held(dist.BATCH), held(2 * dist.BATCH), strict=True)]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.check_all)])
def test_ranks_keep_what_is_predicted_and_say_what_one_rank_says(ranks: int) -> None:
    command = [sys.executable, "-m", "gpu_probe", "dist", f"--ranks={ranks}", "--json", "--time-limit=110"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    result = json.loads(run.stdout.splitlines()[-1])
    assert (result["ranks"], result["backend"]) == (ranks, "gloo")
    rows = {(r["attention"], r["mode"]): r for r in result["rows"]}
    assert set(rows) == {(a, m) for a in CONFIGS for m in ("tp", "dp")}
    for (name, mode), row in rows.items():
        assert row["single_bytes"] == 2 * 8 * 32 * ROW_BYTES[name]  # layers x sequences x whole blocks of 27 tokens
        assert row["over_single"] == COPIES[ranks].get((name, mode), 1.0)
        assert row["measured"] == row["predicted"] == dist.predicted_bytes(dist.ATTENTIONS[name], mode, ranks)
        assert row["measured"] == [2 * b for b in vllm_bytes(name, mode, ranks)]  # fp32 here, bf16 there
        assert row["max_rel_error"] <= 1e-5


def test_split_gives_every_head_and_request_to_someone() -> None:
    for a in dist.ATTENTIONS.values():
        for ranks in (1, 2, 4, 8):
            parts = [dist.split(a, "tp", r, ranks) for r in range(ranks)]
            assert [h for p in parts for h in p.q] == list(range(a.q_heads))
            assert {h for p in parts for h in p.kv} == set(range(a.kv_heads))
            assert all(h * a.kv_heads // a.q_heads in p.kv for p in parts for h in p.q)
            assert sorted(s for r in range(ranks) for s in dist.split(a, "dp", r, ranks).sequences) == list(range(dist.BATCH))


def test_odd_numbers_of_ranks_are_refused_and_slow_ones_ended() -> None:
    with pytest.raises(InvalidInput, match="3 ranks"):
        dist.launch(3)
    with pytest.raises(ProbeTimeLimit):
        dist.launch(2, limit_s=0.3)

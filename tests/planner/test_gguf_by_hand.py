"""Architectures of GGUF files by hand: metadata as llama.cpp's converter writes it, and what each layer keeps, worked out on paper."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cache import Rows, State
from planner.model import ModelSpec
from planner.readers import read_config

EXPERTS = {"expert_count": 16, "expert_used_count": 4, "expert_feed_forward_length": 256, "leading_dense_block_count": 1, "expert_shared_count": 1}
STATE = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 2, "ssm.inner_size": 2048, "ssm.time_step_rank": 32}
MLA = {"attention.head_count_kv": 1, "attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512, "rope.dimension_count": 64,
       "attention.key_length_mla": 192, "attention.value_length_mla": 128}  # fmt: skip
WIDE = {"attention.key_length": 128, "attention.value_length": 128}
NEAR = {"attention.sliding_window": 128, "attention.sliding_window_pattern": [True, True, True, False] * 2}
INDEX = {"attention.indexer.head_count": 8, "attention.indexer.key_length": 64, "attention.indexer.top_k": 512}
WKV = {"attention.head_count": 0, "attention.head_count_kv": 0, "wkv.head_size": 64, "token_shift_count": 2}

HAND: dict[str, tuple[dict[str, Any], list[str]]] = {
    "mimo2": (EXPERTS | NEAR | {"attention.head_count_kv": [8, 8, 8, 4] * 2, "attention.key_length": 192, "attention.value_length": 128},
              ["8x192+128@128"] * 3 + ["4x192+128"]),
    "step35": (EXPERTS | NEAR | WIDE | {"attention.head_count": [16, 16, 16, 32] * 2, "attention.head_count_kv": [4, 4, 4, 8] * 2},
               ["4x128+128@128"] * 3 + ["8x128+128"]),
    "minimax-01": (EXPERTS | WIDE | {"full_attention_interval": 4}, ["state 262144"] * 3 + ["4x128+128"]),
    "minimax-m3": (EXPERTS | WIDE | INDEX | {"leading_dense_block_count": 2}, ["4x128+128"] * 2 + ["4x128+128 1x64+0"] * 6),
    "smallthinker": (EXPERTS | WIDE | {"attention.sliding_window": 1}, ["4x128+128"] + ["4x128+128@4096"] * 3),
    "plm": ({"attention.kv_lora_rank": 512, "attention.head_count_kv": 16, "attention.key_length": 192, "attention.value_length": 128}, ["16x192+128"]),
    "plamo3": (WIDE | {"attention.sliding_window": 64}, ["4x128+128@64"] * 7 + ["4x128+128"]),
    "nemotron_h": (STATE | WIDE | {"attention.head_count_kv": [0, 0, 4, 0] * 2, "feed_forward_length": [0, 2816, 0, 0] * 2},
                   ["state 10240 262144", "", "4x128+128", "state 10240 262144"]),
    "kimi-linear": (EXPERTS | MLA | {"attention.head_count_kv": [0, 0, 0, 1] * 2, "kda.head_dim": 128, "ssm.conv_kernel": 4},
                    ["state 24576 262144"] * 3 + ["1x576+0"]),
    "mistral4": (EXPERTS | MLA, ["1x576+0"]),
    "hy_v4": (EXPERTS | MLA | INDEX | {"attention.indexer.types": [True, True, False, False] * 2, "attention.q_lora_rank": 384, "hyper_connection.count": 4},
              ["1x576+0 1x64+0"] * 2 + ["1x576+0"] * 2),
    "deepseek4": (EXPERTS | INDEX | {"attention.head_count_kv": 1, "attention.key_length": 512, "attention.value_length": 512, "attention.q_lora_rank": 256,
                                     "attention.sliding_window": 128, "attention.output_group_count": 4, "attention.output_lora_rank": 128,
                                     "attention.compress_ratios": [0, 4, 128, 0] * 2, "hyper_connection.count": 4},
                  ["1x512+0@128", "1x512+0@128 1x512+0/4 1x64+0/4", "1x512+0@128 1x512+0/128", "1x512+0@128"]),
    "rwkv6": (WKV, ["state 2048 65536"]),
    "rwkv7": (WKV, ["state 2048 65536"]),
    "gptneox": ({"use_parallel_residual": True, "attention.head_count_kv": 16}, ["16x64+64"]),
    "refact": ({"attention.head_count_kv": 1}, ["1x64+64"]),
    "openelm": ({"attention.head_count": [12, 16] * 4, "attention.head_count_kv": [3, 4] * 4, "attention.key_length": 64, "attention.value_length": 64},
                ["3x64+64", "4x64+64"]),
    "hunyuan-moe": (EXPERTS | WIDE | {"expert_shared_feed_forward_length": 256}, ["4x128+128"]),
    "bailingmoe2": (EXPERTS | {"nextn_predict_layers": 1, "block_count": 9}, ["4x64+64"]),
}  # fmt: skip


def kept(spec: ModelSpec, layer: int) -> str:
    """heads x K + V @ window / tokens a row, or the elements of a state."""
    out = []
    for kind in spec.layers[layer].caches:
        if isinstance(kind, Rows):
            window, ratio = f"@{kind.window}" if kind.window else "", f"/{kind.ratio}" if kind.ratio > 1 else ""
            out.append(f"{kind.heads}x{kind.k_dim}+{kind.v_dim}{window}{ratio}")
        else:
            assert isinstance(kind, State)
            out.append("state " + " ".join(str(t.elements) for t in kind.tensors))
    return " ".join(out)


@pytest.mark.parametrize("arch", HAND)
def test_an_architecture_by_hand(arch: str) -> None:
    changes, expected = HAND[arch]
    plain = {"block_count": 8, "context_length": 8192, "embedding_length": 1024, "attention.head_count": 16, "attention.head_count_kv": 4,
             "feed_forward_length": 2816, "vocab_size": 32_000}  # fmt: skip
    metadata = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in (plain | changes).items()}}
    spec = read_config({"model_type": "gguf", "metadata": metadata, "tensors": {}})
    found = [kept(spec, i) for i in range(len(spec.layers))]
    assert found == (expected * 8)[:8]

"""Seventeen shapes that planners get wrong: what is right, what KVLedger says, and what published tools were seen to say.

python -m tests.shapes          writes docs/shapes.md; a test fails where it is stale.
"""

from __future__ import annotations

import json

from planner.dtypes import kv_layout
from planner.errors import PlannerError
from planner.layermap import groups
from planner.readers import read_config
from tests.conftest import CONFIGS, ROOT

TARGET = ROOT / "docs" / "shapes.md"
# name: (tokens, KV bytes of one sequence in bf16, bytes of recurrent state, how they come about)
SHAPES: dict[str, tuple[int, int, int, str]] = {
    "Llama-3.1-8B": (32768, 4_294_967_296, 0, "2 x 32 x 8 x 128 x 2 a token"),
    "Llama-2-13B": (4096, 3_355_443_200, 0, "2 x 40 x 40 x 128 x 2 a token"),
    "Falcon-7B": (2048, 16_777_216, 0, "`multi_query`: 1 KV head of 64"),
    "DeepSeek-V3": (32768, 2_302_672_896, 0, "61 latents of 512 + 64"),
    "DeepSeek-V3.2": (32768, 2_302_672_896, 0, "as V3; its index keys are listed apart"),
    "Gemma-2-9B": (8192, 2_113_929_216, 0, "21 full layers, 21 windows of 4,096"),
    "gpt-oss-20b": (32768, 808_452_096, 0, "12 full layers, 12 windows of 128"),
    "Qwen3-Next-80B-A3B": (32768, 805_306_368, 77_266_944, "12 full layers; 36 delta-net states"),
    "Jamba-v0.1": (32768, 536_870_912, 16_056_320, "4 attention layers; 28 Mamba states"),
    "Nemotron-H-8B": (8192, 134_217_728, 102_137_856, "4 attention layers; 24 Mamba-2 states"),
    "Llama-4-Scout": (32768, 2_818_572_288, 0, "12 full layers, 36 chunks of 8,192"),
    "Qwen3-32B": (32768, 8_589_934_592, 0, "head_dim 128, not 5120 / 64"),
    "Gemma-3-27B": (32768, 3_120_562_176, 0, "10 full layers, 52 windows of 1,024"),
    "Mistral-7B-v0.1": (32768, 536_870_912, 0, "32 windows of 4,096"),
    "OpenELM-3B": (2048, 171_966_464, 0, "164 KV heads over 36 layers"),
    "Gemma-3n-E4B": (32768, 285_212_672, 0, "4 full layers, 16 windows of 512; 15 layers share"),
    "Flan-T5-XL": (512, 100_663_296, 0, "the decoder's own 24 layers"),
}
# Published versions run on these shapes on one day of November 2026: (right, refused or failed, wrong), of those that were run.
PEERS: dict[str, tuple[int, int, int]] = {
    "kvfit 0.3.0": (8, 6, 3),
    "llm-flops 0.0.1": (8, 2, 7),
    "aiconfigurator 0.12.0": (7, 4, 6),
    "chimeraforge 0.76.0": (7, 2, 8),
    "ridgepoint 0.1.2": (7, 2, 8),
    "sparkfit 0.5.0": (7, 3, 7),
    "llmfit 1.1.17": (5, 0, 10),
    "vramscout 0.7.0": (4, 1, 12),
    "llm-d-planner 0.3.3": (4, 4, 9),
    "hf-mem 0.5.6": (3, 2, 12),
    "modelinfo-cli 1.4.4": (3, 0, 14),
    "llm-mem-planner 0.2.2": (2, 15, 0),
    "vramcalc 0.1.2": (2, 13, 2),
    "llm-resource-planner 0.2.0": (2, 4, 11),
    "llm-x-py 0.1.5": (2, 3, 12),
    "hf-vram-calc 1.0.9": (2, 1, 14),
    "canirun 1.0.1": (2, 0, 15),
}


def ours(name: str) -> tuple[int, int] | str:
    """(KV bytes, state bytes) by the architecture, or the refusal."""
    tokens = SHAPES[name][0]
    try:
        model = read_config(json.loads((CONFIGS / "shapes" / f"{name}.json").read_text()), name)
    except PlannerError as e:
        return e.message
    found = groups(model, kv_layout("bf16"), model.dtype, tokens)
    return sum(g.bytes for g in found if g.kind.kind not in ("state", "index", "cross")), sum(g.bytes for g in found if g.kind.kind == "state")


def table() -> str:
    lines = ["# Seventeen shapes", "", "Written by `python -m tests.shapes`; a test fails where it is stale.", "",
             "| shape | tokens | KV bytes of one sequence | state bytes | how | KVLedger |", "|---|---:|---:|---:|---|---|"]  # fmt: skip
    said = []
    for name, (tokens, kv, state, how) in SHAPES.items():
        answer = ours(name)
        said.append("refused" if isinstance(answer, str) else "right" if answer == (kv, state) else "wrong")
        lines.append(f"| {name} | {tokens:,} | {kv:,} | {state:,} | {how} | {said[-1]} |")
    lines += [
        "",
        "| tool | right | refused or failed | wrong |",
        "|---|---:|---:|---:|",
        f"| **KVLedger** | {said.count('right')} | {said.count('refused')} | {said.count('wrong')} |",
    ]
    lines += [f"| {name} | {good} | {refused} | {wrong} |" for name, (good, refused, wrong) in PEERS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
    print(table())

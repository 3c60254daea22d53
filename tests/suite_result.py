"""A suite's result of round numbers, written by hand: nothing in it was measured."""

from __future__ import annotations

from typing import Any

from planner.messages import render

RATES = {"read_bytes_per_s": 2e10, "flop_per_s": 5e10}
KIND_ROWS = [
    {"kind": kind, "bytes": size, "expected_bytes": size, "of_mha": size / 4_194_304, "itl_s": ms / 1000, "mha_over_this": 40 / ms, "backend": "torch-gather"}
    for kind, size, ms in (("MHA", 4_194_304, 40), ("GQA", 1_048_576, 25), ("MQA", 262_144, 20), ("MLA", 327_680, 32))
]
RANK_ROWS = [
    {"attention": a, "mode": mode, "ranks": n, "measured": [single * over // n] * n, "single_bytes": single, "over_single": float(over)}
    for n in (2, 4)
    for a, mode, single, over in (("mla", "tp", 4096, n), ("mla", "dp", 4096, 1), ("gqa", "tp", 8192, 1), ("mqa", "tp", 2048, n))
]
NUMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "cache": ("C4 C5 C19", {
        "contexts": [100, 200, 400], "with_s": [0.01, 0.01, 0.011], "without_s": [0.05, 0.1, 0.2], "slope_with_s_per_token": 4e-6,
        "slope_without_s_per_token": 5e-4, "growth_with": 1.1, "growth_without": 4.0, "max_rel_error": 1e-7, "kv_bytes": [1000, 2000, 4000],
    }),
    "prompt": ("C1 C2", {
        "prompts": [128, 256, 512], "score_products": [1000, 4000, 16_000], "prefill_s": [0.1, 0.25, 0.75], "attention_s": [0.01, 0.035, 0.14],
        "prefill_ratio": [2.5, 3.0], "attention_ratio": [3.5, 3.9],
    }),
    "phases": ("C1 C3", {
        "prefill_of_matmul": 0.7, "prefill_of_read": 0.05, "decode_of_matmul": 0.06, "decode_of_read": 0.6, "ttft_s": 0.4, "itl_s": 0.04, "prompt": 128,
    }),
    "itl": ("C5 C14", {
        "points": [{"batch": 1, "context": 1000, "itl_s": 0.04, "kv_bytes": 5000}, {"batch": 4, "context": 1000, "itl_s": 0.1, "kv_bytes": 20_000}],
        "fixed_s": 0.02, "per_sequence_s": 0.01, "per_token_s": 1e-5,
    }),
    "kinds_bytes": ("C6 C8", {"rows": KIND_ROWS}),
    "gqa_speed": ("C8 C22", {"rows": KIND_ROWS}),
    "mqa_latency": ("C21", {"mqa_over_mha": 0.5, "claimed": 0.7}),
    "mqa_throughput": ("C21", {
        "mha_tokens_per_s": 40.0, "mqa_tokens_per_s": 360.0, "ratio": 9.0, "claimed_up_to": 11, "mha_sequences": 1, "mqa_sequences": 16,
    }),
    "quality": ("C8", {}),
    "absorbed": ("C9", {
        "tokens": 2048, "absorbed_s": 0.01, "expanded_s": 0.25, "ratio": 25.0, "max_rel_error": 1e-6, "kv_bytes": 5000, "expanded_bytes": 40_000,
    }),
    "unchanged": ("C4 C19", {"tokens": 100, "steps": 16}),
    "paged": ("C7 C15", {"lengths": [10, 20, 30], "paged_bytes": 80_000, "contiguous_bytes": 160_000, "stored_bytes": 60_000}),
    "prefix": ("C7 C15", {"sequences": 8, "prefix_tokens": 256, "own_tokens": 64, "shared_bytes": 10_000, "apart_bytes": 30_000}),
    "kv_dtype": ("C6 C7", {
        "tokens": 10, "bytes": {"fp32": 4000, "bf16": 2000, "fp8": 1000}, "expected_bytes": {"fp32": 4000, "bf16": 2000, "fp8": 1000},
    }),
    "llama_size": ("C20", {"bytes_per_token": 819_200, "tokens": 4000, "bytes": 3_276_800_000, "weight_bytes": 26_031_728_640}),
    "llama_weights": ("C20", {}),
    "ranks": ("C10 C11", {"ranks": [2, 4], "rows": RANK_ROWS}),
}  # fmt: skip


def suite_result() -> dict[str, Any]:
    """A fresh one, as JSON would give it back."""
    import json

    items = [
        {"name": name, "claims": claims.split(), "verdict": "undecided" if name == "quality" else "holds", "says": render(f"suite.{name}.says"),
         "measured": f"{name}, measured", "numbers": numbers, "bytes_right": None, "verdict_text": "holds here"}
        for name, (claims, numbers) in NUMBERS.items()
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps({
        "form": "kvledger-suite-1", "device": "cpu", "device_name": "a processor", "versions": {"torch": "2.13.0", "threads": "1"}, "backend": "torch-gather",
        "seed": 0, "rounds": 7, "items": items, "bytes_right": True, "ceilings": {"before": RATES, "after": RATES, "dtype": "fp32", "steady": True},
        "overhead": {"t_fixed_s": 0.001, "t_layer_s": 0.0002}, "wall_s": 60.0,
    }))  # fmt: skip
    return found


def numbers_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """The ones inside `result`, to be changed in place."""
    found: dict[str, Any]
    (found,) = [i["numbers"] for i in result["items"] if i["name"] == name]
    return found

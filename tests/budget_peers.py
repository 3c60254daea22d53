"""Published planners on the same rows: the KV memory that they leave on one rank, in GiB.

Run once, with a local stand-in for the hub that serves the rows' configs and headers of bf16 tensors; so only rows whose weights are not
quantized are compared. Each tool got what it asks for: device, fraction, ranks, length (and batch, for the one that takes it).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

DATE = "2026-11-30"
# tool -> (command, how its answer becomes KV memory of a rank)
COMMANDS = {
    "aiconfigurator 0.12.0": (
        'estimate_kv_cache(folder, "h100_sxm", "vllm", "0.24.0", max_num_tokens=T, max_batch_size=S, memory_fraction_kind="of_total", '
        "memory_fraction_value=F, tp_size=, pp_size=, moe_tp_size=, moe_ep_size=)", "total_kv_size_bytes"),
    "llm-d-planner 0.3.3": ("planner plan --model M --gpu-memory 80 --gpu-mem-util F --max-model-len L --batch-size 1 --tp --pp",
                            "allocatable_kv_cache_memory_gb over the GPUs"),
    "vramscout 0.7.0": ("vramscout M --vram-gib 79.19 --engine vllm --gpu-memory-utilization F --context L --tp --json",
                        "memory_budget_gib less the parts that are not cache"),
    "kvfit 0.3.0": ("kvfit M --hardware h100-80 --gpus N --context L --utilization F --tp --json", "budget less weights and reserve of a rank"),
    "hf-mem 0.5.6": ("hf-mem --model-id M --json-output", "the share of the memory seen, less the weights: it says no more"),
}  # fmt: skip
TOOLS = tuple(COMMANDS)
# row -> GiB in the order of TOOLS; None: no answer (refused, or no such flag)
ANSWERS: dict[str, tuple[float | None, ...]] = {
    "lp19_codellama_7b_hf_tp1pp1_8192": (59.26, 61.29, 61.62, 63.45, 62.68),
    "lp19_deepseek_v2_lite_chat_tp1pp1_8192": (None, 45.70, 46.13, 47.90, 47.13),
    "lp19_gemma_2_27b_it_tp1pp1_8192": (None, 21.37, 22.64, 25.29, 24.52),
    "lp19_gemma_2_2b_it_tp1pp1_8192": (None, 67.21, 69.44, 71.13, 70.36),
    "lp19_gemma_3_4b_it_tp1pp1_8192": (None, 66.94, None, None, 68.44),
    "lp19_granite_vision_3_3_2b_tp1pp1_8192": (None, 70.22, 69.61, 71.28, 70.51),
    "lp19_llama_3_1_8b_instruct_tp1pp2_8192": (64.33, 67.51, None, None, 67.75),
    "lp19_phi_4_tp1pp1_8192": (None, 46.90, 46.72, 48.69, 47.93),
    "lp19_mistral_small_3_1_24b_instruct_2503_tp1pp1_8192": (None, 30.97, 30.90, 33.34, 32.57),
    "lp19_kimi_dev_72b_tp2pp1_8192": (3.64, 5.07, 4.86, 8.29, 7.52),
    "lp19_kimi_dev_72b_tp4pp1_8192": (37.64, 39.48, 39.73, 42.14, 41.37),
    "lp19_kimi_vl_a3b_instruct_tp2pp1_8192": (None, None, 60.16, 61.83, 61.06),
    "lp19_qwen1_5_moe_a2_7b_tp1pp1_8192": (47.27, 48.15, 49.21, 50.89, 50.12),
    "lp19_qwen2_5_72b_instruct_tp2pp1_8192": (3.64, 5.07, 4.86, 8.29, 7.52),
    "lp19_qwen3_30b_a3b_tp1pp1_8192": (14.83, 16.20, 16.52, 19.15, 18.38),
    "lp19_qwen3_8b_tp1pp1_8192": (56.56, 58.26, 58.91, 60.74, 59.97),
    "lp11_q3_06b": (66.76, 68.41, 69.33, 70.89, 70.16),
    "lpver_qwen3_14b_0_15_0": (44.13, 46.01, 46.51, 48.49, 47.72),
    "lpver_qwen3_14b_0_17_0": (44.13, 46.01, 46.51, 48.49, 47.72),
    "djl3055_v022": (None, 15.77, 15.47, None, 16.54),
    "djl3055_v023_oom": (None, 15.77, 15.47, None, 16.54),
}


def peers(pools: Mapping[str, tuple[float, float]]) -> list[str]:
    """`pools`: row -> (KVLedger's own, printed) KV memory. The errors of all tools on the rows that both have, and the rows side by side."""
    shared = [name for name in ANSWERS if name in pools]
    out = ["## Published planners on the same rows", "",
           f"Run on {DATE} on {len(shared)} rows whose weights are not quantized; error of the KV memory of a rank against the printed one.", "",
           "| tool | answered | median error | 90th percentile | command | KV memory |", "|---|---:|---:|---:|---|---|"]  # fmt: skip
    columns: dict[str, list[float | None]] = {"**KVLedger**": [pools[name][0] for name in shared]}
    columns |= {tool: [ANSWERS[name][i] for name in shared] for i, tool in enumerate(TOOLS)}
    for tool, values in columns.items():
        errors = sorted(abs(v / pools[name][1] - 1) for name, v in zip(shared, values, strict=True) if v is not None)
        command, how = COMMANDS.get(tool, ("python -m planner plan M --gpu ... --memory-fraction F --engine-version V", "kv_pool_bytes"))
        figures = f"{median(errors):.1%} | {errors[-(-9 * len(errors) // 10) - 1]:.1%}" if errors else "- | -"
        out.append(f"| {tool} | {len(errors)} | {figures} | `{command}` | {how} |")
    out += ["", f"| row | printed | {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) + 1)}"]
    for i, name in enumerate(shared):
        cells = ["-" if values[i] is None else f"{values[i]:.2f}" for values in columns.values()]
        out.append(f"| {name} | {pools[name][1]:.2f} | {' | '.join(cells)} |")
    return out

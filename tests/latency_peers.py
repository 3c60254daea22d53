"""Another planner on the measured rows: aiconfigurator's own TPOT for each. Prints the body of tests/latency_others.py's ANSWERS.

python -m tests.latency_peers PYTHON     PYTHON: an interpreter that has aiconfigurator 0.12.0; no hub and no GPU are needed

The tool has its own environment (it pins numpy), so this file is also what that interpreter runs: rows on stdin, answers on stdout.
Each row got what it asks for: model, system, backend, labels of the prompt and the output, sequences, ranks, split of the experts; all else as its
command line defaults to. It is asked twice. *Plain*: the model's plain config and the quantization modes with which its own list of measured rows
labels the row. *Checkpoint*: where it carries the config of the quantized checkpoint, that one with the modes and the cache that it names; a row
whose checkpoint it lacks keeps the plain answer. Where its tables lack the kernels of a label, experts in fp8 blocks were tried: the label of the
other fp8 rows with experts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PLAIN = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B"}  # the name under which it carries the config
CHECKPOINTS: dict[tuple[str, str], tuple[str, bool]] = {
    ("meta-llama/Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", False),
    ("meta-llama/Llama-3.1-70B", "fp4"): ("nvidia/Llama-3.1-70B-Instruct-FP8", True),
    ("Qwen/Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B-FP8-Static-PerTensor", False),
    ("Qwen/Qwen3.5-397B-A17B", "fp4"): ("nvidia/Qwen3.5-397B-A17B-NVFP4", False),
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): ("nvidia/MiniMax-M2.5-NVFP4", False),
}
"""(model, precision) -> the checkpoint whose config it carries, and whether the row's own modes of the weights still hold: it carries no fp4 one
of Llama 3.1, so its fp8 one stands for the cache."""


def asked() -> Iterator[dict[str, Any]]:
    from tests.latency_rows import GPUS, measured, ranks, whole

    for r in measured():
        yield {
            "group": [r["model"], GPUS[r["system"]], r["backend"], r["precision"], *ranks(r), whole(r["isl"]), whole(r["osl"])],
            "sequences": whole(r["concurrency_total"]), "system": r["system"], "gemm": r["gemm_quant_mode"], "moe": r["moe_quant_mode"],
        }  # fmt: skip


def tpot_ms(estimate: Callable[..., Any], row: dict[str, Any], path: str, labelled: bool) -> tuple[str, str]:
    """(ms and mark, or a dash; engine version of its tables, or why it refused)."""
    _, _, backend, precision, tp, ep, prompt, output = row["group"]
    why = ""
    for mark, blocks in (("", False), ("b", True))[: 1 + (precision == "fp8")]:
        modes = {"gemm_quant_mode": row["gemm"], "moe_quant_mode": "fp8_block" if blocks else row["moe"]} if labelled and row["gemm"] else {}
        try:
            r = estimate(path, row["system"], backend_name=backend, isl=prompt, osl=output, batch_size=row["sequences"],
                         tp_size=tp, moe_tp_size=tp // ep, moe_ep_size=ep, **modes)  # fmt: skip
        except Exception as e:
            why = why or f"{type(e).__name__}: {e}"
            continue
        if r.tpot and r.tpot > 0:
            return f"{r.tpot:.4g}{mark}", f"{backend} {r.backend_version}"
        why = why or "a TPOT of 0"
    return "-", why[:160]


def both(estimate: Callable[..., Any], row: dict[str, Any]) -> tuple[str, str]:
    model, precision = row["group"][0], row["group"][3]
    plain, said = tpot_ms(estimate, row, PLAIN.get(model, model), True)
    if (model, precision) not in CHECKPOINTS:
        return plain, said
    told, said = tpot_ms(estimate, row, *CHECKPOINTS[model, precision])
    return f"{plain}/{told}", said


def answers() -> None:
    """In the other interpreter. The search for the newest tables reads hundreds of small files at each call: it is kept, its answer is the same."""
    import logging
    from functools import cache

    import aiconfigurator.sdk.perf_database as offered  # type: ignore[import-not-found]
    import aiconfigurator_core.sdk.perf_database as core  # type: ignore[import-not-found]
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    logging.disable(logging.CRITICAL)
    newest = cache(core.get_latest_database_version)
    for module in (core, offered):
        module.get_latest_database_version = newest
    core.get_supported_databases = cache(core.get_supported_databases)
    seen: dict[str, tuple[str, str]] = {}
    for i, line in enumerate(sys.stdin):
        if line not in seen:
            seen[line] = both(cli_estimate, json.loads(line))
        print(json.dumps(seen[line]), flush=True)
        if i % 50 == 0:
            print(i, file=sys.stderr)


def main(python: str) -> None:
    rows = list(asked())
    got = subprocess.run([python, "-P", str(Path(__file__)), "answer"], input="".join(json.dumps(r) + "\n" for r in rows), text=True,
                         stdout=subprocess.PIPE, check=True)  # fmt: skip
    groups: dict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
    told: dict[str, int] = defaultdict(int)
    for row, text in zip(rows, filter(lambda x: x.startswith("["), got.stdout.splitlines()), strict=True):
        cell, said = json.loads(text)
        told[said] += 1
        groups[tuple(row["group"])][row["sequences"]] = f"{row['sequences']}:{cell}"
    for group, many in sorted(groups.items()):
        print(", ".join(map(str, group)), "=", *(many[k] for k in sorted(many)))
    for said, n in sorted(told.items()):
        print(n, said, file=sys.stderr)


if __name__ == "__main__":
    answers() if sys.argv[1:] == ["answer"] else main(*sys.argv[1:])

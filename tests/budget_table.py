"""From a GPU and flags alone to tokens, held against the start-up logs of the corpus: docs/budget.md.

python -m tests.budget_table          writes it; a test fails where it is stale or a figure is above its bar.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from planner.capacity import CapacityPlan, plan
from planner.engines.vllm import activation, overhead
from planner.engines.vllm.versions import rules_of
from planner.errors import PlannerError
from planner.hardware import find
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import from_options
from planner.sources import load
from planner.units import GIB, MIB
from tests import budget_others
from tests.budget_configs import MODELS
from tests.budget_peers import peers
from tests.conftest import CORPUS, ROOT

TARGET = ROOT / "docs" / "budget.md"
MEDIAN_BAR, P90_BAR = 0.02, 0.07
# Short names of logs; where a log says no more, the form that most servers have.
GPUS = {"H100": "H100 SXM", "H100 80GB": "H100 SXM", "A100": "A100 SXM 80GB"}
FLAGS = {"tp": "tp", "pp": "pp", "kv_cache_dtype": "kv_dtype", "max_model_len": "max_model_len", "max_num_seqs": "max_num_seqs",
         "max_num_batched_tokens": "max_num_batched_tokens", "block_size": "block_size", "gpu_memory_utilization": "memory_fraction"}  # fmt: skip
# line of the table: (the ledger's lines that make it up, the column of the log)
LINES = {
    "weights": (("weights", "weights_beside", "weights_vision"), "log_model_weights_gib"),
    "activation": (("activation",), "log_activation_gib"),
    "non-torch": (("non_torch",), "log_non_torch_gib"),
    "graphs": (("cuda_graphs", "cuda_graphs_after"), "log_cudagraph_gib"),
}


@dataclass(frozen=True)
class Row:
    """One start-up: GiB by line as (predicted, printed), and the plan that predicted them."""

    name: str
    family: str
    plan: CapacityPlan
    lines: dict[str, tuple[float, float | None]]
    pool: tuple[float, float]
    tokens: tuple[int, int | None]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Of the printed tokens; where a log prints none, of the GiB that make them (tokens are in proportion)."""
        got, true = self.tokens if self.tokens[1] else self.pool
        return got / true - 1  # type: ignore[operator]

    @property
    def held_out(self) -> bool:
        """By a hash of the model's type, so that relatives stand on one side."""
        return hashlib.sha256(self.family.encode()).digest()[0] % 2 == 1


REASONS = frozenset(("no release, or one before V1", "no GPU", "no fraction", "no ranks", "no KV memory printed", "no config at hand"))


def unusable(r: dict[str, str]) -> str | None:
    """Why a row cannot be predicted from GPU and flags alone (one of REASONS); None where it can."""
    if not re.match(r"v?0\.\d+\.\d+", r["engine_version"]) or tuple(map(int, re.findall(r"\d+", r["engine_version"])[:2])) < (0, 8):
        return "no release, or one before V1"
    if not r["gpu_name"]:
        return "no GPU"
    if not r["gpu_memory_utilization"]:
        return "no fraction"
    if not (r["tp"] or r["gpu_count"] == "1"):
        return "no ranks"
    if not r["log_available_kv_gib"]:
        return "no KV memory printed"
    return None


def model_of(r: dict[str, str], matched: dict[str, str]) -> ModelSpec | None:
    if file := matched.get(r["id"]):
        path = CORPUS / "configs" / file
        return read_config(json.loads(path.read_text()), path.stem) if path.exists() else None
    exact = CORPUS / "configs" / f"{r['hub_id_of_model'].replace('/', '__')}.json"
    if exact.exists():
        return read_config(json.loads(exact.read_text()), exact.stem)
    known = MODELS.get(r["hub_id_of_model"])
    if known is None:
        return None
    raw = known if isinstance(known, dict) else load(f"catalog:{known[0]}").raw | known[1]
    return read_config(raw, r["hub_id_of_model"])


@cache
def rows() -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    """(rows that are predicted, those of this engine that are not, with the reason)."""
    matched = {r["id"]: r["file"] for r in _csv("log_config_match.csv")}
    good: list[Row] = []
    left: list[tuple[str, str]] = []
    for r in _csv("engine_logs.csv"):
        if r["engine"] != "vLLM":
            continue
        why = unusable(r)
        model = None if why else model_of(r, matched)
        if why is None and model is None:
            why = "no config at hand"
        if why is None and model is not None:
            try:
                good.append(_row(r, model))
                continue
            except PlannerError as e:
                why = e.message
        left.append((r["id"], why or ""))
    return tuple(good), tuple(left)


def _csv(name: str) -> list[dict[str, str]]:
    with (CORPUS / name).open(newline="") as f:
        return list(csv.DictReader(f))


def _row(r: dict[str, str], model: ModelSpec) -> Row:
    options: dict[str, Any] = {"engine": "vllm", "engine_version": r["engine_version"].split("+")[0], "tokens": 1, "sequences": 1}
    options |= {o: r[k].split()[0] for k, o in FLAGS.items() if r[k]}
    options["gpus"] = int(options.get("tp", 1)) * int(options.get("pp", 1))
    options["enforce_eager"] = r["enforce_eager"] == "true"
    options["prefix_caching"] = "prefix caching off" not in r["note"]
    hardware = find(GPUS.get(r["gpu_name"], r["gpu_name"]))
    p = plan(model, hardware, from_options(options))
    ledger = p.ledgers[p.binding_rank]
    lines = {name: (sum(part.bytes for part in ledger if part.code in codes) / GIB, float(r[column]) if r[column] else None)
             for name, (codes, column) in LINES.items()}  # fmt: skip
    tokens = r["log_kv_tokens"].replace(",", "")
    return Row(name=r["id"], family=model.model_type, plan=p, lines=lines, pool=(p.kv_pool_bytes / GIB, float(r["log_available_kv_gib"])),
               tokens=(p.kv_tokens or 0, int(tokens) if tokens else None), options=options)  # fmt: skip


# -- what the rows say -------------------------------------------------------------------------------------------------


def spread(errors: list[float]) -> tuple[float, float]:
    """(median, 90th percentile) of absolute errors: the nearest rank."""
    sizes = sorted(map(abs, errors))
    return median(sizes), sizes[max(0, -(-9 * len(sizes) // 10) - 1)]


def fitted(which: list[Row]) -> dict[str, tuple[str, str]]:
    """constant -> (used, what these rows alone would give)."""
    base, sort, graphs, ranks = [], [], [], {1: [], 2: [], 4: []}  # type: ignore[var-annotated]
    for r in which:
        s = r.plan.setting
        rules, p, printed = rules_of(s.asked_version)[0], activation.peak(r.plan.model, s), r.lines["activation"][1]
        if printed and s.capability == (9, 0) and p.sampler > p.forward and not p.images and rules.sampler == "triton":
            base.append((printed * GIB - (p.bytes - activation.BASE_MIB[True] * MIB)) / MIB)
        if printed and rules.sampler == "sort":
            sort.append((printed * GIB - p.held) / (s.max_num_seqs * r.plan.model.vocab_size))
        if (other := r.lines["non-torch"][1]) and rules.comms == "fused" and s.parallel.pipeline == 1 and s.capability in overhead.FUSED_ON:
            ranks[s.parallel.tensor].append(other)
        if (took := r.lines["graphs"][1]) and took > 0:
            graphs.append(took / r.lines["graphs"][0])
    out = {"buffers of the activation peak on Hopper, MiB": (f"{activation.BASE_MIB[True]}", _mid(base, 0)),
           "sampler by sorting, bytes an element": (f"{activation.FILTERED['sort'] + 6:.1f}", _mid(sort, 2))}  # fmt: skip
    for n, found in ranks.items():
        out[f"non-torch from 0.18 on, {n} rank{'s' if n > 1 else ''}, GiB"] = (f"{overhead.NON_TORCH_GIB['fused'][n][1]}", _mid(found, 2))
    return out | {"graphs, printed over predicted": ("1", _mid(graphs, 2))}


def line(r: Row) -> str:
    cells = [f"{got:.2f} / {'-' if true is None else f'{true:.2f}'}" for got, true in (*r.lines.values(), r.pool)]
    tokens = f"{r.tokens[0]:,} / {r.tokens[1]:,}" if r.tokens[1] else "-"
    return f"| {r.name}{'*' if r.held_out else ''} | {' | '.join(cells)} | {tokens} | {r.error:+.2%} |"


def _mid(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({len(values)})" if values else "-"


def table() -> str:
    good, left = rows()
    fit, held = [r for r in good if not r.held_out], [r for r in good if r.held_out]
    out = [
        "# From a GPU and flags to tokens", "",
        "Written by `python -m tests.budget_table`; a test fails where it is stale.", "",
        "Each row is a public start-up log of vLLM's V1 engine whose release, GPU, memory fraction and ranks are printed and whose config is known.",
        "Nothing measured is put in: weights, activation peak, non-torch memory and graphs are all predicted. GiB as predicted / printed.", "",
        "Constants are fitted on one half of the model types (those with an even first byte of the type's SHA-256) and reported on the other (`*`).",
        "Terms with a formula come from the engine's code, not from a fit. Where a log prints no tokens, the error is that of its KV memory.", "",
        "| rows | count | median error | 90th percentile |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for name, which in (("fitted on", fit), ("held out", held), ("all", list(good))):
        middle, high = spread([r.error for r in which]) if which else (0.0, 0.0)
        out.append(f"| {name} | {len(which)} | {middle:.2%} | {high:.2%} |")
    out += ["", f"| row | {' | '.join(LINES)} | KV memory | tokens | error |", f"|---|{'---:|' * (len(LINES) + 3)}"]
    out += [line(r) for r in sorted(good, key=lambda r: r.name)]
    own, other = fitted(fit), fitted(held)
    out += ["", "A constant without rows on the first side is from the second: its rows are no independent witness of it."]
    out += ["", "| constant | used | by the rows fitted on | by the rows held out |", "|---|---:|---:|---:|"]
    out += [f"| {name} | {used} | {by} | {other[name][1]} |" for name, (used, by) in own.items()]
    reasons: dict[str, int] = {}
    for _, why in left:
        reasons[why] = reasons.get(why, 0) + 1
    out += ["", "Rows of vLLM that are not used:", ""] + [f"- {why}: {n}" for why, n in sorted(reasons.items(), key=lambda pair: -pair[1])]
    return "\n".join([*out, "", *budget_others.table(), "", *peers({r.name: r.pool for r in good})]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
    print(TARGET.read_text())

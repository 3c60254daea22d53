"""`python -m gpu_probe sweep`: tiny models of many families, each run over shuffled pages and compared with full recomputation.

A row is right when prefill and decode logits agree within `TOLERANCE` at every position and predicted bytes equal measured ones. The
controls break one thing each and must be noticed: a comparison that cannot fail would prove nothing. The summary is computed from rows.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpu_probe import measure
from gpu_probe.injected import hosted
from gpu_probe.injected.families import FAMILIES, REFUSED, VOCAB, Config
from gpu_probe.injected.replay import inject, replay
from gpu_probe.injected.runner import Injected
from gpu_probe.proof import relative_error
from gpu_probe.result import ProbeRequest
from gpu_probe.shapes import in_float32
from planner.dtypes import kv_layout
from planner.engines.probe import allocate, predicted_kv_bytes
from planner.errors import PlannerError
from planner.messages import render
from planner.model import ModelSpec

TOLERANCE = 1e-5
CAUGHT = 1e-3
"""A control is caught when it moves the logits by this much, a hundred times what a right run may differ by."""

PROMPT, OUTPUT, SEQUENCES, BLOCK_SIZE = 50, 20, 2, 16
CPU = torch.device("cpu")
Read = Callable[[Config], ModelSpec]


class NoLimit(Injected):
    """Forgets windows and chunks."""

    def _attend(self, q: Tensor, rows: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super()._attend(q, replace(rows, window=None, chunk=None), *args, **kwargs)


class NoSoftcap(Injected):
    def _attend(self, *args: Any, **kwargs: Any) -> Tensor:
        return super()._attend(*args, **{**kwargs, "softcap": None})


class NoSinks(Injected):
    def _attend(self, *args: Any, **kwargs: Any) -> Tensor:
        return super()._attend(*args, **{**kwargs, "sinks": None})


class OtherPage(Injected):
    """Reads one page of the second sequence in place of the first one's."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        super().begin(*args, **kwargs)
        for view in self._views.values():
            view.table[0, 1] = view.table[1, 1]


class StateLost(Injected):
    """Forgets what a step made of the states."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        super().begin(*args, **kwargs)
        for group in self.cache.groups if not kwargs.get("prefill") else ():
            for pages in group.layers.values() if group.is_state else ():
                for tensor in pages.tensors():
                    tensor.zero_()


class OtherSlot(Injected):
    """Writes each row where the next one belongs."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        super().begin(*args, **kwargs)
        for view in self._views.values():
            view.slots = view.slots.roll(1)


CONTROLS: tuple[tuple[str, str, type[Injected]], ...] = (
    ("window dropped", "mistral", NoLimit),
    ("window dropped", "gemma2", NoLimit),
    ("chunk dropped", "llama4_text", NoLimit),
    ("softcap dropped", "gemma2", NoSoftcap),
    ("sinks dropped", "gpt_oss", NoSinks),
    ("other page", "llama", OtherPage),
    ("other page", "deepseek_v3", OtherPage),
    ("other page", "falcon", OtherPage),
    ("other slot", "qwen3", OtherSlot),
    ("state lost", "mamba2", StateLost),
    ("state lost", "qwen3_next", StateLost),
)


def run_family(read: Read, model_type: str, config: Config, seed: int, kind: type[Injected] = Injected) -> dict[str, Any]:
    """One row. Raises PlannerError where planner or runner refuses."""
    raw = {"model_type": model_type, **config}
    spec, request = in_float32(read(raw)), ProbeRequest(batch=SEQUENCES, prompt=PROMPT, output=OUTPUT, block_size=BLOCK_SIZE, seed=seed)
    pools = allocate(spec, kv=kv_layout("fp32"), block_size=BLOCK_SIZE)
    model = hosted.build(hosted.config_of(raw), seed=seed, dtype=torch.float32, device=CPU)
    runner = inject(model, spec, pools, request, dtype=torch.float32, device=CPU, kind=kind)
    tokens = request.tokens()
    ids = torch.randint(3, VOCAB, (SEQUENCES, tokens), generator=torch.Generator().manual_seed(seed))
    expected = runner.reference(ids)
    got, moved, peak = replay(runner, ids, PROMPT)
    held = sum(h.held_bytes for h in measure.held(runner.cache))
    return {
        "model_type": model_type, "config": raw, "tokens": tokens, "sequences": SEQUENCES, "block_size": BLOCK_SIZE, "kv_dtype": "fp32",
        "error": relative_error(got, expected), "predicted": predicted_kv_bytes(pools, SEQUENCES, tokens), "measured": held, "seed": seed,
        "kinds": sorted({g.rows.kind for g in runner.cache.groups}), "handback": runner.hand_back, "blocks_moved": moved,
        "blocks_after_prefill": peak, "blocks": sum(g.pool.used() for g in runner.cache.groups),
    }  # fmt: skip


def run(read: Read, *, seed: int = 0, only: Collection[str] = (), progress: Callable[[str, int, int], None] = lambda name, done, total: None) -> dict[str, Any]:
    """All families, or the model types in `only`, the refusals and the controls. `read`: a raw config -> ModelSpec."""
    began = time.perf_counter()
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="transformers")
    chosen = [(name, config) for name, config in FAMILIES if not only or name in only]
    failures: list[dict[str, Any]] = []
    rows = []
    for done, (name, config) in enumerate(chosen):
        progress("families", done, len(chosen))
        try:
            rows.append(run_family(read, name, config, seed))
        except Exception as e:  # a family that fails is a line of the result, not the end of it
            failures.append({"model_type": name, "what": "row", "reason": _words(e)})
    progress("families", len(chosen), len(chosen))
    failures += [{"model_type": r["model_type"], "what": "row", "reason": reason} for r in rows for reason in wrong(r)]
    controls = [control(read, what, name, kind, seed) for what, name, kind in CONTROLS if not only or name in only]
    controls += [other_bytes(read, r) for r in rows[:1]]
    failures += [{"model_type": c["model_type"], "what": c["what"], "reason": "not noticed"} for c in controls if not c["caught"]]
    refused = [refusal(read, name, config, seed) for name, config in REFUSED if not only or name in only]
    failures += [{"model_type": r["model_type"], "what": "refusal", "reason": "ran"} for r in refused if not r["reason"]]
    right = [r for r in rows if not wrong(r)]
    return {
        "families": len({r["model_type"] for r in right}), "rows_right": len(right), "rows_total": len(rows),
        "max_error": max((r["error"] for r in rows), default=None), "tolerance": TOLERANCE,
        "controls_caught": sum(c["caught"] for c in controls), "controls_total": len(controls), "failures": failures, "rows": rows,
        "controls": controls, "refused": refused, "versions": {"torch": torch.__version__, "transformers": hosted.VERSION},
        "wall_s": time.perf_counter() - began,
    }  # fmt: skip


def wrong(row: dict[str, Any]) -> list[str]:
    """What is not right in a row, in figures."""
    found = [] if row["error"] <= TOLERANCE else [f"error {row['error']:.1e}"]
    if row["predicted"] != row["measured"]:
        found.append(f"predicted {row['predicted']}, measured {row['measured']}")
    return found if row["blocks_moved"] else [*found, "no block moved"]


def control(read: Read, what: str, model_type: str, kind: type[Injected], seed: int) -> dict[str, Any]:
    """The family's last config in the table, with one thing broken."""
    config = [c for name, c in FAMILIES if name == model_type][-1]
    error = run_family(read, model_type, config, seed, kind)["error"]
    return {"what": what, "model_type": model_type, "error": error, "caught": error > CAUGHT}


def other_bytes(read: Read, row: dict[str, Any]) -> dict[str, Any]:
    """The prediction for one layer less must not equal what was measured."""
    spec = read(row["config"])
    fewer = allocate(spec, kv=kv_layout("fp32"), block_size=row["block_size"], layers=len(spec.layers) - 1)
    predicted = predicted_kv_bytes(fewer, row["sequences"], row["tokens"])
    return {"what": "fewer layers", "model_type": row["model_type"], "error": None, "caught": predicted != row["measured"]}


def refusal(read: Read, model_type: str, config: Config, seed: int) -> dict[str, Any]:
    """What planner or runner says about a model that the runner cannot run; an empty reason: it ran."""
    try:
        run_family(read, model_type, config, seed)
    except PlannerError as e:
        return {"model_type": model_type, "reason": e.message}
    return {"model_type": model_type, "reason": ""}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def table(result: dict[str, Any]) -> str:
    """The result for a terminal: a line a row, then what the rows add up to."""
    lines = [f"{'model type':18} {'caches':16} {'error':>8} {'predicted':>10} {'measured':>10}"]
    lines += [f"{r['model_type']:18} {'+'.join(r['kinds']):16} {r['error']:8.1e} {r['predicted']:10,} {r['measured']:10,}" for r in result["rows"]]
    lines += [f"{c['model_type']:18} {c['what']}: {'-' if c['error'] is None else format(c['error'], '.1e')}" for c in result["controls"]]
    lines += [f"{r['model_type']:18} {r['reason']}" for r in result["refused"]]
    lines += [f"! {f['model_type']} {f['what']}: {f['reason']}" for f in result["failures"]]
    return "\n".join([*lines, render("row.sweep", result)])

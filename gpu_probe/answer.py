"""The one place where a run's findings become a `ProbeResult`, whichever runner found them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu_probe import compare
from gpu_probe import device as devices
from gpu_probe.figures.capacity import capacity
from gpu_probe.figures.count import Counted
from gpu_probe.figures.pace import Pace
from gpu_probe.figures.timing import Timing
from gpu_probe.fit import all_layers_bytes
from gpu_probe.proof import TOLERANCE, Proved
from gpu_probe.result import ProbeResult
from gpu_probe.setup import Setup
from planner.model import ModelSpec
from planner.notes import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What ran, in words and numbers: the backend of the decode steps and who refused, layers, what was cut from the model, and the
    plan's needed bytes."""

    runner: str
    backend: str
    backends_refused: tuple[dict[str, str], ...]
    layers: int
    cuts: dict[str, Any]
    needed_bytes: int
    extra: dict[str, Any]
    versions: dict[str, str]


def answer(
    setup: Setup, model: ModelSpec, ran: Ran, counted: Counted, timing: Timing, pace: Pace, proved: Proved, *, memory: dict[str, int], notes: Sequence[Note]
) -> ProbeResult:
    """`model`: the whole of it. `memory`: the process's, peaks of the whole run. `notes`: the runner's own, which come first."""
    request = setup.request
    pool_bytes = sum(g["pool_bytes"] for g in counted.groups)
    room = capacity(
        counted.pools, tokens=request.tokens(), block_size=request.block_size, budget_bytes=max(pool_bytes, setup.memory - ran.needed_bytes + pool_bytes),
        seed=request.seed,
    )  # fmt: skip
    said = [*notes, *counted.notes(ran.extra["blocks_trimmed"]), *proved.notes, *pace.notes()]
    return ProbeResult(
        predicted_kv_bytes=counted.kv[0],
        measured_kv_bytes=counted.kv[1],
        ttft_s=timing.ttft_s,
        itl_s=timing.itl_s,
        tokens_per_s=timing.tokens_per_s,
        prefill_tokens_per_s=timing.prefill_tokens_per_s,
        decode_tokens_per_s=timing.decode_tokens_per_s,
        logits_max_rel_error=proved.error,
        absorbed_vs_expanded_max_rel_error=proved.absorbed,
        device=str(setup.device),
        device_name=devices.name_of(setup.device),
        backend=ran.backend,
        backends_refused=ran.backends_refused,
        layers_run=ran.layers,
        layers_total=len(model.layers),
        predicted_kv_bytes_all_layers=all_layers_bytes(model, request, setup.kv),
        kv_dtype=setup.kv.name,
        compute_dtype=devices.dtype_name(setup.compute),
        model={"name": model.name, "model_type": model.model_type},
        request=asdict(request),
        cuts={**ran.cuts, "needed_bytes": ran.needed_bytes, "memory_bytes": setup.memory},
        groups=counted.groups,
        proof={**proved.facts, "dtype": "fp32", "tolerance": TOLERANCE},
        step_s=timing.step_s,
        versions={**devices.versions(setup.device), **ran.versions},
        predicted_scale_bytes=counted.scales[0],
        scale_bytes=counted.scales[1],
        predicted_table_bytes=counted.tables[0],
        table_bytes=counted.tables[1],
        lines=counted.lines,
        fragmentation=counted.waste,
        levels=counted.levels,
        kv_accuracy=proved.accuracy,
        ceilings=pace.ceilings,
        overhead=pace.overhead,
        roofline=pace.roofline,
        capacity=room,
        memory={"peaks": counted.peaks, "workspace_bytes": counted.workspace, "slack": counted.slack, **memory},
        rows=tuple(compare.build_rows(counted, request, pace=pace, room=room, memory=memory, accuracy=proved.accuracy)),
        notes=tuple(n.to_json() for n in said),
        wall_s=time.perf_counter() - setup.began,
        extra={"runner": ran.runner, **ran.extra},
    )

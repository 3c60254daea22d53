"""`run SOURCE --runner injected`: transformers' own model code over our pages, from a raw config to a ProbeResult."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gpu_probe import accuracy
from gpu_probe.answer import Ran, answer
from gpu_probe.device import Peak
from gpu_probe.figures.count import Counted, count
from gpu_probe.figures.pace import Pace
from gpu_probe.figures.timing import Work, timing
from gpu_probe.fit import proof_request
from gpu_probe.injected import hosted
from gpu_probe.injected.plan import Plan, Read, first_of_each, planned
from gpu_probe.injected.replay import inject, replay
from gpu_probe.injected.runner import Injected
from gpu_probe.injected.skeleton import Cut, language_part, shrink, working_bytes
from gpu_probe.proof import Proved, relative_error
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.session import generate
from gpu_probe.setup import Emit, Progress, Setup, guarded, set_up
from gpu_probe.shapes import in_float32
from planner.dtypes import kv_layout
from planner.engines.probe import allocate, attention_flop, predicted_kv_bytes
from planner.model import ModelSpec
from planner.notes import Note, note


def run(raw: dict[str, Any], read: Read, request: ProbeRequest, emit: Emit, *, weights: str = "", notes: Sequence[Note] = ()) -> ProbeResult:
    """`read`: a raw config -> ModelSpec. `weights`: a checkpoint folder; else weights are random. Raises PlannerError subclasses."""
    return guarded(request, emit, lambda checked, progress: _run(language_part(raw), read, checked, progress, weights, notes))


def _run(raw: dict[str, Any], read: Read, request: ProbeRequest, progress: Progress, weights: str, before: Sequence[Note]) -> ProbeResult:
    whole = read(raw)
    setup = set_up(whole, request, progress)
    plan = planned(raw, whole, read, setup, real=bool(weights))
    setup.keep_within(setup.memory, plan.widest)
    predicted = predicted_kv_bytes(plan.pools, request.batch, request.tokens(), request.shared_tokens())
    setup.say_plan(predicted=predicted, layers_run=len(plan.spec.layers), layers_total=len(whole.layers), needed=plan.needed, notes=plan.notes)
    pace, peak = Pace(setup), Peak(setup.device)
    progress.phase("plan", 1, 1)

    runner = _built(plan, setup, weights)
    trace = generate(runner, runner, _prompt(runner, setup), request.output, progress=progress.phase, prefix=request.shared_tokens(), peak=peak)  # type: ignore[arg-type]
    clock = timing(trace.prefill_s, trace.step_s, request)
    counted = count(
        setup, plan.spec, range(len(plan.spec.layers)), plan.pools, runner, trace, weights=list(runner.model.parameters()),
        weights_predicted=plan.elements * setup.compute.itemsize, working=working_bytes(plan.spec, request),
    )  # fmt: skip
    pace.close(_work(runner, plan, setup, counted), clock)
    progress.emit({"ev": "sample", **peak.memory_now()})
    ran = Ran(
        runner="injected", layers=len(plan.spec.layers), needed_bytes=plan.needed, versions={"transformers": hosted.VERSION},
        backend="transformers" if runner.hand_back else runner.backend, backends_refused=() if runner.hand_back else runner.backends_refused,
        cuts={"layers": list(range(len(plan.spec.layers))), "config": plan.raw}, extra={"handback": runner.hand_back, **trace.facts()},
    )  # fmt: skip

    progress.phase("proof", 0, 1)
    model = runner.model if weights else None
    del runner
    gc.collect()
    proved = _proved(model, plan, read, setup)
    progress.phase("proof", 1, 1)
    notes = [*before, note("info", "probe_injected", version=hosted.VERSION), *plan.notes, note("info", "probe_last_token", tokens=request.tokens())]
    notes.append(note("info", "probe_real_weights", folder=weights) if weights else note("info", "probe_random_hosted"))
    notes += setup.format_notes()
    notes += [note("warning", "probe_rows_differ", version=hosted.VERSION)] if counted.kv[0] != counted.kv[1] else []
    notes += [note("info", "probe_handback")] if ran.extra["handback"] else []
    return answer(setup, whole, ran, counted, clock, pace, proved, memory=peak.memory_now(), notes=notes)


def _built(plan: Plan, setup: Setup, weights: str) -> Injected:
    """The model over an empty cache."""
    setup.progress.phase("weights", 0, 1)
    config = hosted.config_of(plan.raw)
    if weights:
        model = hosted.load(weights, config, dtype=setup.compute, device=setup.device)
    else:
        model = hosted.build(config, seed=setup.request.seed, dtype=setup.compute, device=setup.device)
    setup.progress.phase("weights", 1, 1)
    runner = inject(model, plan.spec, plan.pools, setup.request, dtype=setup.storage, device=setup.device, scaled=setup.scaled)
    runner.forced = None if setup.request.backend == "auto" else setup.request.backend
    return runner


def _prompt(runner: Injected, setup: Setup) -> torch.Tensor:
    request, vocab = setup.request, runner.model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocab, (request.batch, request.prompt), generator=torch.Generator().manual_seed(request.seed + 1))
    ids[:, : request.shared_tokens()] = ids[:1, : request.shared_tokens()]
    return ids.to(setup.device)


def _work(runner: Injected, plan: Plan, setup: Setup, counted: Counted) -> Work:
    """All weights but an embedding that is not the head too. Which experts a batch chooses is not known: then there is no figure."""
    if _routed(plan.spec):
        return Work(kv_bytes=counted.read[0], weight_bytes=None, flop=None, unknown="experts")
    request, layers = setup.request, range(len(plan.spec.layers))
    first, head = runner.model.get_input_embeddings(), runner.model.get_output_embeddings()
    tied = head is not None and first.weight.data_ptr() == head.weight.data_ptr()
    elements = plan.elements - (0 if tied else first.weight.numel())
    flop = 2 * elements * request.batch + attention_flop(plan.spec, layers, request.batch, request.tokens())
    return Work(kv_bytes=counted.read[0], weight_bytes=elements * setup.compute.itemsize, flop=flop)


def _proved(model: Any, plan: Plan, read: Read, setup: Setup) -> Proved:
    """Logits of a small float32 run against full recomputation: a checkpoint's own model, else a smaller one with windows that slide.
    A narrow format is set beside bf16 over the same tokens."""
    small, raw, limit = replace(proof_request(setup.request), layers=None), plan.raw, None
    if model is None:
        limit = max(1, small.prompt // 2 + 1)
        raw = shrink(plan.raw, len(plan.spec.layers), first_of_each(plan.spec), Cut(limit=limit))
        limit = limit if any(getattr(c, "limit_tokens", None) for layer in read(raw).layers for c in layer.caches) else None
        model = hosted.build(hosted.config_of(raw), seed=setup.request.seed, dtype=torch.float32, device=setup.device)
    else:
        model = model.float()
    spec, prefix = in_float32(read(raw)), small.shared_tokens()
    vocab = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocab, (small.batch, small.tokens()), generator=torch.Generator().manual_seed(setup.request.seed + 2)).to(setup.device)
    ids[:, :prefix] = ids[:1, :prefix]

    def over(kv: str, dtype: torch.dtype, scaled: bool = False) -> tuple[Injected, torch.Tensor]:
        pools = allocate(spec, kv=kv_layout(kv), block_size=small.block_size)
        runner = inject(model, spec, pools, small, dtype=dtype, device=setup.device, scaled=scaled)
        return runner, replay(runner, ids, small.prompt, prefix=prefix)[0]

    runner, got = over("fp32", torch.float32)
    error = relative_error(got, runner.reference(ids))
    narrow = None
    if setup.kv.name in accuracy.TOLERANCE:
        wide, small_rows = over("bf16", torch.bfloat16)[1], over(setup.kv.name, setup.storage, setup.scaled)[1]
        narrow = accuracy.judged(setup.kv.name, wide, small_rows, routed=_routed(spec))
    sizes = {"batch": small.batch, "prompt": small.prompt, "output": small.output}
    how = [note("info", "probe_proof_own_run", layers=len(spec.layers), **sizes)]
    how += [note("info", "probe_proof_limit", limit=limit)] if limit is not None else []
    facts = {"own_run": True, "layers": len(spec.layers), "limit_tokens": limit, "positions": small.tokens(), **sizes}
    return Proved(error=error, absorbed=None, accuracy=narrow, facts=facts, how=tuple(how))


def _routed(spec: ModelSpec) -> bool:
    """Some layer chooses among experts."""
    return any(layer.mlp is not None and layer.mlp.experts for layer in spec.layers)

"""One run of the lean runner, from a ModelSpec to a ProbeResult: cut to fit, build, prefill, decode, count, prove, answer."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpu_probe import accuracy, proof
from gpu_probe.answer import Ran, answer
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.device import Peak
from gpu_probe.figures.count import Counted, count
from gpu_probe.figures.pace import Pace
from gpu_probe.figures.timing import Work, timing
from gpu_probe.fit import Fit, fit, proof_request, working_bytes
from gpu_probe.model import Decoder
from gpu_probe.proof import Proved
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.session import Progress as Told
from gpu_probe.session import Trace, generate
from gpu_probe.setup import Emit, Progress, Setup, guarded, set_up
from gpu_probe.shapes import Shape, active_width, in_float32, limited
from gpu_probe.weights import random_weights
from planner.dtypes import kv_layout
from planner.engines.probe import attention_flop, predicted_kv_bytes
from planner.model import ModelSpec
from planner.notes import note

SAME_RUN_TOKENS, SAME_RUN_BATCH_TOKENS = 1024, 2048
"""Up to here the timed run is also the one that is proved: recomputation is quadratic in the first and linear in the second."""

PROOF_STAGES = 4
"""Steps of the progress within the proof: weights, prefill, decode, recomputation."""
PLAN_S, PLAN_SHARE = 10.0, 0.25
"""Seconds that the plan of a CPU run may fill, and its share of the time limit."""


@dataclass(slots=True, kw_only=True)
class Running:
    """A decoder with its cache, after `generate`."""

    decoder: Decoder
    attention: PagedAttention
    trace: Trace
    plan: Fit
    request: ProbeRequest


def run(model: ModelSpec, request: ProbeRequest, emit: Emit = lambda event: None) -> ProbeResult:
    """Raises PlannerError subclasses for what a user can act on; ProbeOutOfMemory where an allocation was refused."""
    return guarded(request, emit, lambda checked, progress: _run(model, checked, progress))


def _run(model: ModelSpec, request: ProbeRequest, progress: Progress) -> ProbeResult:
    setup = set_up(model, request, progress)
    plan = _planned(model, setup)
    pace, peak = Pace(setup), Peak(setup.device)
    progress.phase("plan", 1, 1)

    same_run = _provable(plan.shape, setup)
    timed = _go(plan, request, setup, progress.phase, dtypes=(setup.storage, setup.compute), scaled=setup.scaled, keep_logits=same_run, peak=peak)
    clock = timing(timed.trace.prefill_s, timed.trace.step_s, request)
    counted = _counted(model, timed, setup)
    pace.close(_work(model, plan, setup, counted), clock)
    progress.emit({"ev": "sample", **peak.memory_now()})
    trace = timed.trace
    ran = Ran(
        runner="lean", backend=timed.attention.backend, backends_refused=timed.attention.backends_refused, layers=len(plan.layers), cuts=_cuts(model, plan),
        needed_bytes=plan.needed_bytes, versions={}, extra=trace.facts(),
    )  # fmt: skip

    progress.phase("proof", 0, PROOF_STAGES)
    if not same_run:
        del timed
        gc.collect()
    proved = _proved(model, setup, plan, timed if same_run else None)
    progress.phase("proof", PROOF_STAGES, PROOF_STAGES)
    notes = [*plan.notes, note("info", "probe_last_token", tokens=request.tokens()), *setup.format_notes()]
    if any(x.state is not None for x in plan.shape.layers):
        notes.append(note("info", "probe_states"))
    return answer(setup, model, ran, counted, clock, pace, proved, memory=peak.memory_now(), notes=notes)


def _planned(model: ModelSpec, setup: Setup) -> Fit:
    request = setup.request
    plan = fit(model, request, setup.kv, compute_bytes=setup.compute.itemsize, memory_bytes=setup.memory, speed=setup.speed(PLAN_S, PLAN_SHARE))
    setup.keep_within(setup.memory, max(layer.elements() for layer in plan.shape.layers))
    predicted = predicted_kv_bytes(plan.pools, request.batch, request.tokens(), request.shared_tokens())
    setup.say_plan(predicted=predicted, layers_run=len(plan.layers), layers_total=len(model.layers), needed=plan.needed_bytes, notes=plan.notes)
    return plan


def _go(
    plan: Fit, request: ProbeRequest, setup: Setup, told: Told, *, dtypes: tuple[torch.dtype, torch.dtype], scaled: bool, keep_logits: bool,
    peak: Peak | None = None,
) -> Running:  # fmt: skip
    """Builds decoder and cache and runs the batch. `dtypes`: of the rows, and of weights and products. `peak`: this run is timed. First
    a few tokens go over a small cache of their own then, so that the timed prefill does not pay for the libraries' start."""
    shape, (storage, compute), device = plan.shape, dtypes, setup.device
    weights = random_weights(shape, seed=request.seed, dtype=compute, device=device, progress=lambda d, t: told("weights", d, t))
    decoder = Decoder(shape, weights, max_tokens=request.tokens() + 1)
    generator = torch.Generator().manual_seed(request.seed + 1)
    prompt = torch.randint(0, shape.vocab, (request.batch, request.prompt), generator=generator).to(device)
    prefix = request.shared_tokens()
    prompt[:, :prefix] = prompt[:1, :prefix]

    def attention(blocks: tuple[int, ...]) -> PagedAttention:
        sized = replace(plan, blocks=blocks)
        cache = PagedCache.build(shape, sized, dtype=storage, device=device, block_size=request.block_size, seed=request.seed, scaled=scaled)
        return PagedAttention(cache, forced=None if request.backend == "auto" else request.backend)

    if peak is not None:
        told("warm-up", 0, 1)
        few = tuple(min(n, 2 * request.batch + 4) for n in plan.blocks)
        generate(decoder, attention(few), prompt[:, : min(request.prompt, request.block_size)], 1)
        told("warm-up", 1, 1)
    paged = attention(plan.blocks)
    trace = generate(decoder, paged, prompt, request.output, progress=told, keep_logits=keep_logits, prefix=prefix, peak=peak)
    return Running(decoder=decoder, attention=paged, trace=trace, plan=plan, request=request)


def _work(model: ModelSpec, plan: Fit, setup: Setup, counted: Counted) -> Work:
    """What a decode step reads and multiplies: all weights but the embedding, of which it reads a row, and the rows that it sees."""
    request, shape = setup.request, plan.shape
    elements = shape.elements() - shape.vocab * shape.hidden
    flop = 2 * elements * request.batch + attention_flop(model, plan.layers, request.batch, request.tokens())
    return Work(kv_bytes=counted.read[0], weight_bytes=elements * setup.compute.itemsize, flop=flop)


def _counted(model: ModelSpec, timed: Running, setup: Setup) -> Counted:
    plan, item = timed.plan, setup.compute.itemsize
    return count(
        setup, model, plan.layers, plan.pools, timed.attention, timed.trace, weights=timed.decoder.weights,
        weights_predicted=plan.shape.elements() * item, working=working_bytes(plan.shape, setup.request, item),
    )  # fmt: skip


def _proved(model: ModelSpec, setup: Setup, plan: Fit, timed: Running | None) -> Proved:
    """Of `timed` where it is given, else of a small float32 run of its own: few layers (one of every kind first), few tokens, windows
    cut so that they slide."""
    if timed is not None:
        proved, how = timed, [note("info", "probe_proof_same_run")]
        facts: dict[str, Any] = {"own_run": False, "layers": len(plan.layers)}
    else:
        kinds = len({layer.caches for layer in model.layers if layer.caches})
        small = replace(proof_request(setup.request), layers=min(len(plan.layers), max(2, kinds)))
        limit = max(1, small.prompt // 2 + 1)
        exact = in_float32(model)
        short = limited(exact, limit)
        own = fit(short, small, kv_layout("fp32"), compute_bytes=4, memory_bytes=setup.memory, speed=setup.speed(PLAN_S, PLAN_SHARE))

        def staged(name: str, done: int, total: int) -> None:
            if done == total:
                setup.progress.phase("proof", ("weights", "prefill", "decode").index(name) + 1, PROOF_STAGES)

        proved = _go(own, small, setup, staged, dtypes=(torch.float32, torch.float32), scaled=False, keep_logits=True)
        how = [note("info", "probe_proof_own_run", "", "", layers=len(own.layers), **_sizes(small))]
        how += [note("info", "probe_proof_limit", limit=limit)] if short != exact else []
        facts = {"own_run": True, "layers": len(own.layers), "limit_tokens": limit if short != exact else None}
    return Proved(
        error=proof.logits_error(proved.decoder, proved.trace),
        absorbed=proof.absorption_error(proved.decoder, proved.attention, proved.trace.tokens.shape[1], seed=setup.request.seed),
        accuracy=_accuracy(proved, setup),
        facts={**facts, **_sizes(proved.request), "positions": len(proved.trace.logits)},
        how=tuple(how),
    )


def _accuracy(proved: Running, setup: Setup) -> dict[str, Any] | None:
    if setup.kv.name not in accuracy.TOLERANCE:
        return None
    return accuracy.against_bf16(
        proved.decoder, proved.plan, proved.request, proved.trace.tokens, name=setup.kv.name, storage=setup.storage, scaled=setup.scaled
    )


def _provable(shape: Shape, setup: Setup) -> bool:
    """In float32, small enough to recompute whole, and long enough that every window slides."""
    request, tokens = setup.request, setup.request.tokens()
    slides = all(x.rows is None or x.rows.limit_tokens is None or x.rows.limit_tokens < tokens for x in shape.layers)
    wide = all({x.state.conv_dtype, x.state.state_dtype} == {"fp32"} for x in shape.layers if x.state is not None)
    exact = setup.compute == torch.float32 == setup.storage
    return exact and wide and slides and tokens <= SAME_RUN_TOKENS and request.batch * tokens <= SAME_RUN_BATCH_TOKENS


def _cuts(model: ModelSpec, plan: Fit) -> dict[str, Any]:
    return {
        "layers": list(plan.layers), "vocab": plan.shape.vocab, "vocab_total": model.vocab_size,
        "mlp_width": max((x.mlp_width for x in plan.shape.layers), default=0),
        "mlp_width_total": max((active_width(model.layers[i]) for i in plan.layers), default=0),
    }  # fmt: skip


def _sizes(request: ProbeRequest) -> dict[str, int]:
    return {"batch": request.batch, "prompt": request.prompt, "output": request.output}

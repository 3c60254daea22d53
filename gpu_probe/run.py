"""One run from a ModelSpec to a ProbeResult: cut to fit, build, prefill, decode, count, prove, compare."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from gpu_probe import accuracy, backends, compare, measure, proof
from gpu_probe import device as devices
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.fit import Fit, Speed, all_layers_bytes, fit, host_memory_bytes, proof_request, usable_bytes
from gpu_probe.model import Decoder
from gpu_probe.pool import PoolExhausted
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.session import Trace, generate
from gpu_probe.shapes import Shape, active_width, in_float32, limited
from gpu_probe.weights import random_weights
from planner.dtypes import KvLayout, kv_layout
from planner.engines.probe import predicted_kv_bytes, predicted_scale_bytes, predicted_table_bytes, state_dtype
from planner.model import ModelSpec
from planner.notes import Note, note

Emit = Callable[[dict[str, Any]], None]
Phase = Callable[[str, int, int], None]
SAME_RUN_TOKENS, SAME_RUN_BATCH_TOKENS = 1024, 2048
"""Up to here the timed run is also the one that is proved: recomputation is quadratic in the first and linear in the second."""

PROOF_STAGES = 4
"""Steps of the progress within the proof: weights, prefill, decode, recomputation."""


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
    where = ["start"]

    def phase(name: str, done: int, total: int) -> None:
        where[0] = name
        emit({"ev": "phase", "name": name, "done": done, "total": total})

    try:
        return _run(model, request.checked(), emit, phase)
    except PoolExhausted as e:
        asked, free, total = e.args
        raise ProbeOutOfMemory("probe_pool", field="memory_cap", where=where[0], asked=asked, free=free, total=total) from e
    except (RuntimeError, MemoryError) as e:
        if not devices.is_out_of_memory(e):
            raise
        raise refused_memory(e, where[0], devices.pick(request.device)) from e


def refused_memory(error: BaseException, where: str, device: torch.device) -> ProbeOutOfMemory:
    """What to tell of an allocation that was refused: what was asked for and what was free, where that is known."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    reason = said.rsplit("DefaultCPUAllocator: ", 1)[-1][:160].rstrip(".")  # before it: torch's own file and line
    asked, free = devices.asked_bytes(error), devices.headroom_bytes(device)
    amounts = ["unknown" if n is None else f"{n:,} bytes" for n in (asked, free)]
    return ProbeOutOfMemory("probe_memory", field="memory_cap", where=where, reason=reason, wanted=amounts[0], left=amounts[1], asked=asked, free=free)


def _run(model: ModelSpec, request: ProbeRequest, emit: Emit, phase: Phase) -> ProbeResult:
    began = time.perf_counter()
    torch.set_float32_matmul_precision("highest")
    device = devices.pick(request.device)
    found_versions = devices.versions(device)
    emit({"ev": "hello", "versions": found_versions, "device": str(device), "device_name": devices.name_of(device),
          "backends": list(backends.ORDER.get(device.type, backends.ANYWHERE))})  # fmt: skip

    phase("plan", 0, 1)
    kv = kv_layout(_resolved(request.kv_dtype, model))
    storage = devices.storage_dtype(kv.element, device)
    compute = devices.compute_dtype(storage, device)
    memory = usable_bytes(request, devices.free_bytes(device, host_memory_bytes()))
    speed = None
    if device.type == "cpu":
        speed = Speed(flop_per_s=devices.flop_per_s(compute, device), budget_s=min(10.0, request.time_limit_s / 4))
    plan = fit(model, request, kv, compute_bytes=compute.itemsize, memory_bytes=memory, speed=speed)
    devices.limit_memory(device, memory + memory // 4)
    devices.use_threads(device, max(layer.elements() for layer in plan.shape.layers))
    load = (request.batch, request.tokens(), request.shared_tokens())
    predicted = predicted_kv_bytes(plan.pools, *load)
    emit({
        "ev": "plan", "predicted_kv_bytes": predicted, "layers_run": len(plan.layers), "layers_total": len(model.layers),
        "needed_bytes": plan.needed_bytes, "memory_bytes": memory, "notes": [n.to_json() for n in plan.notes],
    })  # fmt: skip
    phase("plan", 1, 1)

    same_run = compute == torch.float32 == storage and _provable(plan.shape, request)
    scaled = kv.scale_bytes > 0
    timed = _go(plan, request, storage, compute, device, phase, keep_logits=same_run, warm=True, scaled=scaled)
    held = measure.held(timed.attention.cache)
    timed_backend, timed_refused = timed.attention.backend, timed.attention.backends_refused
    weights = (plan.shape.elements() * compute.itemsize, measure.storage_bytes(timed.decoder.weights))
    emit({"ev": "sample", **devices.memory_now(device)})
    groups = compare.group_reports(plan.pools, request, held, timed.trace.prefill_blocks, request.tokens())
    scales = (predicted_scale_bytes(model, plan.pools, kv, *load), sum(h.scale_bytes for h in held))
    tables = (predicted_table_bytes(plan.pools, request.batch, request.tokens()), measure.table_bytes(timed.attention))
    levels = devices.levels(device, measure.storage_bytes([timed.decoder.weights, timed.attention.cache]))
    waste = compare.fragmentation(plan.pools, groups, request, model.max_context_tokens)
    read = (_read(model, plan.shape, kv, request), timed.trace.last_step_bytes_gathered)

    notes = [*plan.notes, note("info", "probe_last_token", tokens=request.tokens())]
    if storage != compute and storage.itemsize > 1:
        notes.append(note("info", "probe_compute_dtype", "kv_dtype", compute=_name(compute), kv=kv.name))
    if scaled:
        notes.append(note("info", "probe_scales", "kv_dtype", kv=kv.name))
    elif storage.itemsize == 1:
        notes.append(note("info", "probe_fp8_unscaled", "kv_dtype"))
    if request.shared_prefix:
        shared = request.shared_tokens()
        notes.append(note("info", "probe_shared", tokens=shared) if shared else note("warning", "probe_shared_short"))
    if any(x.state is not None for x in plan.shape.layers):
        notes.append(note("info", "probe_states"))
    trimmed = timed.trace.blocks_trimmed
    notes += [note("info", "probe_prefill_transient", kind=g["kind"], peak=g["prefill_blocks"], trimmed=trimmed) for g in groups if g["transient"]]

    phase("proof", 0, PROOF_STAGES)
    trace = timed.trace
    if same_run:
        proved, proof_facts = timed, {"own_run": False, "layers": len(plan.layers), **_sizes(request)}
        notes.append(note("info", "probe_proof_same_run"))
    else:
        del timed
        gc.collect()
        proved, proof_facts, more = _proof_run(model, request, len(plan.layers), memory, speed, device, phase)
        notes += more
    error = proof.logits_error(proved.decoder, proved.trace)
    absorbed = proof.absorption_error(proved.decoder, proved.attention, proved.trace.tokens.shape[1], seed=request.seed)
    if not error <= proof.TOLERANCE or (absorbed is not None and not absorbed <= proof.TOLERANCE):
        notes.append(note("warning", "probe_proof_failed", error=f"{max(error, absorbed or 0.0):.1e}", tolerance=f"{proof.TOLERANCE:.0e}"))
    kv_accuracy = None
    if kv.name in accuracy.TOLERANCE:
        kv_accuracy = accuracy.against_bf16(proved.decoder, proved.plan, proved.request, proved.trace.tokens, name=kv.name, storage=storage, scaled=scaled)
        if not kv_accuracy["error"] <= kv_accuracy["tolerance"]:
            notes.append(note("warning", "probe_accuracy_failed", kv=kv.name, error=f"{kv_accuracy['error']:.2g}", tolerance=kv_accuracy["tolerance"]))
    phase("proof", PROOF_STAGES, PROOF_STAGES)

    memory_now = devices.memory_now(device)
    steps = trace.step_s
    waited = trace.prefill_s + sum(steps[: request.output - 1])
    return ProbeResult(
        predicted_kv_bytes=predicted,
        measured_kv_bytes=sum(h.held_bytes for h in held),
        ttft_s=trace.prefill_s,
        itl_s={name: float(np.percentile(steps, q)) for name, q in (("p50", 50), ("p90", 90), ("p99", 99))},
        tokens_per_s=request.batch * request.output / waited,
        prefill_tokens_per_s=(request.batch * request.prompt - (request.batch - 1) * request.shared_tokens()) / trace.prefill_s,
        decode_tokens_per_s=request.batch * len(steps) / sum(steps),
        logits_max_rel_error=error,
        absorbed_vs_expanded_max_rel_error=absorbed,
        device=str(device),
        device_name=devices.name_of(device),
        backend=timed_backend,
        backends_refused=timed_refused,
        layers_run=len(plan.layers),
        layers_total=len(model.layers),
        predicted_kv_bytes_all_layers=all_layers_bytes(model, request, kv),
        kv_dtype=kv.name,
        compute_dtype=_name(compute),
        model={"name": model.name, "model_type": model.model_type},
        request=asdict(request),
        cuts=_cuts(model, plan),
        groups=tuple(groups),
        proof={**proof_facts, "dtype": "fp32", "tolerance": proof.TOLERANCE, "positions": len(proved.trace.logits)},
        step_s=tuple(steps),
        versions=devices.versions(device),
        predicted_scale_bytes=scales[0],
        scale_bytes=scales[1],
        predicted_table_bytes=tables[0],
        table_bytes=tables[1],
        lines=tuple(compare.layer_lines(plan.pools, request, held)),
        fragmentation=waste,
        levels=levels,
        kv_accuracy=kv_accuracy,
        rows=tuple(
            compare.build_rows(
                plan.pools,
                request,
                groups,
                weights=weights,
                read=read,
                memory=memory_now,
                scales=scales,
                tables=tables,
                waste=waste,
                levels=levels,
                accuracy=kv_accuracy,
            )
        ),
        notes=tuple(n.to_json() for n in notes),
        wall_s=time.perf_counter() - began,
        extra={"blocks_moved": trace.blocks_moved, "contiguous_fraction": trace.contiguous_fraction, "memory": memory_now},
    )


def _go(
    plan: Fit,
    request: ProbeRequest,
    storage: torch.dtype,
    compute: torch.dtype,
    device: torch.device,
    phase: Phase,
    *,
    keep_logits: bool,
    warm: bool,
    scaled: bool = False,
) -> Running:
    """Builds decoder and cache and runs the batch. `warm`: first a few tokens over a small cache of their own, so that the timed
    prefill does not pay for the libraries' start."""
    shape = plan.shape
    weights = random_weights(shape, seed=request.seed, dtype=compute, device=device, progress=lambda d, t: phase("weights", d, t))
    decoder = Decoder(shape, weights, max_tokens=request.tokens() + 1)
    generator = torch.Generator().manual_seed(request.seed + 1)
    prompt = torch.randint(0, shape.vocab, (request.batch, request.prompt), generator=generator).to(device)
    prefix = request.shared_tokens()
    prompt[:, :prefix] = prompt[:1, :prefix]

    def attention(blocks: tuple[int, ...]) -> PagedAttention:
        sized = replace(plan, blocks=blocks)
        cache = PagedCache.build(shape, sized, dtype=storage, device=device, block_size=request.block_size, seed=request.seed, scaled=scaled)
        return PagedAttention(cache, forced=None if request.backend == "auto" else request.backend)

    if warm:
        phase("warm-up", 0, 1)
        few = tuple(min(n, 2 * request.batch + 4) for n in plan.blocks)
        generate(decoder, attention(few), prompt[:, : min(request.prompt, request.block_size)], 1)
        phase("warm-up", 1, 1)
    paged = attention(plan.blocks)
    trace = generate(decoder, paged, prompt, request.output, progress=phase, keep_logits=keep_logits, prefix=prefix)
    return Running(decoder=decoder, attention=paged, trace=trace, plan=plan, request=request)


def _proof_run(
    model: ModelSpec, request: ProbeRequest, layers_run: int, memory: int, speed: Speed | None, device: torch.device, phase: Phase
) -> tuple[Running, dict[str, Any], list[Note]]:
    """A small float32 run of its own: few layers (one of every kind first), few tokens, windows cut so that they slide."""
    kinds = len({layer.caches for layer in model.layers if layer.caches})
    small = replace(proof_request(request), layers=min(layers_run, max(2, kinds)))
    limit = max(1, small.prompt // 2 + 1)
    exact = in_float32(model)
    short = limited(exact, limit)
    plan = fit(short, small, kv_layout("fp32"), compute_bytes=4, memory_bytes=memory, speed=speed)
    notes = [note("info", "probe_proof_own_run", "", "", layers=len(plan.layers), **_sizes(small))]
    if short != exact:
        notes.append(note("info", "probe_proof_limit", limit=limit))

    def staged(name: str, done: int, total: int) -> None:
        if done == total:
            phase("proof", ("weights", "prefill", "decode").index(name) + 1, PROOF_STAGES)

    running = _go(plan, small, torch.float32, torch.float32, device, staged, keep_logits=True, warm=False)
    return running, {"own_run": True, "layers": len(plan.layers), "limit_tokens": limit if short != exact else None, **_sizes(small)}, notes


def _provable(shape: Shape, request: ProbeRequest) -> bool:
    """Small enough to recompute whole, and long enough that every window slides."""
    tokens = request.tokens()
    slides = all(x.rows is None or x.rows.limit_tokens is None or x.rows.limit_tokens < tokens for x in shape.layers)
    wide = all({x.state.conv_dtype, x.state.state_dtype} == {"fp32"} for x in shape.layers if x.state is not None)
    return wide and slides and tokens <= SAME_RUN_TOKENS and request.batch * tokens <= SAME_RUN_BATCH_TOKENS


def _resolved(kv_dtype: str, model: ModelSpec) -> str:
    """`auto` is the model's own dtype; one that no cache is stored in (a quantized checkpoint's) becomes bf16."""
    if kv_dtype != "auto":
        return kv_dtype
    return model.dtype.name if model.dtype.name in ("fp32", "bf16", "fp16") else "bf16"


def _read(model: ModelSpec, shape: Shape, kv: KvLayout, request: ProbeRequest) -> int:
    """Bytes that one decode step must read: the rows that it sees, and each state."""
    rows = sum(x.read_rows.bytes_read_per_step(request.tokens(), kv) for x in shape.layers if x.read_rows is not None)
    states = sum(x.state.state.bytes_per_sequence(state_dtype(model)) for x in shape.layers if x.state is not None)
    return request.batch * (rows + states)


def _cuts(model: ModelSpec, plan: Fit) -> dict[str, Any]:
    return {
        "layers": list(plan.layers), "vocab": plan.shape.vocab, "vocab_total": model.vocab_size,
        "mlp_width": max((x.mlp_width for x in plan.shape.layers), default=0),
        "mlp_width_total": max((active_width(model.layers[i]) for i in plan.layers), default=0),
        "needed_bytes": plan.needed_bytes, "memory_bytes": plan.memory_bytes,
    }  # fmt: skip


def _sizes(request: ProbeRequest) -> dict[str, int]:
    return {"batch": request.batch, "prompt": request.prompt, "output": request.output}


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in devices.TORCH_DTYPES.items() if known == dtype)

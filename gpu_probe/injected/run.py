"""`run SOURCE --runner injected`: transformers' own model code over our pages, from a raw config to a ProbeResult.

Cut to fit like the lean runner (vocabulary, feed-forward width and experts first, then the last layers); attention shapes never are.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from gpu_probe import backends, compare, measure, proof
from gpu_probe import device as devices
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.fit import Speed, all_layers_bytes, host_memory_bytes, proof_request, usable_bytes
from gpu_probe.injected import hosted
from gpu_probe.injected.replay import inject, replay
from gpu_probe.injected.runner import Injected, empty_cache
from gpu_probe.injected.skeleton import Cut, elements_by_layer, language_part, needed_bytes, shrink
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.session import generate
from planner.cache import Pool
from planner.dtypes import KvLayout, kv_layout
from planner.engines.probe import allocate, cache_of, predicted_kv_bytes
from planner.errors import UnsupportedValue
from planner.model import ModelSpec
from planner.notes import Note, note

Emit = Callable[[dict[str, Any]], None]
Read = Callable[[dict[str, Any]], ModelSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The model that runs: its raw config (cut or whole), what the planner reads from it, and its pools. `widest`: the weights of its
    largest layer, in numbers."""

    raw: dict[str, Any]
    spec: ModelSpec
    pools: tuple[Pool, ...]
    needed: int
    memory: int
    widest: int
    notes: tuple[Note, ...]


def run(raw: dict[str, Any], read: Read, request: ProbeRequest, emit: Emit, *, weights: str = "", notes: Sequence[Note] = ()) -> ProbeResult:
    """`read`: a raw config -> ModelSpec. `weights`: a checkpoint folder; else weights are random. Raises PlannerError subclasses."""

    def phase(name: str, done: int, total: int) -> None:
        emit({"ev": "phase", "name": name, "done": done, "total": total})

    began = time.perf_counter()
    torch.set_float32_matmul_precision("highest")
    device = devices.pick(request.device)
    emit({"ev": "hello", "versions": devices.versions(device), "device": str(device), "device_name": devices.name_of(device),
          "backends": list(backends.ORDER.get(device.type, backends.ANYWHERE))})  # fmt: skip
    phase("plan", 0, 1)
    raw = language_part(raw)
    whole = read(raw)
    kv = _layout(request, whole)
    for field, what in (("kv_dtype", kv.name if kv.scale_bytes else ""), ("shared_prefix", "a shared prefix" if request.shared_prefix else "")):
        if what:
            raise UnsupportedValue("probe_lean_only", field=field, what=what)
    storage = devices.storage_dtype(kv.element, device)
    compute = devices.compute_dtype(storage, device)
    plan = fit(raw, read, request, kv, compute, device, real=bool(weights))
    devices.use_threads(device, plan.widest)
    devices.limit_memory(device, plan.memory + plan.memory // 4)
    predicted = predicted_kv_bytes(plan.pools, request.batch, request.tokens())
    emit({"ev": "plan", "predicted_kv_bytes": predicted, "layers_run": len(plan.spec.layers), "layers_total": len(whole.layers),
          "needed_bytes": plan.needed, "memory_bytes": plan.memory, "notes": [n.to_json() for n in plan.notes]})  # fmt: skip
    phase("plan", 1, 1)

    phase("weights", 0, 1)
    config = hosted.config_of(plan.raw)
    make = (lambda: hosted.load(weights, config, dtype=compute, device=device)) if weights else None
    model = make() if make else hosted.build(config, seed=request.seed, dtype=compute, device=device)
    weight_bytes = measure.storage_bytes(list(model.parameters()))
    phase("weights", 1, 1)
    runner = inject(model, plan.spec, plan.pools, request, dtype=storage, device=device)
    runner.forced = None if request.backend == "auto" else request.backend
    ids = torch.randint(0, config.get_text_config().vocab_size, (request.batch, request.prompt), generator=torch.Generator().manual_seed(request.seed + 1))
    trace = generate(runner, runner, ids.to(device), request.output, progress=phase)  # type: ignore[arg-type]
    held = measure.held(runner.cache)
    memory_now = devices.memory_now(device)
    emit({"ev": "sample", **memory_now})
    groups = compare.group_reports(plan.pools, request, held, trace.prefill_blocks, request.tokens())
    read_bytes = (_rows_read(plan.spec, kv, request), trace.last_step_bytes_gathered)
    hand_back, layers_run = runner.hand_back, len(plan.spec.layers)
    backend, refused = ("transformers", ()) if hand_back else (runner.backend, runner.backends_refused)
    del runner
    gc.collect()

    phase("proof", 0, 1)
    error, facts = _proof(model if weights else None, plan, read, request, device)
    phase("proof", 1, 1)
    found = [*notes, note("info", "probe_injected", version=hosted.VERSION), *plan.notes, note("info", "probe_last_token", tokens=request.tokens())]
    found.append(note("info", "probe_real_weights", folder=weights) if weights else note("info", "probe_random_hosted"))
    found.append(note("info", "probe_proof_own_run", layers=facts["layers"], **{k: facts[k] for k in ("batch", "prompt", "output")}))
    if facts["limit_tokens"] is not None:
        found.append(note("info", "probe_proof_limit", limit=facts["limit_tokens"]))
    if predicted != sum(h.held_bytes for h in held):
        found.append(note("warning", "probe_rows_differ", version=hosted.VERSION))
    if hand_back:
        found.append(note("info", "probe_handback"))
    if not error <= proof.TOLERANCE:
        found.append(note("warning", "probe_proof_failed", error=f"{error:.1e}", tolerance=f"{proof.TOLERANCE:.0e}"))
    steps = trace.step_s
    waited = trace.prefill_s + sum(steps[: request.output - 1])
    return ProbeResult(
        predicted_kv_bytes=predicted,
        measured_kv_bytes=sum(h.held_bytes for h in held),
        ttft_s=trace.prefill_s,
        itl_s={name: float(np.percentile(steps, q)) for name, q in (("p50", 50), ("p90", 90), ("p99", 99))},
        tokens_per_s=request.batch * request.output / waited,
        prefill_tokens_per_s=request.batch * request.prompt / trace.prefill_s,
        decode_tokens_per_s=request.batch * len(steps) / sum(steps),
        logits_max_rel_error=error,
        absorbed_vs_expanded_max_rel_error=None,
        device=str(device),
        device_name=devices.name_of(device),
        backend=backend,
        backends_refused=refused,
        layers_run=layers_run,
        layers_total=len(whole.layers),
        predicted_kv_bytes_all_layers=all_layers_bytes(whole, request, kv),
        kv_dtype=kv.name,
        compute_dtype=str(compute).removeprefix("torch."),
        model={"name": whole.name, "model_type": whole.model_type},
        request=asdict(request),
        cuts={"layers": list(range(layers_run)), "config": plan.raw, "needed_bytes": plan.needed, "memory_bytes": plan.memory},
        groups=tuple(groups),
        proof={**facts, "own_run": True, "dtype": "fp32", "tolerance": proof.TOLERANCE},
        step_s=tuple(steps),
        versions={**devices.versions(device), "transformers": hosted.VERSION},
        rows=tuple(compare.build_rows(plan.pools, request, groups, weights=(weight_bytes, weight_bytes), read=read_bytes, memory=memory_now)),
        notes=tuple(n.to_json() for n in found),
        wall_s=time.perf_counter() - began,
        extra={"runner": "injected", "handback": hand_back, "blocks_moved": trace.blocks_moved, "contiguous_fraction": trace.contiguous_fraction},
    )


def fit(raw: dict[str, Any], read: Read, request: ProbeRequest, kv: KvLayout, compute: torch.dtype, device: torch.device, *, real: bool) -> Plan:
    """As much of the model as memory allows, and on a CPU time; a checkpoint is never made narrower. ProbeOutOfMemory: not one layer
    fits."""
    memory = usable_bytes(request, devices.free_bytes(device, host_memory_bytes()))
    total = len(read(raw).layers)
    asked = min(request.layers or total, total)
    speed = Speed(flop_per_s=devices.flop_per_s(compute, device), budget_s=min(5.0, request.time_limit_s / 8)) if device.type == "cpu" else None
    for cut in (None,) if real else (None, Cut()):
        candidate = shrink(raw, total, asked, cut)
        spec = read(candidate)
        pools = allocate(spec, kv=kv, block_size=request.block_size)
        empty_cache(spec, pools, request, device)  # refuses what these pages cannot hold before anything is built
        base, layers = elements_by_layer(hosted.config_of(candidate))
        needs = [needed_bytes(base + sum(layers[:n]), spec, pools, request, compute.itemsize, n) for n in range(asked + 1)]
        fits = max((n for n in range(1, asked + 1) if needs[n] <= memory), default=0)
        in_time, timed = asked, speed is not None and (cut is None or request.layers is None)
        while timed and in_time > 1 and _too_long(base + sum(layers[:in_time]), request, compute, speed):
            in_time -= 1
        count = min(fits, in_time)
        if count == asked:
            break
    if count < 1:
        raise ProbeOutOfMemory("probe_memory_short", field="memory_cap", needed=needs[1], available=memory, hidden=spec.hidden_size)
    final = shrink(raw, total, count, cut)
    spec = read(final)
    notes = []
    if cut is not None:
        width = cut.width_of(raw)
        notes.append(note("warning", "probe_skeleton", vocab=spec.vocab_size, vocab_total=read(raw).vocab_size, width=min(width, cut.width), width_total=width))
    if count < total:
        notes.append(note("info" if request.layers == count else "warning", "probe_layers_cut" if request.layers != count else "probe_layers_asked",
                          "layers", run=count, total=total))  # fmt: skip
    return Plan(
        raw=final, spec=spec, pools=allocate(spec, kv=kv, block_size=request.block_size), memory=memory, notes=tuple(notes),
        widest=max(layers[:count]),
        needed=needs[count],
    )  # fmt: skip


def _too_long(elements: int, request: ProbeRequest, compute: torch.dtype, speed: Speed | None) -> bool:
    """Whether it would take longer than the time planned; as `fit.seconds_needed`, for a known number of weights."""
    if speed is None:
        return False
    tokens = request.batch * (2 * request.prompt + request.output)
    read = request.output * elements * compute.itemsize / speed.bytes_per_s
    return elements / speed.random_elements_per_s + 2 * elements * tokens / speed.flop_per_s + read > speed.budget_s


def _proof(model: Any, plan: Plan, read: Read, request: ProbeRequest, device: torch.device) -> tuple[float, dict[str, Any]]:
    """Logits of a small float32 run against full recomputation: a checkpoint's own model, else a smaller one with windows that slide."""
    small = proof_request(request)
    raw, limit = plan.raw, None
    if model is None:
        limit = max(1, small.prompt // 2 + 1)
        raw = shrink(plan.raw, len(plan.spec.layers), _first_of_each(plan.spec), Cut(limit=limit))
        limit = limit if any(getattr(c, "limit_tokens", None) for layer in read(raw).layers for c in layer.caches) else None
        model = hosted.build(hosted.config_of(raw), seed=request.seed, dtype=torch.float32, device=device)
    else:
        model = model.float()
    spec = read(raw)
    runner: Injected = inject(model, spec, allocate(spec, kv=kv_layout("fp32"), block_size=small.block_size), small, dtype=torch.float32, device=device)
    vocab = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocab, (small.batch, small.tokens()), generator=torch.Generator().manual_seed(request.seed + 2)).to(device)
    expected = runner.reference(ids)
    got, _, _ = replay(runner, ids, small.prompt)
    return proof.relative_error(got, expected), {
        "layers": len(spec.layers), "limit_tokens": limit, "positions": small.tokens(),
        "batch": small.batch, "prompt": small.prompt, "output": small.output,
    }  # fmt: skip


def _first_of_each(spec: ModelSpec) -> int:
    """The fewest first layers that hold one of every kind of cache, and not fewer than two."""
    seen: set[object] = set()
    last = 1
    for i, layer in enumerate(spec.layers):
        if layer.caches not in seen:
            seen.add(layer.caches)
            last = max(last, i + 1)
    return min(max(2, last), len(spec.layers))


def _layout(request: ProbeRequest, spec: ModelSpec) -> KvLayout:
    name = request.kv_dtype if request.kv_dtype != "auto" else spec.dtype.name if spec.dtype.name in ("fp32", "bf16", "fp16") else "bf16"
    if name.endswith("_per_token_head"):
        raise UnsupportedValue("probe_kv_dtype", field="kv_dtype", value=name, known="fp32, bf16, fp16, fp8")
    return kv_layout(name)


def _rows_read(spec: ModelSpec, kv: KvLayout, request: ProbeRequest) -> int:
    reads = [i if layer.shares_with is None else layer.shares_with for i, layer in enumerate(spec.layers)]
    rows = [cache_of(spec.layers[i], i) for i in reads]
    return request.batch * sum(r.bytes_read_per_step(request.tokens(), kv) for r in rows if r is not None)

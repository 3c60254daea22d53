"""What of a model runs under the injected runner: cut to memory and, on a CPU, to time; vocabulary, feed-forward width and experts
first, then the last layers. Attention and state shapes never are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.fit import seconds
from gpu_probe.injected import hosted
from gpu_probe.injected.skeleton import Cut, elements_by_layer, needed_bytes, shrink
from gpu_probe.setup import Setup
from planner.cache import Pool, State
from planner.engines.probe import allocate
from planner.errors import UnsupportedModel
from planner.model import ModelSpec
from planner.notes import Note, note

Read = Callable[[dict[str, Any]], ModelSpec]
PLAN_S, PLAN_SHARE = 5.0, 0.125
"""Seconds that the plan of a CPU run may fill, and its share of the time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The model that runs: its raw config (cut or whole), what the planner reads from it, and its pools. `elements`: its weights, in
    numbers; `widest`: those of its largest layer."""

    raw: dict[str, Any]
    spec: ModelSpec
    pools: tuple[Pool, ...]
    needed: int
    elements: int
    widest: int
    notes: tuple[Note, ...]


def planned(raw: dict[str, Any], whole: ModelSpec, read: Read, setup: Setup, *, real: bool) -> Plan:
    """As much of the model as memory allows, and on a CPU time; a checkpoint (`real`) is never made narrower. ProbeOutOfMemory: not one
    layer fits. UnsupportedModel: these pages cannot hold it, or a narrower model would keep another cache."""
    request, item, total = setup.request, setup.compute.itemsize, len(whole.layers)
    asked = min(request.layers or total, total)
    speed = setup.speed(PLAN_S, PLAN_SHARE)
    for cut in (None,) if real else (None, Cut()):
        candidate = shrink(raw, total, asked, cut)
        spec = _unchanged(read(candidate), whole)
        pools = allocate(spec, kv=setup.kv, block_size=request.block_size)
        base, layers = elements_by_layer(hosted.config_of(candidate))
        needs = [needed_bytes(base + sum(layers[:n]), spec, pools, request, item, n) for n in range(asked + 1)]
        fits = max((n for n in range(1, asked + 1) if needs[n] <= setup.memory), default=0)
        in_time, timed = asked, speed is not None and (cut is None or request.layers is None)
        least = 1 if cut is None else min(asked, first_of_each(spec))  # time is a wish, one cache of every kind is the point
        while timed and speed is not None and in_time > least:
            elements, states = base + sum(layers[:in_time]), sum(any(isinstance(k, State) for k in x.caches) for x in spec.layers[:in_time])
            if seconds(elements, elements, states, request, item, speed) <= speed.budget_s:
                break
            in_time -= 1
        count = min(fits, in_time)
        if count == asked:
            break
    if count < 1:
        raise ProbeOutOfMemory("probe_memory_short", field="memory_cap", needed=needs[1], available=setup.memory, hidden=spec.hidden_size)
    final = shrink(raw, total, count, cut)
    spec = read(final)
    notes = []
    if cut is not None:
        width = cut.width_of(raw)
        notes.append(note("warning", "probe_skeleton", vocab=spec.vocab_size, vocab_total=whole.vocab_size, width=min(width, cut.width), width_total=width))
    if count < total:
        notes.append(note("info" if request.layers == count else "warning", "probe_layers_cut" if request.layers != count else "probe_layers_asked",
                          "layers", run=count, total=total))  # fmt: skip
    return Plan(
        raw=final, spec=spec, pools=allocate(spec, kv=setup.kv, block_size=request.block_size), notes=tuple(notes), widest=max(layers[:count]),
        elements=base + sum(layers[:count]), needed=needs[count],
    )  # fmt: skip


def first_of_each(spec: ModelSpec) -> int:
    """The fewest first layers that hold one of every kind of cache, and not fewer than two."""
    seen: set[object] = set()
    last = 1
    for i, layer in enumerate(spec.layers):
        if layer.caches not in seen:
            seen.add(layer.caches)
            last = max(last, i + 1)
    return min(max(2, last), len(spec.layers))


def _unchanged(spec: ModelSpec, whole: ModelSpec) -> ModelSpec:
    for i, layer in enumerate(spec.layers):
        if layer.caches != whole.layers[i].caches:
            raise UnsupportedModel("probe_injected_cut", field=f"layers[{i}].caches", layer=i)
    return spec

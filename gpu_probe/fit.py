"""How much of a model runs here: cuts to memory and, on a CPU, to time. No torch.

The order is fixed and said in the notes: first vocabulary and feed-forward width (they hold no KV bytes), then layers. Attention
shapes are never cut, so the KV bytes of every layer that runs are the model's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.result import ProbeRequest
from gpu_probe.shapes import Shape, active_width, build_shape
from planner.cache import Pool
from planner.dtypes import KvLayout
from planner.engines.probe import allocate, chosen_layers, held_blocks, predicted_kv_bytes
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.units import GIB, MIB

SKELETON_VOCAB = 1024
SCRATCH_BYTES = 64 * MIB
"""Attention scores of one piece of a prefill stay below this: `attention.pieces` cuts the queries accordingly."""
CHUNK_TOKENS = 512
"""Tokens of the cache that attention reads at a time."""
FIXED_BYTES = 96 * MIB
"""Libraries' workspaces, Python objects and the allocator's slack: an assumption, generous."""


STATE_STEP_S = 1.5e-4
"""One token through one recurrent layer, beside its products: states are stepped token by token. An assumption, for the time plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What a short calibration found, for the time plan on a CPU. Rates per second; 0: no limit of time."""

    flop_per_s: float
    bytes_per_s: float = 3e9
    random_elements_per_s: float = 8e7
    budget_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The decoder that runs, its pools, and what was left out."""

    shape: Shape
    layers: tuple[int, ...]
    pools: tuple[Pool, ...]
    blocks: tuple[int, ...]
    needed_bytes: int
    memory_bytes: int
    notes: tuple[Note, ...]


def pool_blocks(pool: Pool, request: ProbeRequest) -> int:
    """Blocks to allocate for one group: the larger of the prefill of all prompts at once and the end, and a spare eighth, so that the
    blocks have somewhere to move to when they are shuffled."""
    (group,) = pool.groups
    shared = request.shared_tokens()
    most = max(held_blocks(group, request.batch, request.prompt, shared, "admission"), held_blocks(group, request.batch, request.tokens(), shared))
    return most + max(1 if group.kind == "state" else 4, most // 8)


def needed_bytes(shape: Shape, pools: tuple[Pool, ...], request: ProbeRequest, compute_bytes: int) -> int:
    """Bytes of weights, pools and working memory at the prefill. The last is an estimate, and on the safe side."""
    weights = shape.elements() * compute_bytes
    kv = sum(pool_blocks(p, request) * p.groups[0].bytes_per_unit() for p in pools)
    return weights + kv + working_bytes(shape, request, compute_bytes) + FIXED_BYTES


def working_bytes(shape: Shape, request: ProbeRequest, compute_bytes: int) -> int:
    """Activations, logits and scratch at the prefill: an estimate on the safe side."""
    attentions = [x.attention for x in shape.layers if x.attention is not None]
    widest = max(((a.q_heads + 2 * a.kv_heads) * (a.qk_dim + a.v_dim) for a in attentions), default=0)
    widest = max([widest, *(2 * (x.state.channels + 2 * x.state.inner) for x in shape.layers if x.state is not None)])
    per_token = 6 * shape.hidden + 3 * max(x.mlp_width for x in shape.layers) + 2 * widest
    activations = request.batch * request.prompt * per_token * max(compute_bytes, 4)
    logits = request.batch * (request.output + 1) * shape.vocab * 4 * 3
    scratch = min(SCRATCH_BYTES, 4 * request.batch * request.prompt * max((a.q_heads for a in attentions), default=0) * CHUNK_TOKENS)
    return activations + logits + 6 * scratch


def seconds_needed(shape: Shape, request: ProbeRequest, compute_bytes: int, speed: Speed) -> float:
    """A rough time for making the weights, the prefill, the decode and the check against recomputation."""
    states = sum(x.state is not None for x in shape.layers)
    return seconds(shape.elements(), shape.elements() - shape.vocab * shape.hidden, states, request, compute_bytes, speed)


def seconds(elements: int, multiplied: int, states: int, request: ProbeRequest, compute_bytes: int, speed: Speed) -> float:
    """The same for so many weights, of which `multiplied` are read by each step, and `states` recurrent layers."""
    tokens = request.batch * (2 * request.prompt + request.output)
    return (
        elements / speed.random_elements_per_s
        + 2 * multiplied * tokens / speed.flop_per_s
        + request.output * multiplied * compute_bytes / speed.bytes_per_s
        + states * (2 * request.prompt + request.output) * STATE_STEP_S
    )


def fit(model: ModelSpec, request: ProbeRequest, kv: KvLayout, *, compute_bytes: int, memory_bytes: int, speed: Speed | None = None) -> Fit:
    """As much of `model` as `memory_bytes` and `speed` allow; layers that were asked for are left out for memory only. Raises
    ProbeOutOfMemory where not even one layer fits."""
    wanted = chosen_layers(model, request.layers)
    build_shape(model, tuple(range(len(model.layers))), vocab=1, mlp_limit=1)  # refuses what cannot run, wherever it sits
    full_width = max((active_width(model.layers[i]) for i in wanted), default=0)
    thin = max(64, model.hidden_size // 4 // 64 * 64)

    def attempt(count: int, cut: bool) -> tuple[Shape, tuple[int, ...], tuple[Pool, ...], int]:
        layers = chosen_layers(model, count)
        vocab, limit = (min(model.vocab_size, SKELETON_VOCAB), thin) if cut else (model.vocab_size, None)
        shape = build_shape(model, layers, vocab=max(2, vocab), mlp_limit=limit)
        pools = allocate(model, kv=kv, block_size=request.block_size, layers=layers)
        return shape, layers, pools, needed_bytes(shape, pools, request, compute_bytes)

    def allowed(count: int, cut: bool, timed: bool) -> bool:
        shape, _, _, need = attempt(count, cut)
        return need <= memory_bytes and (speed is None or not timed or seconds_needed(shape, request, compute_bytes, speed) <= speed.budget_s)

    cut = not allowed(len(wanted), cut=False, timed=True)
    count = _largest(len(wanted), lambda n: allowed(n, cut, timed=request.layers is None))
    shape, layers, pools, need = attempt(max(1, count), cut)
    if need > memory_bytes:
        raise ProbeOutOfMemory("probe_memory_short", field="memory_cap", needed=need, available=memory_bytes, hidden=model.hidden_size)
    notes = [note("info", "probe_random_weights")]
    if cut and (shape.vocab < model.vocab_size or full_width > thin):
        notes.append(
            note(
                "warning",
                "probe_skeleton",
                vocab=shape.vocab,
                vocab_total=model.vocab_size,
                width=min(thin, full_width),
                width_total=full_width,
            )
        )
    if len(layers) < len(wanted):
        notes.append(note("warning", "probe_layers_cut", "layers", run=len(layers), total=len(model.layers)))
    elif len(layers) < len(model.layers):
        notes.append(note("info", "probe_layers_asked", "layers", run=len(layers), total=len(model.layers)))
    if any(model.layers[i].mlp and model.layers[i].mlp.experts for i in layers):  # type: ignore[union-attr]
        notes.append(note("info", "probe_experts_dense", width=max(x.mlp_width for x in shape.layers)))
    blocks = tuple(pool_blocks(p, request) for p in pools)
    return Fit(shape=shape, layers=layers, pools=pools, blocks=blocks, needed_bytes=need, memory_bytes=memory_bytes, notes=tuple(notes))


def _largest(limit: int, good: Callable[[int], bool]) -> int:
    """The largest n <= limit with good(n), which is monotone; 0: none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if good(middle) else (low, middle - 1)
    return low


def proof_request(request: ProbeRequest) -> ProbeRequest:
    """The small float32 run that is checked against recomputation, where the timed run is too large or not float32: two ragged blocks
    more than a few, one more sequence than one."""
    prompt = min(request.prompt, 6 * request.block_size + 5, 160)
    return replace(
        request, batch=min(request.batch, 2), prompt=max(1, prompt), output=min(request.output, 12), kv_dtype="fp32", layers=None,
        shared_prefix=min(request.shared_prefix, max(1, prompt)),
    )  # fmt: skip


def all_layers_bytes(model: ModelSpec, request: ProbeRequest, kv: KvLayout) -> int:
    """The KV bytes of the same batch with every layer of the model."""
    return predicted_kv_bytes(allocate(model, kv=kv, block_size=request.block_size), request.batch, request.tokens(), request.shared_tokens())


def host_memory_bytes() -> int | None:
    """Bytes that this process may still take on the host: the least of MemAvailable and the control group's headroom. None: unknown."""
    found = [v for v in (_mem_available(), _cgroup_headroom()) if v is not None]
    if not found and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        found = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    return min(found) if found else None


def usable_bytes(request: ProbeRequest, free: int | None) -> int:
    """What the plan may fill: the cap, and never more than 70 % of what is free now."""
    limits = [int(free * 0.7)] if free is not None else [4 * GIB]
    if request.memory_cap_bytes is not None:
        limits.append(request.memory_cap_bytes)
    return min(limits)


def _mem_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _cgroup_headroom() -> int | None:
    """Limit minus use, pages of inactive files counted as free. Version 2, then version 1."""
    for folder, limit_name, use_name in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = int(Path(folder, limit_name).read_text())
            use = int(Path(folder, use_name).read_text())
            inactive = [int(x.split()[1]) for x in Path(folder, "memory.stat").read_text().splitlines() if x.startswith("inactive_file ")]
            return max(0, limit - use + sum(inactive))
        except (OSError, ValueError):  # no such file, or the limit is "max"
            continue
    return None

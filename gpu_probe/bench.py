"""Decode attention on one CPU thread: over shuffled pages, over contiguous rows, over transformers' DynamicCache; MLA absorbed and expanded.

All methods of a row run in turn, round after round, so that what else the machine does meets each of them alike: only ratios of the same
round are worth a word, and the figure is their median. Every call takes the next of several buffers that together exceed the last-level
cache. Letters: B batch (1), S tokens, H query heads, K kv heads, G = H / K, D head_dim, P block_size, R latent rank.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe import backends
from gpu_probe import device as devices
from gpu_probe.backends.base import Job, Reads
from gpu_probe.backends.torch_chunked import TorchChunked
from gpu_probe.fit import host_memory_bytes
from planner.errors import UnsupportedValue
from planner.notes import note
from planner.units import MIB

CPU = torch.device("cpu")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
CONTEXTS = (4096, 8192, 16384)
HEADS, KV_HEADS, DIM, BLOCK = 32, 8, 128, 16
MLA_HEADS, RANK, ROPE, NOPE, VALUE, MLA_CONTEXT = 16, 512, 64, 128, 128, 4096
"""A DeepSeek-V3 layer's share under TP 8."""
SLOW_S = 3.0
"""A method whose first call takes longer is left out of its row: too few rounds for a median."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
MEMORY_SHARE = 0.5
"""Of the memory that is free now. Beyond it a row is skipped and named: this bench must never make the machine swap."""

Method = Callable[[int], Tensor]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case. Seconds are medians over `rounds`; ratios are medians of the ratios within a round. `error`: the largest difference
    between the paged answer and the contiguous one (MLA: the expanded one), over the largest number."""

    kind: str
    dtype: str
    context: int
    buffers: int
    bytes_read: int
    rounds: int
    backend: str
    seconds: dict[str, float]
    ratios: dict[str, float]
    error: float


def bench(*, device: str = "cpu", contexts: Sequence[int] = CONTEXTS, mla_context: int = MLA_CONTEXT, budget_s: float = 170.0, seed: int = 0,
          progress: Progress = lambda name, done, total: None) -> dict[str, Any]:  # fmt: skip
    """The bench's result, ready for JSON. `budget_s`: what the rounds may take together; the set-up comes on top.

    Raises UnsupportedValue for a device other than the CPU.
    """
    if device not in ("auto", "cpu"):
        raise UnsupportedValue("probe_bench_device", field="device", value=device[:40])
    began = time.perf_counter()
    before, threads = torch.is_grad_enabled(), torch.get_num_threads()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    try:
        torch.manual_seed(seed)
        cold = cold_bytes()
        step, source = dynamic_cache()
        cases: list[tuple[str, str, int]] = [("gqa", d, s) for s in contexts for d in DTYPES] + [("mla", d, mla_context) for d in reversed(DTYPES)]
        rows, skipped, refused = [], [], []
        for done, (kind, dtype, context) in enumerate(cases):
            progress(f"{kind} {dtype} {context}", done, len(cases))
            share = max(1.0, (budget_s - (time.perf_counter() - began)) / (len(cases) - done))
            need, free = needed_bytes(kind, dtype, context, cold), host_memory_bytes()
            if free is not None and need > free * MEMORY_SHARE:
                skipped.append({"kind": kind, "dtype": dtype, "context": context, "needed_bytes": need, "free_bytes": free})
                continue
            row, said = _gqa(dtype, context, cold, share, step) if kind == "gqa" else _mla(dtype, context, cold, share)
            rows.append(row)
            refused += [r for r in said if r not in refused]
            gc.collect()
        progress("done", len(cases), len(cases))
    finally:
        torch.set_grad_enabled(before)
        torch.set_num_threads(threads)
    return _result(rows, skipped, refused, source, cold, time.perf_counter() - began)


def needed_bytes(kind: str, dtype: str, context: int, cold: int) -> int:
    """Bytes that a row holds at its worst: every buffer paged and contiguous, the DynamicCache's copies and its concatenation; MLA: the
    rows and, for every head, keys and values, twice while they are put together."""
    item = DTYPES[dtype].itemsize
    if kind == "gqa":
        per = 2 * context * KV_HEADS * DIM * item
        return 2 * buffers(per, cold) * per + 4 * per
    per = context * (RANK + ROPE) * item
    return buffers(per, cold) * per + 3 * context * MLA_HEADS * (2 * NOPE + ROPE + 2 * VALUE) * item


def buffers(per: int, cold: int) -> int:
    return max(2, -(-cold // per))


def cold_bytes() -> int:
    """Bytes that one turn through the buffers reads: four times the last-level cache, at least 128 and at most 512 MiB."""
    return min(512 * MIB, max(128 * MIB, 4 * devices.cache_bytes(CPU)))


def dynamic_cache() -> tuple[Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor], str]:
    """One decode step of one layer as transformers does it, and where it comes from: the library's own cache and attention function, or
    what they come down to (a concatenation and SDPA with enable_gqa) where the library is missing.

    The step: q [1, H, 1, D], old k and v [1, K, S - 1, D], new k and v [1, K, 1, D] -> [1, H, 1, D].
    """
    try:
        import transformers
        from transformers import DynamicCache
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
    except Exception:  # not installed, or one that does not go with this torch

        def emulated(q: Tensor, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> Tensor:
            k, v = torch.cat([k, new_k], -2), torch.cat([v, new_v], -2)
            return nn.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        return emulated, "emulated"
    module = torch.nn.Module()
    module.num_key_value_groups, module.is_causal, module.training = HEADS // KV_HEADS, True, False  # type: ignore[assignment]
    empty = torch.zeros(1, KV_HEADS, 1, DIM)
    cache = DynamicCache()
    cache.update(empty, empty, 0)

    def step(q: Tensor, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> Tensor:
        cache.layers[0].keys, cache.layers[0].values = k, v
        k, v = cache.update(new_k, new_v, 0)
        out, _ = sdpa_attention_forward(module, q, k, v, None, scaling=DIM**-0.5)
        cache.layers[0].keys = cache.layers[0].values = empty  # or the copy would live on beside the next one
        return out.transpose(1, 2)

    return step, f"transformers {transformers.__version__}"


def _gqa(name: str, context: int, cold: int, budget_s: float, step: Callable[..., Tensor]) -> tuple[Row, Sequence[dict[str, str]]]:
    dtype, group = DTYPES[name], HEADS // KV_HEADS
    per = 2 * context * KV_HEADS * DIM * dtype.itemsize
    count, blocks = buffers(per, cold), -(-context // BLOCK)
    order = torch.randperm(blocks)
    pages, rows = [], []
    for _ in range(count):
        pair = [torch.randn(blocks, BLOCK, KV_HEADS, DIM, dtype=dtype) for _ in range(2)]
        pages.append(pair)
        rows.append([x[order].flatten(0, 1)[:context].transpose(0, 1).contiguous()[None] for x in pair])
    job = Job(q_heads=HEADS, kv_heads=KV_HEADS, k_dim=DIM, v_dim=DIM, block_size=BLOCK, storage=dtype, compute=dtype)
    choice, chunked = backends.select(CPU, job), TorchChunked()
    q = torch.randn(1, KV_HEADS, group, DIM, dtype=dtype)
    shuffled = Reads(table=order[None].int(), begins=(0,), ends=(context,), scale=DIM**-0.5)
    in_order = Reads(table=torch.arange(blocks)[None].int(), begins=(0,), ends=(context,), scale=DIM**-0.5)
    old = [[x[:, :, :-1].contiguous() for x in pair] for pair in rows[:2]]

    def dynamic(i: int) -> Tensor:
        (k, v), (new_k, new_v) = old[i % 2], (x[:, :, -1:] for x in rows[i % 2])
        return step(q.view(1, HEADS, 1, DIM), k, v, new_k, new_v).reshape(q.shape)

    methods: dict[str, Method] = {
        "paged": lambda i: choice.backend.decode(q, *pages[i], shuffled, DIM),
        "contiguous": lambda i: nn.scaled_dot_product_attention(q, *rows[i]),
        "pages_in_order": lambda i: choice.backend.decode(q, *pages[i], in_order, DIM),
        "torch_chunked": lambda i: chunked.decode(q, *pages[i], shuffled, DIM),
        "dynamic_cache": dynamic,
        "read": lambda i: torch.stack([x.view(-1).view(torch.float32).sum() for x in pages[i]]),
    }
    error = _difference(methods["paged"](0), methods["contiguous"](0))
    times = _interleaved(methods, count, budget_s)
    seconds = {k: statistics.median(v) for k, v in times.items()}
    rival = min(("contiguous", "pages_in_order"), key=seconds.__getitem__)
    ratios = {
        "paged_over_contiguous": _ratio(times, "paged", rival),
        "paged_over_grouped_sdpa": _ratio(times, "paged", "contiguous"),
        "chunked_over_grouped_sdpa": _ratio(times, "torch_chunked", "contiguous"),
        "dynamic_cache_over_paged": _ratio(times, "dynamic_cache", "paged"),
        "share_of_read_ceiling": _ratio(times, "read", "paged"),
    }
    made = Row(kind="gqa", dtype=name, context=context, buffers=count, bytes_read=per, rounds=len(times["paged"]), backend=choice.name, seconds=seconds,
               ratios={k: v for k, v in ratios.items() if v is not None}, error=error)  # fmt: skip
    return made, choice.refused


def _mla(name: str, context: int, cold: int, budget_s: float) -> tuple[Row, Sequence[dict[str, str]]]:
    """Absorbed over pages (both products with kv_b included), and expanded as transformers does it: keys and values for every head, then
    SDPA. The expansion reads its latent rows contiguous, which favours it."""
    dtype = DTYPES[name]
    per = context * (RANK + ROPE) * dtype.itemsize
    count, blocks = buffers(per, cold), -(-context // BLOCK)
    order = torch.randperm(blocks)
    pages = [torch.randn(blocks, BLOCK, 1, RANK + ROPE, dtype=dtype) for _ in range(count)]
    flat = [x[order].flatten(0, 1)[:context, 0] for x in pages[:2]]
    kv_b = (torch.randn(MLA_HEADS, NOPE + VALUE, RANK) / RANK**0.5).to(dtype)
    q, scale = torch.randn(MLA_HEADS, NOPE + ROPE, dtype=dtype), (NOPE + ROPE) ** -0.5
    job = Job(q_heads=MLA_HEADS, kv_heads=1, k_dim=RANK + ROPE, v_dim=RANK, block_size=BLOCK, storage=dtype, compute=dtype, latent=True)
    choice = backends.select(CPU, job)
    reads = Reads(table=order[None].int(), begins=(0,), ends=(context,), scale=scale)

    def absorbed(i: int) -> Tensor:
        wide = torch.cat([torch.einsum("hn,hnr->hr", q[:, :NOPE], kv_b[:, :NOPE]), q[:, NOPE:]], -1)
        return torch.einsum("hr,hvr->hv", choice.backend.decode(wide[None, None], pages[i], None, reads, RANK)[0, 0], kv_b[:, NOPE:])

    def expanded(i: int) -> Tensor:
        rows = flat[i % 2]
        both = (rows[:, :RANK] @ kv_b.flatten(0, 1).T).view(context, MLA_HEADS, NOPE + VALUE).transpose(0, 1)
        k = torch.cat([both[..., :NOPE], rows[None, :, RANK:].expand(MLA_HEADS, -1, -1)], -1)
        return nn.scaled_dot_product_attention(q[None, :, None], k[None], both[None, ..., NOPE:].contiguous(), scale=scale)[0, :, 0]

    methods: dict[str, Method] = {"absorbed": absorbed, "expanded": expanded, "read": lambda i: pages[i].view(-1).view(torch.float32).sum()}
    error = _difference(absorbed(0), expanded(0))
    times = _interleaved(methods, count, budget_s)
    ratios = {"expanded_over_absorbed": _ratio(times, "expanded", "absorbed"), "share_of_read_ceiling": _ratio(times, "read", "absorbed")}
    made = Row(kind="mla", dtype=name, context=context, buffers=count, bytes_read=per, rounds=len(times["absorbed"]), backend=choice.name,
               seconds={k: statistics.median(v) for k, v in times.items()}, ratios={k: v for k, v in ratios.items() if v is not None}, error=error)  # fmt: skip
    return made, choice.refused


def _interleaved(methods: dict[str, Method], count: int, budget_s: float) -> dict[str, list[float]]:
    """Seconds of every call, in rounds; a method too slow for the budget is left out after its first call."""
    turn = _turns(count)
    running, began = dict(methods), time.perf_counter()
    for name in methods:
        start = time.perf_counter()
        methods[name](next(turn))
        if time.perf_counter() - start > min(SLOW_S, budget_s):
            del running[name]
    times: dict[str, list[float]] = {name: [] for name in running}
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() - began > budget_s:
            break
        for name, method in running.items():
            i = next(turn)
            start = time.perf_counter()
            method(i)
            times[name].append(time.perf_counter() - start)
    return times


def _turns(count: int) -> Iterator[int]:
    i = 0
    while True:
        yield i
        i = (i + 1) % count


def _ratio(times: dict[str, list[float]], above: str, below: str) -> float | None:
    """None where one of the two was left out."""
    if not times.get(above) or not times.get(below):
        return None
    return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))


def _difference(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want.double()).abs().max() / want.double().abs().max()).item()


def _result(rows: list[Row], skipped: list[dict[str, Any]], refused: list[dict[str, str]], source: str, cold: int, wall_s: float) -> dict[str, Any]:
    def over(name: str, kind: str = "gqa") -> dict[str, float]:
        found = {d: [r.ratios[name] for r in rows if (r.kind, r.dtype) == (kind, d) and name in r.ratios] for d in DTYPES}
        return {d: round(statistics.median(values), 4) for d, values in found.items() if values}

    latent = over("expanded_over_absorbed", "mla")
    notes = [note("info", "probe_bench_contiguous")]
    notes += [note("info", "probe_bench_emulated")] if source == "emulated" else []
    notes += [note("warning", "probe_bench_skipped", count=len(skipped))] if skipped else []
    return {
        "paged_over_contiguous": over("paged_over_contiguous"),
        "paged_over_grouped_sdpa": over("paged_over_grouped_sdpa"),
        "chunked_over_grouped_sdpa": over("chunked_over_grouped_sdpa"),
        "share_of_read_ceiling": over("share_of_read_ceiling"),
        "dynamic_cache_over_paged": over("dynamic_cache_over_paged"),
        "expanded_over_absorbed": min(latent.values(), default=None),
        "device": "cpu",
        "device_name": devices.name_of(CPU),
        "backend": ", ".join(sorted({r.backend for r in rows})),
        "backends_refused": refused,
        "conditions": {
            "threads": 1, "q_heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "block_size": BLOCK, "batch": 1, "cold_bytes": cold, "dynamic_cache": source,
            "mla": {"q_heads": MLA_HEADS, "rank": RANK, "rope": ROPE, "nope": NOPE, "v_dim": VALUE},
        },
        "versions": devices.versions(CPU),
        "rows": [asdict(r) for r in rows],
        "skipped": skipped,
        "notes": [n.to_json() for n in notes],
        "wall_s": wall_s,
    }  # fmt: skip


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = []
    for row in result["rows"]:
        waits = "  ".join(f"{name} {value * 1e3:.2f}" for name, value in row["seconds"].items())
        lines.append(f"{row['kind']} {row['dtype']} {row['context']:>6}  {row['backend']}  ms: {waits}")
    names = ("paged_over_contiguous", "paged_over_grouped_sdpa", "share_of_read_ceiling", "dynamic_cache_over_paged", "expanded_over_absorbed")
    lines += [f"{name}: {result[name]}" for name in names]
    return "\n".join(lines + [f"{n['level']}: {n['text']}" for n in result["notes"]])

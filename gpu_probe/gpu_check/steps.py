"""The steps of the GPU check: each takes a `Setting` and returns plain values. What a step means: `gpu.*` in planner/messages.

With `dry` every step does what a CPU allows, small: to find mistakes before a GPU's minutes count.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from gpu_probe import device as devices
from gpu_probe.backends import triton_decode as td
from gpu_probe.gpu_check.sweep import sweep
from gpu_probe.gpu_check.tools import Result, Setting, pages, timed
from gpu_probe.result import ProbeRequest
from planner.units import GIB, MIB

GQA_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "torch_dtype": "bfloat16", "num_hidden_layers": 32,
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
    "max_position_embeddings": 131072,
}  # fmt: skip
MLA_CONFIG = {
    "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "torch_dtype": "bfloat16", "num_hidden_layers": 27,
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "max_position_embeddings": 163840,
}  # fmt: skip
"""Shapes of Llama-3.1-8B and of DeepSeek-V2-Lite."""


def facts(setting: Setting) -> Result:
    """Versions, the device, and what the context costs: memory in use before and after the first CUDA call."""
    before = _smi_used()
    setting.device = devices.pick("cpu" if setting.dry else "cuda")
    found: Result = {"device": str(setting.device), "device_name": devices.name_of(setting.device), "versions": devices.versions(setting.device)}
    for package in ("triton", "pytorch-triton-rocm", "transformers"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found["versions"][package] = importlib.metadata.version(package)
    found["allocator"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or "default"
    found["architecture"], found["shared_bytes"] = td.architecture(setting.device), td.shared_limit(setting.device)
    if setting.device.type == "cuda":
        properties = torch.cuda.get_device_properties(setting.device)
        after, total = _smi_used(), torch.cuda.mem_get_info(setting.device)[1]
        found |= {"total_bytes": total, "free_bytes": torch.cuda.mem_get_info(setting.device)[0], "processors": properties.multi_processor_count}
        found |= {"l2_bytes": getattr(properties, "L2_cache_size", None), "context_bytes": None if before is None or after is None else after - before}
    return found


def ceilings(setting: Setting) -> Result:
    """Best of several rounds: copy (read and write counted), read alone, fill; square products in bf16."""
    free = devices.free_bytes(setting.device, GIB) or GIB
    sizes = (64 * MIB,) if setting.dry else (256 * MIB, GIB, 4 * GIB, 8 * GIB)
    rows = [_bandwidths(setting, size) for size in sizes if 3 * size <= free]
    products = [{"size": n, "flop_per_s": _product(setting, n)} for n in ((256,) if setting.dry else (4096, 8192))]
    return {
        "read_bytes_per_s": max(r["read_bytes_per_s"] for r in rows[-2:]), "flop_per_s": max(p["flop_per_s"] for p in products),
        "rows": rows, "products": products,
    }  # fmt: skip


def _bandwidths(setting: Setting, size: int) -> Result:
    x = torch.ones(size // 4, device=setting.device)
    y = torch.empty_like(x)
    ways: dict[str, tuple[int, Callable[[], object]]] = {"copy": (2, lambda: y.copy_(x)), "read": (1, x.sum), "fill": (1, lambda: y.fill_(1.0))}
    return {"bytes": size} | {f"{name}_bytes_per_s": times * size / timed(setting, [call]) for name, (times, call) in ways.items()}


def _product(setting: Setting, n: int) -> float:
    a = torch.ones(n, n, device=setting.device, dtype=torch.bfloat16)
    return 2 * n**3 / timed(setting, [lambda: a @ a])


def ceilings_again(setting: Setting) -> Result:
    """The read ceiling once more: shares are worth nothing where it moved by more than a quarter."""
    before, after = setting.found["ceilings"]["read_bytes_per_s"], ceilings(setting)["read_bytes_per_s"]
    return {"before_bytes_per_s": before, "after_bytes_per_s": after, "steady": abs(after / before - 1) <= 0.25}


def accounting(setting: Setting) -> Result:
    """The same bytes at four levels (tensors, allocator, segments, device) in one piece, in 64, and in odd sizes."""
    unit = MIB if setting.dry or (devices.free_bytes(setting.device, 0) or 0) < 8 * GIB else 64 * MIB
    rows = []
    for sizes in ([64 * unit], [unit] * 64, [3 * MIB + 1] * (10 if setting.dry else 100), [1000] * 1000):
        gc.collect()
        start = _levels(setting.device)
        kept = [torch.empty(n, dtype=torch.uint8, device=setting.device).fill_(1) for n in sizes]
        end = _levels(setting.device)
        tensors = sum(t.untyped_storage().nbytes() for t in kept)
        rows.append({"pieces": len(sizes), "asked": sum(sizes), "tensors": tensors, **{name: end[name] - start[name] for name in end}})
        del kept
    return {"rows": rows}


def out_of_memory(setting: Setting) -> Result:
    """Allocations up to a cap and beyond: the refusal must be an ordinary error, and the device must work afterwards."""
    if setting.device.type != "cuda":
        done = subprocess.run([sys.executable, "-c", _CPU_OOM], capture_output=True, text=True, timeout=60, check=False)
        return {"refused": "refused" in done.stdout, "works_after": done.stdout.strip().endswith("8.0"), "exit": done.returncode}
    taken: list[Tensor] = []
    message = ""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.1, setting.device)
    try:
        while len(taken) < 10_000:
            taken.append(torch.empty(512 * MIB, dtype=torch.uint8, device=setting.device))
    except torch.OutOfMemoryError as e:
        message = str(e)[:200]
    finally:
        pieces = len(taken)
        taken.clear()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0, setting.device)
    return {
        "refused": bool(message),
        "bytes": pieces * 512 * MIB,
        "message": message,
        "works_after": float((torch.ones(4, device=setting.device) * 2).sum()) == 8.0,
    }


def fp8(setting: Setting) -> Result:
    """fp8 rows written by index, as fp8 and as bytes: which of the two this device can do, and the largest rounding."""
    found: Result = {}
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        x = torch.randn(100, 8, 128, device=setting.device).bfloat16()
        rows, at = x.to(dtype), torch.randperm(1024, device=setting.device)[:100]
        for way, view in (("index", dtype), ("bytes", torch.uint8)):
            pool = torch.zeros(1024, 8, 128, dtype=torch.uint8, device=setting.device)
            try:
                pool.view(view)[at] = rows.view(view)
                found[f"{name}_{way}"] = bool((pool[at] == rows.view(torch.uint8)).all())
            except (RuntimeError, NotImplementedError) as e:
                found[f"{name}_{way}"] = str(e).splitlines()[0][:100]
        found[f"{name}_error"] = float((rows.to(torch.bfloat16) - x).abs().max())
    return found


# name: (batch, tokens, page, heads, kv heads, key, value, rank, extras)
Numbers = tuple[int, int, int, int, int, int, int, int, dict[str, Any]]
SHAPES: dict[str, Numbers] = {
    "gqa": (4, 1000, 16, 32, 8, 128, 128, 0, {}),
    "mqa, softcap": (3, 777, 64, 8, 1, 64, 64, 0, {"softcap": 30.0}),
    "window": (2, 3000, 32, 16, 8, 256, 256, 0, {"window": 512}),
    "mla": (2, 2000, 64, 16, 1, 576, 0, 512, {}),
}
DRY_SHAPES: dict[str, Numbers] = {"gqa": (1, 40, 16, 4, 2, 32, 32, 0, {}), "mla": (1, 20, 16, 4, 1, 48, 0, 32, {})}


def kernels(setting: Setting) -> Result:
    """The Triton kernels beside float64, largest error by the largest output where that is above 1; first launches, so compiles too."""
    if td.missing():
        return {"missing": td.missing()}
    rows: list[Result] = []
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float32):  # float32 compiles longest
        for name, (batch, tokens, page, heads, kv_heads, key, value, rank, extras) in (DRY_SHAPES if setting.dry else SHAPES).items():
            row: Result = {"case": name, "dtype": str(dtype)[6:]}
            rows.append(row)
            if time.monotonic() > setting.deadline:
                row["error"] = "time"
                continue
            compute = torch.bfloat16 if dtype.itemsize == 1 else dtype
            pools, tables, lengths = pages(setting.device, batch, tokens, page, [(kv_heads, d) for d in (key, value) if d], dtype, ragged=True)
            q = torch.randn(batch, heads, key, device=setting.device).to(compute)
            keys, values = pools[0], pools[1] if value else None
            try:
                start = time.perf_counter()
                if values is None:
                    got = td.mla_decode(q, keys, tables[0], lengths, rank=rank, scale=key**-0.5, **extras)
                else:
                    got = td.gqa_decode(q, keys, values, tables[0], lengths, scale=key**-0.5, **extras)
                devices.synchronize(setting.device)
                want = td.reference(q, keys, values, tables[0], lengths, rank=rank, scale=key**-0.5, **extras)
                row |= {"max_error": float((got.double() - want).abs().max() / want.abs().max().clamp(min=1.0)), "first_call_s": time.perf_counter() - start}
                row["right"] = row["max_error"] <= (1e-5 if dtype == torch.float32 else 1e-2)
            except Exception as e:  # one shape that does not compile must not hide the others
                row["error"] = f"{type(e).__name__}: {e}"[:300]
    return {"rows": rows}


def graph(setting: Setting) -> Result:
    """Launch cost: 32 small decode steps of one layer, one by one and as one CUDA graph."""
    if td.missing():
        return {"missing": td.missing()}
    layers = 2 if setting.dry else 32
    size = (1, 32, 16, 4, 2, 32) if setting.dry else (1, 1024, 64, 32, 8, 128)
    batch, tokens, page, heads, kv_heads, dim = size
    (k, v), tables, lengths = pages(setting.device, batch, tokens, page, [(kv_heads, dim)] * 2, torch.bfloat16)
    w = torch.randn(heads * dim, heads * dim, device=setting.device, dtype=torch.bfloat16)
    q = torch.randn(batch, heads, dim, device=setting.device).bfloat16()

    def step() -> None:
        x = q
        for _ in range(layers):
            mixed = td.gqa_decode(x, k, v, tables[0], lengths, scale=dim**-0.5)
            x = (mixed.view(batch, -1) @ w).view(batch, heads, dim) * 0.01

    found: Result = {"layers": layers, "eager_s": timed(setting, [step], captured=False)}
    if setting.device.type == "cuda":
        found["graph_s"] = timed(setting, [step], captured=True)
        found["eager_over_graph"] = found["eager_s"] / found["graph_s"]
    return found


def probe_gqa(setting: Setting) -> Result:
    """One GQA model through the app's own `run`."""
    return _probe(setting, GQA_CONFIG, "Llama-3.1-8B")


def probe_mla(setting: Setting) -> Result:
    """One MLA model through the app's own `run`."""
    return _probe(setting, MLA_CONFIG, "DeepSeek-V2-Lite")


def _probe(setting: Setting, config: Mapping[str, Any], name: str) -> Result:
    from gpu_probe.run import run

    small = {"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 256, "intermediate_size": 256, "moe_intermediate_size": 64}
    model = setting.read_config({**config, **{k: v for k, v in small.items() if k in config}} if setting.dry else config, name)
    sizes = {"batch": 2, "prompt": 20, "output": 3} if setting.dry else {"batch": 4, "prompt": 2048, "output": 32}
    probe = run(model, ProbeRequest(device=str(setting.device), time_limit_s=60.0, **sizes))  # type: ignore[arg-type]
    gc.collect()
    if setting.device.type == "cuda":
        torch.cuda.empty_cache()
    return {
        "predicted_kv_bytes": probe.predicted_kv_bytes, "measured_kv_bytes": probe.measured_kv_bytes, "bytes_agree": probe.bytes_agree,
        "ttft_s": probe.ttft_s, "itl_s": probe.itl_s["p50"], "tokens_per_s": probe.tokens_per_s, "backend": probe.backend,
        "logits_max_rel_error": probe.logits_max_rel_error, "layers": f"{probe.layers_run} / {probe.layers_total}", "probe": probe.to_json(),
    }  # fmt: skip


def _levels(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {"process": devices.memory_now(device)["host_rss_bytes"]}
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats(device)
    free, total = torch.cuda.mem_get_info(device)
    names = {"requested": "requested_bytes", "allocated": "allocated_bytes", "reserved": "reserved_bytes", "unusable": "inactive_split_bytes"}
    return {name: int(stats.get(f"{key}.all.current", 0)) for name, key in names.items()} | {"device": total - free}


def _smi_used() -> int | None:
    """Bytes in use on the first GPU by nvidia-smi, which needs no context of ours."""
    try:
        ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        return int(subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.split()[0]) * MIB
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


_CPU_OOM = """import torch
from gpu_probe import device
cpu = torch.device("cpu")
device.limit_memory(cpu, 256 * 2**20)
kept = []
try:
    while len(kept) < 100: kept.append(torch.ones(64 * 2**20, dtype=torch.uint8))
except RuntimeError as e:
    print("refused" if device.is_out_of_memory(e) else e)
kept.clear()
print(float((torch.ones(4) * 2).sum()))
"""


def steps() -> Iterator[tuple[str, Callable[[Setting], Result]]]:
    """In order: what decides most comes first, the sweep takes what is left."""
    for step in (facts, ceilings, accounting, out_of_memory, fp8, kernels, graph, probe_gqa, probe_mla, sweep, ceilings_again):
        yield step.__name__, step

"""Run by test_triton.py in a process of its own: `interpret` (with TRITON_INTERPRET=1) or `compile TARGET...`. One JSON line a case."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

from gpu_probe import backends
from gpu_probe.backends import triton_decode as td
from gpu_probe.backends.base import Job
from planner.errors import UnsupportedValue

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8, **FP8}

# name: (lengths, page, query heads, kv heads, key, value (0: latent of `rank`), rank, extras)
CASES: dict[str, tuple[list[int], int, int, int, int, int, int, dict[str, Any]]] = {
    "gqa": ([70, 37], 16, 4, 2, 128, 128, 0, {"splits": 2}),
    "gqa, one part": ([40, 1], 16, 6, 2, 64, 64, 0, {"splits": 1}),
    "mqa, softcap, window": ([77, 9], 16, 8, 1, 64, 64, 0, {"softcap": 2.0, "window": 21, "splits": 3}),
    "softcap far and near": ([70], 16, 4, 2, 64, 64, 0, {"softcap": 30.0, "splits": 2}),
    "window that gave blocks back": ([90, 61], 16, 4, 2, 64, 64, 0, {"window": 24, "splits": 2, "drop": True}),
    "chunk": ([48, 49, 95], 16, 4, 2, 64, 64, 0, {"chunk": 48, "splits": 2}),
    "sinks": ([50, 17], 16, 4, 2, 64, 64, 0, {"sinks": True, "splits": 2}),
    "sinks, window, odd page": ([50, 3], 5, 4, 2, 64, 64, 0, {"sinks": True, "window": 12, "splits": 4}),
    "odd widths": ([45, 20], 7, 6, 2, 80, 48, 0, {"splits": 2}),
    "many heads": ([60], 16, 40, 1, 32, 32, 0, {"splits": 2}),
    "an empty row": ([0, 30], 16, 4, 2, 64, 64, 0, {"splits": 2}),
    "mla": ([70, 41], 16, 16, 1, 576, 0, 512, {"splits": 2}),
    "mla, heads beyond a program": ([60, 9], 64, 20, 1, 576, 0, 512, {"splits": 3}),
    "mla, small and windowed": ([50, 31], 16, 4, 1, 32, 0, 24, {"window": 17, "splits": 2}),
    "default cut": ([300], 16, 4, 2, 64, 64, 0, {}),
}
BF16 = ("gqa", "mqa, softcap, window", "sinks", "mla")
PLAIN = {"q_heads": 4, "kv_heads": 2, "k_dim": 32, "v_dim": 32, "block_size": 16, "storage": torch.float32, "compute": torch.float32}
LATENT = {**PLAIN, "q_heads": 3, "kv_heads": 1, "k_dim": 40, "v_dim": 32, "latent": True}
JOBS = [
    Job(**{**shape, **more})
    for shape in (PLAIN, LATENT)
    for more in ({"limited": True}, {"softcap": True, "sinks": True}, {"storage": torch.bfloat16, "compute": torch.bfloat16}, {"storage": torch.float8_e4m3fn})
]
STORED = {"e4m3": ("gqa", "mla"), "e5m2": ("gqa",), "int8": ("gqa", "mla")}
TAMPERED = {"window": "mqa, softcap, window", "softcap": "mqa, softcap, window", "sinks": "sinks", "chunk": "chunk"}


def one(name: str, dtype: torch.dtype, stored: torch.dtype | None = None, tamper: str = "") -> float:
    """Largest error against float64, by the largest output where that is above 1. `tamper`: the kernel runs without that, and the error must show it."""
    lengths, page, heads, kv_heads, key, value, rank, extras = CASES[name]
    extras = dict(extras)
    g = torch.Generator().manual_seed(7)
    columns = [-(-n // page) for n in lengths]
    blocks = sum(columns) + 3
    free = torch.randperm(blocks, generator=g).tolist()
    first = torch.zeros(len(lengths), dtype=torch.int32)
    table = torch.full((len(lengths), max(columns)), blocks + 99, dtype=torch.int32)  # a column nobody filled must never be read
    for b, count in enumerate(columns):
        ids = [free.pop() for _ in range(count)]
        if extras.get("drop"):
            first[b] = max(0, lengths[b] - extras["window"]) // page
            ids = ids[int(first[b]) :]
        table[b, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    if extras.pop("drop", False):
        table = table[:, : max(c - int(f) for c, f in zip(columns, first.tolist(), strict=True))].contiguous()
    q = (torch.randn(len(lengths), heads, key, generator=g) * 2).to(dtype)
    pools = [torch.randn(blocks, page, kv_heads, d, generator=g) for d in (key, value) if d]
    scales = None
    if stored is None:
        pools = [p.to(dtype) for p in pools]
    else:
        scale = [p.abs().amax(-1) / (100.0 if stored == torch.int8 else 400.0) for p in pools]
        pools = [(p / s[..., None]).to(stored) for p, s in zip(pools, scale, strict=True)]
        scales = (scale[0], scale[-1])
    keys, values = pools[0], pools[1] if value else None
    lens = torch.tensor(lengths, dtype=torch.int32)
    extras["sinks"] = torch.randn(heads, generator=g) + 1.0 if extras.get("sinks") else None
    run = {k: v for k, v in extras.items() if k != tamper}
    common = {"scale": key**-0.5, "first": first}
    if value:
        got = td.gqa_decode(q, keys, values, table, lens, scales=scales, **common, **run)
    else:
        got = td.mla_decode(q, keys, table, lens, rank=rank, scales=scales and scales[0], **common, **run)
    extras.pop("splits", None)
    want = td.reference(q, keys, values, table, lens, rank=rank, scales=scales, **common, **extras)
    return float((got.double() - want).abs().max() / want.abs().max().clamp(min=1.0)) if got.dtype == dtype and got.shape == want.shape else float("inf")


def interpret() -> Iterator[dict[str, Any]]:
    for name in CASES:
        for dtype in ("fp32", "bf16") if name in BF16 else ("fp32",):
            yield {"case": name, "dtype": dtype, "error": one(name, DTYPES[dtype])}
    for stored, names in STORED.items():
        for name in names:
            yield {"case": f"{name}, stored in {stored}", "dtype": "fp32", "error": one(name, torch.float32, DTYPES[stored])}
    for what, name in TAMPERED.items():
        yield {"tampered": what, "dtype": "fp32", "error": one(name, torch.float32, tamper=what)}
    for job in JOBS:
        backends.forget()
        refused = ""
        try:
            backends.select(torch.device("cpu"), job, forced="triton")
        except UnsupportedValue as e:
            refused = str(e.args_by_name["reason"])
        yield {"job": str(job), "refused": refused}
    every = torch.arange(256, dtype=torch.uint8)
    for name, stored in FP8.items():
        yield {"bits": name, "wrong": bits_wrong(every.view(stored), every, 1 if name == "e4m3" else 2)}


def bits_wrong(stored: torch.Tensor, raw: torch.Tensor, bits: int) -> int:
    """Of all 256 patterns, those that the kernels read differently from torch."""
    import triton
    import triton.language as tl

    from gpu_probe.backends.triton_kernels import _read

    @triton.jit
    def read(x, out, BITS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        i = tl.arange(0, 256)
        tl.store(out + i, _read(tl.load(x + i), tl.float32, BITS))

    globals().update(tl=tl, _read=_read)
    out = torch.zeros(256)
    read[(1,)](raw, out, BITS=bits)
    want = stored.float()
    return int((~((out == want) | (out.isnan() & want.isnan()))).sum())


GQA, WIDE, MLA = (4, 128, 128, False, 16), (2, 256, 256, False, 16), (128, 576, 512, True, 64)
# name: (layout, query's dtype, stored dtype, heads a program)
COMPILED: dict[str, tuple[tuple[int, int, int, bool, int], str, str, int]] = {
    "gqa bf16": (GQA, "bf16", "bf16", 16),
    "mla bf16": (MLA, "bf16", "bf16", 16),
    "gqa fp8 by its bits": (GQA, "bf16", "u8", 16),
    "mla fp8 by a cast": (MLA, "bf16", "fp8e4nv", 16),
    "mla fp32": (MLA, "fp32", "fp32", 16),
    "gqa fp16": (GQA, "fp16", "fp16", 16),
    "gqa 256 bf16": (WIDE, "bf16", "bf16", 16),
    "gqa fp32": (GQA, "fp32", "fp32", 16),
    "mla fp16": (MLA, "fp16", "fp16", 16),
    "mla fp8 by its bits": (MLA, "bf16", "u8", 16),
    "mla bf16, 64 heads": (MLA, "bf16", "bf16", 64),
}
# What each test run compiles; `compile all TARGET...` does everything that the target can.
BRIEF = {
    "sm_80": ("gqa bf16", "mla bf16", "gqa fp8 by its bits", "merge"),
    "sm_90": ("gqa bf16", "mla bf16", "mla fp8 by a cast", "merge"),
    "sm_86": ("mla fp32",),  # the widest tile of all on a card of 99 KiB
    "gfx942": ("gqa bf16", "mla bf16"),
}


def compile_for(target: str, every: bool) -> Iterator[dict[str, Any]]:
    """With the hints that a launch gives (pointers and strides divisible by 16): without them nothing is pipelined, and the compiler
    would ask for less shared memory than the real launch does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from gpu_probe.backends import triton_kernels as kernels

    place = GPUTarget("hip", target, 64) if target.startswith("gfx") else GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    limit = td.SHARED_BYTES[target]
    hint = [["tt.divisibility", 16]]

    def build(fn: Any, types: dict[str, str], constants: dict[str, Any], **options: int) -> Any:
        names = fn.arg_names
        signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in names}
        aligned = {(names.index(n),): hint for n in names if signature[n].startswith("*") or n in ("q_b", "q_h", "k_n", "k_p", "k_h", "v_n", "v_p", "v_h")}
        values = {(names.index(n),): v for n, v in constants.items()}
        return compile(ASTSource(fn=fn, signature=signature, constexprs=values, attrs=aligned), target=place, options=options)

    pointers = dict.fromkeys(("TABLE", "FIRST", "BEGINS", "LENS"), "*i32") | dict.fromkeys(("ACC", "TOP", "SUM", "KS", "VS", "SINKS"), "*fp32")
    plain = dict.fromkeys(("scale", "softcap"), "fp32")
    for name, (numbers, dtype, stored, heads) in COMPILED.items():
        if (not every and name not in BRIEF[target]) or (stored == "fp8e4nv" and target < "sm_89"):
            continue
        layout = td.Layout(*numbers, 4 if dtype == "fp32" else 2)
        config = layout.config(limit) if heads == 16 else td.Config(tokens=32, heads=heads, warps=8)
        if heads != 16 and layout.shared_bytes(config) > limit:
            continue
        constants = layout.constants(config, bits=1 if stored == "u8" else 0, scaled=stored != dtype)
        types = {"Q": f"*{dtype}", "K": f"*{stored}", "V": f"*{stored}", **pointers, **plain}
        began = time.perf_counter()
        built = build(kernels.split, types, constants, num_warps=config.warps, num_stages=config.stages)
        yield {
            "target": target, "case": name, "binary": sorted({"cubin", "hsaco"} & set(built.asm)), "shared": built.metadata.shared,
            "estimate": layout.shared_bytes(config), "limit": limit, "tokens": config.tokens, "stages": config.stages,
            "s": round(time.perf_counter() - began, 1),
        }  # fmt: skip
    if every or "merge" in BRIEF[target]:
        merged = {"G": 4, "GP": 16, "DV": 128, "PV": 128, "SPLITS": 16, "SINK": True}
        built = build(kernels.merge, {**pointers, "OUT": "*bf16"}, merged, num_warps=4)
        yield {
            "target": target, "case": "merge", "binary": sorted({"cubin", "hsaco"} & set(built.asm)), "shared": built.metadata.shared, "limit": limit,
        }  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    mode, *targets = sys.argv[1:]
    everything = targets[:1] == ["all"]
    rows = interpret() if mode == "interpret" else (row for target in targets[everything:] for row in compile_for(target, everything))
    for row in rows:
        print(json.dumps(row), flush=True)

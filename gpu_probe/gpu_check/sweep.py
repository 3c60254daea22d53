"""The sweep of the GPU check: how the Triton kernels are best cut, beside contiguous attention, against this device's own ceilings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu_probe import device as devices
from gpu_probe.backends import triton_decode as td
from gpu_probe.gpu_check.tools import ROTATED_BYTES, Result, Setting, pages, timed
from planner.units import GIB

SIZES = ((16, 16_384), (1, 65_536), (64, 8192), (1, 4096))
"""(batch, tokens): the one that the goals are set for comes first."""
GQA = (32, 8, 128)
MLA = (128, 576, 512)
GQA_CUTS = [td.Config(tokens=t, warps=w, stages=s) for t, w in ((64, 4), (128, 4), (128, 8)) for s in (2, 3)]
MLA_CUTS = [td.Config(tokens=t, heads=h, warps=w, stages=s) for t in (32, 64) for h, w, s in ((16, 4, 2), (16, 4, 3), (16, 8, 2), (64, 8, 2))]
"""Few: each is a compile of some seconds, once for all sizes."""
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)


def sweep(setting: Setting) -> Result:
    """For each size: every cut at the default number of splits, then every number of splits at the best cut."""
    if td.missing():
        return {"missing": td.missing()}
    rows: list[Result] = []
    for batch, tokens in ((1, 32),) if setting.dry else SIZES:
        for measure in (_gqa, _mla):
            if time.monotonic() > setting.deadline:
                return {"rows": rows, "complete": False}
            try:
                rows.append(measure(setting, batch, tokens))
            except Exception as e:
                rows.append({"case": measure.__name__[1:], "batch": batch, "tokens": tokens, "error": f"{type(e).__name__}: {e}"[:300]})
            if setting.device.type == "cuda":
                torch.cuda.empty_cache()
    return {"rows": rows, "complete": True}


def _copies(setting: Setting, each: int) -> int:
    """Separate caches to walk through, within half of the free memory (contiguous copies included)."""
    free = devices.free_bytes(setting.device, GIB) or GIB
    if 4 * each > free:
        raise MemoryError(each)
    return 1 if setting.dry else max(1, min(32, ROTATED_BYTES // each))


def _gqa(setting: Setting, batch: int, tokens: int) -> Result:
    heads, kv_heads, dim = (4, 2, 32) if setting.dry else GQA
    each = 2 * kv_heads * dim * 2 * batch * tokens
    n = _copies(setting, each)
    (k, v), tables, lengths = pages(setting.device, batch, tokens, 16, [(kv_heads, dim)] * 2, torch.bfloat16, copies=n)
    q = torch.randn(batch, heads, dim, device=setting.device).bfloat16()
    limit = td.shared_limit(setting.device)
    layout = td.Layout(heads // kv_heads, dim, dim, False, 16, 2)

    def run(i: int, cut: td.Config | None, splits: int | None) -> torch.Tensor:
        return td.gqa_decode(q, k, v, tables[i], lengths, scale=dim**-0.5, config=cut, splits=splits)

    row = _best(setting, run, n, [c for c in GQA_CUTS if layout.shared_bytes(c) <= limit])
    read = setting.found["ceilings"]["read_bytes_per_s"]
    flat = [x.view(n, batch, tokens, kv_heads, dim).transpose(2, 3).contiguous() for x in (k, v)]
    grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
    contiguous = [partial(scaled_dot_product_attention, grouped, flat[0][i], flat[1][i]) for i in range(n)]
    contiguous_s = timed(setting, contiguous, captured=True)
    return {
        "case": "gqa", "batch": batch, "tokens": tokens, **row, "bytes_per_s": each / row["s"], "share_of_read_ceiling": each / row["s"] / read,
        "contiguous_s": contiguous_s, "contiguous_over_paged": contiguous_s / row["s"],
    }  # fmt: skip


def _mla(setting: Setting, batch: int, tokens: int) -> Result:
    heads, width, rank = (4, 48, 32) if setting.dry else MLA
    each = width * 2 * batch * tokens
    n, page = _copies(setting, each), 64 if tokens % 64 == 0 else 16
    (rows,), tables, lengths = pages(setting.device, batch, tokens, page, [(1, width)], torch.bfloat16, copies=n)
    q = torch.randn(batch, heads, width, device=setting.device).bfloat16()
    limit = td.shared_limit(setting.device)
    layout = td.Layout(heads, width, rank, True, page, 2)

    def run(i: int, cut: td.Config | None, splits: int | None) -> torch.Tensor:
        return td.mla_decode(q, rows, tables[i], lengths, rank=rank, scale=width**-0.5, config=cut, splits=splits)

    row = _best(setting, run, n, [c for c in MLA_CUTS if layout.shared_bytes(c) <= limit])
    flop = 2 * heads * (width + rank) * batch * tokens
    ceilings = setting.found["ceilings"]
    least = max(each / ceilings["read_bytes_per_s"], flop / ceilings["flop_per_s"])
    bound = "reading" if least == each / ceilings["read_bytes_per_s"] else "products"
    return {
        "case": "mla", "batch": batch, "tokens": tokens, **row, "bytes_per_s": each / row["s"], "flop_per_s": flop / row["s"],
        "bound_by": bound, "share_of_roofline": least / row["s"],
    }  # fmt: skip


def _best(setting: Setting, run: Callable[[int, td.Config | None, int | None], torch.Tensor], copies: int, cuts: list[td.Config]) -> Result:
    """The fastest cut and number of splits; `differs`: its largest difference from the default launch, which `kernels` has checked."""
    usual = run(0, None, None)
    tried: list[tuple[float, td.Config | None, int | None]] = []
    refused: dict[str, int] = {}

    def attempt(cut: td.Config | None, splits: int | None) -> None:
        calls = [partial(run, i, cut, splits) for i in range(copies)]
        try:
            tried.append((timed(setting, calls, captured=True, rounds=5), cut, splits))
        except Exception as e:  # a cut that this device does not take
            if not tried:
                raise
            refused[type(e).__name__] = refused.get(type(e).__name__, 0) + 1

    def attempts(todo: list[tuple[td.Config | None, int | None]]) -> None:
        for cut, splits in todo[: 2 if setting.dry else None]:
            if time.monotonic() < setting.deadline or not tried:
                attempt(cut, splits)

    attempts([(cut, None) for cut in (None, *cuts)])
    default_s, cut = tried[0][0], min(tried, key=lambda t: t[0])[1]
    attempts([(cut, splits) for splits in SPLITS])
    seconds, cut, parts = min(tried, key=lambda t: t[0])
    differs = float((run(0, cut, parts) - usual).abs().max())
    best = {"cut": asdict(cut) if cut else "default", "splits": parts or "default"}
    return {"s": seconds, "default_s": default_s, **best, "tried": len(tried), "refused": refused, "differs": differs}

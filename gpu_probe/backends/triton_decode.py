"""Decode attention over pages in Triton: shapes and launches. The kernels are in `triton_kernels`, imported at the first launch, so
that this module loads where Triton is missing.

The path was interpreted and compiled ahead of time; it has not been timed on a GPU.
Letters: B batch, H query heads, K kv heads, N blocks, P block_size, M columns of the block table, D key width, Dv value width.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from planner.units import KIB

NAME = "triton"
WARP_ROWS = 16
"""Smallest side of a tensor-core product: query heads of a program are padded to it."""
MAX_WIDTH = 1024
"""Widest key row, in numbers: beyond it the accumulator does not fit into registers."""
MAX_SPLITS = 128

SHARED_BYTES = {
    "sm_75": 64 * KIB, "sm_80": 163 * KIB, "sm_86": 99 * KIB, "sm_87": 163 * KIB, "sm_89": 99 * KIB,
    "sm_90": 227 * KIB, "sm_100": 227 * KIB, "sm_103": 227 * KIB, "sm_120": 99 * KIB,
    "gfx90a": 64 * KIB, "gfx942": 64 * KIB, "gfx950": 160 * KIB,
}  # fmt: skip
"""Shared memory that a block may ask for (CUDA programming guide, compute capabilities; AMD: LDS of a workgroup)."""
LEAST_SHARED = 64 * KIB


@dataclass(frozen=True, slots=True)
class Config:
    """How one launch is cut. `tokens` of the cache at a time, `heads` query heads a program, `warps` and pipeline `stages`."""

    tokens: int = 64
    heads: int = WARP_ROWS
    warps: int = 4
    stages: int = 2

    def smaller(self) -> Config | None:
        """The next one that needs less shared memory; None: there is none."""
        if self.tokens > WARP_ROWS:
            return replace(self, tokens=self.tokens // 2)
        return replace(self, heads=WARP_ROWS, stages=1) if self.heads > WARP_ROWS or self.stages > 1 else None


@dataclass(frozen=True, slots=True)
class Layout:
    """A launch's shapes. `group`: query heads a kv head; a key row is `key` = first + second piece, each padded to a power of two."""

    group: int
    key: int
    value: int
    latent: bool
    page: int
    query_bytes: int

    @property
    def pieces(self) -> tuple[int, int]:
        """The key's two pieces: the largest power of two and the rest (latent rows: the value part and the rest)."""
        first = self.value if self.latent else min(self.key, 1 << (self.key.bit_length() - 1))
        return first, self.key - first

    def constants(self, config: Config, *, bits: int, scaled: bool) -> dict[str, Any]:
        """The compile-time arguments of `triton_kernels.split`."""
        first, second = self.pieces
        p1, pv = padded(first), padded(first if self.latent else self.value)
        return {
            "G": self.group, "GP": min(config.heads, padded(self.group)), "D1": first, "P1": p1, "D2": second, "P2": padded(second),
            "DV": self.value, "PV": pv, "PAGE": self.page, "BN": config.tokens, "LATENT": self.latent, "BITS": bits, "SCALED": scaled,
            "PREC": "ieee" if self.query_bytes == 4 else "tf32",
        }  # fmt: skip

    def shared_bytes(self, config: Config) -> int:
        """Shared memory that a launch needs: one tile of keys and values in flight (two where 64 query heads share them: their product
        reads both sides from there), the query and the weights. Seen in the compiler's own figures for two and three stages on
        sm_80 to sm_100 and held against them by a test; a launch that needs more after all takes the next smaller cut."""
        c = self.constants(config, bits=0, scaled=False)
        row: int = c["P1"] + (c["P2"] if c["D2"] else 0)
        tile: int = c["BN"] * (row + (0 if self.latent else c["PV"])) * self.query_bytes
        query: int = c["GP"] * (row + c["BN"]) * self.query_bytes
        return max(1, config.stages - 2) * tile * (2 if c["GP"] >= 64 else 1) + query + KIB

    def config(self, shared: int) -> Config:
        """The largest of the tried cuts that fits into `shared` bytes."""
        config: Config | None = Config(tokens=32 if self.key > 256 else 64)
        while config is not None and self.shared_bytes(config) > shared:
            config = config.smaller()
        return config or Config(tokens=WARP_ROWS, stages=1)


def padded(width: int) -> int:
    """The next power of two that a tensor core takes."""
    return max(WARP_ROWS, 1 << max(0, width - 1).bit_length())


def missing() -> str | None:
    """What is not there, or None. Nothing is imported for the answer."""
    return None if find_spec("triton") else "triton"


def supports(device: torch.device, layout: Layout) -> str | None:
    """The code of the reason (`text.triton.*`) why the kernels cannot run here, or None."""
    if missing():
        return "no_triton"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return "no_gpu"
    if device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) < (7, 5):
        return "old_gpu"
    return "wide" if layout.key > MAX_WIDTH else None


def architecture(device: torch.device) -> str:
    """`sm_90`, `gfx942` or `interpreter`."""
    if device.type != "cuda":
        return "interpreter"
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability(device))


def shared_limit(device: torch.device) -> int:
    """Shared memory of a block, from the driver where torch passes it on, else from the table, else the least there is."""
    if device.type == "cuda":
        found = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
        return int(found) or SHARED_BYTES.get(architecture(device), LEAST_SHARED)
    return max(SHARED_BYTES.values())


def splits_for(programs: int, tokens: int, processors: int) -> int:
    """Parts of each sequence: about four programs a processor, no part below 256 tokens. Not from the lengths, which stay on the
    device, but from the table's width: a captured graph stays valid."""
    return max(1, min(MAX_SPLITS, -(-tokens // 256), -(-4 * processors // programs)))


def fp8_bits(dtype: torch.dtype, device: torch.device) -> int:
    """How `triton_kernels._read` takes this dtype: 0 a cast, 1 and 2 from the bits. NVIDIA casts both formats from sm_89 on."""
    if dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        return 0
    if device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 9):
        return 0
    return 1 if dtype == torch.float8_e4m3fn else 2


def gqa_decode(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, *, scale: float, softcap: float = 0.0, window: int = 0,
    chunk: int = 0, sinks: Tensor | None = None, first: Tensor | None = None, begins: Tensor | None = None,
    scales: tuple[Tensor, Tensor] | None = None, splits: int | None = None, config: Config | None = None,
) -> Tensor:  # fmt: skip
    """One token a sequence against its pages -> [B, H, Dv] in q's dtype. MHA, GQA and MQA.

    q [B, H, D]; keys [N, P, K, D], values [N, P, K, Dv] in any float dtype, fp8 or int8; table [B, M] block ids; lengths [B] int32, the
    token itself counted; `first` [B] int32: the number of the table's first block where older ones were given back; `begins` [B] int32:
    the first token that is read. `window` and `chunk` in tokens and `softcap`: 0 for none. sinks [H]. scales: factors of keys and values, [N, P, K] each.
    """
    layout = Layout(q.shape[1] // keys.shape[2], q.shape[2], values.shape[3], False, keys.shape[1], q.dtype.itemsize)
    limits = (softcap, window, chunk)
    return _launch(layout, q, keys, values, table, lengths, scale, limits, sinks, first, begins, scales, splits, config)


def mla_decode(
    q: Tensor, rows: Tensor, table: Tensor, lengths: Tensor, *, rank: int, scale: float, softcap: float = 0.0, window: int = 0, chunk: int = 0,
    sinks: Tensor | None = None, first: Tensor | None = None, begins: Tensor | None = None, scales: Tensor | None = None,
    splits: int | None = None, config: Config | None = None,
) -> Tensor:  # fmt: skip
    """Absorbed MLA: q [B, H, rank + rope], already in the latent space, against rows [N, P, 1, rank + rope] whose first `rank` numbers
    are also the value -> [B, H, rank]. The rest as in `gqa_decode`; `scales` [N, P, 1] of the whole row."""
    layout = Layout(q.shape[1], q.shape[2], rank, True, rows.shape[1], q.dtype.itemsize)
    both = None if scales is None else (scales, scales)
    return _launch(layout, q, rows, rows, table, lengths, scale, (softcap, window, chunk), sinks, first, begins, both, splits, config)


def _launch(
    layout: Layout, q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, scale: float, limits: tuple[float, int, int],
    sinks: Tensor | None, first: Tensor | None, begins: Tensor | None, scales: tuple[Tensor, Tensor] | None, splits: int | None, config: Config | None,
) -> Tensor:  # fmt: skip
    from triton.runtime.errors import OutOfResources  # type: ignore[import-untyped, import-not-found, unused-ignore]

    from gpu_probe.backends import triton_kernels as kernels

    device, (batch, heads, _) = q.device, q.shape
    kv_heads = keys.shape[2]
    bits = fp8_bits(keys.dtype, device)
    if bits:
        keys, values = keys.view(torch.uint8), values.view(torch.uint8)
    if first is None or begins is None:
        zeros = torch.zeros(batch, dtype=torch.int32, device=device)
        first, begins = (zeros if x is None else x for x in (first, begins))
    k_scale, v_scale = scales or (q, q)  # never read without SCALED
    chosen: Config | None = config or layout.config(shared_limit(device))
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    while chosen is not None:
        constants = layout.constants(chosen, bits=bits, scaled=scales is not None)
        gp, pv = constants["GP"], constants["PV"]
        programs = kv_heads * -(-layout.group // gp)
        parts = splits or splits_for(batch * programs, table.shape[1] * layout.page, processors)
        acc = torch.empty(batch * programs * parts, gp, pv, dtype=torch.float32, device=device)
        top = torch.empty(acc.shape[:2], dtype=torch.float32, device=device)
        total = torch.empty_like(top)
        try:
            kernels.split[(batch, programs, parts)](
                q, keys, values, k_scale, v_scale, table, first, begins, lengths, acc, top, total, scale, *limits, q.stride(0), q.stride(1),
                *keys.stride()[:3], *values.stride()[:3], k_scale.stride(0), k_scale.stride(1), table.stride(0),
                **constants, num_warps=chosen.warps, num_stages=chosen.stages,
            )  # fmt: skip
            break
        except OutOfResources:
            chosen = chosen.smaller() if config is None else None  # a cut that was asked for is not replaced in silence
            if chosen is None:
                raise
    out = torch.empty(batch, heads, layout.value, dtype=q.dtype, device=device)
    kernels.merge[(batch, heads)](
        acc, top, total, q if sinks is None else sinks, out, parts, out.stride(0), out.stride(1),
        G=layout.group, GP=gp, DV=layout.value, PV=pv, SPLITS=1 << (parts - 1).bit_length(), SINK=sinks is not None,
    )  # fmt: skip
    return out


def reference(
    q: Tensor, keys: Tensor, values: Tensor | None, table: Tensor, lengths: Tensor, *, scale: float, rank: int = 0, softcap: float = 0.0,
    window: int = 0, chunk: int = 0, sinks: Tensor | None = None, first: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """The same in float64, one sequence at a time, everything gathered. `values` None: the first `rank` numbers of the key."""
    out, page = [], keys.shape[1]
    for b, n in enumerate(lengths.tolist()):
        low = max(0, n - window if window else 0, (n - 1) // chunk * chunk if chunk else 0)
        at = torch.arange(low, n, device=q.device)
        block = table[b, at // page - (0 if first is None else int(first[b]))].long()
        k = keys[block, at % page].double()
        v = k[..., :rank] if values is None else values[block, at % page].double()
        if scales is not None:
            k, v = (x * s[block, at % page].double()[..., None] for x, s in ((k, scales[0]), (v, scales[1])))
        s = torch.einsum("kgd,nkd->kgn", q[b].double().view(k.shape[1], -1, q.shape[2]), k) * scale
        s = softcap * torch.tanh(s / softcap) if softcap else s
        if sinks is not None:
            s = torch.cat([s, sinks.double().view(*s.shape[:2], 1)], -1)
        out.append(torch.einsum("kgn,nkd->kgd", s.softmax(-1)[..., : n - low], v).reshape(q.shape[1], -1))
    return torch.stack(out)

"""Triton kernels of one decode step over pages: keys and values are split along the sequence, then merged by the log-sum-exp.

One source for CUDA, ROCm and Triton's CPU interpreter (TRITON_INTERPRET=1 before the import). One kernel for GQA and MLA: a key row
is two pieces of power-of-two width (576 = 512 + 64, 96 = 64 + 32), and the value is a row of its own or, for latent rows, the first
piece of the key. Scores are kept in base 2: exp2 is one instruction, exp is two.

The scheme is flash-decoding's (Dao et al. 2023, "Flash-Decoding for long-context inference"), pages and table as in vLLM
(Kwon et al. 2023, arXiv:2309.06180).
"""

# ruff: noqa: N803  (pointers and compile-time values in capitals, as kernels are written in this field)
from __future__ import annotations

import os
import warnings

# Triton 3.9 warns at each compile until this is decided; fused multiply-add is what every earlier version did.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import triton
    import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_WIDEN = tl.constexpr(INTERPRETED)
_LOG2E = tl.constexpr(1.4426950408889634)

PLAIN, E4M3_BITS, E5M2_BITS = 0, 1, 2
"""How a stored number is read: a cast that the target knows, or fp8 put together from its bits (sm_80 and gfx942 know no e4m3fn)."""


@triton.jit
def _dot(a, b, PREC: tl.constexpr):
    """a @ b in float32. The interpreter multiplies the bit patterns of bf16, so there both sides are widened first."""
    if _WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision=PREC).to(tl.float32)


@triton.jit
def _read(x, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """Stored numbers -> DTYPE, after the load: the bus carries the narrow form. An fp8 number is an fp16 one with fewer bits, so its
    bits are moved into place; e4m3's exponent bias is 8 smaller, hence the 256. Exact, subnormals and NaN too."""
    if BITS == 1:
        low = x & 0x7F
        half = ((x & 0x80).to(tl.uint16) << 8) | (low.to(tl.uint16) << 7)
        wide = half.to(tl.float16, bitcast=True) * 256.0
        return tl.where(low == 0x7F, float("nan"), wide).to(DTYPE)
    if BITS == 2:
        return (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(DTYPE)
    return x.to(DTYPE)


@triton.jit
def _tanh(y):
    """The closed form loses the small y's digits, so a series takes over there; its error at 0.25 is below float32's."""
    e = tl.exp2(tl.abs(y) * -2.8853901)  # e^(-2 |y|)
    far = tl.where(y > 0, 1.0, -1.0) * (1.0 - e) / (1.0 + e)
    z = y * y
    near = y * (1.0 + z * (-0.33333333 + z * (0.13333333 + z * (-0.05396825 + z * 0.02186949))))
    return tl.where(tl.abs(y) < 0.25, near, far)


@triton.jit
def split(
    Q, K, V, KS, VS, TABLE, FIRST, BEGINS, LENS, ACC, TOP, SUM,
    scale, softcap, window, chunk,
    q_b, q_h, k_n, k_p, k_h, v_n, v_p, v_h, s_n, s_p, t_b,
    G: tl.constexpr, GP: tl.constexpr, D1: tl.constexpr, P1: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, DV: tl.constexpr, PV: tl.constexpr,
    PAGE: tl.constexpr, BN: tl.constexpr, LATENT: tl.constexpr, BITS: tl.constexpr, SCALED: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Program (b, kv head x block of GP query heads, split): the split's part of softmax(q k) v.

    Q [B, H, D1 + D2]; K [N, PAGE, KV, D1 + D2]; V [N, PAGE, KV, DV]; KS, VS [N, PAGE, KV] (SCALED); TABLE [B, M]: column j holds block
    FIRST[b] + j; the tokens BEGINS[b] <= t < LENS[b] are read, the query is the last one. P*: widths padded to powers of two. Writes ACC [rows, GP, PV] not yet
    divided, TOP and SUM [rows, GP]; a split without tokens writes SUM 0 and leaves ACC alone.
    """
    blocks: tl.constexpr = (G + GP - 1) // GP
    b = tl.program_id(0)
    h = tl.program_id(1) // blocks
    part = tl.program_id(1) % blocks
    row = ((b * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)).to(tl.int64)
    n = tl.load(LENS + b)
    first = tl.load(FIRST + b)
    low = tl.load(BEGINS + b)
    if window > 0:
        low = tl.maximum(low, n - window)
    if chunk > 0:
        low = tl.maximum(low, (tl.maximum(n, 1) - 1) // chunk * chunk)
    size = tl.cdiv(tl.cdiv(n - low, tl.num_programs(2)), BN) * BN
    start = low + tl.program_id(2) * size
    end = tl.minimum(n, start + size)
    lanes = tl.arange(0, GP)
    g = part * GP + lanes
    d1 = tl.arange(0, P1)
    q_row = Q + b.to(tl.int64) * q_b + (h * G + g)[:, None] * q_h
    q1 = tl.load(q_row + d1[None, :], mask=(g < G)[:, None] & (d1 < D1)[None, :], other=0.0)
    if D2 > 0:
        d2 = tl.arange(0, P2)
        q2 = tl.load(q_row + D1 + d2[None, :], mask=(g < G)[:, None] & (d2 < D2)[None, :], other=0.0)
    dv = tl.arange(0, PV)
    top = tl.full([GP], -float("inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, PV], tl.float32)
    for t in range(start, end, BN):
        at = t + tl.arange(0, BN)
        live = at < end
        page = tl.load(TABLE + b.to(tl.int64) * t_b + at // PAGE - first, mask=live, other=0).to(tl.int64)
        k_row = K + (page * k_n + (at % PAGE) * k_p + h * k_h)[:, None]
        k1 = _read(tl.load(k_row + d1[None, :], mask=live[:, None] & (d1 < D1)[None, :], other=0.0), q1.dtype, BITS)
        s = _dot(q1, tl.trans(k1), PREC)
        if D2 > 0:
            k2 = _read(tl.load(k_row + D1 + d2[None, :], mask=live[:, None] & (d2 < D2)[None, :], other=0.0), q1.dtype, BITS)
            s += _dot(q2, tl.trans(k2), PREC)
        s *= scale
        if SCALED:
            slot = page * s_n + (at % PAGE) * s_p + h
            s *= tl.load(KS + slot, mask=live, other=0.0).to(tl.float32)[None, :]
        if softcap > 0:
            s = softcap * _tanh(s / softcap)
        s = tl.where(live[None, :], s * _LOG2E, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, 1))  # finite: t < end, so one token at least is live
        w = tl.exp2(s - new_top[:, None])
        kept = tl.exp2(top - new_top)
        total = total * kept + tl.sum(w, 1)
        if LATENT:
            v = k1
        else:
            v_row = V + (page * v_n + (at % PAGE) * v_p + h * v_h)[:, None]
            v = _read(tl.load(v_row + dv[None, :], mask=live[:, None] & (dv < DV)[None, :], other=0.0), q1.dtype, BITS)
        if SCALED:
            w *= tl.load(VS + slot, mask=live, other=0.0).to(tl.float32)[None, :]
        acc = acc * kept[:, None] + _dot(w.to(q1.dtype), v, PREC)
        top = new_top
    tl.store(TOP + row * GP + lanes, top)
    tl.store(SUM + row * GP + lanes, total)
    if end > start:
        tl.store(ACC + (row * GP + lanes)[:, None] * PV + dv[None, :], acc)


@triton.jit
def merge(
    ACC, TOP, SUM, SINKS, OUT, splits, o_b, o_h,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, PV: tl.constexpr, SPLITS: tl.constexpr, SINK: tl.constexpr,
):  # fmt: skip
    """Program (b, query head): the splits' parts weighed by 2^(top - largest top). SINKS [H]: a score of no token (gpt-oss's sinks),
    in the denominator alone. A row without tokens becomes 0. SPLITS: `splits` padded to a power of two. Writes OUT [B, H, DV]."""
    b = tl.program_id(0)
    head = tl.program_id(1)
    blocks: tl.constexpr = (G + GP - 1) // GP
    within = head % G
    base = ((b * (tl.num_programs(1) // G) + head // G) * blocks + within // GP).to(tl.int64) * splits
    i = tl.arange(0, SPLITS)
    dv = tl.arange(0, PV)
    at = (base + i) * GP + within % GP
    total = tl.load(SUM + at, mask=i < splits, other=0.0)
    full = total > 0
    top = tl.load(TOP + at, mask=full, other=-float("inf"))
    largest = tl.max(top, 0)
    if SINK:
        sink = tl.load(SINKS + head).to(tl.float32) * _LOG2E
        largest = tl.maximum(largest, sink)
    w = tl.where(full, tl.exp2(top - largest), 0.0)
    below = tl.sum(w * total, 0)
    if SINK:
        below += tl.exp2(sink - largest)
    acc = tl.load(ACC + at[:, None] * PV + dv[None, :], mask=full[:, None], other=0.0)
    out = tl.where(below > 0, tl.sum(acc * w[:, None], 0) / below, 0.0)
    tl.store(OUT + b.to(tl.int64) * o_b + head * o_h + dv, out, mask=dv < DV)

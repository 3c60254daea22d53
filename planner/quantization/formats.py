"""The ways in which one quantized matrix ``[out, in]`` is stored, each as a value. Where each tensor is made is said with it."""

from __future__ import annotations

from planner.dtypes import DType
from planner.stored import Grid, Stored


def packed(elements: int, bytes_: int) -> DType:
    """`elements` numbers in `bytes_` bytes."""
    return DType(name=f"{elements} in {bytes_}", block_elements=elements, block_bytes=bytes_)


def words(bits: int) -> DType:
    """`bits`-bit numbers in int32 words without gaps: 8 to a word at 4 bits, 32 to three words at 3 bits."""
    return packed(32 // bits, 4) if 32 % bits == 0 else packed(32, 4 * bits)


BYTE, HALF, FLOAT = packed(1, 1), packed(1, 2), packed(1, 4)
TWO_A_BYTE = packed(2, 1)


def one(bytes_: int) -> Grid:
    """`bytes_` bytes a matrix: a scale for all of it, an input scale, a shape."""
    return Grid(rows=0, cols=0, element=packed(1, bytes_))


def fp8(*scales: Grid) -> Stored:
    return Stored(name="fp8", element=BYTE, grids=scales)


def fp8_blocks(rows: int, cols: int, scale_bytes: int = 4) -> Stored:
    """`weight_scale_inv`, one a block (DeepSeek-V3; transformers 5.24 integrations/finegrained_fp8.py: FP8Linear)."""
    return fp8(Grid(rows=rows, cols=cols, element=packed(1, scale_bytes)))


def int8_rows(scale_bytes: int, *more: Grid) -> Stored:
    """One scale a row: EETQ (fp16), LLM.int8 (fp32), W8A8."""
    return Stored(name="int8", element=BYTE, grids=(Grid(rows=1, cols=0, element=packed(1, scale_bytes)), *more))


def gptq(bits: int, group: int) -> Stored:
    """qweight in int32 words along the input, scales fp16, qzeros packed, g_idx one int32 an input column, which is stored with and
    without desc_act (GPTQModel nn_modules/qlinear: GPTQQuantLinear). `group` 0: one group."""
    grids = (Grid(rows=1, cols=group, element=HALF), Grid(rows=1, cols=group, element=words(bits)), Grid(rows=0, cols=1, element=FLOAT))
    return Stored(name=f"int{bits}", element=words(bits), packed="in", grids=grids)


def awq(bits: int, group: int) -> Stored:
    """qweight in int32 words along the output, scales fp16, qzeros packed even where there is no zero point
    (AutoAWQ modules/linear/gemm.py: WQLinear_GEMM)."""
    grids = (Grid(rows=1, cols=group, element=HALF), Grid(rows=1, cols=group, element=words(bits)))
    return Stored(name=f"int{bits}", element=words(bits), packed="out", grids=grids)


def pack_quantized(bits: int, rows: int, cols: int, *, scale: DType, symmetric: bool, ordered: bool) -> Stored:
    """weight_packed in int32 words along the input, the last one filled up; weight_scale; packed weight_zero_point where asymmetric;
    weight_shape, two int64; weight_g_idx where actorder is "group" (compressed-tensors compressors/pack_quantized)."""
    word = packed(32 // bits, 4)
    grids = [Grid(rows=rows, cols=cols, element=scale), one(16)]
    if not symmetric and rows == 1:
        grids.append(Grid(rows=1, cols=cols, element=word))
    if ordered:
        grids.append(Grid(rows=0, cols=1, element=FLOAT))
    return Stored(name=f"int{bits}", element=word, packed="in", grids=tuple(grids))


def nvfp4(group: int = 16, *more: Grid) -> Stored:
    """Two numbers a byte, one fp8 scale a group, one fp32 scale for all (ModelOpt weight_scale_2, compressed-tensors weight_global_scale)."""
    return Stored(name="nvfp4", element=TWO_A_BYTE, packed="in", grids=(Grid(rows=1, cols=group, element=BYTE), one(4), *more))


def mxfp4(group: int = 32) -> Stored:
    """Two numbers a byte and one e8m0 scale a group of 32 (OCP MX; transformers 5.24 integrations/mxfp4.py)."""
    return Stored(name="mxfp4", element=TWO_A_BYTE, packed="in", grids=(Grid(rows=1, cols=group, element=BYTE),))


def mxfp8(group: int = 32) -> Stored:
    return Stored(name="mxfp8", element=BYTE, packed="in", grids=(Grid(rows=1, cols=group, element=BYTE),))


def bnb4(kind: str, double: bool, block: int = 64) -> Stored:
    """Blocks of 64 with an absmax each, fp32 or, quantized again, one byte and an fp32 for 256 of them; the code tables (16 and 256 fp32)
    a matrix (bitsandbytes functional.py: QuantState)."""
    if double:
        return Stored(name=kind, element=packed(block * 256, block * 128 + 256 + 4), grids=(one(64 + 1024),))
    return Stored(name=kind, element=packed(block, block // 2 + 4), grids=(one(64),))


def grouped(bits: int, group: int, scale_bytes: int, *, zero_bytes: int = 0, name: str = "") -> Stored:
    """Packed bytes with a scale (and a zero point) a group along the input: HQQ, quanto, torchao, Quark."""
    grids = [Grid(rows=1, cols=group, element=packed(1, scale_bytes))]
    if zero_bytes:
        grids.append(Grid(rows=1, cols=group, element=packed(1, zero_bytes)))
    return Stored(name=name or f"int{bits}", element=packed(8, bits) if 8 % bits else packed(8 // bits, 1), grids=tuple(grids))


def aqlm(in_group: int, out_group: int, codebooks: int, bits: int) -> Stored:
    """codes [out / og, in / ig, codebooks] of 1 or 2 bytes, codebooks [codebooks, 2^bits, og, ig] and a scale a row of groups, both fp16
    (AQLM inference.py: QuantizedLinear)."""
    code = packed(1, codebooks * (1 if bits <= 8 else 2))
    table, scales = one(2 * codebooks * 2**bits * in_group * out_group), Grid(rows=out_group, cols=0, element=HALF)
    return Stored(name="aqlm", element=packed(1, 0), grids=(Grid(rows=out_group, cols=in_group, element=code), table, scales))


def bitnet(scale_bytes: int = 2) -> Stored:
    """Four ternary numbers a byte along the output, one scale a matrix (transformers 5.24 integrations/bitnet.py: BitLinear)."""
    return Stored(name="ternary", element=packed(4, 1), packed="out", grids=(one(scale_bytes),))


def higgs(bits: int, group: int) -> Stored:
    """int16 words along the output, a scale a group, tables of 2^bits and 2 x 4^bits (transformers 5.24 integrations/higgs.py)."""
    grids = (Grid(rows=1, cols=group, element=HALF), one(2 * (2**bits + 2 * 4**bits)))
    return Stored(name=f"int{bits}", element=packed(16, 2 * bits), packed="out", grids=grids)

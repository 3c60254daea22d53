"""Exact element sizes, and the layouts in which a cache row can be stored.

A dtype is (elements, bytes) per block, never a float of bits. Sources: ggml-common.h static asserts (llama.cpp), OCP MX spec,
vLLM 0.33 v1/attention/backends (scale bytes of the per-token-head formats).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import UnsupportedValue


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """`block_elements` elements take `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int

    def nbytes(self, elements: int) -> int:
        """Bytes of `elements` stored together; a partial block is a whole one.

        >>> DTYPES["q8_0"].nbytes(128)
        136
        """
        return -(-elements // self.block_elements) * self.block_bytes


_TABLE = (
    ("fp64", 1, 8), ("fp32", 1, 4), ("bf16", 1, 2), ("fp16", 1, 2), ("fp8", 1, 1), ("fp8_e4m3", 1, 1), ("fp8_e5m2", 1, 1),
    ("int32", 1, 4), ("int8", 1, 1), ("int4", 2, 1), ("fp4", 2, 1), ("mxfp8", 32, 33), ("mxfp4", 32, 17), ("nvfp4", 16, 9),
    ("q8_0", 32, 34), ("q5_1", 32, 24), ("q5_0", 32, 22), ("q4_1", 32, 20), ("q4_0", 32, 18), ("iq4_nl", 32, 18),
)  # fmt: skip
DTYPES: dict[str, DType] = {n: DType(name=n, block_elements=e, block_bytes=b) for n, e, b in _TABLE}
# Scale (and minimum) bytes inside a block of the formats that carry them.
SCALE_BYTES = {"mxfp8": 1, "mxfp4": 1, "nvfp4": 1, "q8_0": 2, "q5_1": 4, "q5_0": 2, "q4_1": 4, "q4_0": 2, "iq4_nl": 2}
_ALIASES = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "f32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
    "f16": "fp16", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2",
}  # fmt: skip


def dtype(name: str, field: str) -> DType:
    """The DType called `name` (``torch.`` prefix and the usual aliases allowed). Unknown: UnsupportedValue with `field`."""
    key = str(name).strip().lower().removeprefix("torch.")
    found = DTYPES.get(_ALIASES.get(key, key))
    if found is None:
        raise UnsupportedValue("unknown_dtype", field=field, value=str(name)[:60], known=", ".join(sorted(DTYPES)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """How one cache row is stored: its elements in `element` (V in `v_element` where it differs), and `scale_bytes` beside each head's K
    and each head's V."""

    name: str
    element: DType
    scale_bytes: int = 0
    v_element: DType | None = None

    def row_bytes(self, heads: int, k_dim: int, v_dim: int) -> int:
        """Bytes of one token's row: `heads` x (K of k_dim and V of v_dim). v_dim 0: K only (a latent or an index key)."""
        bytes_ = self.element.nbytes(k_dim) + self.scale_bytes
        if v_dim:
            bytes_ += (self.v_element or self.element).nbytes(v_dim) + self.scale_bytes
        return heads * bytes_

    def scales(self) -> KvLayout | None:
        """The layout of the scales alone, for a line of their own; None where a row has none."""
        k, v = (
            DType(name=f"scales of {e.name}", block_elements=e.block_elements, block_bytes=SCALE_BYTES.get(e.name, 0))
            for e in (self.element, self.v_element or self.element)
        )
        if not k.block_bytes and not v.block_bytes and not self.scale_bytes:
            return None
        return KvLayout(name=k.name, element=k, scale_bytes=self.scale_bytes, v_element=v if self.v_element else None)


# Two fp32 scales a token and head inline (vLLM 0.33 v1/attention/backends/triton_attn.py); MLA rows carry both too.
_SCALED = {
    "fp8_per_token_head": ("fp8", 4),
    "int8_per_token_head": ("int8", 4),
    "int4_per_token_head": ("int4", 4),
}
# vLLM's packed rows of sparse latent attention: fp8, scales and a two-byte RoPE part; only engines/vllm knows how wide a row is.
PACKED = "fp8_ds_mla"
KV_DTYPES: tuple[str, ...] = ("auto", "bf16", "fp16", "fp32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "fp8_per_token_head",
    "int8_per_token_head", "int4_per_token_head", "nvfp4", PACKED, "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")  # fmt: skip


def kv_layout(name: str, field: str = "kv_dtype") -> KvLayout:
    """The layout of a named KV dtype; `auto` must be resolved before. Unknown: UnsupportedValue."""
    if name == PACKED:
        return KvLayout(name=name, element=DTYPES["fp8"])
    if name in _SCALED:
        element, scale = _SCALED[name]
        return KvLayout(name=name, element=DTYPES[element], scale_bytes=scale)
    found = dtype(name, field)
    if found.name not in KV_DTYPES:
        raise UnsupportedValue("unknown_kv_dtype", field=field, value=str(name)[:60], known=", ".join(KV_DTYPES))
    return KvLayout(name=found.name, element=found)

"""Parameter counts and weight bytes, per rank, from the weights that the layers carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.dtypes import DTYPES, DType
from planner.model import ModelSpec, Weight
from planner.parallel import Parallel

ATTENTION_ROLES = frozenset({"attention", "state"})
# What weight quantization leaves in the model's dtype: checkpoints of every common method keep these (assumed where not read).
# Router, embedding, head and norms stay; matrices inside the blocks are quantized.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Counts of elements. `active`: what one token uses (routed experts by top-k). `exact` False: an estimate."""

    total: int
    active: int
    embedding: int
    routed_experts: int
    exact: bool


def all_weights(model: ModelSpec) -> Iterable[tuple[Weight, int]]:
    """Every weight with the number of times it occurs."""
    for w in model.weights:
        yield w, 1
    for layer, where in model.layer_groups():
        for w in layer.weights:
            yield w, len(where)


def parameters(model: ModelSpec) -> Parameters:
    total = sum(w.elements * n for w, n in all_weights(model))
    embedding = sum(w.elements for w in model.weights if w.role == "embedding")
    routed = used = 0
    for layer, where in model.layer_groups():
        if layer.mlp is None or not layer.mlp.experts:
            continue
        here = sum(w.elements for w in layer.weights if w.role == "expert") * len(where)
        routed += here
        used += here * layer.mlp.top_k // layer.mlp.experts
    return Parameters(total=total, active=total - routed + used, embedding=embedding, routed_experts=routed, exact=model.parameters_exact)


# fp8 with block scales: one fp32 scale per 128 x 128 (DeepSeek-V3); int4 / fp4 formats: one fp16 or fp8 scale per group.
_QUANTIZED: dict[str, DType] = {
    "fp8": DTYPES["fp8"], "int8": DTYPES["int8"],
    "int4": DType(name="int4 in groups of 128", block_elements=128, block_bytes=64 + 2),
    "fp4": DTYPES["nvfp4"], "nvfp4": DTYPES["nvfp4"], "mxfp4": DTYPES["mxfp4"],
}  # fmt: skip
_METHODS = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "compressed-tensors": "", "modelopt": "fp8", "modelopt_fp4": "nvfp4", "NVFP4": "nvfp4", "FP8": "fp8", "nvfp4": "nvfp4",
    "mxfp4": "mxfp4", "awq": "int4", "gptq": "int4", "bitsandbytes": "", "int8": "int8",
}  # fmt: skip


# The names that safetensors headers give to dtypes, bytes an element.
_HEADER_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2, "U32": 4, "U64": 8, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


def stored_bytes(elements_by_dtype: Mapping[str, Any] | None) -> int | None:
    """Bytes of all tensors by a hub's summary of the safetensors headers ({"BF16": n, "F32": m}); None where a dtype is not known."""
    counts = elements_by_dtype or {}
    if not counts or any(d not in _HEADER_BYTES or not isinstance(n, int) or isinstance(n, bool) or n < 0 for d, n in counts.items()):
        return None
    return sum(_HEADER_BYTES[d] * n for d, n in counts.items()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How weights are stored: quantizable matrices in `matrix`, the rest in `rest`. `kind`: derived (exact) or assumed.
    `experts_only`: the method quantizes expert matrices and nothing else (gpt-oss's MXFP4)."""

    matrix: DType
    rest: DType
    kind: str
    method: str | None = None
    experts_only: bool = False

    @property
    def name(self) -> str:
        """The dtypes that occur, the matrices' first."""
        return ", ".join(dict.fromkeys((self.matrix.name, self.rest.name)))

    def dtype_of(self, w: Weight) -> DType:
        reached = w.quantizable and w.role not in ("embedding", "lm_head", "router") and (w.role == "expert" or not self.experts_only)
        return self.matrix if reached else self.rest


def weight_format(model: ModelSpec, asked: str | None, model_dtype: DType) -> WeightFormat:
    """What the user asked for, else what the checkpoint's quantization says, else the model's dtype."""
    method = model.quantization
    if asked is None and method is not None:
        named = _METHODS.get(method, "")
        if not named:
            return WeightFormat(matrix=model_dtype, rest=model_dtype, kind="assumed", method=method)
        return WeightFormat(matrix=_QUANTIZED[named], rest=model_dtype, kind="assumed", method=method, experts_only=named == "mxfp4")
    if asked in _QUANTIZED:
        return WeightFormat(matrix=_QUANTIZED[asked], rest=model_dtype, kind="assumed", method=asked, experts_only=asked == "mxfp4")
    from planner.dtypes import dtype

    found = dtype(asked, "weight_dtype") if asked else model_dtype
    return WeightFormat(matrix=found, rest=found, kind="derived" if model.parameters_exact else "assumed")


def elements_on_rank(w: Weight, p: Parallel) -> int:
    """Elements of `w` that one rank of `p` holds: the fullest rank, where parts do not divide evenly."""
    ranks = p.attention_ranks if w.role in ATTENTION_ROLES else p.tensor
    copies = w.copies
    if w.role == "expert" and p.expert > 1:
        copies, ranks = -(-w.copies // p.expert), max(1, p.tensor // p.expert)
    if not w.elements:
        return 0
    one = w.elements // w.copies
    if w.parts is None or ranks == 1:
        return copies * one
    if w.role in ("embedding", "lm_head"):  # the vocabulary is padded to 64 rows, then split
        rows = -(-w.shape[0] // 64) * 64
        return -(-rows // ranks) * (one // w.shape[0])
    return copies * (one // w.parts) * max(1, -(-w.parts // ranks))


def bytes_on_rank(model: ModelSpec, fmt: WeightFormat, p: Parallel, stage: int = 0) -> int:
    """Weight bytes of one rank of pipeline stage `stage`: the layers of that stage, the embedding on the first, the head (and tied
    embedding) on the last."""
    first, last = stage == 0, stage == p.pipeline - 1
    here = set(p.stage_layers(len(model.layers), model.drafts)[stage])
    total = 0
    for w in model.weights:
        at_end = w.role in ("lm_head", "norm") or (w.role == "embedding" and model.tied_embeddings)
        if (at_end and last) or (w.role not in ("lm_head", "norm") and first):  # an encoder's weights stand with the first stage
            total += fmt.dtype_of(w).nbytes(elements_on_rank(w, p))
    for layer, where in model.layer_groups():
        n = len(here) if len(where) == len(model.layers) else sum(i in here for i in where)
        if n:
            total += n * sum(fmt.dtype_of(w).nbytes(elements_on_rank(w, p)) for w in layer.weights)
    return total

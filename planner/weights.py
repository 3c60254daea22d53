"""Parameter counts and weight bytes, per rank, from the weights that the layers carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.dtypes import DTYPES, DType
from planner.model import ModelSpec, Weight
from planner.parallel import Parallel

ATTENTION_ROLES = frozenset({"attention", "state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Counts of elements. `active`: what one token uses (routed experts by top-k). `exact` False: an estimate, and the built model
    has between `low` and `high`."""

    total: int
    active: int
    embedding: int
    routed_experts: int
    exact: bool
    low: int
    high: int

    def to_json(self) -> dict[str, Any]:
        """`low` and `high` only where the count is an estimate."""
        out = {"total": self.total, "active": self.active, "embedding": self.embedding, "routed_experts": self.routed_experts, "estimated": not self.exact}
        return out if self.exact else out | {"low": self.low, "high": self.high}


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
    share = next(((m.top_k, m.experts) for layer, _ in model.layer_groups() if (m := layer.mlp) and m.experts), (0, 1))
    for layer, where in model.layer_groups():
        if layer.mlp is None or not layer.mlp.experts:
            continue
        here = sum(w.elements for w in layer.weights if w.role == "expert") * len(where)
        routed += here
        used += here * layer.mlp.top_k // layer.mlp.experts
    beside = sum(w.elements for w in model.weights if w.role == "expert")  # an encoder's, chosen as the decoder chooses
    routed, used = routed + beside, used + beside * share[0] // share[1]
    low, high = max(0, total - sum(d.fewer for d in model.doubts)), total + sum(d.more for d in model.doubts)
    return Parameters(total=total, active=total - routed + used, embedding=embedding, routed_experts=routed, exact=model.parameters_exact, low=low, high=high)


# What the user may ask for instead of what the file says: matrices inside the blocks, by the usual block sizes.
_QUANTIZED: dict[str, DType] = {
    "fp8": DTYPES["fp8"], "int8": DTYPES["int8"],
    "int4": DType(name="int4 in groups of 128", block_elements=128, block_bytes=64 + 2),
    "fp4": DTYPES["nvfp4"], "nvfp4": DTYPES["nvfp4"], "mxfp4": DTYPES["mxfp4"],
}  # fmt: skip


# The names that safetensors headers give to dtypes, bits an element (safetensors src/tensor.rs, Dtype::bitsize).
HEADER_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FN": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def stored_bytes(elements_by_dtype: Mapping[str, Any] | None) -> int | None:
    """Bytes of all tensors by a summary of the safetensors headers ({"BF16": n, "F32": m}); None where a dtype is not known."""
    counts = elements_by_dtype or {}
    if not counts or any(d not in HEADER_BITS or not isinstance(n, int) or isinstance(n, bool) or n < 0 for d, n in counts.items()):
        return None
    return sum(-(-HEADER_BITS[d] * n // 8) for d, n in counts.items()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How weights are stored: quantizable matrices in `matrix`, the rest in `rest`. `kind`: derived (exact) or assumed, or unknown (an
    upper bound). `experts_only`: the method quantizes expert matrices and nothing else (gpt-oss's MXFP4). `as_read`: each weight as the
    checkpoint stores it (Weight.stored); `layouts` are the names of these."""

    matrix: DType
    rest: DType
    kind: str
    method: str | None = None
    experts_only: bool = False
    as_read: bool = False
    layouts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The formats that occur, the matrices' first."""
        return ", ".join(dict.fromkeys((*self.layouts, self.matrix.name, self.rest.name)))

    def dtype_of(self, w: Weight) -> DType:
        reached = w.quantizable and w.role not in ("embedding", "lm_head", "router") and (w.role == "expert" or not self.experts_only)
        return self.matrix if reached else self.rest

    def bytes_held(self, w: Weight, elements: int) -> int:
        """Bytes of `elements` of `w`: a rank's share, with as large a share of its scales."""
        if not self.as_read or w.stored is None:
            return self.dtype_of(w).nbytes(elements)
        return -(-w.stored.nbytes(w.shape) * w.copies * elements // w.elements) if w.elements else 0


def weight_format(model: ModelSpec, asked: str | None, model_dtype: DType) -> WeightFormat:
    """What the user asked for, else what the checkpoint's quantization says, else the model's dtype."""
    if asked in _QUANTIZED:
        return WeightFormat(matrix=_QUANTIZED[asked], rest=model_dtype, kind="assumed", method=asked, experts_only=asked == "mxfp4")
    if asked:
        from planner.dtypes import dtype

        found = dtype(asked, "weight_dtype")
        return WeightFormat(matrix=found, rest=found, kind="derived" if model.parameters_exact else "assumed")
    kind = "unknown" if model.storage == "unknown" else "derived" if model.storage == "exact" and model.parameters_exact else "assumed"
    layouts = tuple(dict.fromkeys(w.stored.name for w, _ in all_weights(model) if w.stored is not None)) if model.quantization else ()
    return WeightFormat(matrix=model_dtype, rest=model_dtype, kind=kind, method=model.quantization, as_read=True, layouts=layouts)


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
            total += fmt.bytes_held(w, elements_on_rank(w, p))
    for layer, where in model.layer_groups():
        n = len(here) if len(where) == len(model.layers) else sum(i in here for i in where)
        if n:
            total += n * sum(fmt.bytes_held(w, elements_on_rank(w, p)) for w in layer.weights)
    return total

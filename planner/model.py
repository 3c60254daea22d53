"""What a model is: a tuple of layers, each with the caches it keeps and the weights it holds. No engine, no device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from planner.cache import Kind
from planner.dtypes import DType
from planner.notes import Note
from planner.stored import Stored

T = TypeVar("T")
Role = Literal["attention", "mlp", "expert", "router", "norm", "state", "embedding", "position", "lm_head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One tensor (or `copies` equal ones). `parts`: into how many indivisible parts tensor parallelism may cut it (KV heads, say);
    None: every rank holds all of it. `quantizable`: a matrix that weight quantization may reach; `stored`: how this checkpoint stores
    it, None in the model's dtype."""

    name: str
    shape: tuple[int, ...]
    role: Role
    copies: int = 1
    parts: int | None = None
    quantizable: bool = False
    stored: Stored | None = None

    @property
    def elements(self) -> int:
        total = self.copies
        for n in self.shape:
            total *= n
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Shapes of one attention. MLA has `kv_rank`; then qk_dim = nope_dim + rope_dim and `kv_heads` = q_heads once expanded.
    `chosen_rows`: a sparse attention reads that many rows at most, which an indexer picks; all are kept."""

    q_heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    q_rank: int | None = None
    kv_rank: int | None = None
    nope_dim: int = 0
    rope_dim: int = 0
    chosen_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward layer: dense of `width`, or `experts` of `expert_width` with `top_k` chosen, plus a shared one."""

    width: int = 0
    gated: bool = True
    experts: int = 0
    top_k: int = 0
    expert_width: int = 0
    shared_width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer. `caches` () = keeps nothing; `shares_with` = index of the layer whose cache it reads."""

    caches: tuple[Kind, ...]
    attention: Attention | None = None
    mlp: Mlp | None = None
    weights: tuple[Weight, ...] = ()
    shares_with: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why the count of weights is an estimate: the built model may hold up to `fewer` elements less, or `more` elements more, than
    the weights listed. `code`: of the note that says it; `field`: the key of the file on which it hangs."""

    code: str
    field: str = ""
    fewer: int = 0
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionPart:
    """The part that reads images (planner/readers/vision.py); None: the file does not say. `pixels_per_token`: of an image, behind one
    token that the language part gets. `feed`: width of its feed-forward layers; `patch`: side of a patch in pixels."""

    parameters: int | None = None
    width: int | None = None
    feed: int | None = None
    patch: int | None = None
    pixels_per_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What SGLang's defaults hang on beside the shapes (planner/readers/serving.py). `vision`: (layers, hidden size) of the vision part,
    each None where the file does not say; None: no such part. `image_tokens`: of one image, 0 where they hang on its size, None without images.
    `encoder_layers`: of an encoder-decoder. `nested`: the language part is a
    section of the file. `images`: the vision part by its shapes. `rope_factor`: by which a linear or dynamic scaling of positions lengthens
    the tables of angles (vLLM's hold the largest length times it)."""

    context_tokens: int | None = None
    kv_dtype_wish: str | None = None
    encoder_layers: int = 0
    vision: tuple[int | None, int | None] | None = None
    image_tokens: int | None = None
    nested: bool = False
    images: VisionPart | None = None
    rope_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The per-layer tuple is the truth. `quirks`: named facts about how an engine's own code for this family deviates.

    `draft_layers`: MTP layers that the file names; they are no part of `layers` until `speculating()` puts them there.
    `drafts`: how many of `layers` are such, the last ones. `encoder_layers`: T5's, which keep nothing and are no part of `layers` either.
    `storage`: whether the weights' `stored` values follow from the file alone.
    """

    name: str
    model_type: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_context_tokens: int | None
    layers: tuple[LayerSpec, ...]
    weights: tuple[Weight, ...]
    dtype: DType
    tied_embeddings: bool
    quantization: str | None = None
    kv_dtype_wish: str | None = None
    storage: Literal["exact", "assumed", "unknown"] = "exact"
    doubts: tuple[Doubt, ...] = ()
    verified: bool = True
    quirks: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()
    draft_layers: tuple[LayerSpec, ...] = ()
    drafts: int = 0
    encoder_layers: int = 0
    server: ServerFacts = ServerFacts()

    # Grouping hashes every layer: done once, since plans ask for it many times.
    _layer_groups: tuple[tuple[LayerSpec, tuple[int, ...]], ...] = field(init=False, repr=False, compare=False)
    _cache_groups: tuple[tuple[Kind, tuple[int, ...]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_layer_groups", _grouped((layer, i) for i, layer in enumerate(self.layers)))
        object.__setattr__(self, "_cache_groups", _grouped((kind, i) for i, layer in enumerate(self.layers) for kind in layer.caches))

    def speculating(self) -> ModelSpec:
        """The model with its draft layers behind the stack: what an engine builds and caches while it speculates with them."""
        return self if self.drafts else replace(self, layers=self.layers + self.draft_layers, draft_layers=(), drafts=len(self.draft_layers))

    def resting(self) -> ModelSpec:
        """The stack alone again: the inverse of `speculating`."""
        stack = len(self.layers) - self.drafts
        return replace(self, layers=self.layers[:stack], draft_layers=self.layers[stack:], drafts=0) if self.drafts else self

    @property
    def parameters_exact(self) -> bool:
        """Whether the weights listed are those of the built model, to the element."""
        return not self.doubts

    def layer_groups(self) -> tuple[tuple[LayerSpec, tuple[int, ...]], ...]:
        """Equal layers with their indices, in the order of first appearance."""
        return self._layer_groups

    def widest_mlp(self) -> int:
        """The widest feed-forward width that one token passes (chosen experts and the shared one together)."""
        widths = [m.width or m.expert_width * m.top_k + m.shared_width for layer, _ in self._layer_groups if (m := layer.mlp)]
        return max(widths, default=4 * self.hidden_size)

    def has_experts(self) -> bool:
        return any(layer.mlp is not None and layer.mlp.experts > 0 for layer, _ in self._layer_groups)

    def cache_groups(self) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
        """Equal caches with the indices of the layers that keep them; a layer with two caches appears twice."""
        return self._cache_groups


def _grouped(pairs: Iterable[tuple[T, int]]) -> tuple[tuple[T, tuple[int, ...]], ...]:
    """Equal values with their indices. Values that are one object are hashed once."""
    first: dict[int, T] = {}
    groups: dict[T, list[int]] = {}
    known: dict[int, list[int]] = {}
    for value, i in pairs:
        where = known.get(id(value))
        if where is None:
            first[id(value)] = value  # keeps the object, and with it its id, alive
            where = known[id(value)] = groups.setdefault(value, [])
        where.append(i)
    return tuple((value, tuple(where)) for value, where in groups.items())

"""Why a count of weights is an estimate, and how far off the built model may be: one function a kind of cause.

A band is not a tolerance: it is the difference between the readings that the file leaves open, in elements.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.model import Doubt, LayerSpec, ModelSpec, Weight


def elements(weights: Iterable[Weight]) -> int:
    return sum(w.elements for w in weights)


def total(spec: ModelSpec) -> int:
    """Elements of all weights that a spec lists."""
    return elements(spec.weights) + sum(elements(layer.weights) * len(where) for layer, where in spec.layer_groups())


def between(code: str, counted: int, other: int, field: str = "") -> tuple[Doubt, ...]:
    """Two readings of one file, of which the first is counted. None where they agree."""
    if counted == other:
        return ()
    return (Doubt(code=code, field=field, fewer=max(0, counted - other), more=max(0, other - counted)),)


def tie(tied: bool, vocab: int, width: int, field: str = "tie_word_embeddings") -> tuple[Doubt, ...]:
    """The head may be the embedding, or a matrix of its own."""
    return (Doubt(code="doubt_tie", field=field, fewer=0 if tied else vocab * width, more=vocab * width if tied else 0),)


def small_parts(layers: Iterable[LayerSpec], hidden: int, vocab: int) -> tuple[Doubt, ...]:
    """A family known by a formula: each bias and norm that is counted may be missing, and each matrix may have a bias, each layer four
    norms with biases and a norm over queries and keys, the model two norms more and a bias in its head."""
    fewer, more = hidden, 4 * hidden + vocab
    for layer in layers:
        matrices = [w for w in layer.weights if w.quantizable]
        biases = sum(w.copies * w.shape[0] for w in matrices)
        own = [w for w in layer.weights if w.role == "norm" or w.name.endswith(".bias")]
        a = layer.attention
        fewer += elements(own)
        more += biases + 8 * hidden + ((a.q_heads + a.kv_heads) * a.qk_dim * 2 if a else 0)
    return (Doubt(code="doubt_small_parts", fewer=fewer, more=more),)

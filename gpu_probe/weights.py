"""Random weights for a `Shape`, built straight on the device. Norms and biases are random too: at their usual ones and zeros a
mistake in them would not show."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_probe.shapes import Shape

QUERY_GAIN = 3.0
"""Scores of random queries and keys hardly differ, and then a missing window or a wrong page hardly shows. Three times larger they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Tensors by name: `shared` for embedding, final norm and head; `layers[j]` for the j-th layer that runs."""

    shared: dict[str, Tensor]
    layers: tuple[dict[str, Tensor], ...]


def random_weights(
    shape: Shape, *, seed: int, dtype: torch.dtype, device: torch.device, progress: Callable[[int, int], None] = lambda done, total: None
) -> Weights:
    """Matrices have variance 1 / fan-in, so that activations keep their size through any depth."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def make(name: str, size: tuple[int, ...]) -> Tensor:
        out = torch.empty(size, dtype=dtype, device=device)
        if name.endswith("norm"):
            return out.normal_(1.0, 0.2, generator=generator)
        if name.endswith("bias"):
            return out.normal_(0.0, 0.2, generator=generator)
        gain = QUERY_GAIN if name == "q" else 1.0
        return out.normal_(0.0, gain if name == "embedding" else gain / math.sqrt(size[-1]), generator=generator)

    shared = {name: make(name, size) for name, size in shape.tensors()}
    layers = []
    for done, layer in enumerate(shape.layers):
        progress(done, len(shape.layers))
        layers.append({name: make(name, size) for name, size in layer.tensors().items()})
    progress(len(shape.layers), len(shape.layers))
    return Weights(shared=shared, layers=tuple(layers))

"""Recurrent states for transformers' own layers: read from their blocks when a layer first asks, written back after the forward.

A layer of the library changes its states in place or hands over new ones; either way what it works on here is a copy of the blocks, and
the blocks are what is kept, counted and shuffled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe.cache import TORCH_STATE_DTYPES, PagedCache, StatePages
from planner.cache import State
from planner.engines.probe import state_dtype
from planner.errors import UnsupportedModel
from planner.messages import Word

if TYPE_CHECKING:
    from gpu_probe.cache import View
    from planner.model import ModelSpec

CONV, RECURRENT = "conv", "recurrent"


class States:
    """Of one runner. Shapes come from what the layers hand over, dtypes in which the pool keeps them from the plan."""

    def __init__(self, cache: PagedCache, spec: ModelSpec) -> None:
        self.cache = cache
        self._kept = {
            layer: {t.name: TORCH_STATE_DTYPES[(t.dtype or state_dtype(spec)).name] for t in group.rows.tensors}
            for layer, group in cache.state_of.items()
            if isinstance(group.rows, State)
        }
        self._given: dict[tuple[int, str], torch.dtype] = {}
        self._working: dict[tuple[int, str], Tensor] = {}

    def get(self, layer: int, name: str, view: View) -> Tensor | None:
        """[B, ...] to work on, in the dtype in which the layer hands it over; None before a sequence's first token."""
        if view.starts[0] == 0:
            return None
        if (layer, name) not in self._working:
            held = self._pages(layer).held[name][view.slots]
            self._working[layer, name] = held.to(self._given[layer, name])
        return self._working[layer, name]

    def convolve(self, layer: int, new: Tensor, width: int | None, view: View) -> Tensor:
        """new [B, C, T] -> the inputs that a causal convolution needs, the last ones of before in front; keeps the last `width`."""
        before = self.get(layer, CONV, view)
        width = width or new.shape[-1]
        seen = new if before is None else torch.cat([before, new], -1)
        seen = nn.pad(seen, (max(0, width - seen.shape[-1]), 0))
        self.put(layer, CONV, seen[..., -width:])
        return seen

    def put(self, layer: int, name: str, new: Tensor) -> Tensor:
        self._given[layer, name] = new.dtype
        self._working[layer, name] = new
        return new

    def flush(self, views: dict[int, View]) -> int:
        """Writes everything back to the blocks of the step; returns the bytes. Raises UnsupportedModel for a state not in the plan."""
        written = 0
        for (layer, name), tensor in self._working.items():
            group = self.cache.state_of[layer]
            if name not in self._kept[layer]:
                raise UnsupportedModel("probe_injected", field=f"layers[{layer}].caches", reason=Word(name, "word.injected.state", layer=layer, name=name))
            pages = group.layers.setdefault(layer, StatePages({}))
            assert isinstance(pages, StatePages)
            if name not in pages.held:
                pages.held[name] = torch.zeros(group.pool.num_blocks, *tensor.shape[1:], dtype=self._kept[layer][name], device=tensor.device)
            blocks = views[next(j for j, g in enumerate(self.cache.groups) if g is group)].slots
            pages.write(blocks, {name: tensor})
            written += tensor.numel() * pages.held[name].dtype.itemsize
        self._working.clear()
        return written

    def _pages(self, layer: int) -> StatePages:
        pages = self.cache.state_of[layer].layers[layer]
        assert isinstance(pages, StatePages)
        return pages

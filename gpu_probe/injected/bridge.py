"""What transformers sees of the probe: a `Cache` whose layers store into our pages, and an attention function that reads them.

Both only pass on to the `Injected` that runs now; see there. Importing this registers the attention function under `ATTENTION`.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded, whatever a config names

from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from gpu_probe.injected.states import CONV, RECURRENT
from planner.errors import UnsupportedModel
from planner.messages import Word

if TYPE_CHECKING:
    from gpu_probe.cache import View
    from gpu_probe.injected.runner import Injected

ATTENTION = "kvledger_paged"
running: ContextVar[Injected] = ContextVar("running")


class NotPassedOn(Exception):
    """A layer does not hand the attention interface the rows that it stored: hand-back is the way for it."""


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    is_sliding = False
    is_compileable = False

    def __init__(self, owner: Injected, index: int) -> None:
        super().__init__()
        self.owner, self.index = owner, index
        group = owner.cache.group_of.get(index)
        # the masks of a model that attends by itself are made from the first layer of each sort
        self.is_sliding = owner.hand_back and group is not None and group.pool.keep_blocks is not None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None: ...

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.owner.store(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.owner.kv.get_mask_sizes(query_length, self.index)

    def get_seq_length(self) -> int:
        return self.owner.kv.get_seq_length()

    def get_max_length(self) -> int:
        return -1


class PagedKv(Cache):  # type: ignore[misc]
    """What transformers sees of the paged cache. Rows of a batch are equally long here."""

    def __init__(self, owner: Injected, layers: int) -> None:
        super().__init__(layers=[_Layer(owner, i) for i in range(layers)])
        self.owner = owner

    def _view(self, layer: int) -> View | None:
        views = self.owner._views
        group = self.owner.cache.group_of.get(layer)
        return views.get(next((j for j, g in enumerate(self.owner.cache.groups) if g is group), 0))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        view = self._view(layer_idx)
        return view.starts[0] if view else 0

    # -- recurrent layers

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.owner.states.get(layer_idx, CONV, self.owner.state_view(layer_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.owner.states.get(layer_idx, RECURRENT, self.owner.state_view(layer_idx))

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any) -> Tensor:
        self._only_one(layer_idx, state_idx)
        return self.owner.states.convolve(layer_idx, conv_states, conv_kernel_size, self.owner.state_view(layer_idx))

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Tensor:
        self._only_one(layer_idx, state_idx)
        return self.owner.states.put(layer_idx, RECURRENT, recurrent_states)

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return self.get_seq_length() > 0

    def _only_one(self, layer: int, state: int) -> None:
        if state:
            raise UnsupportedModel("probe_injected", field=f"layers[{layer}].caches", reason=Word(str(layer), "word.injected.states", layer=layer))

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        """(rows, position of the first): the mask of a model that attends by itself covers what it is handed back."""
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        view = self._view(layer_idx)
        first = view.first[0] * self.owner.cache.block_size if view and self.owner.hand_back else 0
        return self.get_seq_length(layer_idx) + count - first, first


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, scaling: float | None = None,
    softcap: float | None = None, s_aux: Tensor | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """transformers' attention interface. Keys, values and masks handed over are not used: all is read from the pages."""
    return running.get().attend(module, query, (key, value), scale=scaling, softcap=softcap, sinks=s_aux), None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, lambda *args, **kwargs: None)

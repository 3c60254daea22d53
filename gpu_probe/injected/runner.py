"""The injected runner: transformers' own model code over our pages.

A `Cache` of ours stores what each layer hands over, an attention function of ours reads it back through the block table. Head counts,
head dims and MQA layouts of the pages come from the first tensors that the model itself hands over, not from our reading of its config;
which layers share a table and how long a window is comes from the planner's allocation. MLA: the layer caches latent and rotated key;
its expansion is replaced by a pass-through, and both halves of kv_b_proj are multiplied into query and output (absorption). Recurrent
layers get their states from our blocks (`states.py`).

Needs transformers (tried: 5.24), so import this module only after `errors.require`. Nothing is ever downloaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gpu_probe.attention import PagedAttention, pieces
from gpu_probe.cache import CacheGroup, PagedCache, Pages, View
from gpu_probe.fit import pool_blocks
from gpu_probe.injected.bridge import ATTENTION, NotPassedOn, PagedKv, running
from gpu_probe.injected.states import States
from gpu_probe.pool import BlockPool
from gpu_probe.result import ProbeRequest
from planner.cache import Pool, Rows
from planner.engines.probe import caches_of
from planner.errors import UnsupportedModel
from planner.messages import Word
from planner.model import ModelSpec


def empty_cache(spec: ModelSpec, pools: tuple[Pool, ...], request: ProbeRequest, device: torch.device) -> PagedCache:
    """Block tables for every group of `pools`; the pages of a layer are made when the model hands over its first rows."""
    groups: list[CacheGroup] = []
    members: list[tuple[int, ...]] = []
    for j, pool in enumerate(pools):
        (group,) = pool.groups
        rows, state = caches_of(spec.layers[group.layers[0]], group.layers[0])
        kept = state if group.kind == "state" else rows
        assert kept is not None
        groups.append(CacheGroup(kept, BlockPool.of(group, pool_blocks(pool, request), request.block_size, seed=request.seed + j), {}))
        members.append(group.layers)
    cache = PagedCache(groups, request.block_size, device)
    for made, layers in zip(groups, members, strict=True):
        (cache.state_of if made.is_state else cache.group_of).update(dict.fromkeys(layers, made))
    return cache


class Injected(PagedAttention):
    """One transformers model and one paged cache. Use `decoder` with `session.generate`, or `logits` step by step.

    `hand_back`: the model attends by itself over its rows, gathered from the pages: for what does not pass them on to transformers'
    attention interface as they are.
    """

    def __init__(self, model: Any, spec: ModelSpec, cache: PagedCache, dtype: torch.dtype, *, hand_back: bool = False, scaled: bool = False) -> None:
        super().__init__(cache)
        self.model, self.dtype, self.scaled = model, dtype, scaled
        self.states = States(cache, spec)
        self.reads = {i: i if layer.shares_with is None else layer.shares_with for i, layer in enumerate(spec.layers)}
        self.mla = {m.layer_idx: m for m in model.modules() if hasattr(m, "expand_kv") and hasattr(m, "kv_b_proj")}
        self.handed: dict[int, tuple[Tensor, Tensor]] = {}
        self.attended = set[int]()
        self.hand_back = not self._attach()
        if hand_back and not self.hand_back:
            model.set_attn_implementation("eager")
            self.hand_back = True
        self.kv = PagedKv(self, len(spec.layers))
        self._accepts = set(inspect.signature(model.forward).parameters)

    def forward(self, ids: Tensor, positions: Tensor, attention: PagedAttention) -> Tensor:
        """As `model.Decoder.forward`: ids and positions [B, T] -> logits of the last position [B, V]."""
        assert attention is self
        return self.logits(ids, positions, last=True)[:, -1]

    @torch.no_grad()
    def logits(self, ids: Tensor, positions: Tensor, *, last: bool = False) -> Tensor:
        """[B, T] -> [B, T, V]; with `last` only the last position where the model can leave out the others. `begin` goes before."""
        more: dict[str, Any] = {"cache" if "cache" in self._accepts else "past_key_values": self.kv}
        if last and "logits_to_keep" in self._accepts:
            more["logits_to_keep"] = 1
        if "position_ids" in self._accepts:
            more["position_ids"] = positions
        with self._paged():
            out: Tensor = self.model(ids, use_cache=True, **more).logits
        if not self.hand_back and not set(self.handed) <= self.attended:
            raise NotPassedOn(f"layers {sorted(set(self.handed) - self.attended)[:4]}")
        self.handed.clear()
        self.bytes_gathered += self.states.flush(self._views)
        return out

    @torch.no_grad()
    def reference(self, tokens: Tensor) -> Tensor:
        """Full recomputation [B, T, V] by the untouched model: no cache, its own attention and masks."""
        self.model.set_attn_implementation("eager")
        try:
            out: Tensor = self.model(tokens, use_cache=False).logits
        finally:
            if not self.hand_back:
                self._attach()
        return out

    # -- called by the model

    def store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """keys [B, K, T, D], values [B, K, T, v_dim] as the layer hands them to its cache; for MLA latent and rotated key, K = 1."""
        group, view = self._at(layer)
        parts = [torch.cat([keys, values], -1)] if layer in self.mla else [keys, values]
        rows = [part.transpose(1, 2) for part in parts]
        if layer not in group.layers:
            sizes = [r.shape[-1] for r in rows] + [0]
            shape = Rows(heads=rows[0].shape[2], k_dim=sizes[0], v_dim=sizes[1])
            group.layers[layer] = Pages.build(shape, group.pool.num_blocks, self.cache.block_size, self.dtype, keys.device, scaled=self.scaled)
        pages = group.layers[layer]
        assert isinstance(pages, Pages)
        pages.write(view.slots, *rows)
        if self.hand_back:
            held = self._gathered(pages, view, keys.dtype)
            keys, values = held if len(held) > 1 else held[0].split([keys.shape[-1], values.shape[-1]], -1)
        self.handed[layer] = (keys, values)
        return keys, values

    def attend(self, module: Any, query: Tensor, given: tuple[Tensor, Tensor], *, scale: float | None, softcap: float | None, sinks: Tensor | None) -> Tensor:
        """query [B, H, T, D] -> [B, T, H, v_dim], over the rows of the layer that `module` reads. `given`: what the model passes on."""
        layer = self.reads.get(getattr(module, "layer_idx", -1), -1)
        stored = self.handed.get(layer)
        if stored is None or not all(_same(a, b) for a, b in zip(given, stored, strict=True)):
            raise NotPassedOn(f"layer {layer}")
        group, view = self._at(layer)
        pages, rows = group.layers[layer], group.rows
        assert isinstance(pages, Pages)
        assert isinstance(rows, Rows)
        self.attended.add(layer)
        b, h, t, d = query.shape
        scale = d**-0.5 if scale is None else scale
        q = query.transpose(1, 2)
        if layer in self.mla:
            w = module.kv_b_proj.weight.view(h, -1, module.kv_lora_rank)
            up_k, up_v = w[:, : module.qk_nope_head_dim], w[:, module.qk_nope_head_dim :]
            nope, rope = q.split([up_k.shape[1], d - up_k.shape[1]], -1)
            q, v_dim = torch.cat([torch.einsum("bthn,hnr->bthr", nope, up_k), rope], -1), module.kv_lora_rank
        else:
            assert pages.values is not None
            v_dim = pages.values.shape[-1]
        q = q.reshape(b, t, pages.keys.shape[2], -1, q.shape[-1])
        parts = [self._attend(q[:, i:j], rows, pages, view, i, scale, v_dim, softcap=softcap, sinks=sinks) for i, j in pieces(b, t, h)]
        out = torch.cat(parts, 1).reshape(b, t, h, v_dim).to(query.dtype)
        return torch.einsum("bthr,hvr->bthv", out, up_v) if layer in self.mla else out

    # -- inside

    def _at(self, layer: int) -> tuple[CacheGroup, View]:
        group = self.cache.group_of.get(layer)
        if group is None:
            raise UnsupportedModel("probe_injected", field="runner", reason=Word(str(layer), "word.injected.layer", layer=layer))
        return group, self._views[next(j for j, g in enumerate(self.cache.groups) if g is group)]

    def state_view(self, layer: int) -> View:
        """The blocks of this step's states of a recurrent layer; raises UnsupportedModel where the plan has none there."""
        group = self.cache.state_of.get(layer)
        if group is None:
            raise UnsupportedModel("probe_injected", field="runner", reason=Word(str(layer), "word.injected.layer", layer=layer))
        return self._views[next(j for j, g in enumerate(self.cache.groups) if g is group)]

    def _attach(self) -> bool:
        """Points the model at our attention; False where its class does not go through the interface."""
        self.model.set_attn_implementation(ATTENTION)
        return bool(self.model.config.get_text_config()._attn_implementation == ATTENTION)

    def _gathered(self, pages: Pages, view: View, dtype: torch.dtype) -> list[Tensor]:
        """All rows that the table still holds, keys and (unless latent) values [B, K, S, D]."""
        keys, values, gathered = pages.read(view.table, dtype)
        self.bytes_gathered += gathered
        end = view.starts[0] + view.count - view.first[0] * self.cache.block_size
        return [tensor[:, :end].transpose(1, 2) for tensor in (keys, values) if tensor is not None]

    @contextmanager
    def _paged(self) -> Iterator[None]:
        token = running.set(self)
        absorbed = () if self.hand_back else self.mla.values()
        for module in absorbed:
            module.expand_kv = lambda latent, rotated: (latent, rotated)
        try:
            yield
        finally:
            for module in absorbed:
                del module.expand_kv
            running.reset(token)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.data_ptr() == b.data_ptr()

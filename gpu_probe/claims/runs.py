"""What the items run: small decoders of equal layers over a paged cache that is full already.

Letters: B sequences, T query tokens, H query heads, K kv heads, D head_dim, R latent rank.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe import device as devices
from gpu_probe import measure
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.figures.ceilings import Host
from gpu_probe.fit import FIXED_BYTES, Fit, host_memory_bytes, working_bytes
from gpu_probe.model import Decoder
from gpu_probe.result import ProbeRequest
from gpu_probe.shapes import LayerShape, Shape, build_shape
from gpu_probe.weights import Weights, random_weights
from planner.cache import Rows
from planner.dtypes import DTYPES, kv_layout
from planner.engines.probe import allocate
from planner.model import Attention, LayerSpec, Mlp, ModelSpec

BLOCK_SIZE = 16


def heads(q: int, kv: int, dim: int) -> Attention:
    """MHA where kv = q, MQA where kv = 1, else GQA."""
    return Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)


def latent(q: int, dim: int, rank: int, rope: int) -> Attention:
    """MLA whose heads have `dim` numbers without position, and `rope` with it."""
    return Attention(q_heads=q, kv_heads=q, qk_dim=dim + rope, v_dim=dim, kv_rank=rank, nope_dim=dim, rope_dim=rope)


def decoder_of(attention: Attention, *, layers: int, hidden: int, mlp: int, vocab: int = 512) -> ModelSpec:
    """A decoder of `layers` equal layers."""
    a = attention
    if a.kv_rank is not None:
        rows = Rows(heads=1, k_dim=a.kv_rank + a.rope_dim, v_dim=0, shard="copy")
    else:
        rows = Rows(heads=a.kv_heads, k_dim=a.qk_dim, v_dim=a.v_dim)
    return ModelSpec(
        name="suite", model_type="suite", architecture="Suite", hidden_size=hidden, vocab_size=vocab, max_context_tokens=65_536,
        layers=(LayerSpec(caches=(rows,), attention=a, mlp=Mlp(width=mlp)),) * layers, weights=(), dtype=DTYPES["fp32"], tied_embeddings=False,
    )  # fmt: skip


def whole_shape(model: ModelSpec) -> Shape:
    """Every layer of it, nothing cut."""
    return build_shape(model, tuple(range(len(model.layers))), vocab=model.vocab_size, mlp_limit=None)


def lean_blocks(sequences: int, tokens: int) -> int:
    """Blocks of a `Lean`: for so many tokens each, and four to spare."""
    return sequences * -(-tokens // BLOCK_SIZE) + 4


def pool_bytes(model: ModelSpec, blocks: int, kv: str = "fp32") -> int:
    """Of a cache of so many blocks in the format `kv`."""
    return sum(blocks * p.groups[0].bytes_per_unit() for p in allocate(model, kv=kv_layout(kv), block_size=BLOCK_SIZE))


def weight_bytes(model: ModelSpec) -> int:
    """In float32, embedding and head included."""
    return whole_shape(model).elements() * 4


def lean_bytes(model: ModelSpec, *, sequences: int = 1, context: int = 0, room: int = 0, weights: bool = True) -> int:
    """What a `Lean` of the same arguments allocates. `weights`: whether it makes its own."""
    pool = pool_bytes(model, lean_blocks(sequences, max(context + 1, room)))
    return pool + (weight_bytes(model) if weights else 0)


def pass_bytes(model: ModelSpec, tokens: int, sequences: int = 1) -> int:
    """Working memory of one pass over so many tokens a sequence: the probe's own estimate, on the safe side."""
    return working_bytes(whole_shape(model), ProbeRequest(batch=sequences, prompt=tokens, output=1), 4)


def plan_of(model: ModelSpec, kv: str, blocks: int, device: torch.device) -> Fit:
    """The whole decoder with `blocks` blocks; nothing is cut. Raises ProbeOutOfMemory where it takes more than 70 % of what is free."""
    shape, pools = whole_shape(model), allocate(model, kv=kv_layout(kv), block_size=BLOCK_SIZE)
    needed = weight_bytes(model) + pool_bytes(model, blocks, kv) + FIXED_BYTES
    free = devices.free_bytes(device, host_memory_bytes())
    if free is not None and needed > free * 0.7:
        raise ProbeOutOfMemory("probe_memory_short", field="memory", needed=needed, available=int(free * 0.7))
    return Fit(
        shape=shape, layers=tuple(range(len(model.layers))), pools=pools, blocks=(blocks,) * len(pools), needed_bytes=needed, memory_bytes=needed, notes=()
    )


def cache_of(model: ModelSpec, host: Host, *, blocks: int, kv: str = "fp32") -> tuple[Fit, PagedCache]:
    """An empty cache in the format `kv`."""
    plan, layout = plan_of(model, kv, blocks, host.device), kv_layout(kv)
    storage, scaled = devices.storage_dtype(layout.element, host.device), layout.scales() is not None
    return plan, PagedCache.build(plan.shape, plan, dtype=storage, device=host.device, block_size=BLOCK_SIZE, seed=host.seed, scaled=scaled)


class Lean:
    """A float32 decoder over a cache of `sequences` sequences. `context`: tokens that each holds from the start, in rows of random
    numbers (a step's work and bytes do not depend on them); 0: none, and room for `room` tokens. `weights`: another's, of the same model."""

    def __init__(self, model: ModelSpec, host: Host, *, sequences: int = 1, context: int = 0, room: int = 0, weights: Weights | None = None) -> None:
        self.host, self.context = host, context
        self.ids = list(range(sequences))
        tokens = max(context + 1, room)
        self.plan, self.cache = cache_of(model, host, blocks=lean_blocks(sequences, tokens))
        if weights is None:
            weights = random_weights(self.plan.shape, seed=host.seed, dtype=torch.float32, device=host.device)
        self.decoder = Decoder(self.plan.shape, weights, max_tokens=tokens + 1)
        self.attention = PagedAttention(self.cache)
        self.token = torch.zeros(sequences, 1, dtype=torch.int64, device=host.device)
        self.position = torch.full((sequences, 1), context, device=host.device)
        if context:
            self.cache.add(self.ids)
            self.attention.begin(self.ids, [0] * sequences, context, prefill=True)
            for group in self.cache.groups:
                for pages in group.layers.values():
                    for tensor in pages.tensors():
                        tensor.copy_(torch.randn(tensor.shape[1:], device=host.device))

    @torch.no_grad()
    def step(self) -> Tensor:
        """One token of every sequence, at the same position whenever it is called. -> logits [B, vocab]"""
        self.attention.begin(self.ids, [self.context] * len(self.ids), 1)
        return self.decoder.forward(self.token, self.position, self.attention)

    @torch.no_grad()
    def prefill(self, tokens: int, clock: Clocked | None = None) -> Tensor:
        """Of `tokens` tokens in one pass, into a cache that is empty before and after."""
        self.cache.add(self.ids)
        self.attention.begin(self.ids, [0] * len(self.ids), tokens, prefill=True)
        ids = torch.arange(tokens, device=self.host.device).remainder(self.plan.shape.vocab).expand(len(self.ids), -1)
        logits = self.decoder.forward(ids, torch.arange(tokens, device=self.host.device).expand(len(self.ids), -1), clock or self.attention)
        self.cache.release(self.ids)
        return logits

    def kv_bytes(self) -> int:
        """Held by the live sequences, found in the tensors."""
        return sum(h.held_bytes for h in measure.held(self.cache))

    def weight_bytes(self) -> int:
        """That a step reads: all but the embedding, of which it reads a row."""
        return measure.storage_bytes(self.decoder.weights) - measure.storage_bytes(self.decoder.weights.shared["embedding"])


class Clocked:
    """The same attention with a clock around it. `seconds`: since it was set to 0."""

    def __init__(self, inner: PagedAttention, device: torch.device) -> None:
        self.inner, self.device, self.seconds = inner, device, 0.0

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        devices.synchronize(self.device)
        start = time.perf_counter()
        out = self.inner.heads(layer, q, k, v)
        devices.synchronize(self.device)
        self.seconds += time.perf_counter() - start
        return out

    def latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, row: Tensor, kv_b: Tensor) -> Tensor:
        return self.inner.latent(layer, q_nope, q_rope, row, kv_b)

    def state(self, layer: LayerShape, w: dict[str, Tensor], x: Tensor) -> Tensor:
        return self.inner.state(layer, w, x)


class Recompute:
    """No cache: every call attends over all the tokens that it is given, dense and causal, by torch's own kernel. MHA, GQA, MQA."""

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        assert k is not None
        assert v is not None
        share = q.shape[2] // k.shape[2]
        k, v = (x.repeat_interleave(share, 2) if share > 1 else x for x in (k, v))
        return nn.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True).transpose(1, 2)

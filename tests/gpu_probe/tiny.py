"""Small models by hand, and a paged run of one that a test can tamper with."""

from __future__ import annotations

from dataclasses import replace

import torch

from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.fit import Fit, fit
from gpu_probe.model import Decoder
from gpu_probe.result import ProbeRequest
from gpu_probe.session import Trace, generate
from gpu_probe.weights import random_weights
from planner.cache import Kind, Rows
from planner.dtypes import DTYPES, kv_layout
from planner.model import Attention, LayerSpec, Mlp, ModelSpec

HIDDEN, VOCAB = 64, 97


def heads(q: int = 4, kv: int = 2, d: int = 16, v: int | None = None, *, window: int | None = None, chunk: int | None = None) -> LayerSpec:
    v = v or d
    rows = Rows(heads=kv, k_dim=d, v_dim=v, window=window, chunk=chunk)
    return LayerSpec(caches=(rows,), attention=Attention(q_heads=q, kv_heads=kv, qk_dim=d, v_dim=v), mlp=Mlp(width=48))


def latent(q: int = 4, rank: int = 24, rope: int = 8, nope: int = 16, v: int = 12, q_rank: int | None = 20, window: int | None = None) -> LayerSpec:
    rows = Rows(heads=1, k_dim=rank + rope, v_dim=0, shard="copy", window=window)
    a = Attention(q_heads=q, kv_heads=q, qk_dim=nope + rope, v_dim=v, q_rank=q_rank, kv_rank=rank, nope_dim=nope, rope_dim=rope)
    return LayerSpec(caches=(rows,), attention=a, mlp=Mlp(experts=8, top_k=2, expert_width=20, shared_width=8))


def sharing(layer: LayerSpec, with_layer: int) -> LayerSpec:
    return replace(layer, caches=(), shares_with=with_layer)


def keeps(kind: Kind) -> LayerSpec:
    return LayerSpec(caches=(kind,), mlp=Mlp(width=48))


def model(*layers: LayerSpec, hidden: int = HIDDEN, vocab: int = VOCAB, dtype: str = "fp32") -> ModelSpec:
    return ModelSpec(
        name="tiny", model_type="tiny", architecture="Tiny", hidden_size=hidden, vocab_size=vocab, max_context_tokens=4096,
        layers=layers, weights=(), dtype=DTYPES[dtype], tied_embeddings=False,
    )  # fmt: skip


MODELS = {
    "mha": model(heads(4, 4), heads(4, 4)),
    "gqa": model(heads(4, 2), heads(4, 2), heads(4, 2)),
    "mqa": model(heads(4, 1), heads(4, 1)),
    "odd head": model(heads(3, 1, d=7, v=5), heads(2, 2, d=9)),
    "mla": model(latent(), latent(q_rank=None), latent()),
    "window": model(heads(window=21), heads(), heads(window=21)),
    "window of one": model(heads(window=1), heads()),
    "mla window": model(latent(window=30), latent()),
    "chunk": model(heads(chunk=24), heads()),
    "shared": model(heads(), heads(window=19), sharing(heads(window=19), 1), sharing(heads(), 0)),
}


def plan(spec: ModelSpec, *, batch: int = 2, prompt: int = 50, output: int = 20, block_size: int = 16, kv: str = "fp32") -> tuple[Fit, ProbeRequest]:
    request = ProbeRequest(batch=batch, prompt=prompt, output=output, block_size=block_size, kv_dtype=kv)
    return fit(spec, request, kv_layout(kv), compute_bytes=4, memory_bytes=2**31), request


def paged(
    spec: ModelSpec, *, attention: type[PagedAttention] = PagedAttention, dirt: float = 0.0, seed: int = 0, kv: str = "fp32", **sizes: int
) -> tuple[Decoder, PagedAttention, Trace]:
    """Prefill and decode. `dirt`: what the pages hold beforehand; a read beyond what was written would bring it to light."""
    made, request = plan(spec, kv=kv, **sizes)
    cpu = torch.device("cpu")
    weights = random_weights(made.shape, seed=seed, dtype=torch.float32, device=cpu)
    storage = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}[kv]
    cache = PagedCache.build(made.shape, made, dtype=storage, device=cpu, block_size=request.block_size, seed=seed)
    if dirt:
        for group in cache.groups:
            for pages in group.layers.values():
                for tensor in pages.tensors():
                    tensor.fill_(dirt)
    decoder = Decoder(made.shape, weights, max_tokens=request.tokens() + 2)
    prompt = torch.randint(0, made.shape.vocab, (request.batch, request.prompt), generator=torch.Generator().manual_seed(seed + 1))
    runner = attention(cache)
    return decoder, runner, generate(decoder, runner, prompt, request.output, keep_logits=True)

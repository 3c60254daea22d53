"""One rank: the lean decoder with its attention split over heads or over requests, and its feed-forward split over ranks both times.

Started by `gpu_probe.dist`, or by torchrun itself, over several machines too: ``torchrun --nnodes 2 ... -m gpu_probe.dist_worker``.
gloo on CPUs and where there are fewer GPUs than ranks, NCCL otherwise. Rank 0 prints one line of JSON.
Letters: B sequences, T query tokens, N ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import time
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as group
import torch.nn.functional as nn
from torch import Tensor

from gpu_probe import dist, measure
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.dist import BATCH, BLOCK_SIZE, OUTPUT, PROMPT
from gpu_probe.fit import Fit
from gpu_probe.model import Decoder, norm
from gpu_probe.model import _mlp as feed_forward
from gpu_probe.proof import relative_error
from gpu_probe.shapes import Shape, build_shape
from gpu_probe.weights import Weights, random_weights
from planner.dtypes import DTYPES, kv_layout
from planner.engines.probe import allocate
from planner.model import Attention, LayerSpec, Mlp, ModelSpec


def spec(a: Attention) -> ModelSpec:
    layer = LayerSpec(caches=(dist.rows_of(a),), attention=a, mlp=Mlp(width=dist.MLP))
    return ModelSpec(
        name="ranks", model_type="ranks", architecture="Ranks", hidden_size=dist.HIDDEN, vocab_size=dist.VOCAB, max_context_tokens=1024,
        layers=(layer,) * dist.LAYERS, weights=(), dtype=DTYPES["fp32"], tied_embeddings=False,
    )  # fmt: skip


def shape_of(model: ModelSpec) -> Shape:
    return build_shape(model, tuple(range(len(model.layers))), vocab=model.vocab_size, mlp_limit=None)


def part_of(a: Attention, s: dist.Split) -> Attention:
    """The attention of one rank. MLA has no KV heads to share out: its latent stays whole."""
    return replace(a, q_heads=len(s.q), kv_heads=len(s.q) if a.kv_rank is not None else len(s.kv))


def cut(w: dict[str, Tensor], a: Attention, s: dist.Split, rank: int, ranks: int) -> dict[str, Tensor]:
    """One layer's weights for one rank: heads by rows, the output by columns, the feed-forward by its inner width."""

    def by(name: str, heads: range, all_heads: int) -> Tensor:
        per = w[name].shape[0] // all_heads
        return w[name][heads.start * per : heads.stop * per]

    own = {name: tensor for name, tensor in w.items() if name not in ("q", "q_bias", "k", "k_bias", "v", "v_bias", "kv_b", "o", "up", "gate", "down")}
    own |= {name: by(name, s.q, a.q_heads) for name in ("q", "q_bias", "kv_b") if name in w}
    own |= {name: by(name, s.kv, a.kv_heads) for name in ("k", "k_bias", "v", "v_bias") if name in w}
    own["o"] = w["o"][:, s.q.start * a.v_dim : s.q.stop * a.v_dim]
    inner = slice(rank * dist.MLP // ranks, (rank + 1) * dist.MLP // ranks)
    return own | {"up": w["up"][inner], "gate": w["gate"][inner], "down": w["down"][:, inner]}


class RankDecoder(Decoder):
    """`mode` tp: partial outputs of the attention are added up over ranks. dp: attention is whole, for this rank's sequences; their
    hidden states are gathered for the feed-forward, which is split in both."""

    def __init__(self, shape: Shape, weights: Weights, max_tokens: int, mode: str) -> None:
        super().__init__(shape, weights, max_tokens)
        self.mode = mode

    def forward(self, ids: Tensor, positions: Tensor, attend: Any, *, last_only: bool = True) -> Tensor:
        x = self.weights.shared["embedding"][ids]
        for layer, w in zip(self.shape.layers, self.weights.layers, strict=True):
            y = self._attention(layer, w, norm(x, w["attn_norm"]), positions, attend)
            x = x + (summed(y) if self.mode == "tp" else y)
            inner = norm(x, w["mlp_norm"])
            x = x + (summed(feed_forward(w, inner)) if self.mode == "tp" else own(summed(feed_forward(w, gathered(inner)))))
        return nn.linear(norm(x[:, -1] if last_only else x, self.weights.shared["final_norm"]), self.weights.shared["lm_head"]).float()


def summed(x: Tensor) -> Tensor:
    x = x.contiguous()
    group.all_reduce(x)
    return x


def gathered(x: Tensor) -> Tensor:
    """Each rank's sequences [B / N, ...] -> all of them [B, ...], in their order: rank r has the r-th of every N."""
    parts = [torch.empty_like(x) for _ in range(group.get_world_size())]
    group.all_gather(parts, x.contiguous())
    return torch.stack(parts, 1).flatten(0, 1)


def own(x: Tensor) -> Tensor:
    return x[group.get_rank() :: group.get_world_size()]


@torch.no_grad()
def generate(decoder: Decoder, model: ModelSpec, tokens: Tensor, seed: int) -> tuple[Tensor, int]:
    """tokens [B, prompt + output], the same for all. -> logits [output + 1, B, vocab], and the bytes of KV held at the end."""
    count, device = len(tokens), tokens.device
    blocks = count * -(-(PROMPT + OUTPUT) // BLOCK_SIZE) + 4
    pools = allocate(model, kv=kv_layout("fp32"), block_size=BLOCK_SIZE)
    plan = Fit(shape=decoder.shape, layers=tuple(range(dist.LAYERS)), pools=pools, blocks=(blocks,) * len(pools), needed_bytes=0, memory_bytes=0, notes=())
    cache = PagedCache.build(decoder.shape, plan, dtype=torch.float32, device=device, block_size=BLOCK_SIZE, seed=seed)
    attention, ids = PagedAttention(cache), list(range(count))
    cache.add(ids)
    attention.begin(ids, [0] * count, PROMPT, prefill=True)
    found = [decoder.forward(tokens[:, :PROMPT], torch.arange(PROMPT, device=device).expand(count, -1), attention)]
    cache.relocate()
    for at in range(PROMPT, PROMPT + OUTPUT):
        attention.begin(ids, [at] * count, 1)
        found.append(decoder.forward(tokens[:, at : at + 1], torch.full((count, 1), at, device=device), attention))
    return torch.stack(found), sum(h.held_bytes for h in measure.held(cache))


def compare(name: str, mode: str, device: torch.device, seed: int) -> dict[str, Any]:
    """One attention in one mode: bytes of each rank, and outputs against one rank alone."""
    a, rank, ranks = dist.ATTENTIONS[name], group.get_rank(), group.get_world_size()
    alone = spec(a)
    shape = shape_of(alone)
    weights = random_weights(shape, seed=seed, dtype=torch.float32, device=device)
    tokens = torch.randint(0, dist.VOCAB, (BATCH, PROMPT + OUTPUT), generator=torch.Generator().manual_seed(seed + 1)).to(device)
    most = PROMPT + OUTPUT + 1
    expected, one_copy = generate(Decoder(shape, weights, most), alone, tokens, seed)

    s = dist.split(a, mode, rank, ranks)
    model = spec(part_of(a, s))
    layers = tuple(cut(w, a, s, rank, ranks) for w in weights.layers)
    decoder = RankDecoder(shape_of(model), Weights(shared=weights.shared, layers=layers), most, mode)
    logits, held = generate(decoder, model, tokens[list(s.sequences)], seed + rank)
    if mode == "dp":
        logits = gathered(logits.transpose(0, 1)).transpose(0, 1)
    told: list[Any] = [None] * ranks
    group.all_gather_object(told, (held, relative_error(logits, expected)))
    measured, predicted = [bytes_ for bytes_, _ in told], dist.predicted_bytes(a, mode, ranks)
    return {
        "attention": name, "mode": mode, "ranks": ranks, "predicted": predicted, "measured": measured, "right": measured == predicted,
        "single_bytes": one_copy, "over_single": sum(measured) / one_copy, "max_rel_error": max(error for _, error in told),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.0)
    options, began = parser.parse_args(), time.perf_counter()
    seed = options.seed
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(options.limit))  # ends this process, whatever it waits for; 0: never
    torch.set_num_threads(1)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    group.init_process_group("nccl" if on_gpu else "gloo")
    try:
        dist.checked_ranks(group.get_world_size())
        rows = [compare(name, mode, device, seed) for name in dist.ATTENTIONS for mode in dist.MODES]
        if group.get_rank() == 0:
            result = {"ranks": group.get_world_size(), "backend": group.get_backend(), "device": str(device), "rows": rows,
                      "right": all(r["right"] and r["max_rel_error"] <= dist.TOLERANCE for r in rows), "wall_s": time.perf_counter() - began}  # fmt: skip
            print(json.dumps(result), flush=True)
    finally:
        group.destroy_process_group()


if __name__ == "__main__":
    main()

"""Raw configs cut to what a host can run: fewer layers, a small vocabulary, narrow feed-forward layers, few experts. Attention shapes,
and so the KV bytes of every layer that runs, stay the model's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from gpu_probe.fit import FIXED_BYTES, SCRATCH_BYTES, SKELETON_VOCAB, pool_blocks
from gpu_probe.injected.hosted import untouched
from gpu_probe.result import ProbeRequest
from planner.cache import Pool
from planner.model import ModelSpec

Config = dict[str, Any]
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTHS = (
    "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp",
    "ffn_dim", "ffn_hidden_size", "n_inner",
)  # fmt: skip
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_k", "moe_topk")
LIMITS = ("sliding_window", "sliding_window_size", "attention_chunk_size")
LAYER_NAME = re.compile(r"\.(?:layers|h|blocks|block)\.(\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`limit`: windows and chunks of at most so many tokens, so that a short run slides."""

    vocab: int = SKELETON_VOCAB
    width: int = 256
    experts: int = 16
    limit: int | None = None

    def width_of(self, raw: Config) -> int:
        return max((v for k in WIDTHS if isinstance(v := raw.get(k), int)), default=0)

    def apply(self, raw: Config) -> Config:
        chosen = max((v for k in CHOSEN if isinstance(v := raw.get(k), int)), default=1)
        out = {k: min(v, most) if isinstance(v, int) and not isinstance(v, bool) else v
               for keys, most in ((("vocab_size",), self.vocab), (WIDTHS, self.width), (EXPERTS, max(self.experts, chosen)))
               for k in keys if (v := raw.get(k)) is not None}  # fmt: skip
        out.setdefault("vocab_size", self.vocab)  # a class default may be any size
        if self.limit is not None:
            out |= {k: min(v, self.limit) for k in LIMITS if isinstance(v := raw.get(k), int) and v}
        # ids beyond the small vocabulary would be no rows of its embedding
        out |= {k: 0 for k, v in raw.items() if k.endswith("_token_id") and isinstance(v, int) and v >= out["vocab_size"]}
        return {**raw, **out}


def language_part(raw: Config) -> Config:
    """The part of a composite config that describes the decoder, where it names a model type of its own."""
    part = raw.get("text_config")
    return {**part} if isinstance(part, dict) and isinstance(part.get("model_type"), str) else raw


def shrink(raw: Config, total: int, count: int, cut: Cut | None) -> Config:
    """The config of the first `count` of `total` layers; lists with an entry a layer are cut with them."""
    out = dict(raw) if cut is None else cut.apply(raw)
    if count < total:
        out |= {k: v[:count] for k, v in out.items() if isinstance(v, list) and len(v) == total and k != "architectures"}
        out |= dict.fromkeys([k for k in LAYERS if k in raw] or LAYERS[:1], count)
    return out


def elements_by_layer(config: Any) -> tuple[int, list[int]]:
    """Elements beside the layers, and of each layer, counted on a model that allocates nothing."""
    model = untouched(config, dtype=torch.float32, device=torch.device("meta"))
    beside, layers = 0, dict[int, int]()
    for name, tensor in model.named_parameters():
        found = LAYER_NAME.search(name)
        if found is None:
            beside += tensor.numel()
        else:
            layers[int(found[1])] = layers.get(int(found[1]), 0) + tensor.numel()
    return beside, [layers[i] for i in sorted(layers)]


def working_bytes(spec: ModelSpec, request: ProbeRequest) -> int:
    """Activations, logits and scratch at the prefill: an estimate on the safe side."""
    widest = max((layer.attention.q_heads * (layer.attention.qk_dim + layer.attention.v_dim) for layer in spec.layers if layer.attention), default=0)
    per_token = 16 * spec.hidden_size + 4 * widest + 2 * spec.vocab_size
    return request.batch * request.prompt * per_token * 4 + 6 * SCRATCH_BYTES


def needed_bytes(elements: int, spec: ModelSpec, pools: tuple[Pool, ...], request: ProbeRequest, compute_bytes: int, count: int) -> int:
    """Bytes of weights, pages of the first `count` layers and working memory."""
    share = sum(pool_blocks(p, request) * p.groups[0].bytes_per_unit() for p in pools) * count // max(1, len(spec.layers))
    return elements * compute_bytes + share + working_bytes(spec, request) + FIXED_BYTES

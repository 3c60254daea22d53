"""What our weights are called in checkpoints: the lists of a `quantization_config` name modules, a Weight has a name of ours.

One table. Each weight has the paths, below its layer, that published families give it; a fused module stands for all of its parts. The
first one of a row is Llama's or the most common one. (transformers 5.24 models/*, the families' own remote code)
"""

from __future__ import annotations

from functools import lru_cache

# The module that holds all layers, as checkpoints call it: what stands before the layer's number.
ROOTS = (
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.", "layers.", "transformer.h.", "transformer.layers.",
    "transformer.encoder.layers.", "transformer.blocks.", "model.decoder.layers.", "language_model.layers.", "backbone.layers.",
    "gpt_neox.layers.", "model.text_model.layers.", "thinker.model.layers.", "h.",
)  # fmt: skip


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _qkv(letter: str, others: str) -> tuple[str, ...]:
    fused = (
        "self_attn.qkv_proj self_attn.W_pack self_attn.Wqkv self_attn.query_key_value self_attention.query_key_value attention.query_key_value "
        "attention.wqkv attn.c_attn attn.qkv_proj attn.Wqkv attn.query_key_value"
    )
    return _words(f"self_attn.{letter}_proj attn.{letter}_proj attention.w{letter} attn.w{letter} mixer.{letter}_proj {others} {fused}")


def _experts(part: str, letter: str, fused: str) -> tuple[str, ...]:
    """Paths of expert 0 stand for all experts; the fused module of all experts is last."""
    each = ("mlp", "block_sparse_moe", "ffn", "feed_forward", "mixer", "moe")
    return (*(f"{block}.experts.0.{name}" for block in each for name in (part, letter)), *(f"{block}.experts.{fused}" for block in each))


def _shared(part: str, letter: str) -> tuple[str, ...]:
    blocks = "mlp.shared_experts mlp.shared_expert ffn.shared_experts feed_forward.shared_expert block_sparse_moe.shared_experts mixer.shared_experts"
    more = "share_expert moe.shared_expert shared_mlp mlp.shared_mlp"
    return tuple(f"{block}.{name}" for block in _words(f"{blocks} {more}") for name in (part, letter))


MODULES: dict[str, tuple[str, ...]] = {
    # attention
    "q_proj": _qkv("q", "self_attn.q_b_proj"),
    "k_proj": _qkv("k", ""),
    "v_proj": _qkv("v", ""),
    "o_proj": _words("self_attn.o_proj attn.o_proj self_attn.out_proj self_attn.dense self_attention.dense attention.dense attention.wo attn.wo attn.c_proj "
                     "attn.out_proj mixer.o_proj linear_attn.o_proj"),
    "gate_proj": _words("self_attn.gate_proj self_attn.g_proj"),
    "g_proj": _words("self_attn.g_proj self_attn.gate_proj"),
    "q_a_proj": _words("self_attn.q_a_proj attn.wq_a self_attn.fused_qkv_a_proj_with_mqa"),
    "q_b_proj": _words("self_attn.q_b_proj attn.wq_b"),
    "kv_a_proj": _words("self_attn.kv_a_proj_with_mqa attn.wkv_a self_attn.fused_qkv_a_proj_with_mqa"),
    "kv_b_proj": _words("self_attn.kv_b_proj attn.wkv_b"),
    "kv_proj": _words("self_attn.kv_proj attn.wkv"),
    "o_a_proj": _words("self_attn.o_a_proj attn.wo_a"),
    "o_b_proj": _words("self_attn.o_b_proj attn.wo_b"),
    "compressor.kv_proj": _words("self_attn.compressor.kv_proj attn.compressor.wkv"),
    "compressor.gate_proj": _words("self_attn.compressor.gate_proj attn.compressor.wgate"),
    "indexer.q_b_proj": _words("self_attn.indexer.q_b_proj attn.indexer.wq_b"),
    "indexer.kv_proj": _words("self_attn.indexer.kv_proj attn.indexer.compressor.wkv"),
    "indexer.gate_proj": _words("self_attn.indexer.gate_proj attn.indexer.compressor.wgate"),
    "indexer.wq_b": _words("self_attn.indexer.wq_b"),
    "indexer.wk": _words("self_attn.indexer.wk"),
    "indexer.weights_proj": _words("self_attn.indexer.weights_proj self_attn.indexers_proj attn.indexer.weights_proj"),
    # feed-forward
    "mlp.gate": _words("mlp.gate_proj mlp.gate_up_proj mlp.dense_h_to_4h feed_forward.gate_proj feed_forward.w1 ffn.w1 mlp.w1 feed_forward.gate_up_proj"),
    "mlp.up": _words("mlp.up_proj mlp.gate_up_proj mlp.fc1 fc1 mlp.c_fc mlp.dense_h_to_4h feed_forward.up_proj feed_forward.w3 ffn.w3 mlp.w2 "
                     "feed_forward.gate_up_proj mixer.up_proj ffn.up_proj"),
    "mlp.down": _words("mlp.down_proj mlp.fc2 fc2 mlp.c_proj mlp.dense_4h_to_h feed_forward.down_proj feed_forward.w2 ffn.w2 mixer.down_proj ffn.down_proj"),
    "experts.gate": _experts("gate_proj", "w1", "gate_up_proj"),
    "experts.up": _experts("up_proj", "w3", "gate_up_proj"),
    "experts.down": _experts("down_proj", "w2", "down_proj"),
    "shared_expert.gate": _shared("gate_proj", "w1"),
    "shared_expert.up": _shared("up_proj", "w3"),
    "shared_expert.down": _shared("down_proj", "w2"),
    # states
    "in_proj_qkvz": _words("linear_attn.in_proj_qkvz linear_attn.in_proj_qkv linear_attn.in_proj_z"),
    "in_proj_ba": _words("linear_attn.in_proj_ba linear_attn.in_proj_b linear_attn.in_proj_a"),
    "in_proj": _words("mamba.in_proj mixer.in_proj conv.in_proj linear_attn.in_proj"),
    "out_proj": _words("linear_attn.out_proj mamba.out_proj mixer.out_proj conv.out_proj self_attn.out_proj"),
    "x_proj": _words("mamba.x_proj mixer.x_proj"),
    "dt_proj": _words("mamba.dt_proj mixer.dt_proj self_attn.dt_proj"),
    "qkv_proj": _words("self_attn.qkv_proj self_attn.q_proj self_attn.k_proj self_attn.v_proj linear_attn.qkv_proj"),
    "output_gate": _words("self_attn.output_gate"),
    "per_layer_input_gate": _words("per_layer_input_gate"),
    "per_layer_projection": _words("per_layer_projection"),
    # outside the layers
    "lm_head": ("lm_head", "language_model.lm_head", "model.lm_head", "thinker.lm_head", "head", "output", "output_layer", "embed_out",
                "transformer.output_layer"),
}  # fmt: skip

# Families whose modules stand elsewhere, so that the common paths would let a pattern hit the wrong one.
_GEMMA4 = {
    "experts.gate": _words("experts.0.gate_proj experts.gate_up_proj moe.experts.0.gate_proj moe.gate_up_proj"),
    "experts.up": _words("experts.0.up_proj experts.gate_up_proj moe.experts.0.up_proj moe.gate_up_proj"),
    "experts.down": _words("experts.0.down_proj experts.down_proj moe.experts.0.down_proj moe.down_proj"),
    "shared_expert.gate": _words("mlp.gate_proj"),
    "shared_expert.up": _words("mlp.up_proj"),
    "shared_expert.down": _words("mlp.down_proj"),
}
BY_FAMILY: dict[str, dict[str, tuple[str, ...]]] = {"gemma4": _GEMMA4, "gemma4_text": _GEMMA4}

_HOLDERS = {"attention": ("self_attn", "attn"), "state": ("self_attn", "linear_attn", "mamba", "mixer"), "mlp": ("mlp",), "expert": ("mlp.experts.0",)}


@lru_cache(maxsize=2048)
def modules_of(name: str, role: str, model_type: str) -> tuple[str, ...]:
    """Paths below the layer (whole paths outside of layers) of the modules that the weight `name` stands in. A name that is not in the
    table is taken for the module's own, under the holders of its role."""
    known = BY_FAMILY.get(model_type, {}).get(name) or MODULES.get(name)
    return known if known is not None else (*(f"{holder}.{name}" for holder in _HOLDERS.get(role, ())), name)

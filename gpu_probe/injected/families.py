"""Tiny configs, one or more a family, for the sweep: every attention shape in small. No torch.

Windows are 24 tokens and a softcap is 1.5, so that dropping either one moves the logits of a short run with random weights.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

WINDOW = 24
VOCAB = 256

_COMMON: Config = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HEADS: Config = {**_COMMON, "intermediate_size": 96}
_GQA: Config = {**_HEADS, "num_key_value_heads": 2}
_WIDE: Config = {**_GQA, "head_dim": 16}
_GPT: Config = {"vocab_size": VOCAB, "n_embd": 64, "n_head": 8, "n_layer": 3, "n_positions": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_EXPERTS: Config = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MOE: Config = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_ROUTED: Config = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1, "first_k_dense_replace": 1}
_LATENT: Config = {
    **_HEADS, "num_key_value_heads": 8, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 24,
}  # fmt: skip
_GROUPS: Config = {"n_group": 2, "topk_group": 1}
_MIXED: Config = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_MAMBA2: Config = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16,
}  # fmt: skip
_MAMBA1: Config = {**{k: _COMMON[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers")}, "state_size": 8, "expand": 2, "conv_kernel": 4}
_DELTA: Config = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
_NO_LEAST_STEP: Config = {"time_step_min": 1e-9}
"""transformers clamps a prefill's time steps to at least this and a decode step's not at all (5.24, nemotron_h and zamba2): with its own
cache and the usual 1e-3, its decode differs from its recomputation by 1e-3 too."""
_CAP: Config = {"attn_logit_softcapping": 1.5, "query_pre_attn_scalar": 16}

FAMILIES: tuple[tuple[str, Config], ...] = (
    ("apertus", _WIDE),
    ("arcee", _WIDE),
    ("bitnet", _GQA),
    ("cohere", _GQA),
    ("cohere2", {**_WIDE, **_MIXED}),
    ("codegen", {**_GPT, "rotary_dim": 8}),
    ("deepseek_v2", {**_LATENT, **_ROUTED, **_GROUPS, "topk_method": "group_limited_greedy"}),
    ("deepseek_v2", {**_LATENT, **_ROUTED, "q_lora_rank": None, "topk_method": "greedy"}),
    ("deepseek_v3", {**_LATENT, **_ROUTED, **_GROUPS}),
    ("diffllama", _GQA),
    ("dots1", {**_WIDE, **_ROUTED}),
    ("ernie4_5", _WIDE),
    ("ernie4_5_moe", {**_GQA, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 48}),
    ("exaone4", {**_WIDE, **_MIXED}),
    ("falcon", {**_COMMON, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True, "alibi": False, "bias": False}),
    ("flex_olmo", {**_GQA, "num_experts": 4, "num_experts_per_tok": 2}),
    ("gemma", _WIDE),
    ("gemma2", {**_WIDE, **_MIXED, **_CAP}),
    ("gemma3_text", {**_WIDE, **_MIXED, "query_pre_attn_scalar": 16}),
    ("glm", _WIDE),
    ("glm4", _WIDE),
    ("glm4_moe", {**_WIDE, **_ROUTED}),
    ("glm4_moe_lite", {**_LATENT, **_ROUTED}),
    ("gpt2", _GPT),
    ("gpt_bigcode", {**_GPT, "multi_query": True, "n_inner": 96}),
    ("gpt_bigcode", {**_GPT, "multi_query": False, "n_inner": 96}),
    ("gpt_neox", _HEADS),
    ("gpt_oss", {**_WIDE, **_MIXED, **_EXPERTS}),
    ("gptj", {**_GPT, "rotary_dim": 8}),
    ("granite", _GQA),
    ("granitemoe", {**_GQA, **_EXPERTS}),
    ("granitemoeshared", {**_GQA, **_EXPERTS, "shared_intermediate_size": 48}),
    ("helium", {**_GQA, "head_dim": 8}),
    ("hunyuan_v1_dense", _WIDE),
    ("hunyuan_v1_moe", {**_WIDE, "num_experts": 4, "moe_topk": 2}),
    ("jais2", _WIDE),
    ("llama", _WIDE),
    ("llama", {**_GQA, "num_key_value_heads": 8}),
    ("llama", {**_GQA, "num_key_value_heads": 1}),
    ("llama4_text", {**_WIDE, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 96}),
    ("llama4_text", {**_WIDE, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 96, "attention_chunk_size": WINDOW,
                     "layer_types": ["chunked_attention", "full_attention", "chunked_attention"]}),
    ("minicpm3", _LATENT),
    ("minimax_m2", {**_WIDE, **_EXPERTS}),
    ("ministral", {**_WIDE, **_MIXED}),
    ("mistral", {**_WIDE, "sliding_window": WINDOW}),
    ("mixtral", {**_WIDE, **_EXPERTS, "sliding_window": None}),
    ("nemotron", _WIDE),
    ("olmo", _GQA),
    ("olmo2", _GQA),
    ("olmo3", {**_GQA, **_MIXED}),
    ("olmoe", {**_GQA, "num_experts": 4, "num_experts_per_tok": 2}),
    ("opt", {**_COMMON, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    ("persimmon", _HEADS),
    ("phi", _GQA),
    ("phi3", {**_GQA, "sliding_window": None}),
    ("phi3", {**_GQA, "sliding_window": WINDOW}),
    ("phimoe", {**_GQA, **_EXPERTS, "sliding_window": None}),
    ("qwen2", _GQA),
    ("qwen2_moe", {**_GQA, **_MOE, "shared_expert_intermediate_size": 48}),
    ("qwen3", _WIDE),
    ("qwen3_moe", {**_WIDE, **_MOE}),
    ("seed_oss", _WIDE),
    ("smollm3", _WIDE),
    ("stablelm", _GQA),
    ("starcoder2", {**_GQA, "sliding_window": WINDOW}),
    ("youtu", _LATENT),
    # recurrent layers
    ("bamba", {**_GQA, **_MAMBA2, "attn_layer_indices": [1]}),
    ("falcon_h1", {**_WIDE, **_MAMBA2, "mamba_d_ssm": 128}),
    ("falcon_mamba", _MAMBA1),
    ("granitemoehybrid", {**_GQA, **_EXPERTS, **_MAMBA2, "shared_intermediate_size": 48, "layer_types": ["mamba", "attention", "mamba"]}),
    ("jamba", {**_GQA, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4,
               "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}),
    ("mamba", _MAMBA1),
    ("mamba2", {**_MAMBA1, "state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16,
                **{k: v for k, v in _COMMON.items() if k.endswith("_token_id")}}),
    ("nemotron_h", {**_WIDE, **_NO_LEAST_STEP, "hybrid_override_pattern": "M*M", "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
                    "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 16}),
    ("qwen3_next", {**_WIDE, **_MOE, **_DELTA, "shared_expert_intermediate_size": 48}),
    ("zamba2", {**_GQA, **_NO_LEAST_STEP, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8, "chunk_size": 16,
                "hybrid_layer_ids": [1], "layers_block_type": ["mamba", "hybrid", "mamba"], "num_mem_blocks": 1}),
)  # fmt: skip

REFUSED: tuple[tuple[str, Config], ...] = (
    ("bloom", {"vocab_size": VOCAB, "hidden_size": 64, "n_layer": 3, "n_head": 8}),
    ("falcon", {**_COMMON, "alibi": True, "multi_query": True, "new_decoder_architecture": False}),
    ("lfm2", {**_GQA, "block_dim": 64, "conv_dim": 64, "conv_L_cache": 3, "layer_types": ["conv", "full_attention", "conv"]}),
    ("deepseek_v32", {**_LATENT, **_ROUTED, **_GROUPS, "index_topk": 16, "index_n_heads": 4, "index_head_dim": 32}),
    ("t5", {"vocab_size": VOCAB, "d_model": 64, "d_kv": 8, "d_ff": 96, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 8}),
)  # fmt: skip
"""ALiBi, short convolutions, sparse indexers and cross-attention: the runner says so and approximates nothing."""

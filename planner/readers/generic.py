"""The reader for a model_type that nobody here has met: a plain GQA decoder, accepted only by an allow-list of keys.

Every key that is not known to leave the cache alone, and whose value could matter (a number above 1, true, a list, an object), stops it
by name. A list of suspicious names would fail here: too many families hide a factor of 6 to 71 behind an innocent key.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from planner.errors import UnsupportedModel
from planner.model import Attention, Doubt, LayerSpec, Mlp, ModelSpec
from planner.notes import Note, note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.doubts import elements, tie
from planner.readers.fields import Fields

# Keys that are known not to change what a decoder keeps: norms, rope, token ids, dropout, initialisation, losses, generation, bookkeeping.
HARMLESS = frozenset(
    """
    model_type architectures auto_map transformers_version _name_or_path torch_dtype dtype name_or_path _attn_implementation attn_implementation
    attn_implementation_autoset _attn_implementation_autoset _commit_hash unsloth_version unsloth_fixed model_name hidden_act hidden_activation
    activation_function act_fn rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon layernorm_epsilon rmsnorm_eps initializer_range init_std
    initializer_factor embedding_initializer_range use_cache cache_implementation bos_token_id eos_token_id pad_token_id sep_token_id
    unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id begin_suppress_tokens suppress_tokens attention_dropout
    attn_dropout attn_pdrop embd_pdrop resid_pdrop hidden_dropout hidden_dropout_prob dropout embed_dropout embedding_dropout resid_dropout
    attention_probs_dropout_prob activation_dropout classifier_dropout summary_first_dropout rope_theta rope_scaling rope_parameters
    attention_softmax_in_fp32 apply_residual_connection_post_layernorm scale_emb scale_depth dim_model_base max_tokenizer_truncation
    rotary_emb_base rotary_pct rotary_dim rotary_base partial_rotary_factor rope_pct rope_ratio rotary rope_interleaved rope_interleave
    original_max_position_embeddings max_position_embeddings n_positions seq_length max_seq_len max_sequence_length model_max_length
    vocab_size padded_vocab_size hidden_size n_embd num_hidden_layers n_layer num_attention_heads n_head num_key_value_heads head_dim
    intermediate_size tie_word_embeddings attention_bias mlp_bias bias use_bias use_qkv_bias qkv_bias qkv_proj_bias add_bias_linear no_bias
    attention_out_bias lm_head_bias gradient_checkpointing pretraining_tp output_attentions output_hidden_states return_dict return_dict_in_generate
    torchscript use_bfloat16 tf_legacy_loss id2label label2id problem_type task_specific_params finetuning_task tokenizer_class prefix
    temperature top_k top_p typical_p repetition_penalty length_penalty num_beams num_beam_groups num_return_sequences max_length min_length
    do_sample early_stopping no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids diversity_penalty remove_invalid_values
    exponential_decay_length_penalty output_scores chunk_size_feed_forward pruned_heads quantization_config compression_config
    logit_scale logits_scaling embedding_multiplier residual_multiplier attention_multiplier embedding_scale scale_embedding
    final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar clip_qkv use_qk_norm qk_layernorm qk_norm use_parallel_residual
    parallel_residual shared_layernorm layer_norm_bias elementwise_affine norm_type normalization normalization_function norm_bias
    router_aux_loss_coef router_z_loss_coef router_jitter_noise output_router_logits aux_loss_coef norm_topk_prob num_experts_per_tok
    num_local_experts num_experts moe_intermediate_size shared_expert_intermediate_size n_routed_experts n_shared_experts first_k_dense_replace
    mlp_only_layers decoder_sparse_step routed_scaling_factor scoring_func topk_method n_group topk_group
    moe_layer_freq moe_router_activation_func ffn_hidden_size n_inner summary_activation summary_proj_to_labels summary_type
    summary_use_proj scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn use_flash_attn use_flash_attention
    flash_attn_bf16 flash_attn_fp16 flash_attn_fp32 fp16 bf16 fp32 hidden_size_in_head is_decoder use_sdpa use_logn_attn use_dynamic_ntk
    tensor_parallel_degree pretraining_dp sequence_parallel fuse_norm fuse_swiglu fuse_cross_entropy max_window_layers sampler_seq_len
    tie_encoder_decoder cross_attention_hidden_size add_cross_attention is_encoder_decoder use_sliding_window
    transformers_weights ignore_index language_model_only _from_model_config
    """.split()
)
# Even when false or 1 their presence means a dialect whose rule for the cache is not this reader's.
NEVER_PLAIN = ("multi_query", "is_causal")
KEEPS_NO_CACHE = frozenset({"openai-gpt", "cpmant", "reformer", "xlnet", "transfo-xl"})  # causal by name, but not with a plain cache
_OUTSIDE = ("vision_config", "audio_config", "encoder_config", "text_config")


def generic(f: Fields, model_type: str | None, harmless: Collection[str]) -> ModelSpec:
    """A plain decoder: layers x (K and V of the KV heads). Raises UnsupportedModel with the first key that stopped it."""
    _plain_decoder_only(f, model_type, harmless)
    layers, hidden = f.layers("num_hidden_layers", "n_layer"), f.need_int("hidden_size", "n_embd")
    q, kv = shapes.heads(f, ("num_attention_heads", "n_head"))
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    experts = f.optional_int("num_local_experts", "num_experts", "n_routed_experts", low=0, high=65_536) or 0
    m = Mlp(width=f.int_or(4 * hidden, "intermediate_size", "ffn_hidden_size", "n_inner"))
    if experts:
        m = Mlp(experts=experts, top_k=f.int_or(1, "num_experts_per_tok", high=65_536), expert_width=f.int_or(m.width, "moe_intermediate_size"))
    weights = shapes.gqa(hidden, a, f.flag("attention_bias")) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    notes: tuple[Note, ...] = (note("warning", "unverified", field="model_type", model_type=model_type or ""),)
    notes += tuple(note("assumed", "declared_harmless", field=k) for k in sorted(harmless) if k in f.raw)
    vocab = f.need_int("vocab_size")
    doubts = _block_doubt(f, hidden, m, layers) + (() if f.has("tie_word_embeddings") else tie(False, vocab, hidden))
    spec = model(f, (layer,) * layers, hidden=hidden, vocab=vocab, tied_default=False, exact=False, doubts=doubts, notes=notes)
    return replace(spec, verified=False)


def _block_doubt(f: Fields, hidden: int, m: Mlp, layers: int) -> tuple[Doubt, ...]:
    """The feed-forward part may have no gate, some of its layers may be dense, and shared experts may stand beside the routed ones."""
    part = shapes.mlp(hidden, m)
    gates = elements(w for w in part if w.name.endswith(".gate"))
    if not m.experts:
        return (Doubt(code="doubt_generic_block", fewer=layers * gates),)
    width = f.int_or(4 * hidden, "intermediate_size", "ffn_hidden_size", "n_inner")
    dense, routed = 3 * hidden * width, elements(part)
    shared = 3 * hidden * max(f.int_or(0, "shared_expert_intermediate_size", low=0), m.expert_width * f.int_or(0, "n_shared_experts", low=0, high=65_536))
    keys = ("first_k_dense_replace", "mlp_only_layers", "moe_layer_freq", "decoder_sparse_step")
    uneven = any(f.raw.get(k) not in (None, 0, 1, []) for k in keys)
    fewer = max(gates, routed - dense * 2 // 3) if uneven else gates
    more = shared + hidden + m.experts + (max(0, dense - routed) if uneven else 0)
    return (Doubt(code="doubt_generic_block", fewer=layers * fewer, more=layers * more),)


def _plain_decoder_only(f: Fields, model_type: str | None, harmless: Collection[str]) -> None:
    architectures = f.raw.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    for key in _OUTSIDE:
        if f.raw.get(key) is not None:
            raise UnsupportedModel("unknown_key", field=f.name(key), key=key, model_type=model_type or "", value=_short(f.raw[key]))
    if not name.endswith(("ForCausalLM", "LMHeadModel")):
        if not name:
            raise UnsupportedModel("no_architecture", field="architectures", model_type=model_type or "")
        raise UnsupportedModel("not_a_causal_model", field="architectures", model_type=model_type or "", architecture=name)
    if model_type in KEEPS_NO_CACHE:
        raise UnsupportedModel("no_cache_in_class", field="model_type", model_type=model_type)
    for key in NEVER_PLAIN:
        if f.raw.get(key) is not None and key not in harmless:
            raise UnsupportedModel("unknown_key", field=f.name(key), key=key, model_type=model_type or "", value=_short(f.raw[key]))
    for key in ("is_encoder_decoder", "add_cross_attention", "use_sliding_window"):
        if f.raw.get(key) and key not in harmless:
            raise UnsupportedModel("unknown_key", field=f.name(key), key=key, model_type=model_type or "", value=_short(f.raw[key]))
    for key, value in f.raw.items():
        if key in HARMLESS or key in harmless or not _could_matter(value):
            continue
        raise UnsupportedModel("unknown_key", field=f.name(key), key=key[:80], model_type=model_type or "", value=_short(value))


# Words in a key that speak of the cache's shape. A family's reader that leaves such a key unread says so.
_SHAPE_WORDS = re.compile(r"window|pattern|period|interval|kv_lora|compress|kv_head|key_value|kv_shar|shared_kv|types$|block_config|multi_query|cross")


def unread_shape_keys(f: Fields) -> tuple[Note, ...]:
    """A warning for each key that sounds like the cache's shape, has a value that could matter, and was not used."""
    found = [k for k, v in f.unread().items() if k not in HARMLESS and "rope" not in k and _SHAPE_WORDS.search(k) and _could_matter(v)]
    return tuple(note("warning", "unread_shape_key", field=f.name(k)[:120], key=k[:80], value=_short(f.raw[k])) for k in found)


# Keys whose absence a family answers with a rule or a default of its own, as far as the cache depends on them.
_SHAPE_OF_CACHE = re.compile(
    r"head|kv|window|layer|state|conv|mamba|ssm|rank|pattern|period|offset|chunk|compress|index|group|types|expand|interval|repeat|cross|intermediate_size|attention_config|attention_other|k_eq_v"
)
_NOT_OF_CACHE = re.compile(r"norm|bias|moe|expert|lm_head|mlp|dense|shared_inter|drop|gate|sparse_step|tie")


def left_out(f: Fields) -> tuple[Note, ...]:
    """One note that names what the file leaves out of the cache's shape: the family's own rule answers for it."""
    keys = [f.name(k) for k in f.absent if k not in f.raw or f.raw[k] is None]
    keys = [k for k in keys if _SHAPE_OF_CACHE.search(k) and not _NOT_OF_CACHE.search(k)]
    return (note("derived", "left_out", field=keys[0], keys=", ".join(keys)[:400]),) if keys else ()


def _could_matter(value: Any) -> bool:
    if value is None or isinstance(value, str) or value is False:
        return False
    return value is True or isinstance(value, list | dict) or (isinstance(value, int | float) and not 0 <= value <= 1)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

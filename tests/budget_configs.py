"""Public configs, by their shape keys (facts), of models in the start-up logs that the corpus has no file of."""

from __future__ import annotations

from typing import Any

PIXTRAL = {"model_type": "pixtral", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "patch_size": 14, "image_size": 1540,
           "hidden_act": "gelu"}  # fmt: skip
MISTRAL_SMALL: dict[str, Any] = {
    "model_type": "mistral3",
    "architectures": ["Mistral3ForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "spatial_merge_size": 2,
    "text_config": {
        "model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 32_768, "vocab_size": 131_072, "max_position_embeddings": 131_072, "sliding_window": None, "tie_word_embeddings": False,
        "hidden_act": "silu", "rms_norm_eps": 1e-05,
    },
    "vision_config": PIXTRAL,
}  # fmt: skip
W8A8: dict[str, Any] = {
    "quantization_config": {
        "quant_method": "compressed-tensors", "format": "int-quantized",
        "ignore": ["language_model.lm_head", "re:vision_tower.*", "re:multi_modal_projector.*"],
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
                                      "input_activations": {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}}},
    }
}  # fmt: skip
FP8_DYNAMIC: dict[str, Any] = {
    "quantization_config": {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
                                      "input_activations": {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}}},
    }
}  # fmt: skip
GRANITE_VISION: dict[str, Any] = {
    "model_type": "llava_next",
    "architectures": ["LlavaNextForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "granite", "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 8192, "vocab_size": 49_156, "max_position_embeddings": 131_072, "tie_word_embeddings": True, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-05,
    },
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304, "patch_size": 14,
                      "image_size": 384},
}  # fmt: skip
KIMI_VL: dict[str, Any] = {
    "model_type": "kimi_vl",
    "architectures": ["KimiVLForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "deepseek_v3", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 11_264, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 163_840, "max_position_embeddings": 131_072, "tie_word_embeddings": False, "n_group": 1, "topk_group": 1,
        "hidden_act": "silu", "rms_norm_eps": 1e-05,
    },
    "vision_config": {"model_type": "moonvit", "hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304, "patch_size": 14,
                      "merge_kernel_size": [2, 2]},
}  # fmt: skip
# hub id of a log row -> a config of its own here, or (a catalog name, what its file adds)
MODELS: dict[str, dict[str, Any] | tuple[str, dict[str, Any]]] = {
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama-3.1-8B", {}),
    "llama-3-8b (from text)": ("Llama-3.1-8B", {"max_position_embeddings": 8192}),
    "microsoft/phi-4": ("Phi-4", {}),
    "openai/gpt-oss-20b": ("gpt-oss-20b", {}),
    "openai/gpt-oss-120b": ("gpt-oss-120b", {}),
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": ("Llama-3.1-70B", FP8_DYNAMIC),
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": MISTRAL_SMALL,
    "RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8": MISTRAL_SMALL | W8A8,
    "ibm-granite/granite-vision-3.3-2b": GRANITE_VISION,
    "moonshotai/Kimi-VL-A3B-Instruct": KIMI_VL,
}

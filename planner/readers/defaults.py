"""What a family's class fills in where a file leaves a key out: sizes that differ from this project's own rule for the family.

Engines build the model from these too (they load the same class), so a file without the key has them. Published files name their sizes;
cut, drafted and written-by-hand ones may not. (transformers 5.24, each class's own defaults; built on the meta device by a test)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from planner.notes import Note, cite, note
from planner.readers.fields import Fields

T = TypeVar("T")
# Read in place of an absent key, with a note. A null in the file is a value: it stays.
DEFAULTS: dict[str, Mapping[str, Any]] = {
    "afmoe": {"num_shared_experts": 2},
    "audioflamingo3": {"num_key_value_heads": 32},
    "axk1": {"n_shared_experts": 1},
    "axk2": {"n_shared_experts": 1},
    "bailing_hybrid": {"n_shared_experts": 1},
    "bamba": {"num_key_value_heads": 8},
    "chameleon": {"num_key_value_heads": 32},
    "deepseek_v2": {"n_shared_experts": 2},
    "deepseek_v3": {"n_shared_experts": 1, "first_k_dense_replace": 3},
    "deepseek_v32": {"n_shared_experts": 1, "first_k_dense_replace": 3},
    "cohere_compass_text": {"sliding_window": 4096},
    "dory": {"num_key_value_heads": 4},
    "emu3_text_model": {"num_key_value_heads": 8},
    "ernie4_5_moe": {"moe_num_shared_experts": 2},
    "exaone": {"num_key_value_heads": 8},
    "exaone_moe": {"num_shared_experts": 1},
    "falcon_h1": {"num_key_value_heads": 8},
    "flint": {"shared_expert_intermediate_size": 1024},
    "gemma2": {"num_key_value_heads": 4},
    "gemma3n_text": {"num_key_value_heads": 2},
    "gemma4_unified_text": {"sliding_window": 1024},
    "glm4_moe": {"n_shared_experts": 1},
    "glm4_moe_lite": {"n_shared_experts": 1},
    "glm4v": {"num_key_value_heads": 2},
    "glm4v_text": {"num_key_value_heads": 2},
    "glm5_next_text": {"n_shared_experts": 1},
    "glm_moe_dsa": {"n_shared_experts": 1},
    "glm_ocr_text": {"num_key_value_heads": 8},
    "got_ocr2": {"num_key_value_heads": 32},
    "gpt_oss": {"num_key_value_heads": 8},
    "hrm_text": {"head_dim": 128},
    "hy_v3": {"num_shared_experts": 1},
    "hy_v4": {"n_shared_experts": 1},
    "idefics2": {"num_key_value_heads": 8},
    "inkling_text": {"moe_intermediate_size": 3072, "n_shared_experts": 2},
    "internvl": {"num_key_value_heads": 32},
    "jamba": {"num_key_value_heads": 8},
    "kimi_linear": {"num_shared_experts": 1},
    "kolibri1": {"shared_expert_intermediate_size": 512},
    "laguna": {"shared_expert_intermediate_size": 512, "sliding_window": 512},
    "lara_mini": {"num_key_value_heads": 4},
    "lfm2": {"num_key_value_heads": 8},
    "lfm2_moe": {"num_key_value_heads": 8},
    "lfm2_vl": {"num_key_value_heads": 8},
    "lfm3": {"num_key_value_heads": 4, "head_dim": 128},
    "llama4": {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    "longcat_flash": {"zero_expert_num": 256},
    "mellum": {"sliding_window": 1024},
    "minimax": {"num_key_value_heads": 8},
    "minimax_m3_vl_text": {"num_key_value_heads": 4, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mistral3": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mistral4": {"n_shared_experts": 1},
    "mistral_large4_text": {"n_shared_experts": 1},
    "mixtral": {"num_key_value_heads": 8},
    "mllama": {"num_key_value_heads": 8},
    "mllama_text_model": {"num_key_value_heads": 8},
    "muse_spark_text": {"num_key_value_heads": 16},
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128, "moe_shared_expert_intermediate_size": 7688},
    "ovis2": {"num_key_value_heads": 32},
    "phi4_multimodal": {"num_key_value_heads": 8},
    "phimoe": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen2_5_omni": {"num_key_value_heads": 4},
    "qwen2_5_omni_text": {"num_key_value_heads": 4},
    "qwen2_5_omni_thinker": {"num_key_value_heads": 4},
    "qwen2_5_vl": {"num_key_value_heads": 8},
    "qwen2_5_vl_text": {"num_key_value_heads": 8},
    "qwen2_audio": {"num_key_value_heads": 32},
    "qwen2_moe": {"shared_expert_intermediate_size": 5632},
    "qwen2_vl": {"num_key_value_heads": 8},
    "qwen2_vl_text": {"num_key_value_heads": 8},
    "qwen3": {"num_key_value_heads": 32},
    "qwen3_5": {"num_key_value_heads": 4},
    "qwen3_5_moe": {"num_key_value_heads": 2},
    "qwen3_5_moe_text": {"num_key_value_heads": 2},
    "qwen3_5_text": {"num_key_value_heads": 4},
    "qwen3_moe": {"num_key_value_heads": 4, "moe_intermediate_size": 768},
    "qwen3_next": {"num_key_value_heads": 2},
    "qwen3_omni_moe": {"num_key_value_heads": 4},
    "qwen3_omni_moe_text": {"num_key_value_heads": 4},
    "qwen3_omni_moe_thinker": {"num_key_value_heads": 4},
    "qwen3_vl": {"num_key_value_heads": 32},
    "qwen3_vl_moe": {"num_key_value_heads": 16, "moe_intermediate_size": 1408},
    "qwen3_vl_moe_text": {"num_key_value_heads": 16, "moe_intermediate_size": 1408},
    "qwen3_vl_text": {"num_key_value_heads": 32},
    "qwen4_exp_text": {"num_key_value_heads": 2},
    "sarvam_mla": {"n_shared_experts": 1, "first_k_dense_replace": 1},
    "sarvam_moe": {"n_shared_experts": 1, "use_qk_norm": True},
    "solar_open": {"n_shared_experts": 1},
    "stablelm": {"num_key_value_heads": 32},
    "step3p5": {"share_expert_dim": 1280},
    "step3p7": {"share_expert_dim": 1280},
    "switch_transformers": {"num_decoder_layers": 12},
    "voxtral_realtime_text": {"num_key_value_heads": 8},
    "zamba": {"intermediate_size": 14_848},
    "zaya": {"num_key_value_heads": 2},
}

# Keys that published files leave out on purpose, although the class would fill them in: a plain query projection, a draft model without
# experts. The file is read as it stands, and the count of weights is an estimate up to what the class would build.
QUERY_RANK: dict[str, int] = {
    "axk1": 1536, "deepseek_v2": 1536, "deepseek_v3": 1536, "deepseek_v32": 1536, "dots3_note_text": 1024, "glm4_moe_lite": 768, "glm5_next_text": 1536,
    "glm_moe_dsa": 2048, "hy_v4": 1536, "kimi_k2": 1536, "longcat_flash": 1536, "minicpm3": 768, "mistral4": 1024, "youtu": 1536,
}  # fmt: skip
# The key that counts the experts, how many, and the width of one (None: the dense width).
EXPERTS: dict[str, tuple[str, int, int | None]] = {
    "axk1": ("n_routed_experts", 192, 2048),
    "axk2": ("n_routed_experts", 128, 512),
    "bailing_hybrid": ("num_experts", 512, 768),
    "deepseek_v2": ("n_routed_experts", 64, 1407),
    "deepseek_v3": ("n_routed_experts", 256, 2048),
    "deepseek_v32": ("n_routed_experts", 256, 2048),
    "glm4_moe_lite": ("n_routed_experts", 64, 1536),
    "glm_moe_dsa": ("n_routed_experts", 256, 2048),
    "hy_v4": ("n_routed_experts", 256, 768),
    "kimi_k2": ("n_routed_experts", 256, 2048),
    "kimi_linear": ("num_experts", 256, 1024),
    "mistral4": ("n_routed_experts", 128, 2048),
    "mistral_large4_text": ("n_routed_experts", 128, 6144),
    "mixtral": ("num_local_experts", 8, None),
    "qwen3_moe": ("num_experts", 128, 768),
    "qwen3_next": ("num_experts", 512, 512),
    "qwen3_vl_moe": ("num_experts", 60, 1408),
    "qwen3_vl_moe_text": ("num_experts", 60, 1408),
    "sarvam_mla": ("n_routed_experts", 128, 2048),
}

# Other names of the same size: where a file has one of them, nothing is filled in.
_ALIASES: dict[str, tuple[str, ...]] = {
    "head_dim": ("attention_head_dim",),
    "first_k_dense_replace": ("num_dense_layers", "n_dense_layers", "mlp_layer_types"),
    "moe_intermediate_size": ("dense_intermediate_size", "moe_inter_dim"),
    "n_routed_experts": ("num_routed_experts", "num_experts", "num_local_experts"),
    "n_shared_experts": ("num_shared_experts",),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_key_value_heads": ("num_attention_groups",),
    "num_local_experts": ("num_experts",),
    "num_shared_experts": ("n_shared_experts",),
    "q_lora_rank": ("attention_q_lora_dim",),
}


def _of(table: Mapping[str, T], part: Fields, family: str | None) -> T | None:
    """The entry of the part's type (of what holds it, where it names none), else of the family that reads it."""
    holder: Fields | None = part
    while holder is not None and holder.raw.get("model_type") is None:
        holder = holder.parent
    own = str(holder.raw.get("model_type")) if holder else ""
    return table.get(own) or table.get(family or "")


def _absent(part: Fields, key: str) -> bool:
    return key not in part.raw and not any(part.raw.get(a) is not None for a in _ALIASES.get(key, ()))


def filled(part: Fields, family: str | None) -> tuple[Fields, tuple[Note, ...]]:
    """The part with the sizes that its class fills in, and a note for each."""
    missing = {k: v for k, v in (_of(DEFAULTS, part, family) or {}).items() if _absent(part, k)}
    if not missing:
        return part, ()
    source = cite(f"transformers 5.24 models/{family}, class default")
    notes = tuple(note("derived", "class_default", field=part.name(k), value=v, source=source) for k, v in missing.items())
    return part.variant({**missing, **part.raw}), notes


def open_readings(part: Fields, family: str | None) -> Iterator[tuple[str, str, Fields]]:
    """(note, key, the part as the class would read it) for each key that the file leaves out on purpose or by mistake."""
    rank, experts = _of(QUERY_RANK, part, family), _of(EXPERTS, part, family)
    if rank and _absent(part, "q_lora_rank"):
        yield "doubt_query_rank", part.name("q_lora_rank"), _with(part, {"q_lora_rank": rank})
    if experts and _absent(part, experts[0]):
        key, count, width = experts
        sizes = {key: count, "num_experts_per_tok": 1, **({"moe_intermediate_size": width} if width else {})}
        yield "doubt_experts_left_out", part.name(key), _with(part, sizes)


def _with(part: Fields, keys: Mapping[str, Any]) -> Fields:
    return Fields({**keys, **part.raw}, part.path, part.parent)

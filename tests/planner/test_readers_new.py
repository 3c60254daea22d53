"""Families read later: what their rules hang on, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ConfigError, UnsupportedModel, UnsupportedValue
from planner.footprint import measure
from planner.readers import read_config
from planner.readers.refused import DENOISING, PATCHED, PROMPT_KEPT
from planner.scenario import Scenario
from planner.weights import parameters
from tests.conftest import refused, small_configs

CONFIG = dict(small_configs())
LLAMA = CONFIG["llama"]


def size(config: dict[str, Any], engine: str = "architecture", tokens: int = 3000) -> int:
    return measure(read_config(config), None, Scenario(engine=engine, tokens=tokens, sequences=1)).engine_bytes


# One layer of 4 KV heads of 64: 1,024 bytes a token; 3,000 tokens: 3,072,000.
ROW = 3_072_000


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("dory", {"recurrent_kv_cache_mode": "last_loop"}, ROW + 5 * 1024 * 1024),  # layers 2 to 4 keep one cache: 1 full, 5 windows
        ("dory", {"n_recurrent_loops": 3}, 3 * ROW + 9 * 1024 * 1024),
        ("dory", {"layer_types": None, "num_hidden_layers": 6, "n_input_layers": 2, "n_output_layers": 1}, 2 * ROW + 7 * 1024 * 1024),
        ("ouro", {"total_ut_steps": 1}, 4 * ROW),
        ("modernbert_decoder", {"global_attn_every_n_layers": 1}, 8 * 4 * ROW),
        ("modernbert_decoder", {"local_attention": 256}, 3 * 4 * ROW + 5 * 4096 * 128),
        ("plamo3", {"interleaved_sliding_window": None, "sliding_window": [512] * 8}, 8 * 1024 * 512),
        ("hf_olmo", {"n_kv_heads": None}, 8 * 4 * ROW),
        ("hf_olmo", {"n_kv_heads": None, "multi_query_attention": True}, 2 * ROW),  # one head of 16
        ("params_json", {"sliding_window": 1024}, 8 * 1024 * 1024),
        ("params_json", {"n_kv_heads": None}, 2 * 4 * ROW + 6 * 4096 * 1024),
        ("bailing_moe", {"use_sliding_window": True, "max_window_layers": 4, "sliding_window": 1024}, 4 * ROW + 4 * 1024 * 1024),
        ("phi4flash", {"sliding_window": [None, 512, None, 512, None, None, None, None]}, size(CONFIG["phi4flash"])),
        ("muse_glimmer", {"num_hidden_layers": 7, "layer_types": None}, 2 * ROW + 5 * 1024 * 1024),  # layers 2 and 6 full, counted back
    ],
)
def test_the_key_decides(name: str, change: dict[str, Any], expected: int) -> None:
    assert size({**CONFIG[name], **change}) == expected


def test_params_json_is_known_by_its_keys() -> None:
    raw = {k: v for k, v in CONFIG["params_json"].items() if k != "model_type"}
    assert size(raw) == size(CONFIG["params_json"]) == size({**raw, "model_type": "transformer"})
    meta = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "ffn_dim_multiplier": 1.3, "multiple_of": 1024}
    p = parameters(read_config(meta))
    assert (p.total, p.exact) == (8_030_261_248, False)  # Llama 3.1 8B; whether the head is tied stands nowhere in the file
    assert p.total - p.low == 128256 * 4096


def test_mamba_ssm_is_known_by_its_keys() -> None:
    raw = {"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "pad_vocab_size_multiple": 8}
    assert parameters(read_config(raw)).total == 2_768_345_600  # mamba-2.8b
    assert size(raw, "transformers") == 64 * (5120 * 4 * 2 + 5120 * 16 * 4)


def test_grok_2_says_git() -> None:
    grok = {**CONFIG["grok_1"], "model_type": "git", "architectures": ["Grok1ForCausalLM"], "residual_moe": True, "moe_intermediate_size": 512}
    assert size(grok) == size(CONFIG["grok_1"]) == 8 * ROW
    assert parameters(read_config(grok)).total > 8 * 8 * 3 * 1024 * 512 + 8 * 3 * 1024 * 2816


@pytest.mark.parametrize(("alias", "name"), [("btlm", "jais"), ("bailing_moe_v2", "bailing_moe"), ("grok1", "grok_1")])
def test_other_names_of_a_family(alias: str, name: str) -> None:
    assert size({**CONFIG[name], "model_type": alias}) == size(CONFIG[name])


@pytest.mark.parametrize("model_type", sorted(DENOISING | PATCHED | PROMPT_KEPT))
def test_refused_by_nature(model_type: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        read_config({**LLAMA, "model_type": model_type})
    assert caught.value.field == "model_type"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("config", "error", "field"),
    [
        # any family's reader, a key that it does not know
        ({**LLAMA, "kv_lora_rank": 512}, UnsupportedModel, "kv_lora_rank"),
        ({**LLAMA, "per_layer_config": {"3": {"num_key_value_heads": 1}}}, UnsupportedModel, "per_layer_config"),
        ({**CONFIG["qwen3"], "linear_attn_config": {"num_heads": 4}}, UnsupportedModel, "linear_attn_config"),
        ({**CONFIG["gpt2"], "num_key_value_heads": 2}, UnsupportedModel, "num_key_value_heads"),
        ({**CONFIG["mamba"], "attn_layer_indices": [3]}, UnsupportedModel, "attn_layer_indices"),
        ({**CONFIG["deepseek_v3"], "layer_types": ["sliding_attention"] * 8}, UnsupportedModel, "layer_types"),
        # rules of the new families
        ({**CONFIG["dory"], "n_recurrent_layers": 8}, UnsupportedValue, "n_recurrent_layers"),
        ({**CONFIG["dory"], "recurrent_kv_cache_mode": "never"}, UnsupportedValue, "recurrent_kv_cache_mode"),
        ({**CONFIG["phi4flash"], "mb_per_layer": 4}, UnsupportedValue, "mb_per_layer"),
        ({**CONFIG["phi4flash"], "sliding_window": [512] * 8}, UnsupportedValue, "sliding_window"),
        ({**CONFIG["plamo3"], "interleaved_sliding_window": [512]}, UnsupportedValue, "interleaved_sliding_window"),
        ({**CONFIG["grok_1"], "sliding_window_size": 4096}, UnsupportedValue, "sliding_window_size"),
        ({**CONFIG["mamba_ssm"], "attn_layer_idx": [3]}, UnsupportedValue, "attn_layer_idx"),
        ({**CONFIG["params_json"], "sliding_window": [512] * 3}, UnsupportedValue, "sliding_window"),
        ({**CONFIG["params_json"], "nope_layer_interval": 4}, UnsupportedModel, "nope_layer_interval"),
        ({**CONFIG["qwen4_exp"], "indexer_kv_heads": 2}, UnsupportedValue, "indexer_kv_heads"),
        ({**CONFIG["qwen4_exp"], "ple_layer_ids": [4]}, UnsupportedValue, "ple_layer_ids"),
        ({**CONFIG["dots3_note"], "per_layer_config": {"02": {"kv_lora_rank": 64}}}, UnsupportedValue, "per_layer_config"),
        ({**CONFIG["zamba"], "hidden_size": 1}, UnsupportedValue, "num_attention_heads"),
    ],
)  # fmt: skip
def test_refused_with_the_field(config: dict[str, Any], error: type[ConfigError], field: str) -> None:
    with refused(error, field):
        read_config(config)


def test_a_key_that_repeats_what_was_read_is_no_stranger() -> None:
    assert size({**CONFIG["gpt_bigcode"], "num_key_value_heads": 1}) == size(CONFIG["gpt_bigcode"])
    assert size({**CONFIG["deepseek_v32"], "layer_types": ["indexed_attention"] * 8}) == size(CONFIG["deepseek_v32"])


def test_a_windowed_latent_of_its_own_as_transformers_writes_it() -> None:
    published = CONFIG["dots3_note"]
    own = {"num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 256, "kv_lora_rank": 256}
    again = {k: v for k, v in published.items() if not k.startswith("swa_")}
    again["per_layer_config"] = {f"{i:02}": own for i in (2, 3, 4, 6, 7)}
    assert read_config(again).layers == read_config(published).layers


@pytest.mark.parametrize(
    ("name", "key", "own"),
    [
        ("mistral", "sliding_window", 4096),
        ("cohere_compass_text", "sliding_window", 4096),
        ("gemma4_unified_text", "sliding_window", 1024),
        ("laguna", "sliding_window", 512),
        ("mellum", "sliding_window", 1024),
        ("qwen2_moe", "sliding_window", 4096),
        ("qwen2_windowed", "sliding_window", 4096),
        ("llama4", "attention_chunk_size", 8192),
        ("switch_transformers", "num_decoder_layers", 12),
    ],
)
def test_a_size_left_out_is_the_one_of_the_class(name: str, key: str, own: int) -> None:
    """What a file leaves out its class fills in; a null is a value, and stays."""
    config = CONFIG[name]
    part = config.get("text_config", config)

    def with_part(change: dict[str, Any]) -> dict[str, Any]:
        inner = {k: v for k, v in {**part, **change}.items() if v != "left out"}
        return {**config, "text_config": inner} if "text_config" in config else inner

    left_out = with_part({key: "left out"})
    assert size(left_out, "transformers", 9000) == size(with_part({key: own}), "transformers", 9000)
    assert size(left_out, "transformers", 9000) != size(with_part({key: own // 2}), "transformers", 9000)
    assert any(n.code == "class_default" and n.field.endswith(key) for n in read_config(left_out).notes)
    if key == "sliding_window":
        assert size(with_part({key: None}), "transformers", 9000) > size(left_out, "transformers", 9000)


def test_names_of_layer_types_that_older_releases_wrote() -> None:
    """transformers renamed its types of layers; files keep the old names (GLM-5.2 as NVIDIA publishes it)."""
    glm, qwen = CONFIG["glm_moe_dsa"], CONFIG["qwen4_exp"]
    layers = glm["num_hidden_layers"]
    for old in ("deepseek_sparse_attention", "indexed_attention"):
        assert read_config({**glm, "layer_types": [old] * layers}).layers == read_config(glm).layers
    for other in ("sliding_attention", "mamba"):
        with refused(UnsupportedModel, "layer_types"):
            read_config({**glm, "layer_types": [other] * layers})
    part = qwen.get("text_config", qwen)
    full = [i % 4 == 3 for i in range(part["num_hidden_layers"])]

    def with_types(indexed: str) -> dict[str, Any]:
        inner = {**part, "layer_types": [indexed if x else "linear_attention" for x in full]}
        return {**qwen, "text_config": inner} if "text_config" in qwen else inner

    assert read_config(with_types("qwen_sparse_attention")).layers == read_config(with_types("indexed_attention")).layers


def test_a_text_part_is_known_by_its_type_its_class_or_what_holds_it() -> None:
    bare = {k: v for k, v in CONFIG["qwen3"].items() if k not in ("model_type", "architectures")}
    whole = {"model_type": "novel_vl", "architectures": ["NovelForConditionalGeneration"]}
    same = read_config(CONFIG["qwen3"]).layers
    for known_by in ({"model_type": "qwen3_text"}, {"architectures": ["Qwen3ForCausalLM"]}, {"model_type": "novel", "architectures": ["Qwen3ForCausalLM"]}):
        assert read_config({**whole, "text_config": {**bare, **known_by}}).layers == same
    for unknown in ({}, {"architectures": ["NovelForCausalLM"]}, {"model_type": "novel_text"}):
        with refused(UnsupportedModel, "text_config.model_type"):
            read_config({**whole, "text_config": {**bare, **unknown}})
    assert read_config({**bare, "architectures": ["Qwen3ForCausalLM"]}).layers == same
    exaone = CONFIG["exaone4"]
    published = {"model_type": "exaone4_5", "text_config": {**exaone, "model_type": "exaone4_5_text"}, "tie_word_embeddings": False}
    assert read_config(published).layers == read_config(exaone).layers
    m3 = CONFIG["minimax_m3"]
    inner = {k: v for k, v in m3.items() if k not in ("model_type", "architectures")}
    assert read_config({"model_type": "minimax_m3_vl", "text_config": inner}).layers == read_config(m3).layers


def test_kimi_k3_narrows_its_experts_and_leaves_gates_open() -> None:
    kimi = CONFIG["kimi_linear"]
    p, narrow = parameters(read_config(kimi)), kimi["hidden_size"] // 2
    changed = parameters(read_config({**kimi, "routed_expert_hidden_size": narrow, "latent_moe_use_norm": True}))
    spec = read_config(kimi)
    with_experts = [layer.mlp for layer in spec.layers if layer.mlp is not None and layer.mlp.experts]
    saved = sum(m.experts * 3 * narrow * m.expert_width - 2 * narrow * kimi["hidden_size"] - narrow for m in with_experts)
    assert with_experts
    assert (p.total - changed.total, changed.exact) == (saved, p.exact)
    gates = {"mla_use_output_gate": True, "attn_res_block_size": 2, "linear_attn_config": {**kimi["linear_attn_config"], "use_full_rank_gate": True}}
    opened = read_config({**kimi, **gates})
    q = parameters(opened)
    assert (q.total, q.exact, q.low) == (p.total, False, p.low)
    assert q.high > p.high
    assert opened.layers == spec.layers
    assert {n.field for n in opened.notes if n.code == "doubt_open_parts"} == {
        "mla_use_output_gate", "attn_res_block_size", "linear_attn_config.use_full_rank_gate",
    }  # fmt: skip

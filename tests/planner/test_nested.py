"""Nested files and encoder-decoders: which section is read, what a request's encoder adds, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ConfigError, MissingField, UnsupportedModel, UnsupportedValue
from planner.footprint import Footprint, measure
from planner.readers import read_config
from planner.readers.nested import CLASS_DEFAULTS
from planner.scenario import Scenario
from planner.weights import parameters
from tests.conftest import refused, small_configs

CONFIG = dict(small_configs())
LLAMA = CONFIG["llama"]


def foot(config: dict[str, Any], **choices: Any) -> Footprint:
    return measure(read_config(config), None, Scenario(**{"engine": "transformers", "tokens": 3000, "sequences": 1, **choices}))


@pytest.mark.parametrize(
    ("name", "layers", "row", "source_tokens"),
    [
        ("bart", 6, 2048, 700),
        ("t5", 6, 2048, 700),
        ("marian", 6, 2048, 700),
        ("prophetnet", 6, 2048, 700),
        ("trocr", 6, 1024, 700),
        ("musicgen_decoder", 6, 2048, 700),
        ("mllama", 2, 1024, 700),  # image rows on two layers, of 4 KV heads x 64
        ("whisper", 6, 2048, 1500),  # fixed: the request's own length does not count
    ],
)
@pytest.mark.parametrize("engine", ["architecture", "transformers"])
def test_encoder_tokens_are_kept_once_a_sequence_inside_the_engine_bytes(name: str, layers: int, row: int, source_tokens: int, engine: str) -> None:
    f = foot(CONFIG[name], engine=engine, encoder_tokens=700, sequences=3)
    assert f.cross_bytes_per_encoder_token == layers * row
    assert f.cross_bytes == 3 * layers * row * source_tokens
    assert f.engine_bytes - f.cross_bytes == 3 * 6 * row * 3000


def test_without_encoder_tokens_only_a_fixed_length_counts() -> None:
    assert foot(CONFIG["bart"]).cross_bytes == 0
    assert foot(CONFIG["whisper"]).cross_bytes == 6 * 2048 * 1500


def test_a_decoder_as_deep_as_its_encoder_where_the_file_gives_it_no_depth() -> None:
    config = {**CONFIG["t5"]}
    del config["num_decoder_layers"]
    assert len(read_config(config).layers) == 4
    assert len(read_config(CONFIG["t5"]).layers) == 6


def test_defaults_of_the_text_class_are_notes_and_never_silent() -> None:
    spec = read_config(CONFIG["llava_nested"])
    noted = {n.field for n in spec.notes if n.code == "class_default"}
    missing = set(CLASS_DEFAULTS["llama"]) - set(CONFIG["llava_nested"]["text_config"])
    assert noted == {f"text_config.{k}" for k in missing} != set()


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_the_section_counts_and_not_the_numbers_beside_it(section: str) -> None:
    config = {"model_type": "some_vlm", "num_hidden_layers": 77, "hidden_size": 9, section: LLAMA}
    assert len(read_config(config).layers) == 8


def test_the_language_part_has_the_weights_of_the_same_model_alone() -> None:
    assert parameters(read_config(CONFIG["llava"])) == parameters(read_config(LLAMA))
    assert "language_part" not in {n.code for n in read_config(LLAMA).notes}


def test_a_decoder_of_another_family_keeps_the_encoders_keys_and_values_too() -> None:
    gpt2 = {k: v for k, v in CONFIG["gpt2"].items() if k != "architectures"}
    for said in ({"add_cross_attention": True}, {}):
        f = foot({"model_type": "vision-encoder-decoder", "decoder": {**gpt2, **said}, "encoder": {}}, encoder_tokens=700)
        assert f.cross_bytes == 8 * 2 * 16 * 64 * 2 * 700
        assert f.engine_bytes == 98_304_000 + f.cross_bytes


def test_mbart_inside_a_composite_brings_no_encoder_of_its_own() -> None:
    alone, inside = CONFIG["mbart"], {"model_type": "vision-encoder-decoder", "decoder": CONFIG["mbart"], "encoder": {}}
    assert read_config(inside).layers == read_config(alone).layers
    assert parameters(read_config(inside)).total < parameters(read_config(alone)).total


def test_encoder_weights_are_counted_and_stand_with_the_first_stage() -> None:
    # by hand at width 512: one shared embedding, two tables of positions with 2 rows more, an encoder of 4 layers, a decoder of 6
    def attention(d: int) -> int:
        return 4 * (d * d + d)

    d, total = 512, 32000 * 512 + 2 * 1026 * 512
    total += 4 * (attention(d) + 2 * d * 1024 + 1024 + d + 4 * d) + 2 * d
    total += 6 * (2 * attention(d) + 2 * d * 2048 + 2048 + d + 6 * d) + 2 * d
    assert parameters(read_config(CONFIG["bart"])).total == total


@pytest.mark.parametrize(
    ("config", "error", "field"),
    [
        ({**CONFIG["t5"], "architectures": ["T5EncoderModel"]}, UnsupportedModel, "architectures"),
        ({**CONFIG["llava"], "architectures": ["LlavaNovelForCausalLM"]}, UnsupportedValue, "architectures"),
        ({**CONFIG["minicpmv"], "version": 9.9}, UnsupportedValue, "version"),
        ({**CONFIG["minicpmo"], "version": "3"}, UnsupportedValue, "version"),
        ({**CONFIG["mllama"], "text_config": {**CONFIG["mllama"]["text_config"], "cross_attention_layers": [3, 8]}}, UnsupportedValue,
         "text_config.cross_attention_layers"),
        ({**CONFIG["mllama"], "text_config": {**CONFIG["mllama"]["text_config"], "cross_attention_layers": None}}, UnsupportedValue,
         "text_config.cross_attention_layers"),
        ({"model_type": "vision-encoder-decoder", "encoder": {}}, UnsupportedValue, "decoder"),
        ({"model_type": "vision-encoder-decoder", "decoder": {"model_type": "novel"}}, UnsupportedModel, "decoder.model_type"),
        ({"model_type": "llava", "text_config": {"model_type": "novel"}}, UnsupportedModel, "text_config.model_type"),
        ({"model_type": "qwen3_vl"}, UnsupportedValue, "text_config"),
        ({**CONFIG["bart"], "decoder_attention_heads": 7}, UnsupportedValue, "decoder_attention_heads"),
    ],
)  # fmt: skip
def test_refused_with_the_field(config: dict[str, Any], error: type[ConfigError], field: str) -> None:
    with refused(error, field):
        read_config(config)


def test_a_flat_familys_file_may_hold_its_text_part_alone() -> None:
    """Step-3.7 is published flat; transformers writes it with everything in `text_config`."""
    flat = CONFIG["step3p7"]
    section = {**flat, "model_type": "step3p5"}
    assert read_config({"model_type": "step3p7", "text_config": section}).layers == read_config(flat).layers
    beside = {**flat, "text_config": {**section, "num_hidden_layers": 1}}  # its own layers stand beside the section: they count
    assert len(read_config(beside).layers) == flat["num_hidden_layers"]


def test_a_whole_class_lays_its_own_sizes_under_its_text_part() -> None:
    """Voxtral-Mini's text part is the class's own, whatever of it a file leaves out; a bare Llama says everything."""
    spec = read_config({"model_type": "voxtral", "text_config": {"model_type": "llama"}})
    first = spec.layers[0].attention
    assert first is not None
    assert (len(spec.layers), first.kv_heads, first.qk_dim, spec.hidden_size) == (30, 8, 128, 3072)
    assert sum(n.code == "class_default" for n in spec.notes) >= 8
    with refused(MissingField, "num_hidden_layers"):
        read_config({"model_type": "llama"})

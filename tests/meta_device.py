"""The models that transformers builds on torch's meta device, counted: what the readers' weights are compared with.

transformers is a test-only dependency (requirements-dev.txt). Nothing is downloaded and nothing is allocated: a meta tensor has a shape only.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

Config = dict[str, Any]
TEXT = ("text_config", "thinker_config", "decoder")
# A text part whose class has no head of its own is built inside the whole model that has one.
WHOLE = {"step3p5": "step3p7", "mllama_text_model": "mllama"}  # others: without "_text"
# Composite types whose flat files are of remote code or of a third party: the class reads the same keys below text_config only.
FLATTENED = ("llava", "step3p7")
CLASSES = {"musicgen_melody_decoder": "MusicgenMelodyForCausalLM"}  # in no table of the library
# What a class wants beside the file's shape keys, or in another form.
ADAPTED: dict[str, Config] = {
    "exaone4": {"sliding_window_pattern": 4},
    "inkling2_loop_text": {"n_layers_per_attn_res_block": 2},
    "qwen2_audio": {"audio_config": {"encoder_attention_heads": 6, "d_model": 384}},
}
EXPERTS = re.compile(r"(^|\.)(experts\.|block_sparse_moe\.(input|output)_linear\.|moe\.(input|output)_linear\.)|\.mlp\.(input|output)_linear\.")
# What sees and hears in a composite model. Then further tables, and what brings them to the width of the layers.
OTHER_SENSES = re.compile(
    r"vision(?!_moe)|visual|vqmodel|image|audio|multi_modal|projector|resampler|perceiver|connector|embed_tokens_extend|talker|token2wav|"
    r"^enc_to_dec_proj"
)
BESIDE = re.compile(
    r"(token|task)_type_embed|embeddings_project|embedding_hidden|project_in|(pronunciation|shape)_embed|map_inputs|embed_tokens_per_layer|"
    r"per_layer_model_projection|altup_.*projections|(^|\.)new_embedding|coder\.embed_tokens"
)
ONE_BY_ONE = re.compile(r"experts\.(expert_)?\d+\.|ffn\.experts\.mlp\.")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts", "top_k")

TOP_K_OF_CLASS = {"nllb-moe": 2, "switch_transformers": 1}  # written into the routers of the classes


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Elements of the language part of a built model, tied weights once. `whole`: with the encoders beside it."""

    whole: int
    total: int
    embedding: int
    routed_experts: int
    used_experts: int


def load() -> SimpleNamespace:
    """transformers and torch, imported when a test needs them. Without them a skip that says so, or a failure where nothing may be skipped."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
            import transformers
            from transformers.models.auto import modeling_auto as auto
            from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as e:
        reason = f"transformers is not installed (pip install -r requirements-dev.txt): {e.name}"
        if os.environ.get("KVLEDGER_REQUIRE_CORPUS"):
            pytest.fail(reason)
        pytest.skip(reason)
    transformers.logging.set_verbosity_error()
    maps = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, auto.MODEL_FOR_CAUSAL_LM_MAPPING,
            auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING)  # fmt: skip
    return SimpleNamespace(torch=torch, transformers=transformers, configs=CONFIG_MAPPING, maps=maps)


def known(hf: SimpleNamespace, raw: Config) -> bool:
    """Whether transformers has the type, and reads such a file."""
    return raw.get("model_type") in hf.configs and not (raw["model_type"] in FLATTENED and "text_config" not in raw)


def section(raw: Config) -> Config:
    """The innermost section that describes the language model."""
    inner = next((raw[k] for k in TEXT if isinstance(raw.get(k), dict)), None)
    return raw if inner is None else section(inner)


def config(hf: SimpleNamespace, raw: Config) -> Any:
    """transformers' config of a file, inside that of a whole model where the text part has no class of its own."""
    raw = copy.deepcopy(raw)
    for part in (raw, *(v for v in raw.values() if isinstance(v, dict) and "vocab_size" in v)):
        part.setdefault("pad_token_id", 0)  # the classes' own may lie beyond a small vocabulary
    raw |= {k: {**raw.get(k, {}), **v} if isinstance(v, dict) else v for k, v in ADAPTED.get(raw["model_type"], {}).items()}
    if "thinker_config" in raw:
        raw = {"model_type": "qwen2_5_omni_thinker", **raw["thinker_config"]}
    whole = WHOLE.get(raw["model_type"], raw["model_type"].removesuffix("_text"))
    if whole != raw["model_type"] and whole in hf.configs and not any(hf.configs[raw["model_type"]] in m for m in hf.maps):
        raw = {"model_type": whole, "text_config": raw, "pad_token_id": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hf.configs[raw["model_type"]].from_dict(raw)


def build(hf: SimpleNamespace, raw: Config) -> Any:
    """The model of a raw config, by the class that it names, else by the class that transformers uses for its type."""
    found = config(hf, raw)
    named = getattr(hf.transformers, (raw.get("architectures") or [CLASSES.get(raw["model_type"], "")])[0], None)
    if named is None or named.config_class is not type(found):
        named = next((m[type(found)] for m in hf.maps if type(found) in m), None)
    model_class = named[0] if isinstance(named, tuple) else named
    assert model_class is not None, f"no class for {raw['model_type']}"
    with warnings.catch_warnings(), hf.torch.device("meta"), _nothing_drawn(hf.torch):
        warnings.simplefilter("ignore")
        return model_class(found)


def class_default(hf: SimpleNamespace, model_type: str, key: str) -> Any:
    """What the config class of a type's language part has under `key` when a file says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = type(hf.configs[model_type]().get_text_config())
    names = (key, own.attribute_map.get(key, ""), *(a for a, b in own.attribute_map.items() if b == key))
    return next((v for n in names if not isinstance(v := getattr(own, n, None), property | None)), None)


def built(hf: SimpleNamespace, raw: Config) -> tuple[Counts | None, str]:
    """The counts of the built model, or the words with which transformers refuses to build it."""
    try:
        return counts(build(hf, raw)), ""
    except Exception as e:  # whatever a class raises for sizes that do not fit each other
        return None, f"{type(e).__name__}: {e}"


def _tables(model: Any) -> list[Any]:
    """The modules that embed tokens."""
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return [m for n, m in model.named_modules() if type(m).__name__ == "Embedding"]
    return [table] if hasattr(table, "weight") else list(table)


@contextlib.contextmanager
def _nothing_drawn(torch: Any) -> Iterator[None]:
    """torch's layers draw random numbers when they are made, which takes half of the time and means nothing for a shape."""
    drawn = ("kaiming_uniform_", "uniform_", "normal_")
    kept = {name: getattr(torch.nn.init, name) for name in drawn}
    try:
        for name in drawn:
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for name, function in kept.items():
            setattr(torch.nn.init, name, function)


def counts(model: Any) -> Counts:
    """Elements by the names of the built model's own parameters."""
    parameters = dict(model.named_parameters())  # each tensor once, however many modules share it
    beside = "encoder." if type(model.config).__name__ in ("VisionEncoderDecoderConfig", "Pix2StructConfig") else "-"
    sizes = {n: p.numel() for n, p in parameters.items() if not OTHER_SENSES.search(n) and not n.startswith(beside)}
    routed = {n: size for n, size in sizes.items() if EXPERTS.search(n) and not re.search("shared|self_attention|norm", n)}
    text = model.config.get_text_config()
    text = getattr(text, "ffn_config", None) or text  # DBRX
    top_k = TOP_K_OF_CLASS.get(text.model_type) or next((k for key in TOP_K if isinstance(k := getattr(text, key, None), int)), 0)
    inside = [getattr(text, key, None) for key in ("moe_num_experts", "num_experts")]  # for experts that are modules of their own, or one flat matrix
    flat = next((n for n in inside if isinstance(n, int)), 0)
    used = sum(size * top_k // (flat if ONE_BY_ONE.search(n) else parameters[n].shape[0]) for n, size in routed.items())
    tables = _tables(model)
    own = {id(t.weight) for t in tables}
    embedding = sum(t.weight.numel() for t in tables) + sum(size for n, size in sizes.items() if BESIDE.search(n) and id(parameters[n]) not in own)
    return Counts(whole=sum(p.numel() for p in parameters.values()), total=sum(sizes.values()), embedding=embedding, routed_experts=sum(routed.values()),
                  used_experts=used)  # fmt: skip


# -- the same file with a size doubled ---------------------------------------------------------------------------------------------

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "num_encoder_layers", "encoder_layers", "decoder_layers")
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
HIDDEN = ("hidden_size", "n_embd", "d_model")
# Lists that name layers, and not one value a layer: the second half of the doubled stack repeats the first.
NAMED_LAYERS = ("attn_layer_indices", "cross_attention_layers", "full_attn_idxs", "full_attn_layers", "hybrid_layer_ids", "kda_layers", "kv_source_layers",
                "local_layer_ids", "mlp_only_layers", "moe_layers", "moe_layers_enum")  # fmt: skip
PATTERNS = ("hybrid_override_pattern", "index_topk_pattern", "layers_block_type")


def doubled(raw: Config, keys: tuple[str, ...]) -> Config | None:
    """The file with these sizes of its language part twice as large; None where it has none of them."""
    raw = copy.deepcopy(raw)
    parts = [section(raw), *(v for v in section(raw).values() if isinstance(v, dict) and keys == EXPERT_COUNTS)]
    found = False
    for part in parts:
        for key in keys:
            if isinstance(part.get(key), int) and part[key] > 1:
                part[key] *= 2
                found = True
    return raw if found else None


def twice_the_layers(raw: Config) -> Config | None:
    """Twice as many layers, the second half like the first."""
    out = doubled(raw, LAYERS)
    if out is None:
        return None
    part = section(raw)
    depth = next(part[k] for k in LAYERS if part.get(k))
    for inner in (section(out), *(v for v in section(out).values() if isinstance(v, dict))):
        for key, value in inner.items():
            if key in NAMED_LAYERS:
                inner[key] = _renumbered(value, depth)
            elif key == "attention_types":  # GPT-Neo: [[["global", "local"], how often]]
                inner[key] = [[kinds, 2 * n] for kinds, n in value]
            elif (isinstance(value, list) and len(value) >= depth) or (isinstance(value, str) and key in PATTERNS):
                inner[key] = value[:depth] * 2 + value[depth:]
    return out


def _renumbered(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return ",".join(map(str, _renumbered([int(x) for x in value.split(",")], depth)))
    return [*value, *(i + depth for i in value)]

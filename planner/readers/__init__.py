"""config.json -> ModelSpec. One literal table from model_type to a small reader; everything else goes through the allow-list reader.

Raw JSON only: no AutoConfig, never remote code. To add a family: a config in tests/configs, an expectation, a row here, and a reader
only where the shape is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from planner.errors import NotAConfig
from planner.model import ModelSpec
from planner.notes import note
from planner.readers.drafts import draft_layers
from planner.readers.fields import Fields
from planner.readers.generic import generic, left_out, unread_shape_keys
from planner.readers.nested import language_part, tie_is_open, with_cross

Reader = Callable[[Fields], ModelSpec]

TABLE: dict[str, str] = {
    "RefinedWeb": "remote.refined_web",
    "RefinedWebModel": "remote.refined_web",
    "Yi": "remote.llama_like",
    "afmoe": "sparse.afmoe",
    "apertus": "dense.apertus",
    "apertus1p5_text": "dense.apertus1p5",
    "aquila": "remote.llama_like",
    "arcee": "dense.arcee",
    "aria_text": "vlm.aria",
    "axk1": "deepseek.axk1",
    "axk2": "latent.axk2",
    "baichuan": "remote.baichuan",
    "bailing_hybrid": "kda.bailing_hybrid",
    "bamba": "hybrid.bamba",
    "bart": "encoder_decoder.bart",
    "bert": "encoders.bert",
    "bert-generation": "encoders.bert_generation",
    "bigbird_pegasus": "encoder_decoder.bigbird_pegasus",
    "biogpt": "legacy.biogpt",
    "bitnet": "dense.bitnet",
    "blenderbot": "encoder_decoder.blenderbot",
    "blenderbot-small": "encoder_decoder.blenderbot_small",
    "bloom": "gpt.bloom",
    "camembert": "encoders.bert",
    "chatglm": "remote.chatglm",
    "codegen": "legacy.gptj",
    "codeshell": "remote.codeshell",
    "cohere": "dense.cohere",
    "cohere2": "dense.cohere2",
    "cohere2_moe": "sparse.cohere2_moe",
    "ctrl": "legacy.ctrl",
    "cwm": "dense.cwm",
    "data2vec-text": "encoders.bert",
    "dbrx": "legacy.dbrx",
    "deci": "uneven.deci",
    "deepseek": "remote.deepseek_v1",
    "deepseek_ref": "reference.reference",
    "deepseek_v2": "deepseek.deepseek",
    "deepseek_v3": "deepseek.deepseek",
    "deepseek_v32": "deepseek.deepseek_v32",
    "deepseek_v4": "compressed.deepseek_v4",
    "diffllama": "dense.diffllama",
    "doge": "dense.doge",
    "dots1": "sparse.dots1",
    "electra": "encoders.electra",
    "ernie": "encoders.bert",
    "ernie4_5": "dense.ernie4_5",
    "ernie4_5_moe": "sparse.ernie4_5_moe",
    "exaone": "dense.exaone",
    "exaone4": "dense.exaone4",
    "exaone_moe": "sparse.exaone_moe",
    "falcon": "gpt.falcon",
    "falcon_h1": "hybrid.falcon_h1",
    "falcon_mamba": "mamba.mamba",
    "falcon_perception": "vlm.falcon_perception",
    "flex_olmo": "sparse.flex_olmo",
    "flint": "sparse.flint",
    "gemma": "gemma.gemma",
    "gemma2": "gemma.gemma2",
    "gemma3_text": "gemma.gemma3",
    "gemma3n_text": "gemma_new.gemma3n",
    "gemma4_text": "gemma_new.gemma4",
    "gemma4_unified_text": "gemma_new.gemma4_unified",
    "git": "vlm.git",
    "gla": "recurrent.gla",
    "glm": "dense.glm",
    "glm4": "dense.glm4",
    "glm4_moe": "sparse.glm4_moe",
    "glm4_moe_lite": "deepseek.glm4_moe_lite",
    "glm4v_text": "vlm.glm4v",
    "glm_moe_dsa": "deepseek.glm_moe_dsa",
    "gpt-sw3": "gpt.gpt2",
    "gpt2": "gpt.gpt2",
    "gpt_bigcode": "gpt.gpt_bigcode",
    "gpt_neo": "legacy.gpt_neo",
    "gpt_neox": "gpt.gpt_neox",
    "gpt_neox_japanese": "legacy.gpt_neox_japanese",
    "gpt_oss": "moe.gpt_oss",
    "gptj": "legacy.gptj",
    "granite": "dense.granite",
    "granite_swa": "dense.granite_swa",
    "granitemoe": "sparse.granitemoe",
    "granitemoe_swa": "sparse.granitemoe_swa",
    "granitemoehybrid": "hybrid.granite_hybrid",
    "granitemoeshared": "sparse.granitemoeshared",
    "helium": "dense.helium",
    "hrm_text": "shortconv.hrm_text",
    "hunyuan": "remote.hunyuan_moe",
    "hunyuan_v1_dense": "dense.hunyuan_dense",
    "hunyuan_v1_moe": "remote.hunyuan_moe",
    "hy_v3": "sparse.hy_v3",
    "hy_v4": "latent.hy_v4",
    "hyperclovax": "dense.hyperclovax",
    "inkling2_loop_text": "shortconv.inkling_loop",
    "inkling2_text": "shortconv.inkling",
    "inkling_text": "shortconv.inkling",
    "internlm": "remote.internlm",
    "internlm2": "remote.internlm2",
    "internlm3": "dense.internlm3",
    "iquestcoder": "dense.iquestcoder",
    "jais2": "dense.jais2",
    "jamba": "hybrid.jamba",
    "jetmoe": "legacy.jetmoe",
    "kimi_k2": "deepseek.deepseek",
    "kimi_linear": "kda.kimi_linear",
    "kolibri1": "sparse.kolibri1",
    "kvledger_layers": "described.described",
    "laguna": "sparse.laguna",
    "lfm2": "lfm.lfm2",
    "lfm2_moe": "lfm.lfm2_moe",
    "lfm3": "lfm.lfm3",
    "llama": "llama.llama",
    "llama4_text": "moe.llama4",
    "llava": "vlm.llava",
    "longcat_flash": "latent.longcat_flash",
    "longt5": "t5.longt5",
    "m2m_100": "encoder_decoder.m2m_100",
    "mamba": "mamba.mamba",
    "mamba2": "mamba.mamba2",
    "marian": "encoder_decoder.marian",
    "mbart": "encoder_decoder.mbart",
    "megatron-bert": "encoders.xlm_roberta_xl",
    "mellum": "sparse.mellum",
    "mimo": "dense.mimo",
    "mimo_v2_flash": "two_heads.mimo_v2",
    "minicpm": "remote.minicpm",
    "minicpm3": "deepseek.minicpm3",
    "minicpmo": "vlm.minicpmo",
    "minicpmv": "vlm.minicpmv",
    "minimax": "minimax.minimax",
    "minimax_m1": "minimax.minimax",
    "minimax_m2": "sparse.minimax_m2",
    "minimax_m3": "minimax.minimax_m3",
    "minimax_m3_vl_text": "minimax.minimax_m3",
    "minimax_text_01": "minimax.minimax",
    "ministral": "dense.ministral",
    "ministral3": "dense.ministral3",
    "mistral": "llama.mistral",
    "mistral4": "deepseek.mistral4",
    "mistral_large4_text": "latent.mistral_large4",
    "mixtral": "llama.mixtral",
    "mllama_text_model": "vlm.mllama",
    "moshi": "vlm.moshi",
    "mpt": "legacy.mpt",
    "mt5": "t5.mt5",
    "musicgen_decoder": "t5.musicgen_decoder",
    "mvp": "encoder_decoder.bart",
    "nanochat": "dense.nanochat",
    "nemotron": "dense.nemotron",
    "nemotron-nas": "uneven.nemotron_nas",
    "nemotron_h": "hybrid.nemotron_h",
    "olmo": "dense.olmo",
    "olmo2": "dense.olmo2",
    "olmo3": "dense.olmo3",
    "olmo_hybrid": "delta.olmo_hybrid",
    "olmoe": "sparse.olmoe",
    "openelm": "uneven.openelm",
    "opt": "gpt.opt",
    "orion": "remote.orion",
    "pangu_ultra_moe": "deepseek.pangu_ultra_moe",
    "pegasus": "encoder_decoder.pegasus",
    "persimmon": "dense.persimmon",
    "phi": "dense.phi",
    "phi-msft": "remote.phi_msft",
    "phi3": "llama.phi3",
    "phi3small": "remote.phi3small",
    "phi4_multimodal": "vlm.phi4mm",
    "phi4mm": "vlm.phi4mm",
    "phimoe": "sparse.phimoe",
    "plbart": "encoder_decoder.bart",
    "prophetnet": "t5.prophetnet",
    "qwen": "remote.qwen",
    "qwen2": "llama.qwen2",
    "qwen2_moe": "sparse.qwen2_moe",
    "qwen3": "llama.qwen3",
    "qwen3_5_moe_text": "delta.qwen3_5_moe",
    "qwen3_5_text": "delta.qwen3_5",
    "qwen3_moe": "llama.qwen3_moe",
    "qwen3_next": "delta.qwen3_next",
    "recurrent_gemma": "recurrent.recurrent_gemma",
    "rembert": "encoders.rembert",
    "roberta": "encoders.bert",
    "roberta-prelayernorm": "encoders.prelayernorm",
    "roc_bert": "encoders.roc_bert",
    "roformer": "encoders.roformer",
    "rwkv": "recurrent.rwkv",
    "rwkv5": "recurrent.rwkv5",
    "rwkv6": "recurrent.rwkv5",
    "sarvam_mla": "deepseek.deepseek",
    "sarvam_moe": "sparse.glm4_moe",
    "seed_oss": "dense.seed_oss",
    "skywork": "remote.llama_like",
    "smollm3": "dense.smollm3",
    "solar": "remote.llama_like",
    "solar_open": "sparse.solar_open",
    "speech_to_text": "encoder_decoder.speech_to_text",
    "stablelm": "dense.stablelm",
    "stablelm_epoch": "dense.stablelm",
    "starcoder2": "dense.starcoder2",
    "step3p5": "two_heads.step3",
    "step3p7": "two_heads.step3",
    "t5": "t5.t5",
    "telechat": "remote.telechat",
    "trocr": "encoder_decoder.trocr",
    "umt5": "t5.umt5",
    "vaultgemma": "gemma_new.vaultgemma",
    "whisper": "encoder_decoder.whisper",
    "xglm": "legacy.xglm",
    "xlm-roberta": "encoders.bert",
    "xlm-roberta-xl": "encoders.xlm_roberta_xl",
    "xlstm": "recurrent.xlstm",
    "xverse": "remote.xverse",
    "youtu": "deepseek.youtu",
    "zamba": "zamba.zamba",
    "zamba2": "zamba.zamba2",
    "zaya": "shortconv.zaya",
}


class _Readers(Mapping[str, Reader]):
    """TABLE with each row's function, its module imported when it is first asked for: one config needs one module of thirty."""

    def __getitem__(self, model_type: str) -> Reader:
        module, function = TABLE[model_type].split(".")
        found: Reader = getattr(import_module(f"planner.readers.{module}"), function)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(TABLE)

    def __len__(self) -> int:
        return len(TABLE)

    def __contains__(self, model_type: object) -> bool:
        return model_type in TABLE


READERS = _Readers()

# Files without a model_type: the class that they name -> type.
ARCHITECTURES = {
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "MiniCPM3ForCausalLM": "minicpm3",
}


def read_config(raw: dict[str, Any], name: str = "", *, harmless: Collection[str] = ()) -> ModelSpec:
    """The model that a raw config describes. `harmless`: keys that the user declares free of influence on the cache (allow-list
    reader only; each becomes an `assumed` note). Raises ConfigError subclasses naming the key."""
    if not isinstance(raw, dict):
        raise NotAConfig("not_an_object", found=type(raw).__name__)
    top = Fields(raw)
    model_type = top.text("model_type") or dialect_of(raw)
    part, inner_type, read_notes = language_part(top, model_type, READERS)
    reader = READERS.get(inner_type or "")
    spec = reader(part) if reader else generic(part, inner_type, frozenset(harmless))
    spec = with_cross(spec, part, model_type)
    drafts = draft_layers(part, spec)
    notes = read_notes + spec.notes + left_out(part) + (unread_shape_keys(part) if reader else ())
    if part is not top or inner_type != model_type:
        notes = (note("info", "language_part", field=part.path or "model_type", model_type=model_type or "", part=inner_type or ""), *notes)
    exact = spec.parameters_exact and not tie_is_open(top, part, model_type)
    return replace(spec, name=name or spec.name or model_type or "model", notes=notes, parameters_exact=exact, draft_layers=drafts)


def dialect_of(raw: dict[str, Any]) -> str | None:
    """The family of a file without a model_type, told by its keys or by the class that it names; None where neither is known."""
    if "dim" in raw and "n_layers" in raw and ("kv_lora_rank" in raw or "compress_ratios" in raw):
        return "deepseek_ref"
    architectures = raw.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    return ARCHITECTURES.get(named) if isinstance(named, str) else None

"""config.json -> ModelSpec. One literal table from model_type to a small reader; everything else goes through the allow-list reader.

Raw JSON only: no AutoConfig, never remote code. To add a family: a config in tests/configs, an expectation, a row here, and a reader
only where the shape is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from planner.errors import ConfigError, NotAConfig
from planner.model import Doubt, ModelSpec
from planner.notes import note
from planner.readers.build import storage_of
from planner.readers.defaults import filled, open_readings
from planner.readers.doubts import between, total
from planner.readers.drafts import draft_layers
from planner.readers.fields import Fields
from planner.readers.foreign import refuse_foreign
from planner.readers.generic import generic, left_out, unread_shape_keys
from planner.readers.nested import family_of_class, language_part, tie_is_open, with_cross
from planner.readers.refused import refuse_by_nature

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
    "arctic": "remote_new.arctic",
    "aria_text": "vlm.aria",
    "axk1": "deepseek.axk1",
    "axk2": "latent.axk2",
    "baichuan": "remote.baichuan",
    "bailing_hybrid": "kda.bailing_hybrid",
    "bailing_moe": "remote_new.bailing_moe",
    "bamba": "hybrid.bamba",
    "bart": "encoder_decoder.bart",
    "beam": "sparse.beam",
    "bert": "encoders.bert",
    "bert-generation": "encoders.bert_generation",
    "bigbird_pegasus": "encoder_decoder.bigbird_pegasus",
    "biogpt": "legacy.biogpt",
    "bitnet": "dense.bitnet",
    "blenderbot": "encoder_decoder.blenderbot",
    "blenderbot-small": "encoder_decoder.blenderbot_small",
    "bloom": "gpt.bloom",
    "camembert": "encoders.bert",
    "canary": "cross_gqa.canary",
    "chameleon": "seq2seq.chameleon",
    "chatglm": "remote.chatglm",
    "codegen": "legacy.gptj",
    "codeshell": "remote.codeshell",
    "cohere": "dense.cohere",
    "cohere2": "dense.cohere2",
    "cohere2_moe": "sparse.cohere2_moe",
    "cohere_asr": "cross_gqa.cohere_asr",
    "cohere_compass_text": "dense.cohere_compass",
    "cosmos3_edge_text": "dense.cosmos3_edge",
    "ctrl": "legacy.ctrl",
    "cwm": "dense.cwm",
    "data2vec-text": "encoders.bert",
    "dbrx": "legacy.dbrx",
    "deci": "uneven.deci",
    "deepseek": "remote.deepseek_v1",
    "deepseek_ref": "reference.reference",
    "deepseek_v2": "deepseek.deepseek_v2",
    "deepseek_v3": "deepseek.deepseek",
    "deepseek_v32": "deepseek.deepseek_v32",
    "deepseek_v4": "compressed.deepseek_v4",
    "dia": "cross_gqa.dia",
    "diffllama": "dense.diffllama",
    "doge": "dense.doge",
    "dory": "dory.dory",
    "dots1": "sparse.dots1",
    "dots3_note_text": "indexed.dots3_note",
    "electra": "encoders.electra",
    "ernie": "encoders.bert",
    "ernie4_5": "dense.ernie4_5",
    "ernie4_5_moe": "sparse.ernie4_5_moe",
    "ernie4_5_vl_moe_text": "sparse.ernie4_5_vl_moe",
    "exaone": "dense.exaone",
    "exaone4": "dense.exaone4",
    "exaone_moe": "sparse.exaone_moe",
    "falcon": "gpt.falcon",
    "falcon_h1": "hybrid.falcon_h1",
    "falcon_mamba": "mamba.mamba",
    "falcon_perception": "vlm.falcon_perception",
    "flex_olmo": "sparse.flex_olmo",
    "flint": "sparse.flint",
    "fsmt": "seq2seq.fsmt",
    "gemma": "gemma.gemma",
    "gemma2": "gemma.gemma2",
    "gemma3_text": "gemma.gemma3",
    "gemma3n_text": "gemma_new.gemma3n",
    "gemma4_text": "gemma_new.gemma4",
    "gemma4_unified_text": "gemma_new.gemma4_unified",
    "gguf": "gguf.gguf",
    "git": "vlm.git",
    "gla": "recurrent.gla",
    "glm": "dense.glm",
    "glm4": "dense.glm4",
    "glm4_moe": "sparse.glm4_moe",
    "glm4_moe_lite": "deepseek.glm4_moe_lite",
    "glm4v_text": "vlm.glm4v",
    "glm5_next_text": "indexed.glm5_next",
    "glm_moe_dsa": "deepseek.glm_moe_dsa",
    "glm_ocr_text": "dense.glm_ocr",
    "gpt-sw3": "gpt.gpt2",
    "gpt2": "gpt.gpt2",
    "gpt_bigcode": "gpt.gpt_bigcode",
    "gpt_neo": "legacy.gpt_neo",
    "gpt_neox": "gpt.gpt_neox",
    "gpt_neox_japanese": "legacy.gpt_neox_japanese",
    "gpt_oss": "moe.gpt_oss",
    "gpt_refact": "remote_new.gpt_refact",
    "gptj": "legacy.gptj",
    "granite": "dense.granite",
    "granite_swa": "dense.granite_swa",
    "granitemoe": "sparse.granitemoe",
    "granitemoe_swa": "sparse.granitemoe_swa",
    "granitemoehybrid": "hybrid.granite_hybrid",
    "granitemoeshared": "sparse.granitemoeshared",
    "grok-1": "remote_new.grok",
    "helium": "dense.helium",
    "hf_olmo": "remote_new.hf_olmo",
    "hrm_text": "shortconv.hrm_text",
    "hunyuan": "remote.hunyuan_moe",
    "hunyuan_v1_dense": "dense.hunyuan_dense",
    "hunyuan_v1_moe": "remote.hunyuan_moe",
    "hy_v3": "sparse.hy_v3",
    "hy_v4": "latent.hy_v4",
    "hyperclovax": "dense.hyperclovax",
    "idefics": "seq2seq.idefics",
    "inkling2_loop_text": "shortconv.inkling_loop",
    "inkling2_text": "shortconv.inkling",
    "inkling_text": "shortconv.inkling",
    "internlm": "remote.internlm",
    "internlm2": "remote.internlm2",
    "internlm3": "dense.internlm3",
    "internlmxcomposer2": "remote_new.xcomposer",
    "iquestcoder": "dense.iquestcoder",
    "jais": "remote_new.jais",
    "jais2": "dense.jais2",
    "jamba": "hybrid.jamba",
    "jetmoe": "legacy.jetmoe",
    "kimi_k2": "deepseek.deepseek",
    "kimi_linear": "kda.kimi_linear",
    "kolibri1": "sparse.kolibri1",
    "kosmos_2_5_text_model": "seq2seq.kosmos2_5",
    "kosmos_2_text_model": "seq2seq.kosmos2",
    "kvledger_layers": "described.described",
    "laguna": "sparse.laguna",
    "lara_mini": "delta.lara_mini",
    "led": "seq2seq.led",
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
    "mamba_ssm": "reference.mamba_ssm",
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
    "modernbert-decoder": "dense.modernbert_decoder",
    "molmo": "remote_new.molmo",
    "molmo2_text": "dense.molmo2",
    "moonshine": "cross_gqa.moonshine",
    "moshi": "vlm.moshi",
    "mpt": "legacy.mpt",
    "mt5": "t5.mt5",
    "muse_glimmer_text": "dense.muse_glimmer",
    "muse_spark_text": "muse.muse_spark",
    "musicgen_decoder": "t5.musicgen_decoder",
    "musicgen_melody_decoder": "seq2seq.musicgen_melody_decoder",
    "mvp": "encoder_decoder.mvp",
    "nanochat": "dense.nanochat",
    "nemotron": "dense.nemotron",
    "nemotron-nas": "uneven.nemotron_nas",
    "nemotron_h": "hybrid.nemotron_h",
    "nllb-moe": "seq2seq.nllb_moe",
    "olmo": "dense.olmo",
    "olmo2": "dense.olmo2",
    "olmo3": "dense.olmo3",
    "olmo_hybrid": "delta.olmo_hybrid",
    "olmoe": "sparse.olmoe",
    "openelm": "uneven.openelm",
    "opt": "gpt.opt",
    "orion": "remote.orion",
    "ouro": "remote_new.ouro",
    "pangu_ultra_moe": "deepseek.pangu_ultra_moe",
    "params_json": "reference.params",
    "pegasus": "encoder_decoder.pegasus",
    "pegasus_x": "seq2seq.pegasus_x",
    "persimmon": "dense.persimmon",
    "phi": "dense.phi",
    "phi-msft": "remote.phi_msft",
    "phi3": "llama.phi3",
    "phi3small": "remote.phi3small",
    "phi4_multimodal": "vlm.phi4mm",
    "phi4flash": "remote_new.phi4flash",
    "phi4mm": "vlm.phi4mm",
    "phimoe": "sparse.phimoe",
    "pix2struct_text_model": "seq2seq.pix2struct",
    "plamo3": "remote_new.plamo3",
    "plbart": "encoder_decoder.bart",
    "pop2piano": "seq2seq.pop2piano",
    "prophetnet": "t5.prophetnet",
    "qwen": "remote.qwen",
    "qwen2": "llama.qwen2",
    "qwen2_moe": "sparse.qwen2_moe",
    "qwen3": "llama.qwen3",
    "qwen3_5_moe_text": "delta.qwen3_5_moe",
    "qwen3_5_text": "delta.qwen3_5",
    "qwen3_moe": "llama.qwen3_moe",
    "qwen3_next": "delta.qwen3_next",
    "qwen4_exp_text": "indexed.qwen4_exp",
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
    "step3_text": "remote_new.step3_text",
    "step3p5": "two_heads.step3",
    "step3p7": "two_heads.step3",
    "switch_transformers": "seq2seq.switch_transformers",
    "t5": "t5.t5",
    "t5gemma": "cross_gqa.t5gemma",
    "t5gemma2": "cross_gqa.t5gemma2",
    "telechat": "remote.telechat",
    "trocr": "encoder_decoder.trocr",
    "umt5": "t5.umt5",
    "vaultgemma": "gemma_new.vaultgemma",
    "voxtral_realtime_text": "dense.voxtral_realtime",
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


def read_config(raw: dict[str, Any], name: str = "", *, harmless: Collection[str] = ()) -> ModelSpec:
    """The model that a raw config describes. `harmless`: keys that the user declares free of influence on the cache (allow-list
    reader only; each becomes an `assumed` note). Raises ConfigError subclasses naming the key."""
    if not isinstance(raw, dict):
        raise NotAConfig("not_an_object", found=type(raw).__name__)
    top = Fields(raw)
    model_type = top.text("model_type")
    if model_type in (None, "transformer"):  # Mistral's params.json says "transformer"
        model_type = dialect_of(raw) or model_type
    refuse_by_nature(model_type)
    part, inner_type, read_notes = language_part(top, model_type, READERS)
    reader = READERS.get(inner_type or "")
    if reader:
        part, filled_notes = filled(part, inner_type)
        read_notes += filled_notes
    spec = reader(part) if reader else generic(part, inner_type, frozenset(harmless))
    opened = class_would_build(part, inner_type, spec, reader) if reader else ()
    spec = with_cross(spec, part, model_type)
    refuse_foreign(part, spec)
    drafts = draft_layers(part, spec)
    notes = read_notes + spec.notes + left_out(part) + (unread_shape_keys(part) if reader else ())
    if part is not top or inner_type != model_type:
        notes = (note("info", "language_part", field=part.path or "model_type", model_type=model_type or "", part=inner_type or ""), *notes)
    doubts = spec.doubts + opened + tie_is_open(top, part, model_type, spec)
    notes += tuple(note("assumed", d.code, field=d.field, key=d.field, fewer=d.fewer, more=d.more) for d in doubts)
    spec = replace(spec, name=name or spec.name or model_type or "model", notes=notes, doubts=doubts, draft_layers=drafts)
    stored = storage_of(part, spec)
    if stored is None:
        return spec
    from planner.quantization import as_stored

    return as_stored(spec, stored, inner_type or "")


def class_would_build(part: Fields, family: str | None, spec: ModelSpec, reader: Reader) -> tuple[Doubt, ...]:
    """How far the count is from what the family's class would build, for keys that the file leaves out and the reading leaves open."""
    doubts: tuple[Doubt, ...] = ()
    for code, field, other in open_readings(part, family):
        with suppress(ConfigError):
            doubts += between(code, total(spec), total(reader(other)), field)
    return doubts


def dialect_of(raw: dict[str, Any]) -> str | None:
    """The family of a file without a model_type, told by its keys or by the class that it names; None where neither is known."""
    if "dim" in raw and "n_layers" in raw and ("kv_lora_rank" in raw or "compress_ratios" in raw):
        return "deepseek_ref"
    if "dim" in raw and "n_layers" in raw and "n_heads" in raw:
        return "params_json"
    if "ssm_cfg" in raw and "d_model" in raw and "n_layer" in raw:
        return "mamba_ssm"
    return family_of_class(raw.get("architectures"), READERS)

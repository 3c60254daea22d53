"""config.json -> ModelSpec. One literal table from model_type to a small reader; everything else goes through the allow-list reader.

Raw JSON only: no AutoConfig, never remote code. To add a family: a config in tests/configs, an expectation, a row here, and a reader
only where the shape is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from planner.errors import NotAConfig, UnsupportedModel, UnsupportedValue
from planner.model import ModelSpec
from planner.notes import note
from planner.readers import deepseek, gemma, gpt, llama, moe
from planner.readers.fields import Fields
from planner.readers.generic import generic

Reader = Callable[[Fields], ModelSpec]

READERS: dict[str, Reader] = {
    "bloom": gpt.bloom,
    "deepseek_v2": deepseek.deepseek,
    "deepseek_v3": deepseek.deepseek,
    "falcon": gpt.falcon,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gpt_neox": gpt.gpt_neox,
    "gpt_oss": moe.gpt_oss,
    "kimi_k2": deepseek.deepseek,
    "llama": llama.llama,
    "llama4_text": moe.llama4,
    "minicpm3": deepseek.minicpm3,
    "mistral": llama.mistral,
    "mixtral": llama.mixtral,
    "opt": gpt.opt,
    "phi3": llama.phi3,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "qwen3_moe": llama.qwen3_moe,
    "qwen3_next": moe.qwen3_next,
}
# A whole model's type -> the type of its language part, where the nested section may leave its own model_type out.
TEXT_PART_OF = {"gemma3": "gemma3_text", "llama4": "llama4_text"}
TEXT_SECTIONS = ("text_config", "llm_config", "language_config")


def read_config(raw: dict[str, Any], name: str = "", *, harmless: Collection[str] = ()) -> ModelSpec:
    """The model that a raw config describes. `harmless`: keys that the user declares free of influence on the cache (allow-list
    reader only; each becomes an `assumed` note). Raises ConfigError subclasses naming the key."""
    if not isinstance(raw, dict):
        raise NotAConfig("not_an_object", found=type(raw).__name__)
    top = Fields(raw)
    model_type = top.text("model_type")
    part, inner_type = _language_part(top, model_type)
    reader = READERS.get(inner_type or "")
    spec = reader(part) if reader else generic(part, inner_type, frozenset(harmless))
    notes = spec.notes
    if part is not top:
        notes = (note("info", "language_part", field=part.path, model_type=model_type or "", part=inner_type or ""), *notes)
    return replace(spec, name=name or spec.name or model_type or "model", notes=notes)


def _language_part(top: Fields, model_type: str | None) -> tuple[Fields, str | None]:
    """The section that describes the decoder: the file itself, or its nested text section (kept in a note by the caller)."""
    if model_type in READERS:
        return top, model_type
    for key in TEXT_SECTIONS:
        section = top.section(key)
        if section is None:
            continue
        inner = section.text("model_type") or TEXT_PART_OF.get(model_type or "")
        inner = TEXT_PART_OF.get(inner or "", inner)
        if inner in READERS:
            return section, inner
        raise UnsupportedModel("nested_unknown", field=section.name("model_type"), model_type=model_type or "", part=inner or "")
    if model_type in TEXT_PART_OF:
        if top.has("num_hidden_layers"):
            return top, TEXT_PART_OF[model_type]
        raise UnsupportedValue("no_text_section", field="text_config", model_type=model_type)
    return top, model_type

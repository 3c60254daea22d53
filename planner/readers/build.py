"""The last step of every reader: facts common to all families (name, dtype, quantization, limits) into a ModelSpec."""

from __future__ import annotations

from typing import Any

from planner.dtypes import DTYPES, DType, dtype
from planner.errors import UnsupportedValue
from planner.model import Doubt, LayerSpec, ModelSpec, Weight
from planner.notes import Note, cite, note
from planner.readers.doubts import small_parts
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.serving import server_facts
from planner.readers.shapes import embeddings, norms

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length", "n_ctx")


def model(
    f: Fields,
    layers: tuple[LayerSpec, ...],
    *,
    hidden: int,
    vocab: int,
    tied_default: bool,
    extra: tuple[Weight, ...] = (),
    final_norm: tuple[Weight, ...] | None = None,
    positions: int = 0,
    embed_width: int | None = None,
    notes: tuple[Note, ...] = (),
    quirks: frozenset[str] = frozenset(),
    exact: bool = True,
    doubts: tuple[Doubt, ...] = (),
    context_default: int | None = None,
) -> ModelSpec:
    """`extra`: weights outside the layers beyond embedding, head and final norm. `tied_default`: what the family's class does when
    the file does not say. `embed_width`: where the embedding is narrower than the layers. `positions`: learned position rows.
    `context_default`: the class's limit, for families whose published files leave the key out. `exact` False: a count by formula, whose
    small parts (biases, norms) nobody has compared; `doubts`: other reasons why it is an estimate (planner.readers.doubts)."""
    holder = _root(f) if _root(f).raw.get("tie_word_embeddings") is not None else f  # the whole model ties, not its language part
    tied = holder.flag("tie_word_embeddings", tied_default)
    found, dtype_note = model_dtype(f)
    method, wish, quant_notes = quantization(f)
    if f.raw.get("is_causal") is False:
        quirks |= {"not_causal"}
    outer = embeddings(vocab, embed_width or hidden, tied, (positions, hidden)) + (norms(hidden, 1) if final_norm is None else final_norm) + extra
    context = f.optional_int(*CONTEXT_KEYS, high=MAX_TOKENS)
    if context is None and context_default is not None:
        context = context_default
        notes += (note("derived", "class_default", field=f.name(CONTEXT_KEYS[0]), value=context, source=cite("transformers 5.24, class default")),)
    architectures = _root(f).raw.get("architectures") or f.raw.get("architectures")
    return ModelSpec(
        name=str(_root(f).raw.get("_name_or_path") or f.raw.get("_name_or_path") or "")[:200],
        model_type=str(_root(f).raw.get("model_type") or f.raw.get("model_type") or "")[:80],
        architecture=str(architectures[0])[:120] if isinstance(architectures, list) and architectures else "",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context_tokens=context,
        layers=layers,
        weights=outer,
        dtype=found,
        tied_embeddings=tied,
        quantization=method,
        kv_dtype_wish=wish,
        doubts=doubts if exact else small_parts(layers, hidden, vocab) + doubts,
        quirks=quirks,
        notes=notes + dtype_note + quant_notes,
        server=server_facts(f, context),
    )


def _root(f: Fields) -> Fields:
    while f.parent is not None:
        f = f.parent
    return f


def model_dtype(f: Fields) -> tuple[DType, tuple[Note, ...]]:
    """dtype / torch_dtype of this section, else of an outer one; a file with none gets bf16 with an `assumed` note."""
    section: Fields | None = f
    while section is not None:
        key, value = section.value("dtype", "torch_dtype")
        if value is not None and value != "auto":
            return dtype(str(value), section.name(key)), ()
        section = section.parent
    return DTYPES["bf16"], (note("assumed", "no_dtype", field="torch_dtype"),)


def quantization_section(f: Fields) -> dict[str, Any] | None:
    """`quantization_config` of this section, else of an outer one (older compressed-tensors: compression_config); None: no such key."""
    section: Fields | None = f
    while section is not None:
        key, raw = section.value("quantization_config", "compression_config")
        if raw is not None:
            if not isinstance(raw, dict):
                raise UnsupportedValue("section_not_an_object", field=section.name(key), value=repr(raw)[:60])
            return raw
        section = section.parent
    return None


def storage_of(f: Fields, spec: ModelSpec) -> dict[str, Any] | None:
    """What says how the weights of this file are stored: its quantization_config, or, in DeepSeek's inference files, the dtype fp8, which
    stands for blocks of 128 x 128. DeepSeek-V4 names the dtype of its experts outside of it."""
    raw = quantization_section(f)
    if raw is None:
        return {"quant_method": "fp8", "weight_block_size": [128, 128]} if spec.quantization == "fp8" else None
    return raw | {"expert_dtype": f.raw["expert_dtype"]} if isinstance(f.raw.get("expert_dtype"), str) else raw


def quantization(f: Fields) -> tuple[str | None, str | None, tuple[Note, ...]]:
    """(weight quantization method, KV dtype that the checkpoint asks for, notes).

    The KV dtype follows the checkpoint only by its own key for it; quantized *weights* leave the cache in the model's dtype
    (vLLM 0.33 utils/torch_utils.py; compressed-tensors and modelopt schemes).
    """
    raw = quantization_section(f)
    if raw is None:
        return None, None, ()
    from planner.quantization.methods import method_of

    method = method_of(raw)
    inner = raw.get("quantization") if isinstance(raw.get("quantization"), dict) else {}
    wish: str | None = None
    algo = raw.get("kv_cache_quant_algo") or (inner or {}).get("kv_cache_quant_algo")
    if isinstance(algo, str):
        wish = {"FP8": "fp8", "NVFP4": "nvfp4"}.get(algo.upper())
    scheme = raw.get("kv_cache_scheme") or (inner or {}).get("kv_cache_scheme")
    if wish is None and isinstance(scheme, dict):
        bits, kind, dynamic = scheme.get("num_bits"), scheme.get("type"), scheme.get("dynamic", False)
        if method == "compressed-tensors" or (bits == 8 and kind == "float" and not dynamic):
            wish = "fp8"
        elif bits == 4 and kind == "float":
            wish = "nvfp4"
    notes: tuple[Note, ...] = (note("info", "weights_quantized", field="quantization_config", method=method),)
    if wish:
        notes += (note("derived", "kv_dtype_from_checkpoint", field="quantization_config.kv_cache_scheme", kv_dtype=wish,
                       source=cite("vLLM 0.33 utils/torch_utils.py")),)  # fmt: skip
    return method, wish, notes

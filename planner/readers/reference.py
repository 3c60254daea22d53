"""Files that carry no Hugging Face names: DeepSeek's inference configs (V3, V3.2, V4), params.json of Mistral and Meta, mamba_ssm's configs."""

from __future__ import annotations

from dataclasses import replace

from planner.dtypes import DTYPES
from planner.errors import UnsupportedModel, UnsupportedValue
from planner.model import ModelSpec
from planner.notes import note
from planner.readers import block
from planner.readers.compressed import deepseek_v4
from planner.readers.deepseek import Variant, read
from planner.readers.doubts import tie
from planner.readers.experts import Experts
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.mamba import mamba, mamba2
from planner.readers.windows import Windows

# Keys of a params.json that leave the cache alone.
PARAMS_FREE = frozenset(
    """
    norm_eps rope_theta use_scaled_rope rope_scaling_factor high_freq_factor multiple_of ffn_dim_multiplier max_batch_size max_seq_len model_type
    max_position_embeddings quantization yarn llama_4_scaling vision_encoder lora use_biases model_parallel tied_embeddings rope_scaling hidden_dim
    """.split()
)


def reference(f: Fields) -> ModelSpec:
    """V4 has compress_ratios, V3.2 an indexer. A `dtype` of fp8 names the weights' format: computing and caching are in bf16."""
    fp8 = f.text("dtype") == "fp8"
    moe = f.section("moe")  # Mistral nests what its experts are
    inner = f.variant({**{k: v for k, v in f.raw.items() if not (fp8 and k == "dtype")}, **(moe.raw if moe else {})})
    spec = deepseek_v4(inner) if f.has("compress_ratios") else read(inner, Variant(indexer=f.has("index_head_dim"), exact=moe is None))
    if not fp8:
        return spec
    notes = tuple(n for n in spec.notes if n.code != "no_dtype")
    return replace(spec, dtype=DTYPES["bf16"], quantization="fp8", notes=(*notes, note("info", "weights_quantized", field="dtype", method="fp8")))


def params(f: Fields) -> ModelSpec:
    """params.json as Mistral (`hidden_dim`) and Meta (`multiple_of`, `ffn_dim_multiplier`) ship it: Llama's block. A list of windows is
    repeated over the stack (mistral-inference cache.py); Meta's files do not say whether the head is the embedding."""
    hidden = f.need_int("dim")
    width = f.optional_int("hidden_dim") or _meta_width(f, hidden)
    moe, vocab = f.section("moe"), f.raw.get("vocab_size")
    f.ignore(*PARAMS_FREE)
    if f.raw.get("causal") is False:
        raise UnsupportedValue("only_value", field="causal", value="false", want="true")
    raw = {**f.raw, **(moe.raw if moe else {}), "width": width, "vocab_size": 32_000 if vocab == -1 else vocab}
    inner = f.variant(raw)
    experts = Experts(count=("num_experts",), width=("width",)) if moe else None
    spec = block.read(inner, block.Block(layers=("n_layers",), hidden=("dim",), q_heads=("n_heads",), kv_heads=("n_kv_heads",), width=("width",),
                                         qkv_bias=("use_biases", False), o_bias=False, windows=_repeated, experts=experts))  # fmt: skip
    f.ignore("moe", "causal", "n_kv_heads", "head_dim")
    for key, value in f.unread().items():
        if value is True or isinstance(value, list | dict) or (isinstance(value, int | float) and not 0 <= value <= 1):
            raise UnsupportedModel("unknown_key", field=f.name(key)[:120], key=key[:80], model_type="params.json", value=repr(value)[:60])
    open_ = () if "tied_embeddings" in f.raw or "hidden_dim" in f.raw else tie(False, spec.vocab_size, hidden, "vocab_size")
    return replace(spec, doubts=spec.doubts + open_)


def _meta_width(f: Fields, hidden: int) -> int:
    """Two thirds of four times the width, times the multiplier, rounded up (llama model.py FeedForward)."""
    multiple, times = f.need_int("multiple_of"), f.raw.get("ffn_dim_multiplier")
    width = int(2 * 4 * hidden / 3)
    if times is not None:
        if isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times < 100:
            raise UnsupportedValue("only_value", field=f.name("ffn_dim_multiplier"), value=repr(times)[:40], want="a positive number")
        width = int(times * width)
    return -(-width // multiple) * multiple


def _repeated(f: Fields, layers: int) -> Windows:
    key = "_sliding_window" if f.raw.get("_sliding_window") is not None else "sliding_window"
    found = f.raw.get(key)
    if isinstance(found, list):
        f.ignore(key)
        if not found or layers % len(found):
            raise UnsupportedValue("list_length", field=f.name(key), got=len(found), want=layers)
        each = [Fields({key: w}).optional_int(key, low=0, high=MAX_TOKENS) or None for w in found]
        return each * (layers // len(each)), ()
    return [f.optional_int("sliding_window", "_sliding_window", low=0, high=MAX_TOKENS) or None] * layers, ()


def mamba_ssm(f: Fields) -> ModelSpec:
    """state-spaces' own config: `ssm_cfg.layer` names the kind, defaults are those of mamba_ssm's modules; the vocabulary is padded."""
    if f.raw.get("attn_layer_idx"):
        raise UnsupportedValue("foreign_key", field=f.name("attn_layer_idx"), value=repr(f.raw["attn_layer_idx"])[:60])
    if f.raw.get("d_intermediate"):
        raise UnsupportedValue("foreign_key", field=f.name("d_intermediate"), value=str(f.raw["d_intermediate"])[:60])
    cfg = f.section("ssm_cfg") or Fields({}, "ssm_cfg", f)
    kind = cfg.text("layer") or "Mamba1"
    hidden, expand = f.need_int("d_model"), cfg.int_or(2, "expand", high=1024)
    multiple = f.int_or(8, "pad_vocab_size_multiple")
    raw = {**f.raw, "expand": expand, "conv_kernel": cfg.int_or(4, "d_conv", high=1024), "vocab_size": -(-f.need_int("vocab_size") // multiple) * multiple,
           "tie_word_embeddings": f.raw.get("tie_embeddings", True)}  # fmt: skip
    if kind == "Mamba1":
        return mamba(f.variant({**raw, "state_size": cfg.int_or(16, "d_state"), "time_step_rank": cfg.raw.get("dt_rank", "auto")}))
    if kind != "Mamba2":
        raise UnsupportedValue("only_value", field=cfg.name("layer"), value=kind[:40], want="Mamba1, Mamba2")
    dim = cfg.int_or(64, "headdim")
    return mamba2(f.variant({**raw, "head_dim": dim, "num_heads": expand * hidden // dim, "n_groups": cfg.int_or(1, "ngroups"),
                             "state_size": cfg.int_or(128, "d_state")}))  # fmt: skip

"""Older families that transformers has classes for: the GPT-J line, DBRX and MPT with sections, JetMoE with experts in attention."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import Block, read, reader
from planner.readers.doubts import between
from planner.readers.experts import Experts
from planner.readers.fields import MAX_TOKENS, Fields

GPT = {"layers": ("n_layer", "num_hidden_layers"), "hidden": ("n_embd", "hidden_size"), "q_heads": ("n_head", "num_attention_heads")}

# -- the GPT-J line: attention without biases beside a feed-forward with them -----------------------------------------------------------
gptj = reader(Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv="mha", width=("n_inner",), width_times=4, qkv_bias=False,
                    o_bias=False, mlp_bias=True, gated=False, norms=1, norm_bias=True, lm_head_bias=True))  # fmt: skip
ctrl = reader(Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv="mha", width=("dff",), qkv_bias=True, o_bias=True, mlp_bias=True,
                    gated=False, norm_bias=True, lm_head_bias=True, tied=True))  # fmt: skip
xglm = reader(Block(layers=("num_layers",), hidden=("d_model",), q_heads=("attention_heads",), kv="mha", width=("ffn_dim",), qkv_bias=True, o_bias=True,
                    mlp_bias=True, gated=False, norm_bias=True, tied=True))  # fmt: skip
biogpt = reader(Block(kv="mha", qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_bias=True, tied=True, positions=2))


def gpt_neo(f: Fields) -> ModelSpec:
    """Local layers only mask: every layer keeps every row (transformers 5.24, measured), so `window_size` frees nothing."""
    return read(f, Block(layers=("num_layers", "num_hidden_layers"), q_heads=("num_heads", "num_attention_heads"), kv="mha", width_times=4, qkv_bias=False,
                         o_bias=True, mlp_bias=True, gated=False, norm_bias=True, tied=True, positions=0,
                         ignore=("window_size", "attention_types", "attention_layers")))  # fmt: skip


def gpt_neox_japanese(f: Fields) -> ModelSpec:
    """The last layer alone has a bias behind attention."""

    def last_bias(f: Fields, hidden: int, vocab: int) -> tuple[Weight, ...]:
        return (Weight(name="dense_bias", shape=(hidden,), role="attention"),)

    return read(f, Block(kv="mha", width=(), width_times=f.int_or(4, "intermediate_multiple_size"), qkv_bias=False, o_bias=False, gated=False,
                         norm_bias=True, tied=True, outer=last_bias))  # fmt: skip


def dbrx(f: Fields) -> ModelSpec:
    """DBRX keeps its numbers in two sections; `attn_config.kv_n_heads` decides the cache."""
    attn, ffn = f.section("attn_config"), f.section("ffn_config")
    if attn is None or ffn is None:
        raise UnsupportedValue("no_text_section", field="attn_config" if attn is None else "ffn_config", model_type="dbrx")
    flat = {
        **f.raw,
        "kv_n_heads": attn.need_int("kv_n_heads", high=65_536),
        "ffn_hidden_size": ffn.need_int("ffn_hidden_size"),
        "moe_num_experts": ffn.need_int("moe_num_experts", high=65_536),
        "moe_top_k": ffn.need_int("moe_top_k", high=65_536),
    }
    e = Experts(count=("moe_num_experts",), top_k=("moe_top_k",), width=("ffn_hidden_size",))
    # A `num_key_value_heads` beside the section is an alias that transformers writes; the section is what the model is built from.
    return read(f.variant(flat), Block(layers=("n_layers",), hidden=("d_model",), q_heads=("n_heads",), kv_heads=("kv_n_heads",), kv="need",
                                                      qkv_bias=False, o_bias=False, experts=e, ignore=("attn_config", "num_key_value_heads")))  # fmt: skip


def mpt(f: Fields) -> ModelSpec:
    """MPT as transformers and llm-foundry build it: one K and V a head. Its grouped variants are refused."""
    attn = f.section("attn_config")
    kind = attn.text("attn_type") if attn else None
    grouped = attn.optional_int("kv_n_heads", high=65_536) if attn else None
    if kind not in (None, "multihead_attention") or grouped not in (None, f.raw.get("n_heads")):
        raise UnsupportedValue("foreign_key", field=f"{f.name('attn_config')}.{'kv_n_heads' if grouped else 'attn_type'}", value=str(grouped or kind)[:40])
    biased = not f.flag("no_bias", True) or (attn is not None and attn.flag("qk_ln"))
    times = f.raw.get("expansion_ratio", 4)
    if not isinstance(times, int) or isinstance(times, bool):
        raise UnsupportedValue("not_an_integer", field=f.name("expansion_ratio"), value=repr(times)[:60])
    spec = read(f, Block(layers=("n_layers",), hidden=("d_model",), q_heads=("n_heads",), kv="mha", width=(), width_times=times, qkv_bias=False, o_bias=False,
                         gated=False, tied=True, exact=not biased, ignore=("attn_config", "expansion_ratio")))  # fmt: skip
    # transformers' class knows ALiBi and a ratio of 4 alone; llm-foundry's has learned positions, and reads the ratio.
    hidden, part = spec.hidden_size, 2 * spec.hidden_size**2 * len(spec.layers)
    doubts = between("doubt_class_differs", times * part, 4 * part, f.name("expansion_ratio"))
    if attn is not None and not attn.flag("alibi", True):
        doubts += between("doubt_class_differs", 0, f.int_or(2048, "max_seq_len", high=MAX_TOKENS) * hidden, attn.name("alibi"))
    return replace(spec, doubts=spec.doubts + doubts)


def jetmoe(f: Fields) -> ModelSpec:
    """JetMoE: query and output projections are experts too; the K and V of all are shared. `kv_channels` is the head size."""
    kv, top = f.need_int("num_key_value_heads", high=65_536), f.need_int("num_experts_per_tok", high=65_536)
    inner = f.variant({**f.raw, "num_attention_heads": kv * top, "q": kv * top})
    count = inner.need_int("num_local_experts", high=65_536)

    def moa(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
        one = a.kv_heads * a.qk_dim
        return (
            Weight(name="attention_experts", shape=(2 * one, hidden), role="attention", copies=count, parts=a.kv_heads, quantizable=True),
            Weight(name="attention_router", shape=(count, hidden), role="router"),
            *shapes.norms(hidden, 2, name="expert_bias"),
        )

    spec = read(inner, Block(kv="need", head_dim=("kv_channels",), qkv_bias=False, o_bias=False, tied=True, experts=Experts(width=("intermediate_size",)),
                             extra=moa, ignore=("head_dim",)))  # fmt: skip
    return _without_queries(spec)


def _without_queries(spec: ModelSpec) -> ModelSpec:
    layer = spec.layers[0]
    kept = tuple(w for w in layer.weights if w.name not in ("q_proj", "o_proj"))
    return replace(spec, layers=(replace(layer, weights=kept),) * len(spec.layers))

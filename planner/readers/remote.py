"""Families that live in remote code, by the names that their files write. Mostly Llama's block under other keys.

Their parameter counts are formulas; where an independent count agrees (corpus, derived by hand) they are called exact.
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, Mlp, ModelSpec, Weight
from planner.notes import cite, note
from planner.readers import gpt
from planner.readers.block import Block, read, reader
from planner.readers.doubts import between, total
from planner.readers.experts import Experts
from planner.readers.fields import Fields
from planner.readers.legacy import GPT

# -- remote code of Llama's shape --------------------------------------------------------------------------------------------------------
llama_like = reader(Block(mlp_bias=("mlp_bias", False), exact=False))  # yi, skywork, aquila, solar: by their names Llama's shape
baichuan = reader(Block(kv="mha", qkv_bias=False, o_bias=False))
internlm = reader(Block(qkv_bias=("bias", True), o_bias=("bias", True)))
xverse = reader(Block(qkv_bias=False, o_bias=False))
orion = reader(Block(qkv_bias=("attention_bias", False), o_bias=("attention_bias", False), norm_bias=True))
# MiniCPM; a file with `sparse_config` (InfLLM) keeps compressed keys as well and is refused by the guard.
minicpm = reader(Block(tied=True, experts=Experts(width=("intermediate_size",), optional=True)))
deepseek_v1 = reader(Block(experts=Experts(count=("n_routed_experts",), shared="n_shared_experts", first_dense=("first_k_dense_replace",), optional=True)))
codeshell = reader(Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv="need", kv_heads=("num_query_groups",), width=("n_inner",),
                         width_times=4, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_bias=True, tied=True, exact=False))  # fmt: skip


def _down_bias(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return (Weight(name="mlp.down.bias", shape=(hidden,), role="mlp"),)


telechat = reader(Block(layers=GPT["layers"], hidden=("hidden_size",), q_heads=GPT["q_heads"], width=("ffn_hidden_size", "n_inner"), qkv_bias=False,
                        o_bias=True, tied=True, extra=_down_bias))  # fmt: skip
phi_msft = reader(Block(layers=GPT["layers"], hidden=GPT["hidden"], q_heads=GPT["q_heads"], kv_heads=("n_head_kv",), width=("n_inner",), width_times=4,
                        qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norms=1, norm_bias=True, lm_head_bias=True))  # fmt: skip
# Phi-3-small: block-sparse layers still keep every row (kv-cache facts, derived by hand).
phi3small = reader(Block(kv="need", width=("ff_intermediate_size", "intermediate_size"), qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True, tied=True,
                         ignore=("attention_bias",)))  # fmt: skip


def internlm2(f: Fields) -> ModelSpec:
    """InternLM2; a reward model has one column in place of the head."""
    spec = read(f, Block(qkv_bias=("bias", False), o_bias=("bias", False)))
    if not spec.architecture.endswith("ForRewardModel"):
        return spec
    head = Weight(name="v_head", shape=(1, spec.hidden_size), role="lm_head")
    return replace(spec, weights=(*(w for w in spec.weights if w.name != "lm_head"), head))


def qwen(f: Fields) -> ModelSpec:
    """Qwen-1: heads of `kv_channels`, no grouping; `intermediate_size` is twice the width of the feed-forward layer."""
    inner = f.variant({**f.raw, "intermediate_size": f.need_int("intermediate_size") // 2})
    return read(inner, Block(kv="mha", head_dim=("kv_channels",), qkv_bias=True, o_bias=False))


def chatglm(f: Fields) -> ModelSpec:
    """ChatGLM 1 to 3 and GLM-4 in remote code: `multi_query_group_num` KV heads of `kv_channels` where multi-query attention is on."""
    grouped = f.flag("multi_query_attention")
    first = f.raw.get("position_encoding_2d") is not None  # ChatGLM-6B: the first, with biases, LayerNorm and no gate
    raw = {**f.raw, "kv": f.need_int("multi_query_group_num", high=65_536) if grouped else None}
    bias = f.flag("add_bias_linear", first)
    block = Block(
        layers=("num_layers", "num_hidden_layers"),
        kv_heads=("kv",),
        head_dim=("kv_channels",),
        width=("ffn_hidden_size", "inner_hidden_size"),
        vocab=("vocab_size",) if first else ("padded_vocab_size", "vocab_size"),
        qkv_bias=bias or f.flag("add_qkv_bias", first),
        o_bias=bias,
        mlp_bias=bias,
        gated=not first,
        norm_bias=not f.flag("rmsnorm", not first),
        final_norm=f.flag("post_layer_norm", True),
        exact=not first,
        ignore=("multi_query_attention", "multi_query_group_num"),
    )
    return read(f.variant(raw), block)


def hunyuan_moe(f: Fields) -> ModelSpec:
    """Hunyuan v1 with experts. Cross-layer attention (`use_cla`) is in the file, and every engine here keeps all layers all the same
    (transformers 5.24 measured; vLLM 0.33 runs it through transformers). Some files list `moe_topk` and widths layer by layer."""
    raw = dict(f.raw)
    for key in ("moe_topk", "moe_intermediate_size", "num_shared_expert", "num_experts"):
        value = raw.get(key)
        if isinstance(value, list):
            if len(set(map(str, value))) != 1:
                raise UnsupportedValue("foreign_key", field=f.name(key), value=str(value)[:60])
            raw[key] = value[0]
    if raw.get("num_experts") in (None, 1) and f.raw.get("model_type") == "hunyuan":
        dense = Block(head_dim=("head_dim", "attention_head_dim"), head_norms=("use_qk_norm", True), ignore=("use_cla", "cla_share_factor"), exact=False)
        return read(f, dense)
    if f.flag("use_mla"):
        raise UnsupportedValue("foreign_key", field=f.name("use_mla"), value="true")
    flat = f.variant(raw)
    raw["shared_width"] = flat.need_int("intermediate_size") * flat.int_or(1, "num_shared_expert", low=0, high=65_536)
    e = Experts(count=("num_experts",), top_k=("moe_topk",), width=("moe_intermediate_size", "intermediate_size"), shared_width="shared_width",
                first_dense=("moe_layer_num_skipped",))  # fmt: skip
    block = Block(head_dim=("head_dim", "attention_head_dim"), head_norms=("use_qk_norm", True), experts=e, ignore=("use_cla", "cla_share_factor"))
    spec = read(flat, block)
    # transformers' class makes routed and shared experts as wide as intermediate_size, one shared, on every layer.
    left = {k: v for k, v in raw.items() if k not in ("moe_intermediate_size", "num_shared_expert", "moe_layer_num_skipped")}
    other = read(f.variant({**left, "shared_width": raw["intermediate_size"]}), block)
    spec = replace(spec, doubts=spec.doubts + between("doubt_class_differs", total(spec), total(other), f.name("moe_intermediate_size")))
    if not f.flag("use_cla"):
        return spec
    said = note("warning", "sharing_not_used", field=f.name("use_cla"), factor=f.int_or(1, "cla_share_factor"), source=cite("transformers 5.24, measured"))
    return replace(spec, notes=(*spec.notes, said))


def refined_web(f: Fields) -> ModelSpec:
    """Falcon's names before it was Falcon: RefinedWebModel (7B) is multi-query, RefinedWeb (40B) has `n_head_kv` groups."""
    new = f.raw.get("model_type") == "RefinedWeb" or f.raw.get("n_head_kv") is not None
    return gpt.falcon(f.variant({**f.raw, "new_decoder_architecture": f.raw.get("new_decoder_architecture", new)}))

"""Linear attention by the delta rule: Qwen3-Next, Qwen3.5 and OLMo-Hybrid. State layers beside full ones.

A state layer keeps a convolution over its channels and one matrix a value head, which transformers holds in fp32 (5.24, measured;
vLLM 0.33 model_executor/layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

from planner.cache import State, StateTensor
from planner.dtypes import DTYPES, dtype
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields
from planner.readers.llama import FULL, WINDOW
from planner.readers.windows import window_of

LINEAR = "linear_attention"
TYPES = {FULL: FULL, LINEAR: LINEAR}


def gated(f: Fields, hidden: int, heads: tuple[int, int], dims: tuple[int, int], width: int, asks: bool = False) -> tuple[State, tuple[Weight, ...]]:
    """State and weights of one gated delta net: (key heads, value heads), (key width, value width), the convolution's width.
    `asks`: engines follow the file's dtype for the state (Qwen3.5; vLLM 0.33 model_executor/models/config.py)."""
    (k_heads, v_heads), (k_dim, v_dim) = heads, dims
    channels, values = 2 * k_heads * k_dim + v_heads * v_dim, v_heads * v_dim
    kept = f.text("mamba_ssm_dtype")
    asked = dtype(kept, f.name("mamba_ssm_dtype")) if kept else None
    state = State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=channels * width, columns=width),
            StateTensor(name="recurrent", role="recurrent", elements=v_heads * k_dim * v_dim, dtype=asked or DTYPES["fp32"], asked=asked if asks else None),
        ),
        mechanism="gated_delta_net",
    )
    weights = (
        *shapes.column("in_proj_qkvz", channels + values, hidden, "state", k_heads),
        *shapes.column("in_proj_ba", 2 * v_heads, hidden, "state", k_heads),
        Weight(name="conv1d", shape=(channels, 1, width), role="state", parts=k_heads),
        Weight(name="dt_bias_and_A_log", shape=(2, v_heads), role="state", parts=v_heads),
        *shapes.norms(v_dim, 1, name="gated_norm"),
        *shapes.row("out_proj", hidden, values, "state", v_heads),
    )
    return state, weights


def _types(f: Fields, layers: int) -> list[str]:
    interval = f.int_or(4, "full_attention_interval")
    return shapes.layer_types(f, layers, TYPES) or [LINEAR if (i + 1) % interval else FULL for i in range(layers)]


def _qwen(f: Fields, mlps: list[Mlp], asks: bool = True) -> ModelSpec:
    """The stack that Qwen3-Next and Qwen3.5 share: full layers have an output gate and a norm a head."""
    layers, hidden = len(mlps), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 256
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    heads = f.need_int("linear_num_key_heads"), f.need_int("linear_num_value_heads")
    dims = f.need_int("linear_key_head_dim"), f.need_int("linear_value_head_dim")
    state, linear = gated(f, hidden, heads, dims, f.need_int("linear_conv_kernel_dim"), asks)
    bias = f.flag("attention_bias")
    full = shapes.gqa(hidden, a, bias, bias, q_factor=2) + shapes.norms(dim, 2, name="head_norm")
    types = _types(f, layers)

    def build(i: int) -> LayerSpec:
        rest = shapes.mlp(hidden, mlps[i], shared_gate=True) + shapes.norms(hidden, 2)
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=mlps[i], weights=full + rest)
        return LayerSpec(caches=(state,), mlp=mlps[i], weights=linear + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


def sparse(f: Fields) -> Mlp:
    return Mlp(experts=f.need_int("num_experts", high=65_536), top_k=f.need_int("num_experts_per_tok", high=65_536),
               expert_width=f.need_int("moe_intermediate_size"), shared_width=f.need_int("shared_expert_intermediate_size"))  # fmt: skip


def qwen3_next(f: Fields) -> ModelSpec:
    layers = f.layers("num_hidden_layers")
    only_dense, step = set(f.list_of("mlp_only_layers", int) or ()), f.int_or(1, "decoder_sparse_step")
    dense = Mlp(width=f.need_int("intermediate_size"))
    expert = sparse(f) if f.optional_int("num_experts", low=0, high=65_536) else dense
    mlps = [expert if i not in only_dense and (i + 1) % step == 0 else dense for i in range(layers)]
    return _qwen(f, mlps, asks=False)


def qwen3_5(f: Fields) -> ModelSpec:
    """Qwen3.5 and 3.6, dense. MTP layers (`mtp_num_hidden_layers`) cache only while speculation is on."""
    return _qwen(f, [Mlp(width=f.need_int("intermediate_size"))] * f.layers("num_hidden_layers"))


def qwen3_5_moe(f: Fields) -> ModelSpec:
    """Qwen3.5 with experts on every layer: the class reads neither `mlp_only_layers` nor a dense width."""
    f.ignore("mlp_only_layers", "decoder_sparse_step", "intermediate_size")
    return _qwen(f, [sparse(f)] * f.layers("num_hidden_layers"))


def olmo_hybrid(f: Fields) -> ModelSpec:
    """OLMo-Hybrid: q, k, v of a state layer are projected one by one; norms over whole queries and keys in the full layers."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = shapes.head_dim(f, hidden, q)
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    heads = f.int_or(q, "linear_num_key_heads"), f.int_or(q, "linear_num_value_heads")
    k_dim = f.int_or(3 * hidden // (4 * heads[0]), "linear_key_head_dim")
    dims = k_dim, f.int_or(2 * k_dim, "linear_value_head_dim")
    state, linear = gated(f, hidden, heads, dims, f.int_or(4, "linear_conv_kernel_dim"))
    m = Mlp(width=f.need_int("intermediate_size"))
    bias = f.flag("attention_bias")
    full = shapes.gqa(hidden, a, bias, bias) + shapes.norms(q * dim, 1, name="q_norm") + shapes.norms(kv * dim, 1, name="k_norm")
    types = shapes.layer_types(f, layers, TYPES) or [FULL if i % 4 == 3 or (layers < 4 and i == layers - 1) else LINEAR for i in range(layers)]
    rest = shapes.mlp(hidden, m) + shapes.norms(hidden, 2)

    def build(i: int) -> LayerSpec:
        if types[i] == FULL:
            return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=full + rest)
        return LayerSpec(caches=(state,), mlp=m, weights=linear + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False)


def lara_mini(f: Fields) -> ModelSpec:
    """Lara-Mini: in every five layers two state layers, two windows and one full layer, all with experts (transformers 5.24)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q, kv = shapes.heads(f)
    dim = f.size("head_dim") or 128
    a = Attention(q_heads=q, kv_heads=kv, qk_dim=dim, v_dim=dim)
    window, notes = window_of(f, 512)
    cycle = (LINEAR, WINDOW, LINEAR, FULL, WINDOW)
    types = shapes.layer_types(f, layers, {**TYPES, WINDOW: WINDOW}) or [cycle[i % 5] for i in range(layers)]
    heads = f.int_or(8, "linear_num_key_heads"), f.int_or(16, "linear_num_value_heads")
    dims = f.int_or(128, "linear_key_head_dim"), f.int_or(128, "linear_value_head_dim")
    state, linear = gated(f, hidden, heads, dims, f.int_or(4, "linear_conv_kernel_dim"))
    m, bias = sparse(f), f.flag("attention_bias")
    rest = shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    near = shapes.gqa(hidden, a, bias, bias) + shapes.norms(dim, 2, name="head_norm")

    def build(i: int) -> LayerSpec:
        if types[i] == LINEAR:
            return LayerSpec(caches=(state,), mlp=m, weights=linear + rest)
        return LayerSpec(caches=(shapes.rows_of(a, window if types[i] == WINDOW else None),), attention=a, mlp=m, weights=near + rest)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, notes=notes)

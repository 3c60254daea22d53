"""Multi-head latent attention: DeepSeek-V2, V3 / R1, Kimi-K2, MiniCPM3. One latent row and one small RoPE key a layer and token."""

from __future__ import annotations

from planner.model import Attention, LayerSpec, Mlp, ModelSpec
from planner.notes import note
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields


def _attention(f: Fields, v_dim: int | None = None) -> Attention:
    """From raw keys alone: transformers writes `head_dim` = the RoPE size and KV heads = all heads, which describe nothing cached."""
    f.ignore("head_dim", "num_key_value_heads", "qk_head_dim")
    q = f.need_int("num_attention_heads", high=65_536)
    nope, rope = f.need_int("qk_nope_head_dim"), f.need_int("qk_rope_head_dim", low=0)
    return Attention(q_heads=q, kv_heads=q, qk_dim=nope + rope, v_dim=v_dim or f.need_int("v_head_dim"), q_rank=f.optional_int("q_lora_rank"),
                     kv_rank=f.need_int("kv_lora_rank"), nope_dim=nope, rope_dim=rope)  # fmt: skip


def deepseek(f: Fields) -> ModelSpec:
    """DeepSeek-V2 / V3 / Kimi-K2: dense layers first, then experts with shared ones. The router's correction bias is a buffer."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    a = _attention(f)
    f.ignore("num_nextn_predict_layers")  # MTP layers cache only while speculation is on, and are no part of num_hidden_layers
    # Published V2-Lite files write `q_lora_rank: null`, a plain query projection; without the key the class would put 1536 there.
    exact = "q_lora_rank" in f.raw and f.int_or(1, "moe_layer_freq") == 1
    notes = () if "q_lora_rank" in f.raw else (note("assumed", "no_query_rank", field=f.name("q_lora_rank")),)
    attention = shapes.mla(hidden, a, f.flag("attention_bias"))
    experts = f.optional_int("n_routed_experts", low=0, high=65_536) or 0
    dense = Mlp(width=f.need_int("intermediate_size"))
    sparse = dense
    if experts:
        width = f.need_int("moe_intermediate_size")
        sparse = Mlp(experts=experts, top_k=f.need_int("num_experts_per_tok", high=65_536), expert_width=width,
                     shared_width=width * (f.optional_int("n_shared_experts", low=0) or 0))  # fmt: skip
    first, step = f.int_or(0, "first_k_dense_replace", low=0), f.int_or(1, "moe_layer_freq")

    def build(i: int) -> LayerSpec:
        m = sparse if i >= first and i % step == 0 else dense
        weights = attention + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
        return LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)

    return model(f, shapes.stack(layers, build), hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=False, exact=exact, notes=notes)


def minicpm3(f: Fields) -> ModelSpec:
    """MiniCPM3: MLA with dense layers; V's head size is hidden / heads where the file leaves it out. vLLM 0.33 caches expanded K and V
    of this family, both padded to the query's head size (model_executor/models/minicpm3.py)."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q = f.need_int("num_attention_heads", high=65_536)
    a = _attention(f, f.optional_int("v_head_dim") or hidden // q)
    m = Mlp(width=f.need_int("intermediate_size"))
    weights = shapes.mla(hidden, a, f.flag("attention_bias")) + shapes.mlp(hidden, m) + shapes.norms(hidden, 2)
    layer = LayerSpec(caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=weights)
    return model(f, (layer,) * layers, hidden=hidden, vocab=f.need_int("vocab_size"), tied_default=True, quirks=frozenset({"vllm_expands_latent"}))

"""Mixture-of-experts decoders with plain K and V rows, as records; parameter counts equal transformers 5.24's classes."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedValue
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.notes import note
from planner.readers import shapes
from planner.readers.block import Block, read, reader
from planner.readers.experts import Experts
from planner.readers.fields import Fields
from planner.readers.llama import QWEN2_WINDOW
from planner.readers.windows import Windows, first_of, last_of, listed, pattern, window_of

MTP = ("num_nextn_predict_layers", "num_mtp_modules")  # draft layers cache only while speculation is on
WIDE = ("intermediate_size",)
LOCAL = Experts(width=WIDE)
SHARED = Experts(width=WIDE, shared_width="shared_intermediate_size")
# DeepSeek's way of naming, with attention of the plain kind: some dense layers, then routed and shared experts.
ROUTED = Experts(count=("n_routed_experts", "num_experts", "num_local_experts"), shared="n_shared_experts", first_dense=("first_k_dense_replace",))

olmoe = reader(Block(head_norms=True, norm_per_head=True, experts=LOCAL))
phimoe = reader(Block(norm_bias=True, lm_head_bias=("lm_head_bias", False), experts=LOCAL))
granitemoe = reader(Block(experts=LOCAL))
granitemoeshared = reader(Block(experts=SHARED))
granitemoe_swa = reader(Block(experts=SHARED, sinks=True, windows=pattern(128, first_of)))


def _qwen2_moe_windows(f: Fields, layers: int) -> Windows:
    """Every other layer below `max_window_layers`, and only with `use_sliding_window` (transformers 5.24 models/qwen2_moe)."""
    on = f.flag("use_sliding_window")
    window, said = window_of(f, QWEN2_WINDOW if on else None)
    first = f.int_or(28, "max_window_layers", low=0)
    types = shapes.layer_types(f, layers, {"full_attention": "", "sliding_attention": "w"})
    if not on:
        return [None] * layers, (note("info", "window_switched_off", field="use_sliding_window", window=window),) if window else ()
    types = types or ["w" if (i + 1) % 2 and i < first else "" for i in range(layers)]
    return [window if t else None for t in types], said


qwen2_moe = reader(Block(kv="need", qkv_bias=("qkv_bias", True), o_bias=False, windows=_qwen2_moe_windows,
                         experts=Experts(shared_width="shared_expert_intermediate_size", shared_gate=True)))  # fmt: skip
glm4_moe = reader(Block(kv="need", floor=True, o_bias=False, head_norms=("use_qk_norm", False), ignore=MTP, experts=replace(ROUTED, first_dense_default=1)))
solar_open = reader(Block(kv="need", head_dim_default=128, o_bias=False, ignore=MTP, experts=replace(ROUTED, first_dense=())))
exaone_moe = reader(Block(kv="need", qkv_bias=False, o_bias=False, head_norms=True, ignore=MTP, windows=pattern(4096, last_of, 4, ("sliding_window_pattern",)),
                          experts=replace(ROUTED, shared="num_shared_experts", first_dense_default=1)))  # fmt: skip


def _late(i: int, layers: int, first: int) -> bool:
    return i < first


dots1 = reader(Block(kv="need", head_norms=True, ignore=MTP, experts=ROUTED, windows=pattern(4096, _late, 62, ("max_window_layers",))))
hy_v3 = reader(Block(kv="need", head_dim_default=128, head_norms=True, mlp_bias=("mlp_bias", False), ignore=MTP,
                     experts=replace(ROUTED, shared="num_shared_experts", first_dense=(), first_dense_default=1)))  # fmt: skip
mellum = reader(Block(kv="need", head_dim_default=128, head_norms=True, windows=listed, ignore=MTP, experts=Experts()))
kolibri1 = reader(Block(kv="need", head_dim_default=128, qkv_bias=False, o_bias=False, head_norms=True, norms=4, windows=pattern(513, last_of, 5),
                        experts=Experts(shared_width="shared_expert_intermediate_size")))  # fmt: skip
afmoe = reader(Block(head_dim_default=128, head_norms=True, gate="full", norms=4, windows=pattern(1024, last_of, 4, ("global_attn_every_n_layers",)),
                     experts=Experts(shared="num_shared_experts", first_dense=("num_dense_layers",), first_dense_default=1, router_bias=True)))  # fmt: skip


def minimax_m2(f: Fields) -> ModelSpec:
    """MiniMax-M2: every layer full attention; `attn_type_list`, where a file has it, may hold nothing but ones."""
    types = f.list_of("attn_type_list", int)
    if types is not None and set(types) != {1}:
        raise UnsupportedValue("foreign_key", field=f.name("attn_type_list"), value=str(types)[:60])
    return read(f, Block(kv="need", head_dim_default=128, qkv_bias=False, o_bias=False, head_norms=True, norm_per_head=True,
                         ignore=MTP, experts=LOCAL))  # fmt: skip


def ernie4_5_moe(f: Fields) -> ModelSpec:
    """ERNIE 4.5: sparse layers from `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval`-th."""
    layers = f.layers("num_hidden_layers")
    start, end = f.int_or(1, "moe_layer_start_index", low=0), f.optional_int("moe_layer_end_index", low=-1)
    step, last = f.int_or(1, "moe_layer_interval"), layers - 1 if end in (None, -1) else end
    types = ["sparse" if (i + 1) % step == 0 and start <= i <= (last or 0) else "dense" for i in range(layers)]
    bias = ("use_bias", False)
    e = Experts(count=("moe_num_experts",), top_k=("moe_k",), shared="moe_num_shared_experts", router_bias=True)
    inner = f.variant({**f.raw, "mlp_layer_types": f.raw.get("mlp_layer_types") or types})
    return read(inner, Block(kv="need", qkv_bias=bias, o_bias=bias, mlp_bias=bias, lm_head_bias=bias, tied=True, ignore=MTP, experts=e))


def laguna(f: Fields) -> ModelSpec:
    """Query heads may differ by layer; KV heads do not. The output gate is one number a head, or one an element."""
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q = f.list_of("num_attention_heads_per_layer", int, layers) or [f.need_int("num_attention_heads", high=65_536)] * layers
    gating = f.raw.get("gating", True)
    f.ignore("gating")
    if gating not in (True, "per-head", "per-element"):
        raise UnsupportedValue("foreign_key", field=f.name("gating"), value=repr(gating)[:60])
    b = Block(kv="need", head_dim_default=128, head_norms=True, windows=listed, gate="full" if gating == "per-element" else "head",
              experts=Experts(shared_width="shared_expert_intermediate_size", first_dense_default=1, router_bias=True))  # fmt: skip
    return by_layer_heads(f, b, q, hidden)


def by_layer_heads(f: Fields, b: Block, q: list[int], hidden: int) -> ModelSpec:
    """A block whose query heads are counted layer by layer: read once for each count, then put together."""
    counts = {n: read(f.variant({**f.raw, "num_attention_heads": n}), b) for n in dict.fromkeys(q)}
    whole = counts[q[0]]
    return replace(whole, layers=tuple(counts[n].layers[i] for i, n in enumerate(q)))


def flint(f: Fields) -> ModelSpec:
    """Full attention on the first two layers, every fourth after them and the last; the first two feed-forward layers dense by default."""
    raw = f.raw if f.raw.get("mlp_only_layers") is not None else {**f.raw, "mlp_only_layers": [0, 1]}
    return read(f.variant(raw), Block(kv="need", head_dim_default=128, head_norms=True, sinks=True,
                                                     windows=pattern(513, lambda i, n, step: i < 2 or i % step == 1 or i == n - 1),
                                                     experts=Experts(shared_width="shared_expert_intermediate_size")))  # fmt: skip


def _gate_bias(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return (Weight(name="gate_bias", shape=(a.q_heads,), role="attention", parts=a.q_heads),)


beam = reader(Block(kv="need", head_dim_default=128, head_norms=True, gate="full", norms=4, extra=_gate_bias,
                    windows=pattern(512, lambda i, n, step: (i + 1) % step == 0 or i == n - 1, 6), experts=Experts(first_dense_default=3)))  # fmt: skip


def ernie4_5_vl_moe(f: Fields) -> ModelSpec:
    """ERNIE 4.5 VL: experts for text and narrower ones for images, the keys of both as pairs. A token passes one kind only, so both are
    counted in total."""
    pairs = {k: v for k, v in f.raw.items() if k.startswith("moe_") and isinstance(v, list)}
    pairs.setdefault("moe_intermediate_size", [1536, 512])  # the class default: weights only
    for key, value in pairs.items():
        if len(value) != 2:
            raise UnsupportedValue("foreign_key", field=f.name(key), value=repr(value)[:60])
    text, vision = (ernie4_5_moe(f.variant({**f.raw, **{k: v[i] for k, v in pairs.items()}})) for i in (0, 1))

    def both(i: int) -> LayerSpec:
        more = tuple(replace(w, name=f"vision.{w.name}") for w in vision.layers[i].weights if w.role in ("expert", "router"))
        return replace(text.layers[i], weights=text.layers[i].weights + more)

    # Whatever `use_bias` says, this family's head has no bias (transformers 5.24 models/ernie4_5_vl_moe).
    return replace(text, layers=shapes.stack(len(text.layers), both), weights=tuple(w for w in text.weights if w.name != "lm_head.bias"))


flex_olmo = reader(Block(head_norms=True, norm_per_head=True, experts=LOCAL))


def cohere2_moe(f: Fields) -> ModelSpec:
    """Cohere 2 with experts: the leading dense layers count their own window pattern, the sparse ones begin it anew."""
    layers, first = f.layers("num_hidden_layers"), f.int_or(0, "first_k_dense_replace", low=0)
    steps = f.int_or(1, "prefix_dense_sliding_window_pattern"), f.int_or(4, "sliding_window_pattern")
    if f.raw.get("layer_types") is None:
        at = [(i + 1) % steps[0] if i < first else (i - first + 1) % steps[1] for i in range(layers)]
        types: object = ["sliding_attention" if x else "full_attention" for x in at]
    else:
        types = f.raw["layer_types"]
    inner = f.variant({**f.raw, "layer_types": types})
    e = Experts(count=("num_experts",), width=WIDE, shared="num_shared_experts", first_dense=("first_k_dense_replace",))
    width = ("prefix_dense_intermediate_size", "intermediate_size")
    return read(inner, Block(norms=1, tied=True, head_dim_default=128, windows=pattern(4096, last_of), width=width, experts=e,
                             ignore=("sliding_window_pattern",), quirks=frozenset({"vllm_window_plus_one"})))  # fmt: skip

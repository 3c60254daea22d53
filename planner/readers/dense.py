"""Dense decoders of today, as records of how each differs from Llama's block; parameter counts equal transformers 5.24's classes."""

from __future__ import annotations

import math
from dataclasses import replace

from planner.model import Attention, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.block import Block, read, reader
from planner.readers.doubts import between
from planner.readers.fields import MAX_TOKENS, Fields
from planner.readers.llama import FULL, WINDOW
from planner.readers.windows import TYPES, Windows, counted_back, first_of, last_of, listed, never, pattern, switch

LLAMA = Block(mlp_bias=("mlp_bias", False))
OLMO2 = Block(head_norms=True, norm_per_head=True)
EVERY_FOURTH = pattern(4096, last_of, 4, ("sliding_window_pattern",))

# -- OLMo: the first has norms without weights, the later ones norm the whole query and key --------------------------------------------
olmo = reader(Block(norms=0, final_norm=False))
olmo2 = reader(OLMO2)
olmo3 = reader(Block(head_norms=True, norm_per_head=True, windows=EVERY_FOURTH))

# -- Cohere: one norm before attention and feed-forward in parallel ------------------------------------------------------------------------
cohere = reader(Block(norms=1, tied=True, head_norms=("use_qk_norm", False), norm_per_head=True))
cohere2 = reader(Block(norms=1, tied=True, windows=EVERY_FOURTH, quirks=frozenset({"vllm_window_plus_one"})))


# -- StableLM, Phi, StarCoder2, Nemotron, Persimmon: LayerNorm ---------------------------------------------------------------------------------
def _stablelm_norms(f: Fields) -> int:
    return 1 if f.flag("use_parallel_residual") else 2


stablelm = reader(Block(qkv_bias=("use_qkv_bias", False), o_bias=False, norm_bias=True, norms=_stablelm_norms,
                        head_norms=("qk_layernorm", False), norm_per_head=True))  # fmt: skip
phi = reader(Block(qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norms=1, norm_bias=True, head_norms=("qk_layernorm", False),
                   lm_head_bias=True, ignore=("attention_bias",)))  # fmt: skip
starcoder2 = reader(
    Block(kv="need", qkv_bias=("use_bias", True), o_bias=("use_bias", True), mlp_bias=("use_bias", True), gated=False, norm_bias=True, tied=True)
)
nemotron = reader(Block(kv="need", mlp_bias=("mlp_bias", False), gated=False, norm_bias=True, ignore=("kv_channels",)))
persimmon = reader(Block(kv="mha", qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_bias=True, head_norms=("qk_layernorm", True)))


# -- Granite, GLM, EXAONE, Seed ------------------------------------------------------------------------------------------------------------
granite = reader(LLAMA)
granite_swa = reader(Block(kv="need", mlp_bias=("mlp_bias", False), sinks=True, tied=True, windows=pattern(128, first_of)))
glm = reader(Block(kv="need", head_dim_default=128, qkv_bias=("attention_bias", True), o_bias=False))
glm4 = reader(Block(kv="need", head_dim_default=128, qkv_bias=("attention_bias", True), o_bias=False, norms=4))
exaone = reader(Block(layers=("num_layers", "num_hidden_layers"), mlp_bias=("mlp_bias", False)))
exaone4 = reader(Block(kv="need", qkv_bias=False, o_bias=False, head_norms=True, windows=EVERY_FOURTH))
seed_oss = reader(Block(kv="need", head_dim_default=128, qkv_bias=("attention_bias", True), o_bias=("attention_out_bias", False), mlp_bias=("mlp_bias", False)))


# -- others --------------------------------------------------------------------------------------------------------------------------------
def _xielu(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return (Weight(name="act_fn.alphas", shape=(2,), role="mlp"),)


def _sub_norms(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return shapes.norms(hidden, 1, name="attn_sub_norm") + shapes.norms(m.width, 1, name="ffn_sub_norm")


def _lambdas(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
    return (Weight(name="lambdas", shape=(4, a.qk_dim), role="attention"),)


def _post_norms(f: Fields) -> int:
    return 4 if f.flag("use_post_norm", True) else 2


arcee = reader(Block(gated=False, mlp_bias=("mlp_bias", False)))
apertus = reader(Block(gated=False, head_norms=True, extra=_xielu))
ernie4_5 = reader(Block(kv="need", head_dim_default=128, qkv_bias=("use_bias", False), o_bias=("use_bias", False), mlp_bias=("use_bias", False), tied=True))
hunyuan_dense = reader(Block(head_dim=("head_dim", "attention_head_dim"), head_norms=True, ignore=("use_cla",)))
bitnet = reader(Block(kv="need", extra=_sub_norms))
diffllama = reader(Block(extra=_lambdas))
ministral = reader(Block(kv="need", qkv_bias=False, o_bias=False, windows=pattern(4096, never)))
ministral3 = reader(Block(kv="need", head_dim_default=128, qkv_bias=False, o_bias=False))
cwm = reader(Block(kv="need", head_dim_default=128, qkv_bias=False, o_bias=False, mlp_bias=("mlp_bias", False), windows=pattern(8192, first_of)))
hyperclovax = reader(Block(mlp_bias=("mlp_bias", False), norms=_post_norms))
internlm3 = reader(Block(kv="need", head_dim_default=128, qkv_bias=("qkv_bias", False), o_bias=("bias", False), mlp_bias=("bias", False)))
nanochat = reader(Block(gated=False, norms=0, final_norm=False))
jais2 = reader(Block(gated=False, norm_bias=True, qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), mlp_bias=("mlp_bias", True)))
iquestcoder = reader(Block(kv="need", head_dim_default=128, mlp_bias=("mlp_bias", False)))
mimo = reader(Block(qkv_bias=True, o_bias=False, windows=switch, ignore=("num_nextn_predict_layers",)))


def _nope_windows(f: Fields, layers: int) -> Windows:
    """SmolLM3: a switched-on window counts on the layers without RoPE (`no_rope_layers[i]` = 1 means has RoPE)."""
    rope, step = f.list_of("no_rope_layers", int, layers), f.int_or(4, "no_rope_layer_interval")
    window = f.optional_int("sliding_window", low=0, high=MAX_TOKENS) or None
    types = shapes.layer_types(f, layers, TYPES)
    on = f.flag("use_sliding_window")
    if types is None:
        types = [WINDOW if on and not (rope[i] if rope else (i + 1) % step) else FULL for i in range(layers)]
    return [window if t == WINDOW else None for t in types], ()


smollm3 = reader(Block(kv="need", mlp_bias=("mlp_bias", False), tied=True, windows=_nope_windows))


def apertus1p5(f: Fields) -> ModelSpec:
    """Apertus 1.5: the head may be narrower than the embedding (`output_vocab_size`)."""
    spec = read(f, Block(gated=False, head_norms=True, extra=_xielu))
    rows = f.optional_int("output_vocab_size")
    if rows is None:
        return spec
    return replace(spec, weights=tuple(replace(w, shape=(rows, *w.shape[1:]), parts=rows) if w.role == "lm_head" else w for w in spec.weights))


def doge(f: Fields) -> ModelSpec:
    """Doge's dynamic mask chooses which rows are read; all are kept (transformers 5.24, measured). Its experts are rows of embeddings."""
    biased, experts = f.flag("attention_bias"), 0
    if f.flag("is_moe"):
        experts = f.need_int("num_experts", high=MAX_TOKENS)

    def more(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
        out = (
            Weight(name="residuals", shape=(2, hidden), role="norm"),
            Weight(name="A", shape=(a.kv_heads,), role="attention"),
            *shapes.whole("dt_proj", a.kv_heads, a.kv_heads * a.v_dim, "attention", biased),
        )
        return (*out, Weight(name="expert_rows", shape=(2 * math.isqrt(experts) + 2 * experts, hidden), role="mlp")) if experts else out

    return read(f, Block(mlp_bias=("mlp_bias", False), head_norms=True, extra=more, ignore=("keep_window_size", "num_experts")))


def helium(f: Fields) -> ModelSpec:
    """Helium; transformers makes its output projection square whatever the head size, which works for one head size only."""
    spec = read(f, Block(kv="need", head_dim_default=128, o_bias=False, mlp_bias=("mlp_bias", False)))
    a, hidden = spec.layers[0].attention, spec.hidden_size
    made = hidden * hidden * len(spec.layers)
    used = made if a is None else hidden * a.q_heads * a.v_dim * len(spec.layers)
    return replace(spec, doubts=spec.doubts + between("doubt_class_differs", used, made, f.name("head_dim")))


# -- text parts of newer families ------------------------------------------------------------------------------------------------------------
cohere_compass = reader(Block(norms=1, tied=True, windows=listed, ignore=("sliding_window_pattern", "head_dim")))
cosmos3_edge = reader(Block(kv="need", head_dim_default=128, gated=False, mlp_bias=("mlp_bias", False)))
glm_ocr = reader(Block(qkv_bias=False, o_bias=False, norms=4))
muse_glimmer = reader(Block(kv="need", head_dim_default=128, gate="full", norms=4, windows=pattern(2048, counted_back)))


def molmo2(f: Fields) -> ModelSpec:
    """Molmo 2's text part: rows for image and control tokens beside the embedding (`additional_vocab_size`), which the head does not have."""
    whole = f.text("qk_norm_type") == "olmo"
    more = f.int_or(128, "additional_vocab_size", low=0)

    def outer(g: Fields, hidden: int, vocab: int) -> tuple[Weight, ...]:
        return (Weight(name="new_embedding", shape=(more, hidden), role="embedding"),) if more else ()

    bias = ("qkv_bias" if f.has("qkv_bias") else "attention_bias", False)
    return read(f, Block(kv="need", head_dim_default=128, qkv_bias=bias, o_bias=False, head_norms=True, norm_per_head=whole, outer=outer))


def voxtral_realtime(f: Fields) -> ModelSpec:
    """Mistral's block, windowed, with a small network in each layer that scales the feed-forward's input by the delay."""

    def delay(hidden: int, a: Attention, m: Mlp) -> tuple[Weight, ...]:
        return (Weight(name="ada_rms_norm", shape=(2 * 32, hidden), role="norm"),)

    return read(f, Block(qkv_bias=False, o_bias=False, tied=True, windows=pattern(4096, never), extra=delay))


def modernbert_decoder(f: Fields) -> ModelSpec:
    """ModernBERT as a decoder: every third layer full from layer 0, the others windowed at *half* of `local_attention` (transformers 5.24
    models/modernbert_decoder). No norm before the first attention; a dense layer and a norm before the head."""
    half = f.need_int("local_attention", low=2, high=MAX_TOKENS) // 2 if "local_attention" in f.raw else None
    raw = {k: v for k, v in f.raw.items() if k != "sliding_window"}
    inner = f.variant(raw if half is None else {**raw, "sliding_window": half})
    bias = f.flag("norm_bias")

    def outer(g: Fields, hidden: int, vocab: int) -> tuple[Weight, ...]:
        head = shapes.whole("head.dense", hidden, hidden, "lm_head", g.flag("classifier_bias")) + shapes.norms(hidden, 2, bias)
        return head + ((Weight(name="decoder.bias", shape=(vocab,), role="lm_head", parts=vocab),) if g.flag("decoder_bias", True) else ())

    spec = read(inner, Block(kv="mha", mlp_bias=("mlp_bias", False), norm_bias=bias, tied=True, outer=outer,
                             windows=pattern(64, first_of, 3, ("global_attn_every_n_layers",))))  # fmt: skip
    f.ignore("sliding_window")
    first = spec.layers[0]
    norm = shapes.norms(spec.hidden_size, 1, bias)
    bare = tuple(w for w in first.weights if w.name != "norm") + norm
    return replace(spec, layers=(replace(first, weights=bare), *spec.layers[1:]))

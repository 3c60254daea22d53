"""The BERT line built as a decoder (BertLMHeadModel, RobertaForCausalLM ...): such a class keeps every K and V; an encoder keeps nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from planner.errors import UnsupportedModel
from planner.model import Attention, LayerSpec, Mlp, ModelSpec, Weight
from planner.readers import shapes
from planner.readers.build import model
from planner.readers.fields import Fields

CAUSAL = ("ForCausalLM", "LMHeadModel", "GenerationDecoder")


def bert(f: Fields, *, types: bool = True, embed_norm: bool = True, last_norm: bool = False, transform: bool = True, kind: str = "") -> ModelSpec:
    """`types`: token types are embedded; `embed_norm`: a norm behind the embedding; `last_norm`: one behind the layers; `transform`: a
    dense layer and a norm before the head. `kind`: electra and roc_bert embed in another width, roformer keeps a table of sines."""
    names = f.raw.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    if name and not name.endswith(CAUSAL):
        raise UnsupportedModel("encoder_class", field="architectures", architecture=name[:80])
    for key in ("add_cross_attention", "is_encoder_decoder"):
        if f.raw.get(key):
            raise UnsupportedModel("foreign_key", field=f.name(key), value="true")
    layers, hidden = f.layers("num_hidden_layers"), f.need_int("hidden_size")
    q = f.need_int("num_attention_heads", high=65_536)
    dim = shapes.head_dim(f, hidden, q)
    a, m = Attention(q_heads=q, kv_heads=q, qk_dim=dim, v_dim=dim), Mlp(width=f.need_int("intermediate_size"), gated=False)
    layer = LayerSpec(
        caches=(shapes.rows_of(a),), attention=a, mlp=m, weights=shapes.gqa(hidden, a, True, True) + shapes.mlp(hidden, m, True) + shapes.norms(hidden, 2, True)
    )
    vocab, rows = f.need_int("vocab_size"), f.need_int("max_position_embeddings")
    width = hidden
    if kind in ("electra", "roformer", "rembert"):
        width = f.need_int("input_embedding_size" if kind == "rembert" else "embedding_size")
    head = f.need_int("output_embedding_size") if kind == "rembert" else width
    outer: tuple[Weight, ...] = (Weight(name="lm_head.bias", shape=(vocab,), role="lm_head", parts=vocab),)
    if kind == "roformer":
        outer += (Weight(name="sines", shape=(rows, dim), role="position"),)
    else:
        outer += (Weight(name="embed_positions", shape=(rows, width), role="position"),)
    if kind in ("", "roformer", "roc_bert") and f.raw.get("tie_word_embeddings") is False:  # a head of its own has a bias of its own beside
        outer += (Weight(name="head.decoder.bias", shape=(vocab,), role="lm_head", parts=vocab),)
    if types:
        outer += (Weight(name="token_types", shape=(f.need_int("type_vocab_size"), width), role="embedding"),)
    if f.text("model_type") == "ernie" and f.flag("use_task_id"):
        outer += (Weight(name="task_types", shape=(f.int_or(3, "task_type_vocab_size"), width), role="embedding"),)
    if embed_norm:
        outer += shapes.norms(width, 1, True, name="embed_norm")
    if width != hidden:
        outer += shapes.whole("embeddings_project", hidden, width, "embedding", bias=True)
    if transform:
        outer += shapes.whole("head.dense", head, hidden, "lm_head", bias=True) + shapes.norms(head, 1, True, name="head.norm")
    if kind == "roc_bert":
        outer += _roc_bert(f, hidden)
    if kind == "rembert":
        outer += (Weight(name="head.decoder", shape=(vocab, head), role="lm_head", parts=vocab),)
    final = shapes.norms(hidden, 1, True) if last_norm else ()
    spec = model(f, (layer,) * layers, hidden=hidden, vocab=vocab, tied_default=True, embed_width=width, final_norm=final, extra=outer)
    if kind == "rembert":  # the head above is never the embedding, which is narrower: what the file says of it makes no difference
        spec = replace(spec, weights=tuple(w for w in spec.weights if w.name != "lm_head"), tied_embeddings=True)
    return spec


def _roc_bert(f: Fields, hidden: int) -> tuple[Weight, ...]:
    """Pronunciation and shape embeddings, mapped to the hidden width together with the token's. What is switched off has its table all the
    same, and no part in the map."""
    wide, out = hidden, tuple[Weight, ...]()
    for name in ("pronunciation", "shape"):
        size = f.need_int(f"{name}_embed_dim")
        out += (Weight(name=f"{name}_embed", shape=(f.need_int(f"{name}_vocab_size"), size), role="embedding"),)
        wide += size if f.flag(f"enable_{name}", True) else 0
    return out + (shapes.whole("map_inputs_layer", hidden, wide, "embedding", bias=True) if f.flag("concat_input", True) else ())


electra = partial(bert, kind="electra")
roformer = partial(bert, kind="roformer")
rembert = partial(bert, kind="rembert")
roc_bert = partial(bert, kind="roc_bert")
bert_generation = partial(bert, types=False, transform=False)
prelayernorm = partial(bert, last_norm=True)
xlm_roberta_xl = partial(bert, embed_norm=False, last_norm=True)

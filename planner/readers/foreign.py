"""A last look at what no reader asked for: keys by which some family changes its cache, set in a file whose family does not know them.

A family's reader may pass over such a key without a word (a Llama file with `kv_lora_rank`, a `per_layer_config`). Unless it says what was
read anyway, the file is refused by name.
"""

from __future__ import annotations

from typing import Any

from planner.cache import Cross, Rows, State
from planner.errors import UnsupportedModel, UnsupportedValue
from planner.model import ModelSpec
from planner.readers.block import SHAPING
from planner.readers.fields import Fields
from planner.readers.shapes import LEGACY_TYPES

INDEXED = "indexed_attention"
OF_STATES = frozenset("mamba_d_state ssm_state_size state_size linear_num_key_heads linear_key_head_dim conv_L_cache".split())


def refuse_foreign(f: Fields, spec: ModelSpec) -> None:
    """Raises UnsupportedModel (`foreign_key`) for a set key of SHAPING that was not read and that says something new, and
    UnsupportedValue (`heads_not_dividing`) where more heads than the hidden size leave rows of no width."""
    for kind, where in spec.cache_groups():
        if isinstance(kind, Rows) and kind.k_dim < 1:
            a = spec.layers[where[0]].attention
            raise UnsupportedValue("heads_not_dividing", field=f.name("num_attention_heads"), hidden=spec.hidden_size, q_heads=a.q_heads if a else kind.heads)
    for key, value in f.unread().items():
        if key in SHAPING and value not in (None, False, 0, "", [], {}) and not _says_nothing_new(key, value, f, spec):
            text = repr(value)
            raise UnsupportedModel("foreign_key", field=f.name(key), value=text if len(text) <= 60 else text[:57] + "...")


def _says_nothing_new(key: str, value: Any, f: Fields, spec: ModelSpec) -> bool:
    kinds = [kind for kind, _ in spec.cache_groups()]
    attentions = {layer.attention for layer, _ in spec.layer_groups() if layer.attention is not None}
    if key in ("is_encoder_decoder", "add_cross_attention"):
        return any(isinstance(k, Cross) for k in kinds)
    if key == "num_key_value_heads":  # written beside `multi_query`, say
        return bool(attentions) and all(a.kv_heads == value for a in attentions)
    if key == "head_dim":
        return bool(attentions) and all(a.qk_dim == value == a.v_dim for a in attentions)
    if key == "index_topk":  # how many tokens an indexer chooses: all are kept
        return "index_head_dim" in f.seen
    if key == "layer_types":  # transformers' own name for layers with an indexer, in families that have nothing else
        return isinstance(value, list) and {LEGACY_TYPES.get(str(t), str(t)) for t in value} == {INDEXED} and any(k.kind == "index" for k in kinds)
    return key in OF_STATES and not any(isinstance(k, State) for k in kinds)

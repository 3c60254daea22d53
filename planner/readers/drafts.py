"""MTP / nextn layers: draft layers behind the stack, which cache only while speculation is on.

Each adds a layer of the same kind as the stack's (vLLM 0.33 model_executor/models/deepseek_mtp.py, qwen3_5_mtp.py, mimo_v2_mtp.py). What
its caches are is a rule of the family; its weights are taken to be those of the stack's layer plus the projection that joins the two inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.cache import Rows
from planner.errors import UnsupportedValue
from planner.model import LayerSpec, ModelSpec, Weight
from planner.readers.fields import Fields

COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
MAX_DRAFTS = 64
Pick = Callable[[Fields, ModelSpec, int], list[LayerSpec]]


def draft_layers(f: Fields, spec: ModelSpec) -> tuple[LayerSpec, ...]:
    """The draft layers that the file names; () where it names none. Raises UnsupportedValue where a family's list does not say them."""
    key = next((k for k in COUNTS if f.raw.get(k) is not None), None)
    count = f.optional_int(key, low=0, high=MAX_DRAFTS) if key else None
    if not count or not spec.layers:
        return ()
    chosen = _PICKS.get(spec.model_type, _like_the_stack)(f, spec, count)
    return tuple(_joined(layer, spec.hidden_size) for layer in chosen)


def _joined(layer: LayerSpec, hidden: int) -> LayerSpec:
    """The layer with the projection of (embedding, hidden state) to one input, and the norms of both."""
    joint = (
        Weight(name="eh_proj", shape=(hidden, 2 * hidden), role="attention", quantizable=True),
        Weight(name="draft_norm", shape=(hidden,), role="norm", copies=3),
    )
    return replace(layer, weights=layer.weights + joint)


def _endless(layer: LayerSpec) -> bool:
    return any(isinstance(k, Rows) and k.limit_tokens is None for k in layer.caches)


def _like_the_stack(f: Fields, spec: ModelSpec, count: int) -> list[LayerSpec]:
    """The last layer that keeps endless rows, with an index key of its own where any layer has one; all windowed: the last layer."""
    endless = [layer for layer in spec.layers if _endless(layer)]
    pool = endless or [layer for layer in spec.layers if layer.caches] or list(spec.layers)
    indexed = [layer for layer in pool if any(isinstance(k, Rows) and k.format == "index" for k in layer.caches)]
    return [(indexed or pool)[-1]] * count


def _one_attention(f: Fields, spec: ModelSpec, count: int) -> list[LayerSpec]:
    """LongCat: a layer of the stack has two attentions, a draft layer one."""
    last = spec.layers[-1]
    return [replace(last, caches=last.caches[:1])] * count


def _windowed(f: Fields, spec: ModelSpec, count: int) -> list[LayerSpec]:
    """MiMo-V2 and DeepSeek-V4: draft layers keep the window alone."""
    found = [layer for layer in spec.layers if any(isinstance(k, Rows) and k.window is not None for k in layer.caches)]
    if not found:
        return _like_the_stack(f, spec, count)
    return [replace(found[-1], caches=tuple(k for k in found[-1].caches if isinstance(k, Rows) and k.window is not None))] * count


def _by_list(key: str) -> Pick:
    """The kinds stand in a list: behind the stack's in `layer_types` (Step-3.5), or in one of their own (Mellum)."""

    def pick(f: Fields, spec: ModelSpec, count: int) -> list[LayerSpec]:
        types = f.list_of(key, str)
        tail = (types or [])[len(spec.layers) :] if key == "layer_types" else types
        if not tail:
            return _windowed(f, spec, count)
        if len(tail) < count:
            raise UnsupportedValue("list_length", field=f.name(key), got=len(tail), want=count)
        full, near = _like_the_stack(f, spec, 1)[0], _windowed(f, spec, 1)[0]
        return [near if "sliding" in t else full for t in tail[:count]]

    return pick


def _nemotron(f: Fields, spec: ModelSpec, count: int) -> list[LayerSpec]:
    """`mtp_layers_block_type` names the blocks of one draft step: those with attention keep rows."""
    blocks = f.list_of("mtp_layers_block_type", str) or ["attention"]
    attention = _like_the_stack(f, spec, 1)[0]
    if unknown := [b for b in blocks if b not in ("attention", "full_attention", "moe", "mlp")]:
        raise UnsupportedValue("unknown_layer_type", field=f.name("mtp_layers_block_type"), value=unknown[0][:60], known="attention, moe, mlp")
    return [attention] * (count * sum("attention" in b for b in blocks))


_PICKS: dict[str, Pick] = {
    "deepseek_ref": _windowed,
    "deepseek_v4": _windowed,
    "longcat_flash": _one_attention,
    "mellum": _by_list("mtp_layer_types"),
    "mimo_v2_flash": _windowed,
    "nemotron_h": _nemotron,
    "step3p5": _by_list("layer_types"),
    "step3p7": _by_list("layer_types"),
}

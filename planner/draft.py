"""A draft model that runs beside the model: its layers cache in the same pool, its weights stand beside the model's.

vLLM 0.33 v1/spec_decode/draft_model.py, v1/core/kv_cache_planning.py: the draft's layers are layers of the plan like all others, on the last
pipeline stage, with the tensor ranks and the cache dtype of the model. How far it drafts: --num-speculative-tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.errors import InvalidInput, UnsupportedModel
from planner.model import ModelSpec
from planner.notes import cite, note
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import Loaded, known_weight_bytes
from planner.weights import bytes_on_rank, weight_format

QUIRK = "draft_model"
SOURCE = cite("vLLM 0.33 v1/spec_decode/draft_model.py (read)")


def with_stored_weights(s: Scenario, provenance: Mapping[str, Any]) -> Scenario:
    """The same choices with the weights' stored bytes, where the source told them and nothing else was asked for."""
    if s.weight_bytes is not None or s.weight_dtype is not None:
        return s
    return replace(s, weight_bytes=known_weight_bytes(provenance))


def attach(model: ModelSpec, s: Scenario, provenance: Mapping[str, Any], opened: Callable[[str], Loaded]) -> tuple[ModelSpec, Scenario]:
    """The model with the draft that `s` names behind its layers, and `s` with the stored bytes of all weights, where they are known.

    `opened` gives the config of a source. Raises PlannerError for a draft that cannot be read or that no engine runs beside the model."""
    stored = with_stored_weights(s, provenance)
    if not s.draft:
        return model, stored
    check(s)
    found = opened(s.draft)
    draft = read_config(found.raw, found.name)
    if s.weight_bytes is None and stored.weight_bytes is not None:
        own = known_weight_bytes(found.provenance) or bytes_on_rank(draft, weight_format(draft, None, draft.dtype), Parallel())
        stored = replace(stored, weight_bytes=stored.weight_bytes + own)
    return joined(model, draft), stored


def check(s: Scenario) -> None:
    """Raises InvalidInput where a draft is named without tokens to draft, or with pipeline stages."""
    if s.draft and not s.num_speculative_tokens:
        raise InvalidInput("draft_needs_tokens", field="num_speculative_tokens")
    if s.draft and s.pp > 1:
        raise InvalidInput("draft_one_stage", field="pp", value=s.pp)


def joined(model: ModelSpec, draft: ModelSpec) -> ModelSpec:
    """`model` with the layers and weights of `draft` in the place of its own draft layers. Raises UnsupportedModel for encoder-decoders."""
    if draft.encoder_layers or model.encoder_layers:
        raise UnsupportedModel("draft_not_covered", field="draft", model_type=draft.model_type)
    said = note("assumed", "draft_model", field="draft", source=SOURCE, name=draft.name or draft.model_type, layers=len(draft.layers))
    outer = tuple(replace(w, name=f"draft.{w.name}") for w in draft.weights)
    resting = model.resting()
    return replace(resting, draft_layers=draft.resting().layers, weights=resting.weights + outer, quirks=resting.quirks | {QUIRK},
                   doubts=resting.doubts + draft.doubts, notes=(*resting.notes, said))  # fmt: skip

"""Images in a prompt: how many tokens each takes, where the config alone tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import UnsupportedModel
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.scenario import MAX_TOKENS, Scenario

SOURCE = cite("config.json: tokens an image; transformers 5.24 processing_*.py")


def with_images(model: ModelSpec, s: Scenario) -> tuple[Scenario, tuple[Note, ...]]:
    """The same choices with the images' tokens in the prompt and no images beside them: what is planned; and what was added.

    Raises UnsupportedModel for a model that sees no images, and where their tokens hang on each image's size."""
    if not s.images:
        return s, ()
    each = model.server.image_tokens
    if each is None:
        raise UnsupportedModel("no_images", field="images", model_type=model.model_type)
    if not each:
        raise UnsupportedModel("image_tokens_vary", field="images", model_type=model.model_type)
    more = s.images * each
    longer = replace(s, images=0, tokens=min(s.tokens + more, MAX_TOKENS), prompt=None if s.prompt is None else min(s.prompt + more, MAX_TOKENS))
    return longer, (note("derived", "images_added", field="images", source=SOURCE, images=s.images, each=each, tokens=longer.tokens),)


def for_asked(asked: Scenario, planned: Scenario, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of `planned`, whose lengths hold the images' tokens, as changes of `asked`, whose lengths do not: they plan the same. A length
    that has no room for the images is one without them."""
    more = planned.tokens - asked.tokens
    lengths = {k: v - more for k, v in changes.items() if k in ("tokens", "prompt") and v is not None}
    if not asked.images or not lengths:
        return dict(changes)
    if min(lengths.values()) > 0:
        return {**changes, **lengths}
    return {"tokens": planned.tokens, "prompt": planned.prompt, **changes, "images": 0}

"""Images in a prompt: how many tokens each takes, where the config alone tells."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedModel
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.scenario import MAX_TOKENS, Scenario

SOURCE = cite("config.json: tokens an image; transformers 5.24 processing_*.py")


def with_images(model: ModelSpec, s: Scenario) -> tuple[Scenario, tuple[Note, ...]]:
    """The same choices with the images' tokens in the prompt, so that the result can be planned again; and what was added.

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

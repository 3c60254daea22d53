"""Every key of every family's config, dropped, nulled, renamed or made a string: refused, without effect, or named in a note. A cache
that changes without a word would be a guess. The same for a key that nobody knows but that sounds like the cache's shape."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.errors import PlannerError
from planner.footprint import measure
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario
from tests.conftest import small_configs

TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "language_model", "text_model")
Config = dict[str, Any]


def drop(section: Config, key: str) -> None:
    del section[key]


def null(section: Config, key: str) -> None:
    section[key] = None


def rename(section: Config, key: str) -> None:
    section[f"{key}_x"] = section.pop(key)


def stringify(section: Config, key: str) -> None:
    section[key] = json.dumps(section[key])


def sizes(config: Config) -> tuple[ModelSpec, list[int]]:
    spec = read_config(config)
    bare = [Scenario(engine="architecture", tokens=t, sequences=1) for t in (100, 3000, 100_000)]
    return spec, [measure(spec, None, s).architecture_bytes for s in bare]


def section_of(config: Config) -> Config:
    """The innermost section that describes the language model."""
    inner = next((config[k] for k in TEXT if isinstance(config.get(k), dict)), None)
    return config if inner is None else section_of(inner)


def said(spec: ModelSpec) -> set[tuple[str, str, str]]:
    return {(n.code, n.field, n.text) for n in spec.notes}


@pytest.mark.parametrize("mutate", [drop, null, rename, stringify])
def test_no_key_changes_the_cache_without_a_word(mutate: Callable[[Config, str], None]) -> None:
    silent, changed = [], 0
    for name, config in small_configs():
        spec, before = sizes(config)
        for key in section_of(config):
            if key in ("model_type", "architectures"):
                continue
            mutant = copy.deepcopy(config)
            mutate(section_of(mutant), key)
            try:
                other, after = sizes(mutant)
            except PlannerError:
                changed += 1
                continue
            changed += after != before
            if after != before and not said(other) - said(spec):
                silent.append(f"{name}.{key}")
    assert not silent
    assert changed > 1000


@pytest.mark.parametrize(
    ("key", "value"), [("new_sliding_window", 4096), ("kv_heads_shared_every", 2), ("brand_new_layer_types", ["a", "b"]), ("kv_compress_ratio", 4)]
)
def test_a_key_that_sounds_like_the_caches_shape_is_never_passed_over(key: str, value: Any) -> None:
    for name, config in small_configs():
        if config.get("model_type") in ("kvledger_layers", "deepseek_ref") or "model_type" not in config:
            continue
        mutant = copy.deepcopy(config)
        section_of(mutant)[key] = value
        try:
            spec = read_config(mutant)
        except PlannerError:
            continue
        assert any(n.code == "unread_shape_key" and n.field.endswith(key) for n in spec.notes), name

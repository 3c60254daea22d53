"""What a command line calls the model: a name that the engine can load, wherever the plan's config came from."""

from __future__ import annotations

import shlex

import pytest

from planner.capacity import plan
from planner.hardware import find
from planner.launch import launch
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load

ROW = load("catalog:Llama-3.1-8B").raw


def words(name: str, model: str, engine: str = "vllm") -> list[str]:
    found = launch(plan(read_config(ROW, model), find("H100 SXM"), Scenario(model=name, engine=engine)))
    return shlex.split(found[engine])


@pytest.mark.parametrize(
    ("name", "model", "served"),
    [
        ("Llama-3.1-8B", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),  # the catalog's row has a hub id
        ("catalog:Llama-3.1-8B", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("org/x", "x", "org/x"),
        ("https://huggingface.co/org/x/blob/main/config.json", "x", "org/x"),
        ("upload", "mine", "mine"),  # a file of the user's own
        ("a; rm -rf /", "x", "a; rm -rf /"),  # no hub id: as it was written, quoted
    ],
)
def test_the_model_is_named_as_an_engine_loads_it(name: str, model: str, served: str) -> None:
    assert words(name, model)[:3] == ["vllm", "serve", served]
    assert "--revision" not in words(name, model)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_pinned_revision_stays_pinned(engine: str) -> None:
    assert words("org/x@abc123", "x", engine)[-2:] == ["--revision", "abc123"]

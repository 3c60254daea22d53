"""MTP layers keep nothing until speculation is on; then each is one more layer of the family's kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from planner.cache import Rows
from planner.capacity import plan
from planner.errors import InvalidInput, UnsupportedValue
from planner.footprint import measure
from planner.hardware import find
from planner.parallel import Parallel
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import catalog
from tests.conftest import CONFIGS


def config(name: str, **more: Any) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text()) | more


# family, its keys, (layers of drafts, bytes a token and draft layer in bf16 where it is endless, else the window)
CASES = [
    ("deepseek_v3", {"num_nextn_predict_layers": 1}, 1, [("latent", 1152)]),
    ("deepseek_v32", {"num_nextn_predict_layers": 1}, 1, [("latent", 1152), ("index", 256)]),
    ("mimo", {"num_nextn_predict_layers": 2}, 2, [("full", 1024)]),
    ("qwen3_5_text", {"mtp_num_hidden_layers": 1}, 1, [("full", 2048)]),
]


def rows(model: Any) -> list[tuple[str, int]]:
    return [(k.kind, 2 * k.heads * (k.k_dim + k.v_dim)) for k in model.speculating().layers[-1].caches]


@pytest.mark.parametrize(("name", "keys", "drafts", "kinds"), CASES)
def test_draft_layers_by_family(name: str, keys: dict[str, Any], drafts: int, kinds: list[tuple[str, int]]) -> None:
    without, model = read_config(config(name) | dict.fromkeys(keys, 0)), read_config(config(name, **keys))
    assert model.layers == without.layers, "draft layers are no part of the stack"
    assert len(model.draft_layers) == drafts
    assert not without.draft_layers
    assert rows(model) == kinds
    both = model.speculating()
    assert len(both.layers) == len(model.layers) + drafts
    assert both.drafts == drafts
    assert both.resting() == model
    assert both.speculating() is both


def test_only_the_flag_counts_them() -> None:
    """DeepSeek-V3: 61 latent layers of 1,152 bytes a token, 62 while it drafts."""
    name = catalog.name_of("DeepSeek-V3")
    assert name is not None
    _, raw = catalog.row(name)
    model = read_config(raw | {"num_nextn_predict_layers": 1}, "DeepSeek-V3")
    s = Scenario(model="DeepSeek-V3", engine="architecture", tokens=1000, sequences=1)
    assert measure(model, None, s).architecture_bytes == 61 * 1152 * 1000
    assert measure(model, None, replace(s, num_speculative_tokens=1)).architecture_bytes == 62 * 1152 * 1000
    p = plan(model, find("H200"), replace(s, engine="vllm", gpus=16, tp=8, pp=2, num_speculative_tokens=1))
    assert any(n.code == "draft_layers" for n in p.notes)
    assert p.weights_bytes_per_rank[-1] > plan(model, find("H200"), replace(s, engine="vllm", gpus=16, tp=8, pp=2)).weights_bytes_per_rank[-1]


def test_no_draft_layers_is_an_error_with_the_flag() -> None:
    with pytest.raises(InvalidInput) as e:
        measure(read_config(config("llama")), None, Scenario(num_speculative_tokens=3))
    assert e.value.field == "num_speculative_tokens"
    assert e.value.code == "no_draft_layers"


def test_drafts_stand_on_the_last_stage() -> None:
    assert [list(r) for r in Parallel(pipeline=2).stage_layers(7, 1)] == [[0, 1, 2], [3, 4, 5, 6]]
    assert [len(r) for r in Parallel(pipeline=4).stage_layers(62, 1)] == [15, 15, 16, 16]


def test_window_families_draft_with_the_window() -> None:
    for name in ("deepseek_v4", "mimo_v2_flash"):
        model = read_config(config(name, num_nextn_predict_layers=1))
        kinds = model.draft_layers[0].caches
        assert kinds, name
        assert all(isinstance(k, Rows) and k.window is not None for k in kinds), name


def test_step_takes_the_kinds_behind_the_stack() -> None:
    raw = config("step3p5", num_nextn_predict_layers=2)
    stack = raw["layer_types"][: raw["num_hidden_layers"]]
    model = read_config(raw | {"layer_types": [*stack, "sliding_attention", "full_attention"]})
    near, full = model.draft_layers
    assert isinstance(near.caches[0], Rows)
    assert near.caches[0].window
    assert isinstance(full.caches[0], Rows)
    assert full.caches[0].window is None


@pytest.mark.parametrize("value", [-1, 65, "1", 1.5, True, [1]])
def test_a_bad_count_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UnsupportedValue) as e:
        read_config(config("deepseek_v3", num_nextn_predict_layers=value))
    assert e.value.field == "num_nextn_predict_layers"

"""What the tests of SGLang plan, and how they read a plan."""

from __future__ import annotations

from typing import Any

import pytest

from planner.capacity import CapacityPlan, plan
from planner.errors import PlannerError
from planner.hardware import find
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import small_configs

FORTY_GIB = 40 * 2**30
SMALL = dict(small_configs())


def planned(name: str, model: ModelSpec | None = None, **options: Any) -> CapacityPlan:
    model = model or read_config(load(f"catalog:{name}").raw, name)
    s = Scenario(**{"engine": "sglang", "kv_memory": FORTY_GIB, "sequences": 1, "tokens": 1024, **options})
    return plan(model, find(s.gpu), s)


def printed(p: CapacityPlan, *names: str) -> tuple[int, ...]:
    assert p.sizes is not None
    figures = dict(p.sizes.printed)
    return tuple(figures[n] for n in names)


def codes(p: CapacityPlan) -> set[str]:
    return {n.code for n in p.notes}


def refused(name: str, **options: Any) -> str:
    with pytest.raises(PlannerError) as e:
        planned(name, **options)
    return e.value.code


def config(**keys: Any) -> dict[str, Any]:
    """A Llama of 2 layers, 4 query heads, 2 KV heads of 8."""
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 128, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
            **keys}  # fmt: skip

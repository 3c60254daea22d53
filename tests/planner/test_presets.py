"""Loads to start from: each plans, and what it comes to."""

from __future__ import annotations

import re

import pytest

from planner.capacity import plan
from planner.hardware import find
from planner.latency import Latency, estimate
from planner.messages import known
from planner.presets import presets
from planner.readers import read_config
from planner.report.content import state_of
from planner.report.summary import summary
from planner.scenario import Scenario, from_options
from planner.sources import catalog, load

# state, KV bytes of the load by the architecture, most sequences at least as many as asked for
WANTED = {
    "chat": ("fits", 2 * 32 * 8 * 128 * 4096 * 100 * 2),
    "rag": ("fits", 2 * 80 * 8 * 128 * 32_768 * 12 * 2),
    "mla": ("fits", 61 * (512 + 64) * 8192 * 128 * 2),
    "laptop": ("fits", 2 * 36 * 8 * 128 * 16_384 * 2),
}


def test_every_preset_is_here_and_named() -> None:
    assert set(presets()) == set(WANTED)
    assert all(known(f"preset.{code}") for code in presets())
    assert Scenario() not in presets().values()


@pytest.mark.parametrize("code", WANTED)
def test_each_plans_with_an_answer(code: str) -> None:
    s = presets()[code]
    assert from_options(s.to_query()) == s
    p = plan(read_config(load(f"catalog:{s.model}").raw, s.model), find(s.gpu), s)
    assert (state_of(p), p.footprint.architecture_bytes * p.replicas) == WANTED[code]
    assert p.total_max_sequences >= s.sequences
    assert isinstance(estimate(p), Latency) or code == "laptop"  # whose peak is not known
    text = summary(p, "http://x/?a=b")
    assert text.startswith(f"{p.model.name} on {s.gpus} x {find(s.gpu).name}, {s.engine}")
    assert f"({p.load_bytes:,} bytes)" in text
    assert text.endswith("http://x/?a=b")


def test_the_catalog_has_a_date() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", catalog.as_of())

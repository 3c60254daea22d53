"""What is left out where memory or time is short, and that it is said."""

from __future__ import annotations

import sys

import pytest

from gpu_probe import fit as module
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.fit import Fit, Speed, fit, host_memory_bytes, usable_bytes
from gpu_probe.result import ProbeRequest
from gpu_probe.shapes import build_shape, limited
from planner.cache import Rows
from planner.dtypes import kv_layout
from planner.errors import UnsupportedModel
from planner.model import Attention, LayerSpec, Mlp, ModelSpec
from planner.units import GIB, MIB
from tests.gpu_probe.tiny import MODELS, heads, latent, model

LARGE = model(*[heads(32, 8, 128)] * 32, hidden=4096, vocab=128_256)


def fitted(memory: int, spec: ModelSpec = LARGE, speed: Speed | None = None, **asked: int) -> Fit:
    return fit(spec, ProbeRequest(**asked), kv_layout("bf16"), compute_bytes=2, memory_bytes=memory, speed=speed)  # type: ignore[arg-type]


def codes(found: Fit) -> set[str]:
    return {n.code for n in found.notes}


def test_enough_memory_cuts_nothing() -> None:
    found = fitted(64 * GIB)
    assert (len(found.layers), found.shape.vocab, codes(found)) == (32, 128_256, {"probe_random_weights"})


def test_vocabulary_and_width_go_before_layers() -> None:
    assert "probe_layers_cut" not in codes(fitted(3 * GIB + GIB // 2))
    found = fitted(GIB)
    assert 1 <= len(found.layers) < 32
    assert found.shape.vocab == 1024
    assert {"probe_skeleton", "probe_layers_cut"} <= codes(found)
    assert found.needed_bytes <= GIB
    assert found.shape.layers[0].attention == Attention(q_heads=32, kv_heads=8, qk_dim=128, v_dim=128)


def test_more_memory_never_runs_fewer_layers() -> None:
    runs = [len(fitted(m * 100 * MIB).layers) for m in range(5, 40, 5)]
    assert runs == sorted(runs)
    assert runs[0] < runs[-1]


def test_too_little_memory_is_an_error_with_both_figures() -> None:
    with pytest.raises(ProbeOutOfMemory) as short:
        fitted(100 * MIB)
    assert short.value.field == "memory_cap"
    assert short.value.args_by_name["needed"] > short.value.args_by_name["available"] == 100 * MIB


def test_time_cuts_layers_unless_they_were_asked_for() -> None:
    slow = Speed(flop_per_s=2e10)
    assert len(fitted(64 * GIB, speed=slow).layers) < 10
    asked = fitted(64 * GIB, speed=slow, layers=12)
    assert len(asked.layers) == 12
    assert {"probe_skeleton", "probe_layers_asked"} <= codes(asked)


def test_the_pool_holds_prefill_and_end_with_room_to_move() -> None:
    found = fit(MODELS["window"], ProbeRequest(batch=3, prompt=200, output=5), kv_layout("fp32"), compute_bytes=4, memory_bytes=GIB)
    by_kind = dict(zip((p.name for p in found.pools), found.blocks, strict=True))
    assert by_kind["window"] >= 3 * 13 + 4
    assert by_kind["full"] >= 3 * 13 + 4


def test_usable_memory_is_the_least_of_cap_and_what_is_free() -> None:
    assert usable_bytes(ProbeRequest(), 10 * GIB) == 7 * GIB
    assert usable_bytes(ProbeRequest(memory_cap_bytes=GIB), 10 * GIB) == GIB
    assert usable_bytes(ProbeRequest(memory_cap_bytes=20 * GIB), 10 * GIB) == 7 * GIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_host_memory_is_found() -> None:
    assert (host_memory_bytes() or 0) > 16 * MIB


def test_a_control_groups_limit_counts(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cgroup_headroom", lambda: 300 * MIB)
    assert host_memory_bytes() == 300 * MIB


def test_limited_cuts_windows_and_chunks_only() -> None:
    assert [x.caches[0].limit_tokens for x in limited(MODELS["window"], 7).layers] == [7, None, 7]  # type: ignore[union-attr]
    assert limited(MODELS["window"], 21) == MODELS["window"]
    assert limited(MODELS["chunk"], 7).layers[0].caches[0].chunk == 7  # type: ignore[union-attr]


def test_experts_become_one_dense_layer_as_wide_as_a_token_uses() -> None:
    found = fit(model(latent()), ProbeRequest(), kv_layout("fp32"), compute_bytes=4, memory_bytes=GIB)
    assert found.shape.layers[0].mlp_width == 2 * 20 + 8
    assert "probe_experts_dense" in codes(found)


def test_rows_that_do_not_match_the_attention_are_refused() -> None:
    wrong = LayerSpec(caches=(Rows(heads=2, k_dim=8, v_dim=8),), attention=Attention(q_heads=4, kv_heads=4, qk_dim=8, v_dim=8), mlp=Mlp(width=8))
    with pytest.raises(UnsupportedModel) as refused:
        build_shape(model(wrong), (0,), vocab=8, mlp_limit=None)
    assert refused.value.field == "layers[0].attention"
    bare = LayerSpec(caches=(Rows(heads=2, k_dim=8, v_dim=8),))
    assert build_shape(model(bare), (0,), vocab=8, mlp_limit=None).layers[0].attention == Attention(q_heads=2, kv_heads=2, qk_dim=8, v_dim=8)


def test_layers_without_attention_are_run_without() -> None:
    empty = LayerSpec(caches=(), mlp=Mlp(width=8))
    assert build_shape(model(heads(), empty), (0, 1), vocab=8, mlp_limit=None).layers[1].reads is None
    with pytest.raises(UnsupportedModel):
        build_shape(model(empty), (0,), vocab=8, mlp_limit=None)

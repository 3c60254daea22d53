"""Whole runs in this process: the result's figures, the rows, the notes."""

from __future__ import annotations

import json

import pytest

from gpu_probe import device, proof
from gpu_probe.attention import PagedAttention
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.model import ModelSpec
from tests.gpu_probe.tiny import MODELS, heads, keeps, latent, model


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory limit would outlive the test in this process."""
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)


def probed(spec: ModelSpec, events: list[dict[str, object]] | None = None, **asked: object) -> ProbeResult:
    return run(spec, ProbeRequest(device="cpu", **asked), (events if events is not None else []).append)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gqa", "mla", "window", "shared"])
def test_a_run_agrees_and_says_everything(name: str) -> None:
    events: list[dict[str, object]] = []
    result = probed(MODELS[name], events, prompt=60, output=10)
    assert result.bytes_agree
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error < 1e-5
    assert all(row.predicted == row.measured for row in result.rows if row.exact)
    assert (result.absorbed_vs_expanded_max_rel_error is None) == (name != "mla")
    assert (result.layers_run, result.layers_total, len(result.step_s)) == (len(MODELS[name].layers),) * 2 + (10,)
    assert 0 < result.itl_s["p50"] <= result.itl_s["p90"] <= result.itl_s["p99"]
    assert result.proof["own_run"] is False
    assert [e["ev"] for e in events if e["ev"] != "phase"] == ["hello", "plan", "sample"]
    assert ProbeResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_result_of_a_newer_version_can_be_read() -> None:
    result = probed(MODELS["mqa"], prompt=5, output=1)
    newer = {**result.to_json(), "share_of_ceiling": 0.5}
    assert ProbeResult.from_json(newer).extra["share_of_ceiling"] == 0.5


@pytest.mark.parametrize("kv", ["bf16", "fp16", "fp8", "float16"])
def test_a_narrow_cache_is_counted_narrow_and_proved_in_float32(kv: str) -> None:
    result = probed(MODELS["gqa"], prompt=40, output=4, kv_dtype=kv)
    assert result.measured_kv_bytes == result.predicted_kv_bytes == 2 * 48 * 2 * 32 * 3 * (1 if kv == "fp8" else 2)
    assert (result.proof["own_run"], result.proof["dtype"]) == (True, "fp32")
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error < 1e-5


def test_a_window_longer_than_the_run_is_proved_on_a_shorter_one() -> None:
    spec = model(heads(window=1000), heads())
    result = probed(spec, prompt=40, output=4)
    assert (result.proof["own_run"], result.proof["limit_tokens"]) == (True, 21)
    assert "probe_proof_limit" in {n["code"] for n in result.notes}


def test_the_prefill_transient_of_a_window_is_said() -> None:
    result = probed(MODELS["window"], prompt=160, output=4)
    assert "probe_prefill_transient" in {n["code"] for n in result.notes}
    window = next(g for g in result.groups if g["kind"] == "window")
    assert (window["prefill_blocks"], window["held_blocks"]) == (20, 6)


def test_internal_fragmentation_is_what_is_empty() -> None:
    result = probed(MODELS["gqa"], prompt=60, output=10)
    assert result.groups[0]["internal_fragmentation_fraction"] == pytest.approx(10 / 80)


def test_a_broken_run_says_that_it_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PagedAttention.heads
    monkeypatch.setattr(PagedAttention, "heads", lambda self, layer, q, k, v: real(self, layer, q, k, None if v is None else v * 1.01))
    result = probed(MODELS["gqa"], prompt=20, output=4)
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error > proof.TOLERANCE
    assert "probe_proof_failed" in {n["code"] for n in result.notes}


def test_refusals_name_their_field() -> None:
    from planner.cache import State, StateTensor

    state = keeps(State(tensors=(StateTensor(name="ssm", role="recurrent", elements=8),)))
    for error, field, spec, asked in (
        (UnsupportedModel, "layers[1].caches", model(heads(), state), {}),
        (UnsupportedModel, "layers[1].caches", model(heads(), state), {"layers": 1}),
        (UnsupportedValue, "kv_dtype", MODELS["gqa"], {"kv_dtype": "int4_per_token_head"}),
        (UnsupportedValue, "kv_dtype", MODELS["gqa"], {"kv_dtype": "int8"}),
        (UnsupportedValue, "kv_dtype", MODELS["gqa"], {"kv_dtype": "nvfp4"}),
        (UnsupportedValue, "kv_dtype", MODELS["gqa"], {"kv_dtype": "fp8_ds_mla"}),
        (UnsupportedValue, "kv_dtype", MODELS["gqa"], {"kv_dtype": "nonsense"}),
        (InvalidInput, "prompt", MODELS["gqa"], {"prompt": 0}),
        (InvalidInput, "layers", MODELS["gqa"], {"layers": 0}),
    ):
        with pytest.raises(error) as refused:
            probed(spec, **asked)
        assert refused.value.field == field


def test_a_refused_allocation_is_told_with_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*a: object, **kw: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr("gpu_probe.run.random_weights", refuse)
    with pytest.raises(ProbeOutOfMemory) as out:
        probed(MODELS["gqa"])
    assert "9 bytes" in out.value.args_by_name["reason"]
    monkeypatch.setattr("gpu_probe.run.random_weights", lambda *a, **kw: (_ for _ in ()).throw(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        probed(MODELS["gqa"])


def test_a_shared_prompt_of_latent_layers_reads_one_row_for_all_heads() -> None:
    result = probed(model(latent(q=8), latent(q=8)), prompt=16, output=16)
    assert result.measured_kv_bytes == 2 * 32 * 32 * 4 * 2

"""The injected runner: transformers' own model code over our pages. A few families, and faults that must show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the injected runner needs transformers (requirements-dev.txt)")

import torch

from gpu_probe import __main__ as command
from gpu_probe import device, errors, measure, sweep
from gpu_probe.injected import hosted, skeleton
from gpu_probe.injected import run as injected_run
from gpu_probe.injected.families import FAMILIES, Config
from gpu_probe.injected.replay import inject, replay
from gpu_probe.injected.runner import Injected, empty_cache
from gpu_probe.pool import PoolExhausted
from gpu_probe.result import ProbeRequest
from gpu_probe.setup import Progress, set_up
from planner.dtypes import kv_layout
from planner.engines.probe import allocate
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.model import ModelSpec
from planner.readers import read_config

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Products this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory limit would outlive the test in this process."""
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)


def config(model_type: str) -> Config:
    return [c for name, c in FAMILIES if name == model_type][-1]


# Bytes by hand: layers x heads x numbers of a row x held tokens (80 full; windows of 24 keep 3 blocks of 16) x 2 sequences x 4.
@pytest.mark.parametrize(
    ("model_type", "kinds", "handback", "held"),
    [
        ("qwen3", ["full"], False, 3 * 2 * 32 * 80 * 2 * 4),
        ("gemma2", ["full", "window"], False, 2 * 32 * (80 + 2 * 48) * 2 * 4),
        ("gpt_oss", ["full", "window"], False, 2 * 32 * (80 + 2 * 48) * 2 * 4),
        ("llama4_text", ["chunk", "full"], False, 2 * 32 * (80 + 2 * 48) * 2 * 4),
        ("deepseek_v3", ["latent"], False, 3 * 48 * 80 * 2 * 4),
        ("falcon", ["full"], True, 3 * 16 * 80 * 2 * 4),
        ("diffllama", ["full"], True, 3 * 2 * 16 * 80 * 2 * 4),
        # states: two layers, a convolution of 64 channels (2 x 16 keys, 32 values) x 4, and 4 heads of 8 x 8
        ("qwen3_next", ["full", "state"], False, 2 * 32 * 80 * 2 * 4 + 2 * (64 * 4 + 4 * 8 * 8) * 2 * 4),
        # three layers: 128 + 2 x 2 x 16 channels x 4, and 8 heads of 16 x 16
        ("mamba2", ["state"], False, 3 * (192 * 4 + 8 * 16 * 16) * 2 * 4),
    ],
)
def test_a_family_agrees_with_full_recomputation(model_type: str, kinds: list[str], handback: bool, held: int) -> None:
    row = sweep.run_family(read_config, model_type, config(model_type), seed=0)
    assert sweep.wrong(row) == []
    assert row["error"] <= 1e-5
    assert row["predicted"] == row["measured"] == held
    assert (row["kinds"], row["handback"]) == (kinds, handback)
    limited = bool({"window", "chunk"} & set(kinds))
    assert (row["blocks"] < row["blocks_after_prefill"] + 2 * len(kinds)) == (limited or kinds[-1] == "state"), "windows and chunks give blocks back"


@pytest.mark.parametrize(("what", "model_type", "kind"), sweep.CONTROLS)
def test_a_broken_run_is_noticed(what: str, model_type: str, kind: type[Injected]) -> None:
    row = sweep.run_family(read_config, model_type, config(model_type), 0, kind)
    assert row["error"] > sweep.CAUGHT
    assert sweep.wrong(row)


def test_a_prediction_of_other_rows_is_noticed() -> None:
    def misread(raw: dict[str, Any]) -> ModelSpec:
        spec = read_config(raw)
        rows = spec.layers[1].caches[0]
        return replace(spec, layers=(spec.layers[0], replace(spec.layers[1], caches=(replace(rows, k_dim=24),)), spec.layers[2]))  # type: ignore[type-var]

    row = sweep.run_family(misread, "llama", config("llama"), seed=0)
    assert row["error"] <= 1e-5, "the pages follow the model, not the plan"
    assert [w.split()[0] for w in sweep.wrong(row)] == ["predicted"]


def test_a_summary_is_computed_from_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    good = sweep.run_family

    def sometimes(read: Any, model_type: str, raw: Config, seed: int, kind: type[Injected] = Injected) -> dict[str, Any]:
        return good(read, model_type, raw, seed, sweep.OtherSlot if model_type == "gemma" else kind)

    monkeypatch.setattr(sweep, "run_family", sometimes)
    result = sweep.run(read_config, only=["gemma", "mistral", "bloom"])
    assert (result["families"], result["rows_right"], result["rows_total"]) == (1, 1, 2)
    assert [(f["model_type"], f["what"]) for f in result["failures"]] == [("gemma", "row")]
    assert (result["controls_caught"], result["controls_total"]) == (2, 2)
    assert [r["model_type"] for r in result["refused"]] == ["bloom"]
    assert json.loads(json.dumps(result)) == result
    assert "1 families right" in sweep.table(result)


def runner(model_type: str, *, kv: str = "fp32", hand_back: bool = False) -> Injected:
    raw = {"model_type": model_type, **config(model_type)}
    spec, request, cpu = read_config(raw), ProbeRequest(batch=2, prompt=40, output=10), torch.device("cpu")
    pools = allocate(spec, kv=kv_layout(kv), block_size=16)
    model = hosted.build(hosted.config_of(raw), seed=0, dtype=torch.float32, device=cpu)
    storage = device.TORCH_DTYPES[kv]
    if hand_back:
        return Injected(model, spec, empty_cache(spec, pools, request, cpu), storage, hand_back=True)
    return inject(model, spec, pools, request, dtype=storage, device=cpu)


@pytest.mark.parametrize("model_type", ["mistral", "gemma2", "deepseek_v3"])
def test_rows_can_be_handed_back_instead(model_type: str) -> None:
    """Windows and latent rows too: slower, and the same answer."""
    made = runner(model_type, hand_back=True)
    ids = torch.randint(3, 256, (2, 50), generator=torch.Generator().manual_seed(1))
    expected = made.reference(ids)
    got, _, _ = replay(made, ids, 40)
    assert ((got - expected).abs().max() / expected.abs().max()).item() <= 1e-5


def test_a_narrow_cache_is_stored_narrow() -> None:
    made = runner("llama", kv="bf16")
    replay(made, torch.randint(3, 256, (2, 50)), 40)
    assert sum(h.held_bytes for h in measure.held(made.cache)) == 2 * 64 * 2 * 8 * 3 * 2 * (config("llama")["num_key_value_heads"])


@pytest.mark.parametrize("kv", ["fp8_per_token_head", "int8_per_token_head", "fp8"])
@pytest.mark.parametrize("model_type", ["qwen3", "deepseek_v3", "falcon"])
def test_narrow_formats_are_counted_with_their_scales(model_type: str, kv: str) -> None:
    """2 sequences of 3 blocks. Rows in one byte a number, and with scales 4 bytes beside each head's K and V; MLA has one row and one."""
    result = whole_run({"model_type": model_type, **config(model_type)}, kv_dtype=kv)
    numbers, scales = {"qwen3": (2 * 32, 4), "deepseek_v3": (48, 1), "falcon": (16, 2)}[model_type]
    scaled = 0 if kv == "fp8" else 4 * scales
    assert result.measured_kv_bytes == result.predicted_kv_bytes == 2 * 48 * 3 * (numbers + scaled)
    assert result.scale_bytes == result.predicted_scale_bytes == 2 * 48 * 3 * scaled
    assert result.kv_accuracy is not None
    assert 0 < result.kv_accuracy["error"] < result.kv_accuracy["tolerance"]
    assert ("probe_scales" in {n["code"] for n in result.notes}) == (kv != "fp8")


@pytest.mark.parametrize("model_type", ["qwen3", "gemma2", "deepseek_v3", "falcon", "qwen3_next"])
def test_a_shared_prefix_is_held_once_and_answers_the_same(model_type: str) -> None:
    result = whole_run({"model_type": model_type, **config(model_type)}, kv_dtype="fp32", shared_prefix=35)
    assert result.bytes_agree
    assert result.logits_max_rel_error <= 1e-5
    full = next(g for g in result.groups if g["kind"] in ("full", "latent"))
    assert full["shared_blocks"] == full["shared_blocks_predicted"] == 2
    assert full["held_blocks"] == 2 * 3 - 2
    assert "probe_shared" in {n["code"] for n in result.notes}


def test_other_tokens_behind_a_shared_prefix_are_noticed() -> None:
    """The proof of a shared run compares with texts that really begin alike: here they do not."""
    made = runner("qwen3")
    ids = torch.randint(3, 256, (2, 50), generator=torch.Generator().manual_seed(1))
    expected = made.reference(ids)
    got, _, _ = replay(made, ids, 40, prefix=32)
    assert ((got - expected).abs().max() / expected.abs().max()).item() > 1e-2


def test_a_state_that_the_plan_does_not_count_is_refused() -> None:
    raw = {"model_type": "mamba2", **config("mamba2")}
    spec = read_config(raw)
    layers = tuple(replace(x, caches=(replace(x.caches[0], tensors=x.caches[0].tensors[:1]),)) for x in spec.layers)  # type: ignore[type-var, union-attr]
    cpu, request = torch.device("cpu"), ProbeRequest(batch=2, prompt=40, output=10)
    short = replace(spec, layers=layers)
    pools = allocate(short, kv=kv_layout("fp32"), block_size=16)
    model = hosted.build(hosted.config_of(raw), seed=0, dtype=torch.float32, device=cpu)
    with pytest.raises(UnsupportedModel):
        inject(model, short, pools, request, dtype=torch.float32, device=cpu)


def test_a_cut_that_would_change_a_cache_is_refused() -> None:
    """Mamba's own width goes by the name of a feed-forward width in some files."""
    from gpu_probe.injected.plan import planned

    raw = {"model_type": "llama", **config("llama")}
    whole = read_config(raw)

    def other(cut: Config) -> ModelSpec:
        spec = read_config(cut)
        return spec if cut == raw else replace(spec, layers=(replace(spec.layers[0], caches=()), *spec.layers[1:]))

    setup = set_up(whole, ProbeRequest(device="cpu", time_limit_s=0.001, layers=2), Progress(lambda event: None))
    with pytest.raises(UnsupportedModel) as refused:
        planned(raw, whole, other, setup, real=False)
    assert "another cache" in refused.value.message


@pytest.mark.parametrize(
    ("model_type", "changed"),
    [
        ("bloom", {"n_layer": 2, "n_head": 8, "hidden_size": 64}),
        ("falcon", {**config("falcon"), "alibi": True}),
        ("llama", {**config("llama"), "num_hidden_layers": "x"}),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(model_type: str, changed: Config) -> None:
    with pytest.raises(UnsupportedModel):
        hosted.config_of({"model_type": model_type, **changed})


def test_without_transformers_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedValue) as refused:
        errors.require("transformers")
    assert (refused.value.field, "pip install transformers" in refused.value.hint) == ("runner", True)


def whole_run(raw: Config, **more: Any) -> Any:
    request = ProbeRequest(device="cpu", prompt=40, output=4, **{k: more.pop(k) for k in ("layers", "kv_dtype", "shared_prefix", "time_limit_s") if k in more})
    return injected_run.run(raw, read_config, request, lambda event: None, **more)


@pytest.mark.parametrize("model_type", ["gemma2", "deepseek_v3"])
def test_a_run_says_everything(model_type: str) -> None:
    result = whole_run({"model_type": model_type, **config(model_type)}, layers=2, kv_dtype="bf16")
    assert result.bytes_agree
    assert result.measured_kv_bytes > 0
    assert result.logits_max_rel_error <= 1e-5
    assert (result.layers_run, result.layers_total, len(result.step_s)) == (2, 3, 4)
    assert all(row.predicted == row.measured for row in result.rows if row.exact)
    codes = {n["code"] for n in result.notes}
    assert {"probe_injected", "probe_random_hosted", "probe_layers_asked", "probe_proof_own_run"} <= codes
    assert ("probe_proof_limit" in codes) == (model_type == "gemma2")


def test_a_cut_to_time_keeps_a_cache_of_every_kind() -> None:
    result = whole_run({"model_type": "qwen3_next", **config("qwen3_next")}, time_limit_s=0.001)
    assert (result.layers_run, {g["kind"] for g in result.groups}) == (2, {"full", "state"})
    assert "probe_layers_cut" in {n["code"] for n in result.notes}


@pytest.mark.parametrize(
    ("error", "code"), [(PoolExhausted(7, 3, 40), "probe_pool"), (RuntimeError("can't allocate memory: you tried to allocate 9 bytes."), "probe_memory")]
)
def test_memory_that_is_refused_is_told_as_by_the_lean_runner(error: Exception, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*a: Any, progress: Any, **kw: Any) -> None:
        progress("prefill", 0, 1)
        raise error

    monkeypatch.setattr(injected_run, "generate", refuse)
    with pytest.raises(errors.ProbeOutOfMemory) as out:
        whole_run({"model_type": "llama", **config("llama")})
    assert (out.value.code, out.value.args_by_name["where"]) == (code, "prefill")


def test_a_share_of_the_roofline_needs_to_know_what_is_read() -> None:
    known, unknown = (whole_run({"model_type": name, **config(name)}, layers=1).roofline for name in ("llama", "qwen3_moe"))
    assert known["weight_bytes"] > 0
    assert (unknown["weight_bytes"], unknown["share"], unknown["reason"]) == (None, None, "experts")


def test_a_checkpoint_folder_is_run_as_it_is(tmp_path: Path) -> None:
    raw = {"model_type": "qwen3", **config("qwen3")}
    model = hosted.build(hosted.config_of(raw), seed=3, dtype=torch.float32, device=torch.device("cpu"))
    model.save_pretrained(tmp_path)
    found = hosted.config_in(str(tmp_path))
    result = whole_run(found, weights=str(tmp_path), kv_dtype="fp32")
    assert result.bytes_agree
    assert result.logits_max_rel_error <= 1e-5
    assert "probe_real_weights" in {n["code"] for n in result.notes}
    loaded = hosted.load(str(tmp_path), hosted.config_of(found), dtype=torch.float32, device=torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True))
    for name in tmp_path.glob("*.safetensors"):
        name.unlink()
    with pytest.raises(InvalidInput):
        hosted.config_in(str(tmp_path))


def test_the_default_runner_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse(*args: Any) -> None:
        raise UnsupportedModel("probe_kind", field="layers", kind="odd", layer=0)

    monkeypatch.setattr("gpu_probe.run.run", refuse)
    monkeypatch.setattr(device, "offer_to_oom_killer", lambda: None)
    monkeypatch.setattr(command.Out, "take_over", lambda self: None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **config("llama")}))
    options = ["run", str(path), "--device", "cpu", "--prompt", "20", "--output", "2", "--json"]
    assert command.main([*options, "--runner", "lean"]) == errors.EXIT_REFUSED
    assert command.main(options) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["notes"][0]["code"] == "probe_runner_fallback"
    assert result["predicted_kv_bytes"] == result["measured_kv_bytes"] > 0


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (None, {"num_hidden_layers": 2, "layer_types": ["a", "b"], "vocab_size": 5000, "intermediate_size": 900, "num_experts": 64}),
        (skeleton.Cut(), {"num_hidden_layers": 2, "layer_types": ["a", "b"], "vocab_size": 1024, "intermediate_size": 256, "num_experts": 20}),
        (skeleton.Cut(limit=9), {"sliding_window": 9, "eos_token_id": 0}),
    ],
)  # fmt: skip
def test_a_skeleton_keeps_the_attention(cut: skeleton.Cut | None, expected: Config) -> None:
    raw = {"num_hidden_layers": 4, "layer_types": ["a", "b", "a", "b"], "vocab_size": 5000, "intermediate_size": 900, "num_experts": 64,
           "num_experts_per_tok": 20, "sliding_window": 100, "num_attention_heads": 8, "num_key_value_heads": 2, "eos_token_id": 4000}  # fmt: skip
    made = skeleton.shrink(raw, 4, 2, cut)
    assert {k: made[k] for k in expected} == expected
    assert (made["num_attention_heads"], made["num_key_value_heads"]) == (8, 2)

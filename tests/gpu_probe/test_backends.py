"""Every backend beside float64, the order in which they are asked, and that a broken one is caught and named."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpu_probe import backends, device
from gpu_probe.attention import PagedAttention
from gpu_probe.backends import native_cpu, selftest
from gpu_probe.backends.base import Backend, BackendFailed, Job, Reads, reference
from gpu_probe.backends.native_cpu import NativeCpu
from gpu_probe.backends.torch_chunked import TorchChunked, flash_op
from gpu_probe.backends.torch_gather import TorchGather
from gpu_probe.proof import logits_error
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from planner.errors import UnsupportedValue
from tests.gpu_probe.tiny import MODELS, latent, model, paged

CPU = torch.device("cpu")
GQA = Job(q_heads=8, kv_heads=2, k_dim=32, v_dim=32, block_size=16, storage=torch.float32, compute=torch.float32)
JOBS = {
    "gqa": GQA,
    "gqa of three": replace(GQA, q_heads=6),
    "mqa": replace(GQA, kv_heads=1),
    "mha": replace(GQA, kv_heads=8),
    "values narrower": replace(GQA, v_dim=16),
    "mla 576/512": replace(GQA, q_heads=16, kv_heads=1, k_dim=576, v_dim=512, latent=True),
    "mla, few heads": replace(GQA, q_heads=3, kv_heads=1, k_dim=96, v_dim=64, latent=True),
    "window": replace(GQA, limited=True),
    "softcap": replace(GQA, softcap=True),
    "sinks": replace(GQA, sinks=True),
    "all of it": replace(GQA, limited=True, softcap=True, sinks=True),
    "mla window": replace(GQA, q_heads=16, kv_heads=1, k_dim=96, v_dim=64, latent=True, limited=True),
    "blocks of one": replace(GQA, block_size=1),
    "odd blocks": replace(GQA, block_size=5),
    "wide blocks": replace(GQA, block_size=64),
}
DTYPES = {"fp32": (torch.float32, torch.float32), "bf16": (torch.bfloat16, torch.bfloat16), "bf16 pages": (torch.bfloat16, torch.float32)}
MADE: dict[str, Backend] = {
    "gather": TorchGather(),
    "chunked": TorchChunked(chunk_tokens=32),
    "chunked without flash": TorchChunked(chunk_tokens=32, use_flash=False),
}
LENGTHS = (70, 1, 0, 33, 32)


@pytest.fixture(scope="module")
def native() -> NativeCpu:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    return NativeCpu()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    backends.forget()


def relative_error(backend: Backend, job: Job, seed: int = 1) -> float:
    q, keys, values, reads = selftest.case(job, CPU, LENGTHS, seed)
    got, want = backend.decode(q, keys, values, reads, job.v_dim), reference(q, keys, values, reads, job.v_dim)
    assert got.dtype == job.compute
    assert got.shape == want.shape
    assert not got[2].any(), "a sequence without tokens answers zeros"
    return ((got.double() - want).abs().max() / want.abs().max()).item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("backend", MADE)
def test_torch_backends_agree_with_float64(backend: str, job: str, dtype: str) -> None:
    storage, compute = DTYPES[dtype]
    assert relative_error(MADE[backend], replace(JOBS[job], storage=storage, compute=compute)) <= (2e-6 if dtype != "bf16" else 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("job", JOBS)
def test_the_native_kernel_agrees_with_float64(native: NativeCpu, job: str, dtype: str) -> None:
    storage, compute = DTYPES[dtype]
    asked = replace(JOBS[job], storage=storage, compute=compute)
    assert native.supports(asked, CPU) is None
    assert relative_error(native, asked) <= (2e-6 if dtype != "bf16" else 1e-2)


@pytest.mark.parametrize("threads", [2, 3])
def test_the_native_kernel_splits_sequences_over_threads(native: NativeCpu, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert relative_error(native, JOBS["all of it"]) <= 2e-6
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["gather", "chunked"])
def test_fp8_pages_are_widened(name: str) -> None:
    assert relative_error(MADE[name], replace(GQA, storage=torch.float8_e4m3fn)) <= 2e-6


def test_the_reference_is_plain_attention() -> None:
    """Against torch's own attention over the rows in order: the judge of all backends has a judge of its own."""
    q, keys, values, _ = selftest.case(GQA, CPU, (48,))
    assert values is not None
    reads = Reads(table=torch.tensor([[2, 0, 1]]), begins=(0,), ends=(48,), scale=0.3)
    k, v = (x[[2, 0, 1]].flatten(0, 1).transpose(0, 1)[None].double() for x in (keys, values))
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k, v, scale=0.3)
    assert torch.allclose(reference(q, keys, values, reads, 32), want, atol=1e-12)


def test_the_cpu_order_and_the_one_that_runs(native: NativeCpu) -> None:
    choice = backends.select(CPU, GQA)
    assert (choice.name, choice.refused) == ("native-cpu", ())


def test_without_a_compiler_the_next_one_runs_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_cpu.shutil, "which", lambda name: None)
    choice = backends.select(CPU, GQA)
    assert (choice.name, choice.refused) == ("torch-chunked", ({"name": "native-cpu", "reason": "no g++"},))


def test_a_failed_build_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native: NativeCpu) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = tmp_path / "broken.cpp"
    broken.write_text("int main( {")
    monkeypatch.setattr(native_cpu, "SOURCE", broken)
    choice = backends.select(CPU, GQA)
    assert choice.name == "torch-chunked"
    assert choice.refused[0]["reason"].startswith("g++: ")


def test_what_a_killed_build_left_is_taken_away(tmp_path: Path) -> None:
    old, new, library = tmp_path / "tmpold", tmp_path / "tmpnew", tmp_path / "paged-float-0.so"
    for folder in (old, new):
        folder.mkdir()
    library.write_text("")
    (old / "paged.so").write_text("half")
    os.utime(old, (1, 1))
    os.utime(library, (1, 1))
    native_cpu._clear(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["paged-float-0.so", "tmpnew"]


def test_a_cache_folder_that_others_can_write_to_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native: NativeCpu) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "kvledger" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(BackendFailed, match="writable by others"):
        native_cpu.built("float")


def test_what_the_kernel_cannot_do_is_named(native: NativeCpu) -> None:
    assert backends.select(CPU, replace(GQA, k_dim=20, v_dim=20)).refused[0]["reason"].startswith("head sizes not a multiple of ")
    assert backends.select(CPU, replace(GQA, storage=torch.float8_e4m3fn)).refused == ({"name": "native-cpu", "reason": "pages of float8_e4m3fn"},)


def test_another_signature_of_the_private_op_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flash_op() is not None, "this torch has the op: the flash path is what the tests above ran"
    monkeypatch.setattr("gpu_probe.backends.torch_chunked.FLASH_ARGUMENTS", ("query", "key", "value", "something new"))
    assert flash_op() is None
    assert relative_error(TorchChunked(chunk_tokens=32), GQA) <= 2e-6


class Wrong(TorchGather):
    """A backend with one planted fault."""

    name = "torch-chunked"
    fault = "scale"

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        changed = {
            "scale": replace(reads, scale=reads.scale * 1.02),
            "softcap": replace(reads, softcap=None),
            "sinks": replace(reads, sinks=None),
            "window": replace(reads, begins=tuple(0 for _ in reads.begins)),
            "page": replace(reads, table=reads.table.roll(1, 0)),
            "last token": replace(reads, ends=tuple(max(1, e - 1) for e in reads.ends)),
            "nan": replace(reads, scale=float("nan")),
        }
        return super().decode(q, keys, values, changed[self.fault], v_dim)


FAULTS = {"scale": GQA, "softcap": JOBS["softcap"], "sinks": JOBS["sinks"], "window": JOBS["window"], "page": GQA, "last token": GQA, "nan": GQA}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_self_test_catches_a_planted_fault(monkeypatch: pytest.MonkeyPatch, fault: str, dtype: str) -> None:
    storage, compute = DTYPES[dtype]
    job = replace(FAULTS[fault], storage=storage, compute=compute)
    assert selftest.failure(TorchGather(), job, CPU) is None
    monkeypatch.setattr(Wrong, "fault", fault)
    reason = selftest.failure(Wrong(), job, CPU)
    assert reason is not None
    assert reason.startswith("self-test: ")


def test_a_backend_that_fails_its_self_test_is_passed_over_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.ORDER, "cpu", ("torch-chunked", "torch-gather"))
    monkeypatch.setitem(backends.FACTORIES, "torch-chunked", (__name__, "Wrong"))
    choice = backends.select(CPU, GQA)
    assert choice.name == "torch-gather"
    assert choice.refused[0]["name"] == "torch-chunked"
    assert choice.refused[0]["reason"].startswith("self-test: ")


def test_a_backend_that_is_not_installed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.ORDER, "cpu", ("triton", "torch-gather"))
    monkeypatch.setitem(backends.FACTORIES, "triton", ("gpu_probe.backends.no_such_thing", "X"))
    choice = backends.select(CPU, GQA)
    assert (choice.name, choice.refused[0]["name"]) == ("torch-gather", "triton")
    assert "ModuleNotFoundError" in choice.refused[0]["reason"]


def test_a_forced_one_runs_or_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends.select(CPU, GQA, "torch-gather").name == "torch-gather"
    monkeypatch.setitem(backends.FACTORIES, "torch-chunked", (__name__, "Wrong"))
    for name, word in (("torch-chunked", "self-test"), ("nonsense", "torch-gather")):
        with pytest.raises(UnsupportedValue) as refused:
            backends.select(CPU, GQA, name)
        assert refused.value.field == "backend"
        assert word in str(refused.value.to_json())


def test_a_run_names_its_backend_and_who_was_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)
    monkeypatch.setattr(native_cpu.shutil, "which", lambda name: None)
    result = run(MODELS["mla window"], ProbeRequest(device="cpu", prompt=40, output=3))
    assert (result.backend, result.backends_refused) == ("torch-chunked", ({"name": "native-cpu", "reason": "no g++"},))
    assert ProbeResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_run_can_be_told_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)
    result = run(MODELS["window"], ProbeRequest(device="cpu", prompt=40, output=3, backend="torch-gather"))
    assert (result.backend, result.backends_refused) == ("torch-gather", ())
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error < 1e-5
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UnsupportedValue) as refused:
        run(MODELS["gqa"], ProbeRequest(device="cpu", prompt=20, output=2, backend="triton"))
    assert refused.value.field == "backend"


@pytest.mark.parametrize("name", ["native-cpu", "torch-chunked", "torch-gather"])
@pytest.mark.parametrize("spec", ["gqa", "mla window", "chunk", "shared"])
def test_every_backend_carries_a_whole_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str, spec: str) -> None:
    """Prefill, shuffled blocks, decode, against full recomputation. Head sizes of these models suit the kernel's vectors (16, 32)."""
    if name == "native-cpu":
        request.getfixturevalue("native")
    monkeypatch.setattr(PagedAttention.__init__, "__kwdefaults__", {"forced": name})
    wide = model(latent(rank=32, rope=16, window=30), latent(rank=32, rope=16))
    decoder, attention, trace = paged(wide if spec == "mla window" else MODELS[spec])
    assert attention.backend == name
    assert logits_error(decoder, trace) < 1e-5

"""Where a user begins: examples and the way back, the user's own device, this machine's, the hub's search, the answer as a text."""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import tables
from planner.owngpu import from_text
from planner.presets import presets
from planner.scenario import OPTIONS, Scenario, from_options
from tests.fake_hub import FakeHub, sample_hub
from tests.pages.conftest import fresh, shown, upload, values
from tests.pages.hostile import changed

WORDS = {"FITS", "TIGHT"}


@pytest.mark.parametrize("code", presets())
def test_an_example_is_one_click_and_reset_takes_it_back(code: str) -> None:
    at = fresh(kv_dtype="fp8", block_size="32", lengths="100+20:1,50+50:1", target_ttft="2.5")
    at.button(key=f"preset_{code}").click().run()
    assert not at.exception
    assert at.session_state["_current"].scenario == presets()[code]
    assert from_options(at.query_params) == presets()[code]
    assert values(at)["This plan"] in WORDS
    at.button(key="reset").click().run()
    assert at.session_state["_current"].scenario == Scenario()
    assert not set(at.query_params) & set(OPTIONS)


def test_reset_leaves_an_upload(at: AppTest) -> None:
    upload(at, ("mine.json", changed(num_hidden_layers=16)))
    at.button(key="reset").click().run()
    assert at.session_state["_own"] is None
    assert values(at)["KV cache of the load"] == "16.00 GiB"


# -- devices -------------------------------------------------------------------------------------------------------------------


def open_own_gpu(at: AppTest) -> AppTest:
    at.session_state["own_gpu"] = True
    return at.run()


def test_a_device_of_ones_own_is_planned_for_and_has_an_address(at: AppTest) -> None:
    open_own_gpu(at)
    for name, value in (("memory", 48.5), ("bandwidth", 960.0), ("peak", 181.0)):
        at.number_input(key=f"own_gpu_{name}").set_value(value)
    at.text_input(key="own_gpu_name").set_value("My card")
    at.button(key="own_gpu_take").click().run()
    assert not at.exception
    s = at.session_state["_current"].scenario
    device = from_text(s.gpu)
    assert (device.name, device.memory_bytes, device.bandwidth_bytes_per_s, device.flops_per_s) == (
        "My card", 52_076_478_464, 960e9, {"fp16": 181e12, "bf16": 181e12},
    )  # fmt: skip
    other = fresh(gpu=s.gpu)
    assert values(other) == values(at)
    at.text_input(key="own_gpu_name").set_value("a 3GiB")
    at.button(key="own_gpu_take").click().run()
    assert "gpu" in shown(at)
    assert at.session_state["_current"].scenario == s


def driver(folder: Path, lines: str, code: int = 0) -> None:
    """A stand-in for nvidia-smi."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({lines!r})\nsys.exit({code})\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("lines", "code", "gpu", "gpus"),
    [
        ("NVIDIA H100 80GB HBM3, 81559\n" * 8, 0, "H100 SXM", 8),
        ("NVIDIA H100 80GB HBM3, 40448\n", 0, "own:NVIDIA H100 80GB HBM3 40448MiB 3350GB/s 989TFLOPS fp8=1979TFLOPS int8=1979TFLOPS", 1),
        ("NVIDIA Foo 9000, 32768\nNVIDIA L4, 23034", 0, "own:NVIDIA Foo 9000 32GiB", 1),
        ("No devices were found", 6, "own:CPU RAM", 1),
    ],
    ids=["known", "another memory", "unknown", "no GPU"],
)
def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, code: int, gpu: str, gpus: int) -> None:
    driver(tmp_path, lines, code)
    monkeypatch.setenv("PATH", str(tmp_path))
    at = open_own_gpu(fresh(gpus="2", tp="2", prompt="600", output="300"))
    at.button(key="own_gpu_host").click().run()
    assert not at.exception
    s = at.session_state["_current"].scenario
    assert s.gpu.startswith(gpu)
    assert (s.gpus, s.tp, s.prompt, s.output) == (gpus, None, 600, 300)
    said = " ".join(i.value for i in at.info).replace("\\", "")
    assert ("stands for the memory of a device" in said) == (code != 0)
    assert " bytes)" in said
    assert "torch" not in {name.split(".")[0] for name in vars(sys.modules["gpu_probe.host"])}


def test_a_server_may_keep_its_devices_to_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver(tmp_path, "NVIDIA H100 80GB HBM3, 81559")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KVLEDGER_PROBE", "off")
    at = open_own_gpu(fresh())
    assert "own_gpu_host" not in [b.key for b in at.button]
    assert "does not tell" in " ".join(c.value for c in at.caption)


# -- the hub's search --------------------------------------------------------------------------------------------------------------


def asked(hub: FakeHub) -> list[str]:
    """Paths that were asked for about models; the hub's client may look for other things by itself."""
    return [path.split("?")[0] for _, path, *_ in hub.log if path.startswith("/api/models")]


def searched(at: AppTest, text: str) -> AppTest:
    at.text_input(key="hub_search").set_value(text).run()
    return at.button(key="hub_ask").click().run()


def test_the_hub_is_searched_only_when_asked(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with sample_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        at.text_input(key="hub_search").set_value("llama").run()
        assert hub.log == []
        at.button(key="hub_ask").click().run()
        assert asked(hub) == ["/api/models"]
        at.number_input(key="sequences").set_value(8).run()
        assert asked(hub) == ["/api/models"]
        found = next(g for g in at.get("button_group") if g.key == "hub_ids_own")
        assert "acme/tiny-llama" in found.options
        found.set_value("acme/tiny-llama").run()
        assert not at.exception
        assert at.selectbox(key="model").value == "acme/tiny-llama"
        assert values(at)["KV cache of the load"] == "8.00 GiB"
        searched(at, "nothing-of-this-name")
        assert "knows no model" in " ".join(i.value for i in at.info)
        searched(at, "?")
        assert "two letters" in shown(at)
        searched(at, f"{hub.url}/acme/tiny-llama/blob/v1.0/config.json")
        assert not at.error
        assert at.session_state["_current"].loaded.provenance["commit"] == "b" * 40


def test_a_hub_that_cannot_be_reached_is_told(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeHub() as hub:
        address = hub.url
    monkeypatch.setenv("HF_ENDPOINT", address)
    searched(at, "llama")
    assert not at.exception
    assert "127.0.0.1" in shown(at)
    assert values(at)["KV cache of the load"] == "16.00 GiB"


def test_a_name_that_nothing_knows_can_be_searched_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with sample_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        at = fresh(model="tiny-llama")
        assert hub.log == []
        at.button(key="hub_ask_for").click().run()
        next(g for g in at.get("button_group") if g.key == "hub_ids_offer").set_value("acme/tiny-llama").run()
        assert not at.error
        assert at.session_state["_current"].loaded.provenance["repo_id"] == "acme/tiny-llama"
        assert values(at)["KV cache of the load"] == "16.00 GiB"


# -- the answer, files -------------------------------------------------------------------------------------------------------------


def test_the_answer_can_be_copied_and_says_how_old_the_tables_are(at: AppTest) -> None:
    at.session_state["summary"] = True
    at.run()
    text = at.code[-1].value
    for part in ("Llama-3.1-8B on 1 x H100 SXM", "Fits: 16 sequences of 8,192 tokens", "16.00 GiB (17,181,966,336 bytes)", "131,072 bytes"):
        assert part in text
    assert any("as of 20" in c.value for c in at.caption)


def test_several_files_are_one_table_that_can_be_taken_away(at: AppTest) -> None:
    upload(at, ("half.json", changed(num_hidden_layers=16)), ("=1+1.json", b"{}"), ("double.json", changed(num_hidden_layers=64)))
    assert not at.exception
    assert "upload_csv" in [b.key for b in at.get("download_button")]
    uploads = at.session_state["_uploads"].values()
    table = tables.upload_rows(uploads, at.session_state["_current"].scenario)
    rows = {r["file"]: r for r in csv.DictReader(io.StringIO(tables.as_csv(table).decode("utf-8-sig")))}
    assert rows["'=1+1.json"]["error"]
    assert {k: rows["half.json"][k] for k in ("kinds", "token_bytes", "fits", "max_sequences", "error")} == {
        "kinds": "full", "token_bytes": "65536", "fits": "FITS", "max_sequences": values(at)["Most sequences"], "error": "",
    }  # fmt: skip


def test_every_input_has_a_line_of_help() -> None:
    """The advanced ones too, of every engine; none longer than a short paragraph."""
    at = fresh(lengths="100+20")
    for key in ("advanced", "own_gpu", "mix"):
        at.session_state[key] = True
    at.run()
    for engine in ("vllm", "llamacpp", "transformers", "trtllm"):
        at.selectbox(key="engine").set_value(engine).run()
        kinds = ("selectbox", "number_input", "text_input", "text_area", "checkbox", "file_uploader")
        inputs = [w for kind in kinds for w in at.get(kind) if w.key != "lang"]
        assert len(inputs) > 50
        assert not [w.key for w in inputs if not w.proto.help.strip() or "\n" in w.proto.help or len(w.proto.help) > 260]
        assert {w.key for w in inputs} >= {"model", "gpu", "tokens", "kv_dtype", "own_gpu_memory", "hub_search", "hub_token", "lengths"}


def test_every_size_on_a_card_has_its_exact_bytes_beside_it(at: AppTest) -> None:
    sizes = [m for m in at.metric if "GiB" in m.value]
    assert len(sizes) >= 2
    for m in sizes:
        assert re.search(r"\b\d{1,3}(,\d{3})+ bytes", m.help.replace("\\", "")), m.label

"""Bytes of weights from the headers of files, in a folder and on a hub: exact, and never a reason to fail."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.api import answer
from planner.readers import read_config
from planner.sources import known_weight_bytes, load
from planner.sources.safetensors import MAX_HEADER, BadHeader, header_elements, total_size
from tests.fake_hub import TINY, FakeHub

Tensors = dict[str, tuple[str, list[int], int]]  # name -> dtype, shape, bytes
ONE: Tensors = {"a.weight": ("BF16", [4, 8], 64), "a.weight_scale_inv": ("F32", [1, 1], 4), "b": ("F8_E4M3", [3, 5], 15)}
TWO: Tensors = {"c": ("I32", [10], 40), "d": ("F4", [7, 2], 7), "e": ("C64", [2], 16), "f": ("F8_E8M0", [0], 0)}


def file_of(tensors: Tensors, **change: Any) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header |= change
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def facts(folder: Path) -> tuple[int | None, set[str]]:
    found = load(str(folder))
    json.dumps(found.provenance)
    assert read_config(found.raw).layers  # whatever lies beside it, the config is read
    return known_weight_bytes(found.provenance), {n.code for n in found.notes}


# -- a folder ----------------------------------------------------------------------------------------------------------


def test_all_shards_of_the_index(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").write_bytes(file_of(ONE))
    (folder / "model-00002-of-00002.safetensors").write_bytes(file_of(TWO))
    (folder / "other.safetensors").write_bytes(file_of(ONE))  # not in the index: an adapter's, say
    shards = {"a.weight": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": shards}))
    assert facts(folder) == (64 + 4 + 15 + 40 + 7 + 16, {"weights_by_headers"})
    told = load(str(folder)).provenance
    assert told["safetensors_parameters"] == {"BF16": 32, "F32": 1, "F8_E4M3": 15, "I32": 10, "F4": 14, "C64": 2, "F8_E8M0": 0}
    assert told["weight_files"] == 2


def test_one_file_without_an_index(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(file_of(ONE))
    (folder / "adapter_model.safetensors").write_bytes(file_of(TWO))
    (folder / "consolidated.safetensors").write_bytes(file_of(ONE))  # the maker's own copy of the same weights
    assert facts(folder) == (83, {"weights_by_headers"})
    out = answer("plan", str(folder), {"gpu": "H100 SXM"})
    assert out["weights_bytes_per_rank"] == [83]
    assert {n["code"] for n in out["notes"]} >= {"weights_files_differ"}  # 83 bytes are no Llama


def test_shards_that_are_not_here(folder: Path) -> None:
    index = {"metadata": {"total_size": 16_060_522_496}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert facts(folder) == (16_060_522_496, {"weights_by_index"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index["weight_map"]}))
    assert facts(folder) == (None, {"weights_shards_missing"})


def test_pickled_weights_by_their_size(folder: Path) -> None:
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(bytes(20_000))
    assert facts(folder) == (None, set())  # the second is missing
    (folder / "pytorch_model-00002-of-00002.bin").write_bytes(bytes(30_000))
    assert facts(folder) == (50_000, {"weights_by_file_size"})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"short", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", MAX_HEADER + 1) + b"{}",
        struct.pack("<Q", 40) + b"{}", struct.pack("<Q", 4) + b"[1]" + b" ", struct.pack("<Q", 9) + b'{"a": 1}' + b" ",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        file_of({"a": ("F99", [1], 1)}), file_of({"a": ("BF16", [4], 7)}), file_of({"a": ("BF16", [-4], 8)}), file_of({"a": ("BF16", [4.0], 8)}),  # type: ignore[list-item]
        file_of(ONE)[:-1],  # cut off
        file_of(ONE, hole={"dtype": "U8", "shape": [1], "data_offsets": [200, 201]}),
        file_of(ONE, twice={"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}),
        file_of({"a": ("BF16", [2**60, 2**60], 8)}),
    ],
)  # fmt: skip
def test_headers_that_lie(folder: Path, data: bytes) -> None:
    (folder / "model.safetensors").write_bytes(data)
    assert facts(folder) == (None, {"weights_header_unread"})


@pytest.mark.parametrize("index", ["[]", "{", '{"weight_map": []}', '{"weight_map": {"a": "../../etc/passwd"}}', '{"weight_map": {"a": 3}}', "[" * 100_000])
def test_indexes_that_lie(folder: Path, index: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    assert facts(folder)[0] is None


def test_odd_things_named_like_weights(folder: Path) -> None:
    os.mkfifo(folder / "model.safetensors")
    assert facts(folder) == (None, {"weights_header_unread"})


def test_total_of_an_index() -> None:
    assert total_size(b'{"metadata": {"total_size": 12345, "x": 1}, "weight_map"') == 12_345
    assert total_size(b'{"metadata": {"total_size": 12345.0}}') == 12_345
    assert total_size(b'{"metadata": {"total_size": "12"}}') is None
    assert total_size(b'{"metadata": {"total_size": 12') is None
    assert total_size(b"<html>") is None


def test_bits_are_rounded_up_a_tensor() -> None:
    data = file_of({"a": ("F4", [3], 2), "b": ("F6_E2M3", [3], 3)})
    at = 0

    def read(n: int) -> bytes:
        nonlocal at
        at += n
        return data[at - n : at]

    assert header_elements(read, None)[:2] == ({"F4": 3, "F6_E2M3": 3}, 5)
    with pytest.raises(BadHeader):
        header_elements(lambda n: b"", None)


# -- a hub -------------------------------------------------------------------------------------------------------------

QUANTIZATION = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    with FakeHub() as started:
        yield started


def on(hub: FakeHub, **files: bytes) -> Any:
    names = {n.replace("__", ".").replace("DASH", "-"): data for n, data in files.items()}
    hub.add("acme/m", {"config.json": json.dumps(TINY).encode(), **names})
    return load("acme/m", endpoint=hub.url)


def test_a_hub_without_a_summary_is_asked_for_the_index(hub: FakeHub) -> None:
    index = json.dumps({"metadata": {"total_size": 16_060_522_496}, "weight_map": {f"layer.{i}": "x.safetensors" for i in range(10_000)}}).encode()
    found = on(hub, model__safetensors__index__json=index)
    assert known_weight_bytes(found.provenance) == 16_060_522_496


def test_a_hub_without_an_index_is_asked_for_the_header(hub: FakeHub) -> None:
    assert known_weight_bytes(on(hub, model__safetensors=file_of(ONE)).provenance) == 83


@pytest.mark.parametrize("data", [b"", b"<html>", file_of(ONE)[:20], file_of({"a": ("F99", [1], 1)}), struct.pack("<Q", 2**40) + b"{}"])
def test_a_hubs_nonsense_does_no_harm(hub: FakeHub, data: bytes) -> None:
    for found in (on(hub, model__safetensors=data), on(hub, model__safetensors__index__json=data)):
        assert found.raw == TINY
        assert known_weight_bytes(found.provenance) is None


def test_no_more_is_asked_than_needed(hub: FakeHub) -> None:
    hub.add(
        "acme/told",
        {"config.json": json.dumps(TINY).encode(), "model.safetensors": file_of(ONE)},
        info={"safetensors": {"parameters": {"BF16": 5}, "total": 5}},
    )
    assert known_weight_bytes(load("acme/told", endpoint=hub.url).provenance) == 10
    assert len(hub.log) == 2


def test_quantization_in_a_file_of_its_own(hub: FakeHub) -> None:
    found = on(hub, hf_quant_config__json=json.dumps(QUANTIZATION).encode())
    assert found.raw["quantization_config"]["quant_algo"] == "FP8"
    assert "quantization_from_beside" in {n.code for n in found.notes}
    model = read_config(found.raw)
    assert (model.quantization, model.kv_dtype_wish) == ("modelopt", "fp8")
    broken = on(hub, hf_quant_config__json=b"{")
    assert "quantization_config" not in broken.raw
    assert "quantization_beside_unread" in {n.code for n in broken.notes}

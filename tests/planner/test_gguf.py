"""Reading the header of a GGUF file: what is kept, both byte orders, split files, and everything that a hostile file can do."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.api import answer
from planner.draft import with_stored_weights
from planner.errors import NotAConfig, PlannerError, SourceError
from planner.ggml import SIZES, TYPES
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import known_weight_bytes, load, load_bytes
from planner.sources.gguf import MAX_HEADER, read_head
from planner.sources.gguf_files import models_among, parts_of, ranges
from tests import gguf_file as make

LLAMA = make.llama()
FILE = make.of(LLAMA)


def refused(data: bytes, code: str) -> NotAConfig:
    with pytest.raises(NotAConfig) as caught:
        load_bytes(data, "x.gguf")
    assert caught.value.code == code, caught.value.message
    assert caught.value.message
    assert caught.value.hint
    return caught.value


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "version"), [("<", 3), (">", 3), ("<", 2)])
def test_a_header_comes_back_as_it_was_written(order: str, version: int) -> None:
    found = load_bytes(make.of(LLAMA, order, version), "tiny-Q4_K_M.gguf")
    assert found.raw == {**LLAMA, "gguf_version": version}
    assert found.name == "tiny-Q4_K_M"
    json.dumps(found.raw, allow_nan=False)


@pytest.mark.parametrize("name", make.names())
def test_the_converters_headers_come_back(name: str) -> None:
    raw = make.head(name)
    assert load_bytes(make.of(raw), "x.gguf").raw == raw


def test_facts_of_a_file() -> None:
    facts = load_bytes(FILE, "x.gguf").provenance
    tensors = make.table(LLAMA["tensors"])
    by_hand = sum(-(-_elements(s) // SIZES[t][0]) * SIZES[t][1] for _, t, s in tensors)
    assert facts == {
        "kind": "upload", "bytes": len(FILE), "header_bytes": len(FILE), "sha256": hashlib.sha256(FILE).hexdigest(), "sha256_of": "header", "parts": 1,
        "weight_bytes": by_hand, "file_name": "x.gguf",
    }  # fmt: skip
    assert known_weight_bytes(facts) == by_hand
    assert with_stored_weights(Scenario(), facts).weight_bytes == by_hand
    assert with_stored_weights(Scenario(weight_dtype="fp8"), facts).weight_bytes is None
    assert known_weight_bytes({"weight_bytes": True}) is None
    assert known_weight_bytes({"safetensors_parameters": {"BF16": 10}}) == 20


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def test_the_hash_is_of_the_header_alone() -> None:
    one, other = (load_bytes(FILE + b"\1" * n, "x.gguf").provenance for n in (1, 3 << 20))
    assert one["sha256"] == other["sha256"] == hashlib.sha256(FILE).hexdigest()


def test_types_and_sizes_are_those_of_the_gguf_package() -> None:
    package = pytest.importorskip("gguf")
    theirs = {int(t): (t.name, *size) for t, size in package.GGML_QUANT_SIZES.items()}
    theirs[9] = ("Q8_1", 32, 36)  # the package says 40; block_q8_1 has two halves and 32 bytes (ggml-common.h, static assert)
    assert {k: v for k, v in TYPES.items() if k in theirs} == theirs
    assert set(TYPES) - set(theirs) <= {42}  # Q2_0 is newer


def test_a_file_of_the_gguf_package(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    import numpy as np

    path = tmp_path / "theirs.gguf"
    writer = package.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count([4])
    writer.add_head_count_kv([2])
    writer.add_token_list(["a", "b" * 3000, "c"])
    writer.add_token_scores([0.5, float("-inf"), 1.0])
    for name, rows in (("token_embd", 64), ("blk.0.attn_q", 256), ("blk.0.attn_k", 128), ("blk.0.attn_v", 128), ("blk.0.attn_output", 256)):
        writer.add_tensor(f"{name}.weight", np.zeros((rows, 256), dtype=np.float16))
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((512, 272), dtype=np.uint8), raw_dtype=package.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = load(str(path))
    assert found.raw["metadata"]["tokenizer.ggml.tokens"] == {"length": 3}
    assert found.raw["metadata"]["tokenizer.ggml.scores"] == [0.5, "-inf", 1.0]
    assert found.raw["tensors"]["blk.0.ffn_up.weight"] == "Q8_0 256x512"
    assert found.provenance["weight_bytes"] == (64 + 256 + 128 + 128 + 256) * 256 * 2 + 512 * 272
    assert found.notes == ()  # the file is whole
    assert answer("kv", str(path), {"tokens": 100})["architecture_bytes"] == 100 * 2 * 2 * 64 * 2


def test_long_lists_and_texts_are_kept_by_their_length_alone() -> None:
    raw = make.llama()
    raw["metadata"] |= {"tokenizer.chat_template": "x" * 5_000, "tokenizer.ggml.scores": [0.0] * 5_000, "a.short": [1, 2, 3]}
    kept = load_bytes(make.of(raw), "x.gguf").raw["metadata"]
    assert (kept["tokenizer.chat_template"], kept["tokenizer.ggml.scores"], kept["a.short"]) == ({"bytes": 5_000}, {"length": 5_000}, [1, 2, 3])


def test_a_real_vocabulary_is_read_in_a_blink() -> None:
    raw = make.llama()
    raw["metadata"] |= {"tokenizer.ggml.tokens": {"length": 262_144}, "tokenizer.ggml.merges": {"length": 500_000}}
    data = make.of(raw)
    tracemalloc.start()
    found = load_bytes(data, "x.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.raw["metadata"]["tokenizer.ggml.merges"] == {"length": 500_000}
    assert peak < len(data) + (8 << 20)


# -- files, folders, parts ---------------------------------------------------------------------------------------------


def split(raw: dict[str, Any], parts: int) -> list[bytes]:
    """The parts as llama-gguf-split writes them: all metadata in the first, a share of the table in each."""
    tensors = make.table(raw["tensors"])
    said = {"split.count": parts, "split.tensors.count": len(tensors)}
    share = -(-len(tensors) // parts)
    return [make.gguf({**(raw["metadata"] if i == 0 else {}), "split.no": i, **said}, tensors[i * share : (i + 1) * share]) for i in range(parts)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, data in enumerate(split(LLAMA, 3), 1):
        (tmp_path / f"tiny-Q4_K_M-0000{i}-of-00003.gguf").write_bytes(data)
    (tmp_path / "mmproj-tiny-f16.gguf").write_bytes(b"GGUF")
    return tmp_path


@pytest.mark.parametrize("part", ["", "tiny-Q4_K_M-00001-of-00003.gguf", "tiny-Q4_K_M-00003-of-00003.gguf"])
def test_a_split_model_is_one_model(folder: Path, part: str) -> None:
    found = load(str(folder / part))
    assert sorted(found.raw["tensors"].items()) == sorted(LLAMA["tensors"].items())
    assert found.name == "tiny-Q4_K_M"
    assert found.provenance["parts"] == 3
    assert found.provenance["file"] == "tiny-Q4_K_M-00001-of-00003.gguf"
    assert found.provenance["weight_bytes"] == load_bytes(FILE, "x").provenance["weight_bytes"]
    assert read_config(found.raw).parameters_exact


def source_refused(source: Path, code: str, field: str = "source") -> PlannerError:
    with pytest.raises(PlannerError) as caught:
        load(str(source))
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def test_parts_that_do_not_come_together(folder: Path) -> None:
    second, third = folder / "tiny-Q4_K_M-00002-of-00003.gguf", folder / "tiny-Q4_K_M-00003-of-00003.gguf"
    kept = second.read_bytes()
    second.unlink()
    assert "00002" in source_refused(folder, "gguf_part_missing").message
    second.write_bytes(third.read_bytes())
    source_refused(folder, "gguf_repeated_parts", field=read_head(io.BytesIO(third.read_bytes()).read).tensors[0].name)
    second.write_bytes(make.gguf({"split.no": 1}))
    source_refused(folder, "gguf_tensors_missing")
    second.write_bytes(kept)
    first = folder / "tiny-Q4_K_M-00001-of-00003.gguf"
    first.write_bytes(split(LLAMA, 2)[0])
    source_refused(folder, "gguf_split_count", field="split.count")


def test_a_first_part_alone_tells_the_caches(folder: Path) -> None:
    """An upload cannot hold the other parts: the caches are exact, the weights an estimate."""
    first = load_bytes((folder / "tiny-Q4_K_M-00001-of-00003.gguf").read_bytes(), "part.gguf")
    spec = read_config(first.raw)
    assert [spec.layers[i].caches for i in range(2)] == [read_config(LLAMA).layers[i].caches for i in range(2)]
    assert "weight_bytes" not in first.provenance
    assert not spec.parameters_exact
    assert "doubt_gguf_part" in [n.code for n in spec.notes]
    with pytest.raises(NotAConfig) as caught:
        read_config(load_bytes((folder / "tiny-Q4_K_M-00002-of-00003.gguf").read_bytes(), "part.gguf").raw)
    assert (caught.value.code, caught.value.args_by_name["part"]) == ("gguf_later_part", 2)


def test_a_folder_with_several_models(folder: Path) -> None:
    (folder / "tiny-Q8_0.gguf").write_bytes(FILE)
    told = source_refused(folder, "folder_several_gguf")
    assert "tiny-Q8_0.gguf" in told.message
    assert "00002" not in told.message
    assert load(str(folder / "tiny-Q8_0.gguf")).name == "tiny-Q8_0"
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert load(str(folder)).provenance["file"] == "config.json"


def test_a_server_opens_no_files(folder: Path) -> None:
    with pytest.raises(SourceError) as caught:
        load(str(folder / "mmproj-tiny-f16.gguf"), allow_paths=False)
    assert caught.value.code == "paths_not_allowed"


def test_names() -> None:
    assert parts_of("a/b-00002-of-00003.gguf") == [f"a/b-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert parts_of("a.gguf") == ["a.gguf"]
    assert parts_of("a-00001-of-00000.gguf") == ["a-00001-of-00000.gguf"]
    assert parts_of("a-00001-of-99999.gguf") == ["a-00001-of-99999.gguf"], "no more parts than anyone has"
    assert models_among(["x/a-00001-of-00002.gguf", "x/a-00002-of-00002.gguf", "b.GGUF", "mmproj-b.gguf", "c.json"]) == ["b.GGUF", "x/a-00001-of-00002.gguf"]
    assert ranges([3, 0, 1, 2, 7, 9, 8]) == "0-3,7-9"


# -- hostile files -----------------------------------------------------------------------------------------------------


def header(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def one(kind: int, body: bytes) -> bytes:
    """A file with one key: k."""
    return header(pairs=1) + make.text("k") + struct.pack("<I", kind) + body


def tensor(name: bytes = b"t", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0, dims: int | None = None) -> bytes:
    return make.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape) if dims is None else dims, *shape, kind, offset)


HUGE = 2**64 - 1
HOSTILE = [
    ("nothing but the name", b"GGUF", "gguf_cut"),
    ("no version", b"GGUF\3\0\0", "gguf_cut"),
    ("version 0", header(version=0), "gguf_version"),
    ("version 1", header(version=1), "gguf_version"),
    ("version 4", header(version=4), "gguf_version"),
    ("version 2 in the other order", b"GGUF" + struct.pack(">IQQ", 2, 0, 0), "gguf_version"),
    ("zeros", b"GGUF" + bytes(100), "gguf_version"),
    ("all ones", b"GGUF" + b"\xff" * 100, "gguf_version"),
    ("tensors without end", header(tensors=HUGE), "gguf_count"),
    ("keys without end", header(pairs=HUGE), "gguf_count"),
    ("many keys, none there", header(pairs=10_000), "gguf_cut"),
    ("many tensors, none there", header(tensors=100_000), "gguf_cut"),
    ("endless key", header(pairs=1) + struct.pack("<Q", HUGE), "gguf_long"),
    ("empty key", header(pairs=1) + make.text(""), "gguf_nameless"),
    ("the same key twice", header(pairs=2) + 2 * (make.text("k") + struct.pack("<II", 4, 1)), "gguf_repeated"),
    ("endless text", one(8, struct.pack("<Q", HUGE)), "gguf_too_large"),
    ("text of 50 MiB, not there", one(8, struct.pack("<Q", 50 << 20)), "gguf_cut"),
    ("unknown type", one(13, b""), "gguf_value_type"),
    ("list of an unknown type", one(9, struct.pack("<IQ", 99, 1)), "gguf_value_type"),
    ("list of lists", one(9, struct.pack("<IQ", 9, 1)), "gguf_value_type"),
    ("lists of lists of lists", one(9, struct.pack("<IQ", 9, 1) * 10_000), "gguf_value_type"),
    ("endless list of numbers", one(9, struct.pack("<IQ", 10, HUGE)), "gguf_too_large"),
    ("endless list of texts", one(9, struct.pack("<IQ", 8, HUGE)), "gguf_count"),
    ("list of texts, one endless", one(9, struct.pack("<IQQ", 8, 1, HUGE)), "gguf_too_large"),
    ("list of numbers, cut", one(9, struct.pack("<IQ", 4, 100) + bytes(99)), "gguf_cut"),
    ("alignment 0", header(pairs=1) + make.text("general.alignment") + make.value(0), "gguf_alignment"),
    ("alignment 24", header(pairs=1) + make.text("general.alignment") + make.value(24), "gguf_alignment"),
    ("alignment a text", header(pairs=1) + make.text("general.alignment") + make.value("32"), "gguf_alignment"),
    ("endless tensor name", header(tensors=1) + struct.pack("<Q", HUGE), "gguf_long"),
    ("five dimensions", header(tensors=1) + tensor(shape=(1,) * 5), "gguf_dims"),
    ("dimensions without end", header(tensors=1) + tensor(dims=2**32 - 1), "gguf_dims"),
    ("endless row", header(tensors=1) + tensor(shape=(HUGE,)), "gguf_shape"),
    ("product beyond all memory", header(tensors=1) + tensor(shape=(2**20, 2**20, 2**20, 2**20)), "gguf_shape"),
    ("half a block", header(tensors=1) + tensor(shape=(33,), kind=2), "gguf_shape"),
    ("a type given up", header(tensors=1) + tensor(kind=31), "gguf_tensor_type"),
    ("a type of tomorrow", header(tensors=1) + tensor(kind=200), "gguf_tensor_type"),
    ("the same tensor twice", header(tensors=2) + tensor() * 2, "gguf_repeated"),
    ("a hole in the data", header(tensors=1) + tensor(offset=32), "gguf_offset"),
    ("tensors over each other", header(tensors=2) + tensor() + tensor(name=b"u"), "gguf_offset"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile(data: bytes, code: str) -> None:
    tracemalloc.start()
    refused(data, code)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_text_bomb_is_not_kept() -> None:
    """A stream that never ends: reading stops at the limit, and memory stays small."""
    start = io.BytesIO(one(8, struct.pack("<Q", MAX_HEADER - 1000)))

    def read(n: int) -> bytes:
        return start.read(n) or bytes(n)

    tracemalloc.start()
    with pytest.raises(NotAConfig) as caught:
        read_head(start.read, "bomb")
    assert caught.value.code == "gguf_cut"
    start.seek(0)
    assert read_head(read, "bomb").metadata == {"k": {"bytes": MAX_HEADER - 1000}}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_many_lists_are_bounded_together() -> None:
    raw = {f"k{i}": [1] * 4_000 for i in range(200)}
    kept = read_head(io.BytesIO(make.gguf(raw)).read).metadata
    assert sum(len(v) for v in kept.values() if isinstance(v, list)) <= 262_144
    assert kept["k199"] == {"length": 4_000}


def test_every_cut_is_told() -> None:
    for n in (*range(4, 200), *range(200, len(FILE), 37), len(FILE) - 1):
        refused(FILE[:n], "gguf_cut")


def test_a_cut_behind_the_header_is_only_remarked() -> None:
    assert [n.code for n in load_bytes(FILE + bytes(100), "x.gguf").notes] == ["gguf_header_only"]


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_flipped_bytes_give_an_error_or_a_model(data: st.DataObject) -> None:
    broken = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 6))):
        broken[data.draw(st.integers(4, len(FILE) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = load_bytes(bytes(broken), "x.gguf")
        json.dumps(found.raw, allow_nan=False)
        read_config(found.raw)
    except PlannerError as e:
        told = e.message, e.hint
        assert all(told)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_noise_behind_the_name(noise: bytes) -> None:
    try:
        load_bytes(b"GGUF\3\0\0\0" + noise, "x.gguf")
    except PlannerError as e:
        told = e.message, e.hint
        assert all(told)

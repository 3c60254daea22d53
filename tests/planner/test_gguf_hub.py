"""GGUF headers from a fake hub on 127.0.0.1, by range requests: which file, how much is fetched, which token, what each failure says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.errors import PlannerError, SourceError
from planner.readers import read_config
from planner.sources import hub_address, hub_gguf, load
from tests import gguf_file as make
from tests.fake_hub import GOOD_TOKEN, FakeHub
from tests.planner.test_gguf import split

pytest.importorskip("huggingface_hub")

RAW = make.llama()
RAW["metadata"]["tokenizer.ggml.tokens"] = {"length": 200_000}  # a header of 1.8 MB: two pieces
HEADER = make.of(RAW)
WHOLE = HEADER + bytes(6 << 20)


@pytest.fixture(params=[False, True], ids=["direct", "redirect"])
def hub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_TOKEN", "hf_servers_own")  # must never be sent
    made = FakeHub(redirect=request.param)
    made.add("acme/tiny-GGUF", {"tiny-Q4_K_M.gguf": WHOLE, "README.md": b"#", "mmproj-tiny.gguf": b"GGUF"})
    made.add("acme/two-GGUF", {"two-Q4_K_M.gguf": WHOLE, "two-Q8_0.gguf": WHOLE})
    made.add("acme/big-GGUF", {f"Q8_0/big-0000{i}-of-00003.gguf": data for i, data in enumerate(split(make.llama(), 3), 1)})
    made.add("acme/torn-GGUF", {"torn-00001-of-00002.gguf": split(make.llama(), 2)[0]})
    made.add("acme/both", {"config.json": b'{"model_type": "llama"}', "tiny-Q4_K_M.gguf": WHOLE})
    made.add("acme/gated-GGUF", {"tiny-Q4_K_M.gguf": WHOLE}, gated="manual")
    made.add("acme/projector", {"mmproj-tiny.gguf": b"GGUF"})
    made.add("acme/short-GGUF", {"short.gguf": HEADER[:5000]})
    with made as started:
        yield started
        assert "hf_servers_own" not in str(started.authorizations)


ADDRESSES = [
    "acme/tiny-GGUF",
    "acme/tiny-GGUF/tiny-Q4_K_M.gguf",
    "https://huggingface.co/acme/tiny-GGUF/blob/main/tiny-Q4_K_M.gguf",
    "https://huggingface.co/acme/tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf?download=true",
    "hf.co/acme/tiny-GGUF",
]


@pytest.mark.parametrize("source", ADDRESSES)
def test_only_the_header_is_fetched(hub: FakeHub, source: str) -> None:
    found = load(source, endpoint=hub.url)
    assert found.raw == RAW
    assert found.name == "acme/tiny-GGUF"
    assert {k: found.provenance[k] for k in ("kind", "repo_id", "file", "header_bytes", "parts")} == {
        "kind": "hub", "repo_id": "acme/tiny-GGUF", "file": "tiny-Q4_K_M.gguf", "header_bytes": len(HEADER), "parts": 1,
    }  # fmt: skip
    assert len(found.provenance["commit"]) == 40
    assert found.provenance["weight_bytes"] > 0
    ranges = [headers["Range"] for _, path, status, headers in hub.log if status == 206]
    assert ranges == ["bytes=0-1048575", "bytes=1048576-2097151"]
    assert hub.authorizations == []


def test_a_split_model_by_any_of_its_parts(hub: FakeHub) -> None:
    whole = read_config(make.llama())
    for source in ("acme/big-GGUF", "acme/big-GGUF/Q8_0/big-00002-of-00003.gguf"):
        found = load(source, endpoint=hub.url)
        assert read_config(found.raw).layers == whole.layers
        assert found.provenance["parts"] == 3


def test_a_config_beside_it_wins(hub: FakeHub) -> None:
    assert load("acme/both", endpoint=hub.url).provenance["file"] == "config.json"
    assert load("acme/both/tiny-Q4_K_M.gguf", endpoint=hub.url).raw == RAW


def test_the_callers_token_goes_with_every_request(hub: FakeHub) -> None:
    assert load("acme/gated-GGUF", token=GOOD_TOKEN, endpoint=hub.url).raw == RAW
    assert set(hub.authorizations) == {f"Bearer {GOOD_TOKEN}"}
    with pytest.raises(SourceError) as caught:
        load("acme/gated-GGUF", endpoint=hub.url)
    assert caught.value.code == "hub_gated"


PROBLEMS = [
    ("acme/two-GGUF", "gguf_several"),
    ("acme/two-GGUF/two-Q6_K.gguf", "hub_no_file"),
    ("acme/torn-GGUF", "gguf_part_missing"),
    ("acme/projector", "hub_no_config"),
    ("acme/nothing/x.gguf", "hub_not_found"),
    ("acme/short-GGUF", "gguf_cut"),
]


@pytest.mark.parametrize(("source", "code"), PROBLEMS)
def test_problem(hub: FakeHub, source: str, code: str) -> None:
    with pytest.raises(PlannerError) as caught:
        load(source, endpoint=hub.url)
    assert caught.value.code == code
    assert caught.value.message
    assert caught.value.hint


def test_what_to_choose_from_is_listed(hub: FakeHub) -> None:
    with pytest.raises(SourceError) as caught:
        load("acme/two-GGUF", endpoint=hub.url)
    assert "two-Q4_K_M.gguf, two-Q8_0.gguf" in caught.value.message
    assert load("acme/two-GGUF/two-Q4_K_M.gguf", endpoint=hub.url).raw == RAW
    assert "acme/two-GGUF/two-Q4_K_M.gguf" in caught.value.hint


def test_a_hub_without_ranges(hub: FakeHub) -> None:
    """The first piece is taken from the whole file, the next cannot be asked for."""
    hub.ranges = False
    with pytest.raises(SourceError) as caught:
        load("acme/tiny-GGUF", endpoint=hub.url)
    assert caught.value.code == "hub_no_ranges"
    hub.add("acme/little-GGUF", {"little.gguf": make.of(make.llama()) + bytes(3 << 20)})
    assert load("acme/little-GGUF", endpoint=hub.url).raw == make.llama()


def test_time_is_limited_for_all_parts_together(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_gguf, "DEADLINE_S", 0.0)
    with pytest.raises(SourceError) as caught:
        load("acme/big-GGUF", endpoint=hub.url)
    assert caught.value.code == "hub_unreachable"


def test_a_file_here_wins(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme" / "tiny-GGUF").mkdir(parents=True)
    (tmp_path / "acme" / "tiny-GGUF" / "tiny-Q4_K_M.gguf").write_bytes(HEADER)
    assert load("acme/tiny-GGUF/tiny-Q4_K_M.gguf", endpoint=hub.url).provenance["kind"] == "file"
    assert hub.log == []
    assert load("acme/tiny-GGUF/tiny-Q4_K_M.gguf", endpoint=hub.url, allow_paths=False).provenance["kind"] == "hub"


@pytest.mark.parametrize("path", ["x.gguf", "a/b/x.gguf", "x y (1).gguf", "Q8_0/x-00001-of-00002.gguf"])
def test_paths_in_a_repository(path: str) -> None:
    found = hub_address.address_of(f"org/model/{path}")
    assert found is not None
    assert (found.repo_id, found.file) == ("org/model", path)


@pytest.mark.parametrize("path", ["../x.gguf", "a/../x.gguf", "x?y.gguf", "x#y.gguf", "a//x.gguf", "x%2e.gguf", "x.gguf/"])
def test_paths_that_are_none(path: str) -> None:
    assert hub_address.address_of(f"org/model/{path}") is None

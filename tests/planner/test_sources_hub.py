"""The hub's client against a fake hub on 127.0.0.1: what is asked, what is sent, and what each failure says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.errors import NotAConfig, PlannerError, SourceError
from planner.sources import hub as client
from planner.sources import hub_address, load
from tests.fake_hub import GOOD_TOKEN, OTHER_TOKEN, TINY, FakeHub, sample_hub

pytest.importorskip("huggingface_hub")


@pytest.fixture(params=[False, True], ids=["direct", "redirect"])
def hub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_TOKEN", "hf_servers_own")  # must never be sent
    with sample_hub(redirect=request.param) as started:
        yield started
        assert "hf_servers_own" not in str(started.authorizations)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_TOKEN", "hf_servers_own")
    with sample_hub() as started:
        yield started
        assert "hf_servers_own" not in str(started.authorizations)


def test_config_with_provenance(hub: FakeHub) -> None:
    found = load("acme/tiny-llama", endpoint=hub.url)
    data = hub.models["acme/tiny-llama"].files["config.json"]
    assert found.raw == TINY
    assert found.name == "acme/tiny-llama"
    assert found.provenance == {
        "kind": "hub", "repo_id": "acme/tiny-llama", "revision": "main", "commit": "a" * 40, "file": "config.json", "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(), "gated": False, "hub": "127.0.0.1", "safetensors_parameters": {"BF16": 8192, "F32": 64},
    }  # fmt: skip
    json.dumps(found.provenance)
    assert [path for _, path, _, _ in hub.log if "resolve" not in path and "/api/models/" not in path] == []
    assert sum("/api/models/" in path for _, path, _, _ in hub.log) == 1
    assert all(f"/{'a' * 40}/" in path for _, path, _, _ in hub.log[1:]), "the file is asked for by commit"
    assert hub.authorizations == []


def test_again_from_the_commit(hub: FakeHub) -> None:
    first = load("acme/tiny-llama", endpoint=hub.url)
    again = load(f"acme/tiny-llama@{first.provenance['commit']}", endpoint=hub.url)
    assert again.raw == first.raw
    assert again.provenance["sha256"] == first.provenance["sha256"]


@pytest.mark.parametrize(
    ("source", "commit", "file"),
    [
        ("acme/tiny-llama@v1.0", "b" * 40, "config.json"),
        ("acme/tiny-llama@refs/pr/7", "c" * 40, "config.json"),
        ("https://huggingface.co/acme/tiny-llama/tree/v1.0", "b" * 40, "config.json"),
        ("https://huggingface.co/acme/tiny-llama/blob/main/text_encoder/config.json", "a" * 40, "text_encoder/config.json"),
        ("{url}/acme/tiny-llama/blob/main/config.json", "a" * 40, "config.json"),
    ],
)
def test_revision_and_page_addresses(plain: FakeHub, source: str, commit: str, file: str) -> None:
    found = load(source.format(url=plain.url), endpoint=plain.url)
    assert (found.provenance["commit"], found.provenance["file"]) == (commit, file)


def test_an_id_without_owner_by_its_page(plain: FakeHub) -> None:
    assert load("https://huggingface.co/gpt-old", endpoint=plain.url).raw == TINY


def test_one_users_token_opens_nothing_for_the_next(hub: FakeHub) -> None:
    assert load("acme/gated-llama", token=f" {GOOD_TOKEN}\n", endpoint=hub.url).provenance["gated"] == "manual"
    assert set(hub.authorizations) == {f"Bearer {GOOD_TOKEN}"}
    with pytest.raises(SourceError):
        load("acme/gated-llama", endpoint=hub.url)


PROBLEMS = [
    ("acme/gated-llama", None, "hub_gated", "source"),
    ("acme/gated-llama", OTHER_TOKEN, "hub_gated_for_token", "token"),
    ("acme/gated-llama", "hf_stale", "hub_bad_token", "token"),
    ("meta-llama/Llama-3.1-8B", None, "hub_gated_listed", "source"),
    ("meta-llama/Llama-3.1-70B", None, "hub_not_found_listed", "source"),
    ("acme/nope", None, "hub_not_found", "source"),
    ("acme/nope", OTHER_TOKEN, "hub_not_found_with_token", "source"),
    ("acme/secret", None, "hub_not_found", "source"),
    ("acme/secret", OTHER_TOKEN, "hub_not_found_with_token", "source"),
    ("acme/tiny-llama", "hf_stale", "hub_bad_token", "token"),
    ("acme/tiny-llama", "hf_two\nlines", "hub_token_malformed", "token"),
    ("acme/tiny-llama", "hf_\u00e9", "hub_token_malformed", "token"),
    ("acme/tiny-llama@v9", None, "hub_no_revision", "source"),
    ("acme/no-config", None, "hub_no_config", "source"),
    ("acme/lora", None, "hub_adapter", "source"),
    ("acme/pictures", None, "hub_diffusers", "source"),
    ("acme/native", None, "hub_params_json", "source"),
    ("https://huggingface.co/acme/tiny-llama/blob/main/other.json", None, "hub_no_file", "source"),
]


@pytest.mark.parametrize(("source", "token", "code", "field"), PROBLEMS)
def test_problem(plain: FakeHub, source: str, token: str | None, code: str, field: str) -> None:
    with pytest.raises(SourceError) as caught:
        load(source, token=token, endpoint=plain.url)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.message
    assert caught.value.hint
    assert token is None or token not in caught.value.message + caught.value.hint + str(caught.value.to_json())


@pytest.mark.parametrize(("source", "code"), [("acme/broken", "is_truncated"), ("acme/list", "not_an_object"), ("acme/huge", "too_large")])
def test_file_that_is_no_config(hub: FakeHub, source: str, code: str) -> None:
    with pytest.raises(NotAConfig) as caught:
        load(source, endpoint=hub.url)
    assert caught.value.code == code


def test_what_the_texts_offer() -> None:
    def told(code: str, repo: str) -> PlannerError:
        return client.told(code, hub_address.Address(repo_id=repo), hub_address.DEFAULT_ENDPOINT)

    gated = told("hub_gated", "meta-llama/Llama-3.1-8B")
    assert "gated" in gated.message
    assert "terms" in gated.hint
    assert "paste" in gated.hint
    assert "catalog:Llama-3.1-8B" in gated.hint
    missing = told("hub_not_found", "acme/nope")
    assert "no such model" in missing.message
    assert "private or gated" in missing.message
    assert "paste" in missing.hint
    assert "never one saved on this machine" in told("hub_bad_token", "acme/nope").message
    assert "catalog:" not in told("hub_unreachable", "acme/nope").hint
    assert "catalog:Qwen3-8B" in told("hub_unreachable", "Qwen/Qwen3-8B").hint


@pytest.mark.parametrize(
    ("status", "code"), [(401, "hub_not_found"), (403, "hub_forbidden"), (429, "hub_rate_limit"), (500, "hub_failed"), (503, "hub_failed")]
)
def test_status(plain: FakeHub, status: int, code: str) -> None:
    plain.fail_with = status
    started = time.monotonic()
    with pytest.raises(SourceError) as caught:
        client.fetch(hub_address.Address(repo_id="acme/tiny-llama"), endpoint=plain.url)
    assert caught.value.code == code
    assert status != 503 or "503" in caught.value.message
    assert time.monotonic() - started < 3, "no retries"


def test_slow_hub(plain: FakeHub) -> None:
    plain.delay_s = 1.0
    started = time.monotonic()
    with pytest.raises(SourceError) as caught:
        client.fetch(hub_address.Address(repo_id="acme/tiny-llama"), endpoint=plain.url, timeout_s=0.2)
    assert caught.value.code == "hub_unreachable"
    assert time.monotonic() - started < 0.9


def test_web_page_in_place_of_a_hub(plain: FakeHub) -> None:
    plain.web_page = True
    for ask in (lambda: load("acme/tiny-llama", endpoint=plain.url), lambda: client.search("llama", endpoint=plain.url)):
        with pytest.raises(SourceError) as caught:
            ask()
        assert caught.value.code == "hub_odd_answer"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "no-address", "ftp://127.0.0.1", "http://"])
def test_nothing_listens(endpoint: str) -> None:
    with pytest.raises(SourceError) as caught:
        load("acme/tiny-llama", endpoint=endpoint)
    assert caught.value.code in ("hub_unreachable", "hub_odd_answer")


def test_search_finds_what_writes_text_and_shows_nothing_but_ids() -> None:
    """A model that also reads pictures counts, one that draws does not; a name that could be markup is no id."""
    with FakeHub() as hub:
        for name, kind in (
            ("acme/draws", "text-to-image"),
            ("acme/sees", "image-text-to-text"),
            ("acme/says", "text-generation"),
            ("acme/[s](http://x)", None),
        ):
            hub.add(name, {}, info={"pipeline_tag": kind})
        assert client.search("s", endpoint=hub.url) == ("acme/sees", "acme/says")


def test_search(plain: FakeHub) -> None:
    assert client.search("llama", endpoint=plain.url) == ("acme/tiny-llama", "acme/gated-llama", "meta-llama/Llama-3.1-8B")
    assert client.search("llama", 1, endpoint=plain.url) == ("acme/tiny-llama",)
    assert client.search("secret", endpoint=plain.url) == ()
    assert "sort=downloads" in plain.log[-1][1]
    assert plain.authorizations == []
    plain.fail_with = 429
    with pytest.raises(SourceError) as caught:
        client.search("llama", endpoint=plain.url)
    assert caught.value.code == "hub_rate_limit"


def test_nothing_is_written_and_offline_is_obeyed(plain: FakeHub, tmp_path: Path) -> None:
    script = (
        "import sys; from planner.sources import load; from planner.errors import PlannerError\n"
        "try: print(load('acme/tiny-llama').provenance['commit'])\n"
        "except PlannerError as e: print(e.code)"
    )
    env = {**os.environ, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": plain.url, "XDG_CACHE_HOME": str(tmp_path)}
    root = Path(client.__file__).parent.parent.parent
    for offline, printed in (("0", "a" * 40), ("1", "hub_offline")):
        before = len(plain.log)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root, env={**env, "HF_HUB_OFFLINE": offline})
        assert done.stdout.strip() == printed
        assert offline == "0" or len(plain.log) == before
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []

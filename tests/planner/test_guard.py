"""The hub's client goes nowhere inside the host's own network, however the address is written, unless it is the hub that the host named."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from planner.errors import SourceError
from planner.sources import guard, hub, load
from tests.fake_hub import GOOD_TOKEN, FakeHub, sample_hub

pytest.importorskip("huggingface_hub")

PRIVATE = (
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8",
    "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::7f00:1", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2002:7f00:1::", "2002:a00:1::", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2001:db8::1",
    "100::1", "192.88.99.1", "", "host", "1.2.3", "999.1.1.1",
)  # fmt: skip
PUBLIC = ("8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::")
SPELLINGS = (
    "https://127.0.0.1", "https://2130706433", "https://0x7f000001", "https://0177.0.0.1", "https://127.1", "https://0", "https://[::1]", "https://[::]",
    "https://[::ffff:127.0.0.1]", "https://[::ffff:7f00:1]", "https://169.254.169.254/latest/meta-data/", "https://10.0.0.1", "https://0xa9fea9fe",
    "https://[fe80::1]", "https://[fc00::1]", "https://[2002:7f00:1::]", "https://localhost", "https://LOCALHOST.", "http://localhost", "http://8.8.8.8",
    "https://user:secret@127.0.0.1",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_not_public(address: str) -> None:
    assert not guard.is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert guard.is_public(address)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub whose name is not that of what lies beside it: `hub.test`, which this machine finds on its own port."""
    monkeypatch.delenv("KVLEDGER_HUB_HOSTS", raising=False)
    with sample_hub() as started:
        yield started


@pytest.fixture
def inside() -> Iterator[tuple[str, list[Any]]]:
    """A server that nobody may be led to, and who came all the same."""
    came: list[Any] = []
    with socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        s.listen()
        s.settimeout(0.2)
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                try:
                    came.append(s.accept()[1])
                except OSError:
                    continue

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        yield f"127.0.0.2:{s.getsockname()[1]}", came
        stop.set()
        thread.join(2)


@pytest.mark.parametrize("target", SPELLINGS)
def test_a_redirect_into_the_network_is_not_followed(named: FakeHub, target: str) -> None:
    named.lead_to = target if "127.0.0.1" not in target or "@" in target else target.replace("127.0.0.1", "127.0.0.3")
    before = len(named.log)
    with pytest.raises(SourceError) as caught:
        load("acme/tiny-llama", endpoint=named.url, token=GOOD_TOKEN)
    assert caught.value.code in ("hub_private", "hub_odd_answer", "hub_unreachable")
    if "@" not in target and "0177" not in target:  # those are no addresses to the HTTP library either
        assert caught.value.code != "hub_unreachable", "refused before it was tried"
    assert len(named.log) - before == 2, "the summary and the file that led away"
    assert "secret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nothing_arrives_inside(named: FakeHub, inside: tuple[str, list[Any]], scheme: str) -> None:
    named.lead_to = f"{scheme}://{inside[0]}/config.json"
    with pytest.raises(SourceError):
        load("acme/tiny-llama", endpoint=named.url, token=GOOD_TOKEN)
    time.sleep(0.05)
    assert inside[1] == []


def test_a_name_that_leads_inside(named: FakeHub, inside: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name whose address is private, alone or beside a public one."""
    real = socket.getaddrinfo

    for addresses in (["127.0.0.2"], ["8.8.8.8", "127.0.0.2"], ["::ffff:127.0.0.2"]):

        def resolved(host: Any, port: Any, *a: Any, to: list[str] = addresses, **kw: Any) -> Any:
            if str(host).endswith("evil.test"):
                if kw.get("flags"):
                    raise socket.gaierror
                return [(socket.AF_INET6 if ":" in t else socket.AF_INET, socket.SOCK_STREAM, 6, "", (t, port)) for t in to]
            return real(host, port, *a, **kw)

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        named.lead_to = f"https://cdn.evil.test:{inside[0].split(':')[1]}/config.json"
        with pytest.raises(SourceError) as caught:
            load("acme/tiny-llama", endpoint=named.url)
        assert caught.value.code == "hub_private"
    assert inside[1] == []


def test_a_name_is_resolved_once_and_connected_to_by_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers differently the second time (rebinding) gets no second time."""
    asked = []

    def resolved(host: Any, port: Any, *a: Any, **kw: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8" if len(asked) == 1 else "127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert guard.allowed_addresses("cdn.evil.test", 443) == ["8.8.8.8"]
    assert asked == ["cdn.evil.test"]


def test_the_host_may_name_a_neighbour(named: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """KVLEDGER_HUB_HOSTS, never a user: what a mirror keeps its files on."""
    with sample_hub() as store:
        commit = named.models["acme/tiny-llama"].commit("main")
        named.lead_to = store.url.replace("127.0.0.1", "localhost") + f"/acme/tiny-llama/resolve/{commit}/config.json"
        with pytest.raises(SourceError):
            load("acme/tiny-llama", endpoint=named.url)
        assert store.log == []
        monkeypatch.setenv("KVLEDGER_HUB_HOSTS", "other.test, localhost")
        assert load("acme/tiny-llama", endpoint=named.url, token=GOOD_TOKEN).raw["num_hidden_layers"] == 32
        assert store.authorizations == [], "the token stays with the hub"


def test_an_endless_or_huge_answer_is_given_up(named: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_ANSWER", 1000)
    named.add("acme/long", {"config.json": b"{}"}, info={"gated": False, "siblings": [{"rfilename": "x" * 100} for _ in range(100)]})
    with pytest.raises(SourceError) as caught:
        load("acme/long", endpoint=named.url)
    assert caught.value.code == "hub_odd_answer"
    monkeypatch.setattr(guard, "MAX_ANSWER", 10**6)
    monkeypatch.setattr(hub, "ALL_S", -1.0)
    with pytest.raises(SourceError) as caught:
        load("acme/long", endpoint=named.url)
    assert caught.value.code == "hub_unreachable"


def test_without_a_hub_that_was_named_only_the_public_is_reached() -> None:
    from huggingface_hub.utils import get_session

    guard.install()
    with sample_hub() as started, pytest.raises(guard.Forbidden):
        get_session().get(started.url)
    assert started.log == []

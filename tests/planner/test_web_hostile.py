"""Nothing that is sent makes the server fail, hang, grow, or tell what is not the sender's."""

from __future__ import annotations

import gc
import json
import logging
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from planner.api import model_of
from planner.errors import PlannerError
from planner.messages import render
from planner.saved import is_report, read_back
from planner.sources import load_bytes
from planner.units import MIB
from planner.web import routes
from tests.conftest import ROOT
from tests.fake_hub import FakeHub, sample_hub
from tests.planner.hostile_requests import BAD_SOURCES, BAD_TEXTS, MARKER, bodies, uploads

SECONDS = 5.0  # of computing for one of them: how busy the machine is else does not count
GROWTH = 96 * MIB  # kept after all of them, by this process
PEAK = 512 * MIB
LEAKS = (str(ROOT), str(Path.home()) + "/", "Traceback", 'File "', "site-packages", MARKER)


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with sample_hub() as started:
        yield started


@pytest.fixture
def api(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", MARKER)
    monkeypatch.chdir(ROOT)
    with TestClient(Starlette(routes=routes.Service("", {}).routes()), raise_server_exceptions=False) as c:
        yield c
    assert MARKER not in str(hub.log), "the server's own token is never sent"


def number(literal: str) -> float:
    raise AssertionError(f"{literal} is no JSON")


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def judged(name: str, answer: Any, began: float) -> None:
    assert time.process_time() - began < SECONDS, name
    assert answer.status_code < 500, f"{name}: {answer.status_code} {answer.text[:200]}"
    found = json.loads(answer.text, parse_constant=number)
    if answer.status_code != 200:
        assert set(found["error"]) == {"type", "code", "message", "field", "hint"}, name
        assert found["error"]["message"], name
        assert found["error"]["hint"], name
        assert len(answer.text) < 20_000, name
    for leak in LEAKS:
        assert leak not in answer.text, f"{name} shows {leak}"


def test_bodies(api: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the test's own client
    cases = list(bodies())
    assert len(cases) >= 200
    before = 0
    for i, (name, path, body) in enumerate(cases):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        began = time.process_time()
        judged(name, api.post(path, content=data, headers={"Content-Type": "application/json"}), began)
        if i == len(cases) // 4:  # tables are loaded by then
            before = resident()
        assert i < len(cases) // 4 or resident() - before < PEAK, name
    gc.collect()
    assert resident() - before < GROWTH
    assert [r for r in caplog.records if r.name == routes.LOG.name] == []
    assert MARKER not in caplog.text


TWICE: tuple[dict[str, Any], ...] = (
    {"batch": 1, "sequences": 7},
    {"batch": 1, "concurrency": 1},
    {"used_memory": 1, "used_memory_bytes": 2},
    {"prefix_caching": True, "no_prefix_caching": True},
    {"max-model-len": 100, "max_model_len": 200},
    {"no-enforce-eager": True, "enforce_eager": True},
)


@pytest.mark.parametrize("options", TWICE)
@pytest.mark.parametrize("path", ["/api/kv", "/api/plan", "/api/sweep"])
def test_one_option_by_two_names_is_refused(api: TestClient, path: str, options: dict[str, Any]) -> None:
    """None of the two is passed over."""
    asked = {"source": "catalog:GPT-2", **options, **({"grid": "tokens=10"} if path == "/api/sweep" else {})}
    found = api.post(path, content=json.dumps(asked).encode(), headers={"Content-Type": "application/json"})
    assert (found.status_code, found.json()["error"]["code"]) == (400, "request_repeated")


def test_sources(api: TestClient, hub: FakeHub) -> None:
    sent = len(hub.log)
    for source in BAD_SOURCES:
        for path in ("/api/read", "/api/plan"):
            began = time.process_time()
            answer = api.post(path, content=json.dumps({"source": source}).encode(), headers={"Content-Type": "application/json"})
            judged(source[:60], answer, began)
            if not source.endswith("/acme/tiny-llama") and "acme/tiny-llama/resolve" not in source and "?token=" not in source:
                assert answer.status_code == 400, source[:60]
    asked = [path for _, path, _, _ in hub.log[sent:] if path != "/api/agent-harnesses"]  # the client's own question
    assert [p for p in asked if not re.match(r"/api/models/[\w.-]+(/[\w.-]+)?[/?]|/[\w.-]+(/[\w.-]+)?/resolve/[0-9a-f]{40}/", p, re.ASCII)] == []
    assert not any(".." in p or "\r" in p or "%00" in p for p in asked)


def test_queries(api: TestClient) -> None:
    for text in BAD_TEXTS:
        if len(text) > 30_000 or any("\ud800" <= c <= "\udfff" for c in text):
            continue  # a client cannot write those
        for params in ({"source": text}, {"source": "catalog:GPT-2", "tokens": text}, {"source": "catalog:GPT-2", text or "x": "1"}):
            began = time.process_time()
            judged(text[:20], api.get("/api/kv", params=params), began)
    for path in (
        "/api/../app.py",
        "/api/%2e%2e/app.py",
        "/api//etc/passwd",
        "/api/kv%00",
        "/api/kv;x=1",
        "/api/" + "a" * 5000,
        "/api/kv?" + "&".join("a=1" for _ in range(3000)),
    ):
        began = time.process_time()
        judged(path[:40], api.get(path), began) if path.startswith("/api/k") or "/api/" + "a" * 10 in path else api.get(path)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X" * 200])
def test_methods(api: TestClient, method: str) -> None:
    found = api.request(method, "/api/kv")
    assert found.status_code == 405
    assert "access-control-allow-origin" not in found.headers


def test_uploads() -> None:
    """What the pages do with a file, the API with a source: read as data, and refused in words."""
    cases = list(uploads())
    assert len(cases) >= 100
    told: list[tuple[str, str, str]] = []
    before = resident()
    for name, data in cases:
        began = time.process_time()
        try:
            loaded = load_bytes(data, "=cmd|'!A0<script>\r\n../../x.json")
            model_of(read_back(loaded.raw).loaded() if is_report(loaded.raw) else loaded)
        except PlannerError as e:
            told.append((name, e.message, e.hint))
        assert time.process_time() - began < SECONDS, name
        assert resident() - before < PEAK, name
    for name, message, hint in told:
        assert message, name
        assert hint, name
        assert len(message + hint) < 4000, name
        assert not any(leak in message + hint for leak in (*LEAKS, "\r")), name


def test_uploads_as_bodies(api: TestClient) -> None:
    for name, data in uploads():
        began = time.process_time()
        judged(name, api.post("/api/read", content=data, headers={"Content-Type": "application/json"}), began)
        if len(data) < 50_000:
            began = time.process_time()
            text = data.decode("utf-8", "replace")
            judged(name, api.post("/api/read", content=json.dumps({"source": text}).encode(), headers={"Content-Type": "application/json"}), began)


def test_the_set_can_fail(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge sees a crash, a leak, a NaN and a hang."""

    def plant(value: Any) -> Any:
        def answered(*_: Any, **__: Any) -> Any:
            return value() if callable(value) else value

        monkeypatch.setattr(routes, "answered", answered)
        return api.get("/api/kv?source=x")

    for bad in (lambda: 1 / 0, {"path": f"{ROOT}/app.py"}, {"x": float("nan")}, {"x": MARKER}):
        with pytest.raises(AssertionError):
            judged("planted", plant(bad), time.process_time())
    with pytest.raises(AssertionError):
        judged("planted", plant({}), time.process_time() - SECONDS)
    assert render("api.ok")


@pytest.mark.parametrize("host", ["evil.test", "a b", "[::1", "x" * 5000, "127.0.0.1:99999999", "@", "\xff"])
def test_hosts(api: TestClient, host: str) -> None:
    began = time.process_time()
    judged(host[:20], api.get("/api/kv?source=catalog:GPT-2&tokens=5", headers={"Host": host.encode("latin-1")}), began)  # type: ignore[dict-item]

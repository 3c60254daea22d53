"""The JSON API: the command line's answers and errors, its bounds, its description, its place under a base path."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.testclient import TestClient

from planner import environment
from planner.api import SWITCHES, answer
from planner.scenario import ALIASES, OPTIONS
from planner.web import routes
from planner.web.asked import OWN, known
from planner.web.bucket import MOST_ADDRESSES, Buckets, address_of
from planner.web.description import ANSWERS, STATUSES
from planner.web.headers import SecurityHeaders, page_hashes
from tests.conftest import ROOT

LLAMA = "catalog:Llama-3.1-8B"
JSON = {"Content-Type": "application/json"}


def client(base: str = "", **settings: str) -> TestClient:
    environ = {f"KVLEDGER_{name}": value for name, value in settings.items()}
    return TestClient(Starlette(routes=routes.Service(base, environ).routes()), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def api() -> TestClient:
    return client()


@pytest.fixture(scope="module")
def document(api: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/api/openapi.json").json()
    return found


# -- the same as the command line ------------------------------------------------------------------------------------------


def typed(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "planner", *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SAME = [
    ("read", (), {}),
    ("kv", ("--tokens", "4000", "--batch", "3", "--engine", "vllm", "--tp", "2"), {"tokens": 4000, "batch": 3, "engine": "vllm", "tp": 2}),
    ("plan", ("--gpu", "H200 SXM", "--no-prefix-caching", "--remedies"), {"gpu": "H200 SXM", "no_prefix_caching": True, "remedies": True}),
    ("sweep", ("--grid", "tp=1,2;sequences=1..8*2", "--gpu", "L40S"), {"grid": "tp=1,2;sequences=1..8*2", "gpu": "L40S"}),
]  # fmt: skip
WRONG = [
    ("kv", ("--tokens", "-1"), {"tokens": -1}, "tokens"),
    ("kv", (), {}, "tokens"),
    ("plan", ("--gpu", "H1000"), {"gpu": "H1000"}, "gpu"),
    ("plan", ("--kv-memory", "lots"), {"kv_memory": "lots"}, "kv_memory"),
    ("plan", ("--tp", "3"), {"tp": 3}, None),
    ("sweep", ("--grid", "tp=1..0"), {"grid": "tp=1..0"}, "tp"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words", "options"), SAME)
def test_an_answer_is_the_command_lines(api: TestClient, command: str, words: tuple[str, ...], options: dict[str, Any]) -> None:
    wanted = typed(command, LLAMA, *words)
    posted = api.post(f"/api/{command}", json={"source": LLAMA, **options})
    got = api.get(f"/api/{command}", params={"model": LLAMA, **{k: str(v).lower() if isinstance(v, bool) else v for k, v in options.items()}})
    assert posted.status_code == got.status_code == 200
    assert posted.json() == got.json() == wanted


@pytest.mark.parametrize(("command", "words", "options", "field"), WRONG)
def test_an_error_is_the_command_lines(api: TestClient, command: str, words: tuple[str, ...], options: dict[str, Any], field: str | None) -> None:
    found = api.post(f"/api/{command}", json={"source": LLAMA, **options})
    assert found.status_code == 400
    assert found.json() == {"error": typed(command, LLAMA, *words)["error"]}
    assert field is None or found.json()["error"]["field"] == field


def test_a_config_in_the_request(api: TestClient) -> None:
    config = json.loads((ROOT / "tests/configs/llama.json").read_text())
    inside, as_text = (api.post("/api/kv", json={"source": s, "tokens": 100}).json() for s in (config, json.dumps(config)))
    assert inside == as_text
    assert inside["architecture_bytes"] == answer("kv", json.dumps(config), {"tokens": 100})["architecture_bytes"] > 0
    swept = api.post(
        "/api/sweep", json={"source": {**config, "layer_note": "x" * 500}, "harmless": ["layer_note"], "grid": {"tokens": [100, 200]}, "rows": True}
    )
    assert [r["kv_bytes"] > 0 for r in swept.json()["rows"]] == [True, True]


def test_switches_are_read_as_text(api: TestClient) -> None:
    off = api.get("/api/plan", params={"source": LLAMA, "remedies": "false", "sensitivity": "0"}).json()
    assert "sensitivity" not in off
    assert off.get("remedies") is None
    assert "sensitivity" in api.get("/api/plan", params={"source": LLAMA, "sensitivity": "1"}).json()
    for name in SWITCHES:
        wrong = api.get("/api/plan", params={"source": LLAMA, name: "perhaps"})
        assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, name)


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/api/melt", b"{}", 404, "command"),
        ("/api/kv/", b"{}", 404, "command"),
        ("/api/plan/x", b"{}", 404, "command"),
        ("/api/health", b"{}", 405, "method"),
        ("/api/kv", b"", 400, "body"),
        ("/api/kv", b"{", 400, "body"),
        ("/api/kv", b"[1]", 400, "body"),
        ("/api/kv", b"[" * 70_000, 400, "body"),
        ("/api/kv", b'{"source": "x", "source": "y"}', 400, "source"),
        ("/api/kv", b'{"kv-dtype": "fp8", "kv_dtype": "bf16"}', 400, "kv_dtype"),
        ("/api/kv", b'{"source": "x", "model": "y"}', 400, "model"),
        ("/api/kv", b'{"source": 7}', 400, "source"),
        ("/api/read", b'{"source": "catalog:GPT-2", "tokens": 5}', 400, "tokens"),
        ("/api/kv", b'{"source": "catalog:GPT-2", "tokens": 5, "remedies": true}', 400, "remedies"),
        ("/api/plan", b'{"source": "catalog:GPT-2", "trace": "/etc/hosts"}', 400, "trace"),
        ("/api/plan", b'{"source": "catalog:GPT-2", "command": "read"}', 400, "command"),
        ("/api/plan", b'{"source": "catalog:GPT-2", "harmless": 5}', 400, "harmless"),
        ("/api/plan", b'{"source": "catalog:GPT-2", "saved": true}', 400, "from"),
        ("/api/sweep", b'{"source": "catalog:GPT-2"}', 400, "grid"),
        ("/api/sweep", b'{"source": "catalog:GPT-2", "grid": "tokens=1..2001"}', 400, "tokens"),
        ("/api/sweep", b'{"grid": "tokens=1"}', 400, "source"),
        ("/api/sweep", json.dumps({"grid": {"model": [f"a/m{i}" for i in range(17)]}}).encode(), 400, "model"),
    ],
)  # fmt: skip
def test_what_is_refused(api: TestClient, path: str, body: bytes, status: int, field: str) -> None:
    found = api.post(path, content=body, headers=JSON)
    error = found.json()["error"]
    assert (found.status_code, error["field"]) == (status, field)
    assert error["message"]
    assert error["hint"]


@pytest.mark.parametrize("source", ["/etc/passwd", "../app.py", "./planner", "~/.ssh/id_rsa", "tests/configs/llama.json", "C:\\boot.ini", "file:///etc/passwd"])
def test_no_file_is_opened(api: TestClient, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name, value in (("source", source), ("draft", source), ("lengths", source), ("calibration", source)):
        found = api.post("/api/plan", json={"source": LLAMA, **({"num_speculative_tokens": 2} if name == "draft" else {}), name: value})
        assert found.status_code == 400, name
        assert found.json()["error"]["field"] in (name, "source")
    for grid in (source, "grid.toml"):
        assert api.post("/api/sweep", json={"source": LLAMA, "grid": grid}).json()["error"]["field"] == "grid"


# -- bounds ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonp", "application/json\0"]
)
def test_only_json_is_read(api: TestClient, kind: str) -> None:
    found = api.post("/api/kv", content=b'{"source": "catalog:GPT-2", "tokens": 5}', headers={"Content-Type": kind})
    assert (found.status_code, found.json()["error"]["code"]) == (415, "request_content_type")


def test_a_body_beyond_the_bound_is_not_kept(api: TestClient) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 65_536
            yield b" " * 65_536

    found = client(API_BODY="64KiB").post("/api/kv", content=chunks(), headers=JSON)
    assert (found.status_code, found.json()["error"]["code"]) == (413, "request_too_large")
    whole = api.post("/api/kv", content=b" " * (1 << 20) + b"{}", headers=JSON)
    assert whole.status_code == 413


def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_SECONDS", 0.1)
    said: list[Any] = []

    async def ask() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.03)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/kv", "headers": [(b"content-type", b"application/json")], "query_string": b"", "client": None}
        await Starlette(routes=routes.Service("", {}).routes())(scope, receive, send)

    asyncio.run(ask())
    assert said[0]["status"] == 408


class Held:
    """Answers that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.began, self.stopped = threading.Event(), threading.Semaphore(0), threading.Event()
        monkeypatch.setattr(routes, "answered", self.answered)

    def answered(self, command: str, source: str, options: Any, *, most: int, step: Any) -> dict[str, Any]:
        self.began.release()
        while not self.go.wait(0.01):
            if not step(0, 1):
                self.stopped.set()
                break
        return {}


def test_requests_at_once_are_bounded_and_places_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with client(API_REQUESTS="2") as c:
        answers: list[int] = []
        threads = [threading.Thread(target=lambda: answers.append(c.get("/api/kv?source=x").status_code)) for _ in range(2)]
        for t in threads:
            t.start()
        assert all(held.began.acquire(timeout=10) for _ in threads)
        busy = c.get("/api/kv?source=x")
        assert (busy.status_code, busy.json()["error"]["code"]) == (503, "request_busy")
        assert int(busy.headers["Retry-After"]) >= 1
        assert c.get("/api/health").status_code == 200
        held.go.set()
        for t in threads:
            t.join(10)
        assert answers == [200, 200]
        assert c.get("/api/kv?source=x").status_code == 200


def test_what_takes_too_long_is_given_up_and_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with client(API_SECONDS="0.2", API_REQUESTS="1") as c:
        late = c.get("/api/sweep?source=x")
        assert (late.status_code, late.json()["error"]["code"]) == (504, "request_time")
        assert held.stopped.wait(5)
        held.go.set()
        deadline = time.monotonic() + 5
        while (again := c.get("/api/kv?source=x")).status_code == 503 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert again.status_code == 200, "the place is free once the thread has ended"


def test_a_sweep_is_cancelled_by_its_step() -> None:
    from planner.sweep.points import Cancelled
    from planner.web.asked import answered

    asked = []

    def step(done: int, total: int) -> bool:
        asked.append(done)
        return len(asked) < 3

    out = answered("sweep", LLAMA, {"grid": "tp=1,2,4;engine=vllm,sglang;sequences=1..8"}, most=2000, step=step)
    assert out["complete"] is False
    with pytest.raises(Cancelled):
        answered("sweep", LLAMA, {"grid": "tp=1"}, most=2000, step=lambda *_: False)


def test_a_fault_of_ours_is_told_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any, **__: Any) -> dict[str, Any]:
        raise KeyError("/srv/secret/path")

    monkeypatch.setattr(routes, "answered", broken)
    found = client().get("/api/kv?source=x")
    assert found.status_code == 500
    assert found.json()["error"]["code"] == "unexpected"
    assert "secret" not in found.text
    assert "KeyError" in caplog.text


def test_a_rate_an_address() -> None:
    now = [0.0]
    b = Buckets(60, lambda: now[0])
    assert [b.wait_s("a") for _ in range(61)] == [0] * 60 + [1]
    assert b.wait_s("b") == 0
    now[0] = 1.0
    assert [b.wait_s("a"), b.wait_s("a")] == [0, 1]
    for i in range(MOST_ADDRESSES + 10):
        b.wait_s(str(i))
    assert len(b._left) == MOST_ADDRESSES
    c = client(RATE="2", PROXIES="1")
    wanted = [200, 200, 429]
    assert [c.get(f"/api/kv?source={LLAMA}&tokens=1", headers={"X-Forwarded-For": "6.6.6.6, 1.1.1.1"}).status_code for _ in wanted] == wanted
    assert c.get(f"/api/kv?source={LLAMA}&tokens=1", headers={"X-Forwarded-For": "1.1.1.1, 2.2.2.2"}).status_code == 200
    assert address_of("9.9.9.9", "1.1.1.1", 0) == address_of("9.9.9.9", "", 2) == "9.9.9.9", "nobody names himself"


# -- the description -------------------------------------------------------------------------------------------------------


def test_every_option_is_described(document: dict[str, Any]) -> None:
    options = {n for n in OPTIONS if n != "model"}
    for command in OWN:
        body = document["components"]["schemas"][f"{command}Request"]
        query = {p["name"]: p for p in document["paths"][f"/api/{command}"]["get"]["parameters"]}
        assert set(body["properties"]) == set(query) == {*known(command), "source", "model"}
        assert body["additionalProperties"] is False
        assert command == "read" or options | set(ALIASES) <= set(query)
        assert all(p["description"] for p in (*query.values(), *body["properties"].values()))
        for name, o in OPTIONS.items():
            if name in body["properties"] and o.kind == "choice":
                assert body["properties"][name]["enum"] == list(o.choices)
            if name in body["properties"] and o.kind == "int":
                assert (body["properties"][name]["minimum"], body["properties"][name]["maximum"]) == (o.low, o.high)


def test_every_option_of_the_command_line_is_in_the_api() -> None:
    from planner.__main__ import parser

    not_over_http = {"help", "h", "json", "from", "trace", "format", "with", "out", "o"}
    for command in OWN:
        sub = next(a for a in parser([command])._actions if a.dest == "command").choices[command]  # type: ignore[union-attr, index, call-overload]
        flags = {f.lstrip("-").replace("-", "_") for a in sub._actions for f in a.option_strings} - not_over_http
        assert flags <= set(known(command)) | {"saved"}, flags - set(known(command))


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k == "$ref")
        for v in value.values():
            yield from refs(v)
    elif isinstance(value, list):
        for v in value:
            yield from refs(v)


def test_the_description_is_whole_and_its_schemas_are_schemas(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {*(f"/api/{c}" for c in OWN), "/api/health", "/api/openapi.json"}
    for ref in set(refs(document)):
        assert ref.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    ids = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))
    for command in OWN:
        assert set(document["paths"][f"/api/{command}"]["post"]["responses"]) == {str(s) for s in STATUSES}


@pytest.mark.parametrize(("command", "words", "options"), SAME)
def test_answers_and_errors_are_as_described(api: TestClient, document: dict[str, Any], command: str, words: Any, options: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    body = {"source": LLAMA, **options}
    Draft202012Validator(schemas[f"{command}Request"]).validate(body)
    found = api.post(f"/api/{command}", json=body).json()
    Draft202012Validator(schemas[f"{command}Answer"]).validate(found)
    for name in ANSWERS[command]:
        assert not Draft202012Validator(schemas[f"{command}Answer"]).is_valid({k: v for k, v in found.items() if k != name})
    for wrong in (api.post(f"/api/{command}", json={"melt": 1}), api.get("/api/melt"), api.delete("/api/kv"), api.post("/api/kv", content=b"")):
        Draft202012Validator(schemas["Error"]).validate(wrong.json())
        assert str(wrong.status_code)[0] == "4"


# -- where it is -----------------------------------------------------------------------------------------------------------


def test_under_a_base_path_and_at_the_root() -> None:
    c = client("/tools/kv/")
    for prefix in ("", "/tools/kv"):
        assert c.get(f"{prefix}/api/health").json()["status"] == "ok"
        assert c.get(f"{prefix}/api/kv?source={LLAMA}&tokens=1").status_code == 200
        assert c.get(f"{prefix}/api/melt").status_code == 404
    assert c.get("/api/openapi.json").json()["servers"] == [{"url": "/tools/kv"}]


def test_the_api_can_be_switched_off() -> None:
    c = client(API="off")
    assert c.get("/api/health").status_code == 200
    assert c.get(f"/api/kv?source={LLAMA}&tokens=1").status_code == 404


# -- headers ---------------------------------------------------------------------------------------------------------------


def test_every_answer_carries_the_headers() -> None:
    c = TestClient(SecurityHeaders(Starlette(routes=routes.Service("", {}).routes()), "'none'"))  # type: ignore[arg-type]
    for found in (c.get("/api/health"), c.get("/api/melt"), c.get("/nothing")):
        policy = dict(part.split(" ", 1) for part in found.headers["content-security-policy"].split("; "))
        assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
        assert "unsafe-inline" not in policy["script-src"]
        assert "*" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert "camera=()" in found.headers["permissions-policy"]
    assert len(page_hashes()) >= 1, "Streamlit's page has one script in it"


# -- the environment -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KVLEDGER_API", "perhaps"), ("KVLEDGER_API_BODY", "1"), ("KVLEDGER_API_BODY", "lots"), ("KVLEDGER_API_SECONDS", "nan"),
        ("KVLEDGER_API_SECONDS", "inf"), ("KVLEDGER_API_REQUESTS", "0"), ("KVLEDGER_API_REQUESTS", "2.5"), ("KVLEDGER_RATE", "-1"),
        ("KVLEDGER_HUB_HOSTS", "http://hub"), ("KVLEDGER_HUB_HOSTS", "a b"), ("KVLEDGER_FRAMES", "*"), ("KVLEDGER_FRAMES", "'self'; script-src *"),
        ("KVLEDGER_FRAMES", "'self'\r\nX-A: b"), ("KVLEDGER_PROBE", "of"), ("KVLEDGER_PROBE_CHILDREN", "1e3"), ("KVLEDGER_FONT", "a\nb"),
        ("KVLEDGER_RATES", "5"), ("KVLEDGER_PROBES", "off"),
    ],
)  # fmt: skip
def test_a_slip_in_a_setting_is_refused(name: str, value: str) -> None:
    with pytest.raises(environment.InvalidInput) as caught:
        environment.check({"PATH": "/bin", name: value})
    assert caught.value.field == name
    assert value not in caught.value.message + caught.value.hint or len(value) < 3


def test_settings_are_read() -> None:
    environment.check({"KVLEDGER_CORPUS": "x", "KVLEDGER_API": "", "OTHER": "?"})
    given = {"KVLEDGER_API_BODY": "64 KiB", "KVLEDGER_HUB_HOSTS": "A.test, [::1]", "KVLEDGER_PROBE": "Off", "KVLEDGER_API_SECONDS": "0.5"}
    assert [environment.value(n, given) for n in given] == [65_536, ("a.test", "[::1]"), False, 0.5]
    assert [environment.value(n, {}) for n in given] == [environment.VARIABLES[n].default for n in given]


def test_no_other_module_reads_our_variables() -> None:
    """All of them are in the table; only the messages, which it needs itself, read their own."""
    for path in (*(ROOT / "planner").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), *(ROOT / "gpu_probe").rglob("*.py"), ROOT / "app.py"):
        text = path.read_text()
        if path.name != "environment.py":
            assert 'environ.get("KVLEDGER' not in text, path
            assert 'getenv("KVLEDGER' not in text, path

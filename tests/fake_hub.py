"""A small stand-in for the Hugging Face hub on 127.0.0.1, standard library only. Tested with huggingface_hub 2.4.

    with FakeHub() as hub:
        hub.add("acme/tiny", {"config.json": b"{}"})
        load("acme/tiny", endpoint=hub.url)

What the client needs from an answer is marked NEED. `python tests/fake_hub.py --port 8600` serves the sample models by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

GOOD_TOKEN = "hf_good"
OTHER_TOKEN = "hf_other"  # a valid token of an account without access
KNOWN_TOKENS = (GOOD_TOKEN, OTHER_TOKEN)


@dataclass
class Model:
    """A repository. `gated` is False, "auto" or "manual"; `info` is merged into what /api/models/ID answers."""

    repo_id: str
    files: dict[str, bytes]
    gated: str | bool = False
    private: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def commit(self, revision: str) -> str | None:
        if revision in self.branches:
            return self.branches[revision]
        return revision if revision in self.branches.values() else None


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up (its time-out, a test's end) is no news."""


class FakeHub:
    """`redirect` answers files by a relative 307, as the real hub does; `fail_with`, `delay_s` and `web_page` spoil every answer;
    without `ranges` every file is sent whole; with `lead_to` every file is a redirect to that address."""

    def __init__(self, redirect: bool = False) -> None:
        self.models: dict[str, Model] = {}
        self.redirect = redirect
        self.fail_with: int | None = None
        self.delay_s = 0.0
        self.web_page = False
        self.ranges = True
        self.lead_to = ""
        self.log: list[tuple[str, str, int, dict[str, str]]] = []  # method, path, status, the request's headers
        self.connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None

    def add(self, repo_id: str, files: dict[str, bytes], **kw: Any) -> Model:
        kw.setdefault("branches", {"main": hashlib.sha1((repo_id + "".join(sorted(files))).encode()).hexdigest()})
        self.models[repo_id] = Model(repo_id, files, **kw)
        return self.models[repo_id]

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def authorizations(self) -> list[str]:
        """The Authorization header of every request that had one."""
        return [value for *_, headers in self.log for key, value in headers.items() if key.lower() == "authorization"]

    def start(self, port: int = 0) -> FakeHub:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-hub", daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):  # else a pooled connection of the client is still served
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server = None

    def __enter__(self) -> FakeHub:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"  # kept alive, so every answer carries Content-Length
    wbufsize = -1  # head and body in one packet: unbuffered costs 40 ms a request

    def setup(self) -> None:
        super().setup()
        self.hub.connections.add(self.connection)

    def finish(self) -> None:
        self.hub.connections.discard(self.connection)
        with contextlib.suppress(OSError):  # the client hung up at its time-out
            super().finish()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route()

    def do_HEAD(self) -> None:
        self._route()

    # -- answers ---------------------------------------------------------------------------------------------------
    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.hub.log.append((self.command, self.path, status, dict(self.headers)))
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            if self.command != "HEAD":
                self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _error(self, status: int, code: str, message: str, **headers: str) -> None:
        # NEED: X-Error-Code picks the exception's class; the message tells a bad token from a missing repository.
        self._json({"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message, **headers})

    # -- access ----------------------------------------------------------------------------------------------------
    def _model(self, repo_id: str, *, files: bool) -> Model | None:
        sent = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        if sent and sent not in KNOWN_TOKENS:
            self._error(401, "", "Invalid credentials in Authorization header")
            return None
        model = self.hub.models.get(repo_id)
        if model is None or (model.private and sent != GOOD_TOKEN):
            # the real hub: 401 for a missing or private repository to an anonymous caller, 404 to a signed-in one
            self._error(404 if sent else 401, "RepoNotFound", "Repository not found" if sent else "Invalid username or password.")
            return None
        if files and model.gated and sent != GOOD_TOKEN:  # the page data of a gated model stay readable
            self._error(403 if sent else 401, "GatedRepo", f"Access to model {repo_id} is restricted.")
            return None
        return model

    # -- routes ----------------------------------------------------------------------------------------------------
    def _route(self) -> None:
        if self.hub.delay_s:
            threading.Event().wait(self.hub.delay_s)
        if self.hub.fail_with:
            return self._json({"error": "made to fail"}, self.hub.fail_with)
        if self.hub.web_page:
            return self._send(200, b"<html>Please log in</html>", {"Content-Type": "text/html"})
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        if path == "/api/models":
            return self._list(query)
        if m := re.fullmatch(r"/api/models/([^/]+/[^/]+?|[^/]+)(?:/revision/(.+))?", path):
            return self._info(m[1], m[2] or "main", query)
        if m := re.fullmatch(r"/api/resolve-cache/models/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path):
            return self._file(m[1], m[2], m[3], direct=True)
        if m := re.fullmatch(r"/([^/]+/[^/]+?|[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(m[1], m[2], m[3], direct=not self.hub.redirect)
        return self._error(404, "", "no such route in the fake hub")

    def _summary(self, model: Model, commit: str, query: dict[str, list[str]]) -> dict[str, Any]:
        summary = {
            "_id": model.repo_id, "id": model.repo_id, "modelId": model.repo_id,  # NEED: id
            "sha": commit, "private": model.private, "gated": model.gated, "disabled": False, "downloads": 1000, "likes": 10,
            "tags": [], "pipeline_tag": "text-generation", "library_name": "transformers",
            "createdAt": "2025-01-01T00:00:00.000Z", "lastModified": "2025-01-02T00:00:00.000Z",  # NEED: this form, with Z
            "siblings": [{"rfilename": name} for name in model.files], **model.info,
        }  # fmt: skip
        wanted = query.get("expand")
        if not wanted:
            return summary
        return {"_id": model.repo_id, "id": model.repo_id, **{k: summary[k] for k in wanted if k in summary}}

    def _info(self, repo_id: str, revision: str, query: dict[str, list[str]]) -> None:
        if model := self._model(repo_id, files=False):
            commit = model.commit(revision)
            if commit is None:
                return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            self._json(self._summary(model, commit, query))
        return None

    def _list(self, query: dict[str, list[str]]) -> None:
        term = (query.get("search") or [""])[0].lower()
        limit = int((query.get("limit") or ["1000"])[0])
        found = [model for model in self.hub.models.values() if term in model.repo_id.lower() and not model.private]
        self._json([self._summary(model, model.branches["main"], query) for model in found[:limit]])

    def _file(self, repo_id: str, revision: str, name: str, *, direct: bool) -> None:
        model = self._model(repo_id, files=True)
        if model is None:
            return None
        commit = model.commit(revision)
        if commit is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        data = model.files.get(name)
        if data is None:
            return self._error(404, "EntryNotFound", "Entry not found", **{"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
        if self.hub.lead_to:
            return self._send(302, b"", {"Location": self.hub.lead_to, **headers})
        if not direct:  # the real hub's 307 for small files: a relative Location
            return self._send(307, b"", {"Location": f"/api/resolve-cache/models/{repo_id}/{commit}/{name}", **headers})
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if wanted is None or not self.hub.ranges:
            return self._send(200, data, {"Content-Type": "application/octet-stream", **headers})
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)  # a range past the end is cut
        if first > last:
            return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}", **headers})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return self._send(206, data[first : last + 1], {"Content-Type": "application/octet-stream", **headers})


TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def sample_hub(redirect: bool = False) -> FakeHub:
    """A hub (not started) with one repository for each thing that can happen."""
    hub = FakeHub(redirect)
    config = json.dumps(TINY, indent=1).encode()
    commits = {"main": "a" * 40, "v1.0": "b" * 40, "refs/pr/7": "c" * 40}
    sizes = {"safetensors": {"parameters": {"BF16": 8192, "F32": 64}, "total": 8256}}
    hub.add("acme/tiny-llama", {"config.json": config, "text_encoder/config.json": config}, branches=commits, info=sizes)
    hub.add("gpt-old", {"config.json": config})  # an id without an owner, as a page address gives it
    hub.add("acme/gated-llama", {"config.json": config}, gated="manual")
    hub.add("meta-llama/Llama-3.1-8B", {"config.json": config}, gated="manual")
    hub.add("acme/secret", {"config.json": config}, private=True)
    hub.add("acme/no-config", {"README.md": b"# none"})
    hub.add("acme/quant-GGUF", {"model-Q4_K_M.gguf": b"GGUF"})
    hub.add("acme/lora", {"adapter_config.json": b"{}", "adapter_model.safetensors": b""})
    hub.add("acme/pictures", {"model_index.json": b"{}"})
    hub.add("acme/native", {"params.json": b"{}"})
    hub.add("acme/broken", {"config.json": config[:-20]})
    hub.add("acme/list", {"config.json": b"[]"})
    hub.add("acme/huge", {"config.json": b'{"a": "' + b"x" * (5 << 20) + b'"}'})
    return hub


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8600)
    parser.add_argument("--redirect", action="store_true")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        print(sample_hub(options.redirect).start(options.port).url, flush=True)
        threading.Event().wait()

"""The HTTP side of the API: routes for Starlette, with bounds on the bytes and the time of a request and on requests at once.

Planning runs in a few threads of its own, so that the pages' event loop stays free. A thread cannot be ended from outside: a request that
is given up keeps its place until its thread has ended, and a sweep is told to stop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from planner import environment
from planner.errors import InvalidInput, PlannerError
from planner.report.program import program
from planner.sweep import Step
from planner.sweep.job import Run
from planner.web.asked import OWN, answered, checked, from_body, from_query
from planner.web.bucket import Buckets, address_of
from planner.web.description import description

LOG = logging.getLogger("kvledger.api")
BODY_SECONDS = 10.0
RETRY_S = 1
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Handler = Callable[[Request], Awaitable[Response]]


class Failed(PlannerError):
    """A fault of ours: the log has it, the answer says only its kind."""


class Refused(Exception):
    """An error with its HTTP status, where that is not 400."""

    def __init__(self, status: int, error: PlannerError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.code)
        self.status, self.error, self.headers = status, error, dict(headers or {})


class Service:
    """One a process. `environ`: where settings are read, the process's own if None. `base`: a path that the pages are served under."""

    def __init__(self, base: str = "", environ: Mapping[str, str] | None = None) -> None:
        self.base = "/" + base.strip("/") if base.strip("/") else ""
        on, self.body_bytes, self.seconds, self.at_once, self.points, rate, self.proxies, self.probe = (
            environment.value(f"KVLEDGER_{name}", environ)
            for name in ("API", "API_BODY", "API_SECONDS", "API_REQUESTS", "API_POINTS", "RATE", "PROXIES", "PROBE")
        )
        self.on: bool = on
        self._buckets = Buckets(rate)
        self._places = threading.BoundedSemaphore(self.at_once)
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="api")

    def routes(self) -> list[Route]:
        """Under /api, and under the base path too: Streamlit's own routes move there, those of others do not."""
        out = []
        for prefix in dict.fromkeys(("", self.base)):
            out.append(Route(f"{prefix}/api/health", self._guarded(self._health)))
            if not self.on:
                continue
            out += [Route(f"{prefix}/api/{command}", self._guarded(self._command), methods=["GET", "POST"]) for command in OWN]
            out.append(Route(f"{prefix}/api/openapi.json", self._guarded(self._openapi)))
            out.append(Route(f"{prefix}/api/{{rest:path}}", self._guarded(self._nothing), methods=list(METHODS)))
        return out

    # -- what each answers ---------------------------------------------------------------------------------------------

    async def _health(self, _: Request) -> Response:
        return said({"status": "ok", "version": program()["version"], "probe": self.probe})

    async def _openapi(self, _: Request) -> Response:
        return said(description(self.base, points=self.points, body_bytes=self.body_bytes))

    async def _command(self, request: Request) -> Response:
        address = address_of(request.client.host if request.client else "", request.headers.get("x-forwarded-for", ""), self.proxies)
        if wait := self._buckets.wait_s(address):
            raise Refused(429, InvalidInput("request_rate", field="request"), {"Retry-After": str(wait)})
        command = str(request.scope["path"]).rsplit("/", 1)[-1]
        given = from_body(await self._body(request)) if request.method == "POST" else from_query(request.query_params.multi_items())
        source, options = checked(command, given)
        return said(await self._in_time(lambda step: answered(command, source, options, most=self.points, step=step)))

    async def _nothing(self, request: Request) -> Response:
        name = request.path_params["rest"]
        if name in (*OWN, "health", "openapi.json"):
            allowed = "GET, HEAD, POST" if name in OWN else "GET, HEAD"
            raise Refused(405, InvalidInput("no_such_method", field="method", value=_plain(request.method), known=allowed), {"Allow": allowed})
        raise Refused(404, InvalidInput("no_such_route", field="command", value=_plain(name), openapi=f"{self.base}/api/openapi.json"))

    # -- the bounds ----------------------------------------------------------------------------------------------------

    async def _body(self, request: Request) -> bytes:
        """At most `body_bytes`, within BODY_SECONDS, and only JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise Refused(415, InvalidInput("request_content_type", field="body", value=_plain(kind) or "-"))
        data = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > self.body_bytes:
                        raise Refused(413, InvalidInput("request_too_large", field="body", limit=self.body_bytes), {"Connection": "close"})
        except TimeoutError:
            raise Refused(408, InvalidInput("request_slow", field="body", limit=f"{BODY_SECONDS:g}"), {"Connection": "close"}) from None
        return bytes(data)

    async def _in_time(self, work: Callable[[Step], dict[str, Any]]) -> dict[str, Any]:
        """Runs `work` in a thread. Raises what it raised, or Refused where there is no place or no time."""
        if not self._places.acquire(blocking=False):
            raise Refused(503, InvalidInput("request_busy", field="request", limit=self.at_once), {"Retry-After": str(RETRY_S)})
        run = Run()
        try:
            future: Future[dict[str, Any]] = self._threads.submit(work, run.step)
        except BaseException:
            self._places.release()
            raise
        future.add_done_callback(lambda _: self._places.release())
        waited = asyncio.wrap_future(future)
        waited.add_done_callback(lambda f: f.cancelled() or f.exception())  # looked at even where nobody waits any more
        try:
            return await asyncio.wait_for(asyncio.shield(waited), self.seconds)
        except TimeoutError:
            run.stop.set()
            raise Refused(504, InvalidInput("request_time", field="request", limit=f"{self.seconds:g}")) from None
        except asyncio.CancelledError:
            run.stop.set()
            raise

    def _guarded(self, handler: Handler) -> Handler:
        """Every error as JSON: a user's with its field and way out, ours by its kind alone."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except PlannerError as e:
                return said({"error": e.to_json()}, 400)
            except Refused as e:
                return said({"error": e.error.to_json()}, e.status, e.headers)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as e:
                LOG.error("unexpected API error", exc_info=e)
                return said({"error": Failed("unexpected", kind=type(e).__name__).to_json()}, 500)

        return guarded


def said(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII, as the command line prints it: half a character in a text can be written, and a proxy keeps nothing."""
    return Response(json.dumps(value), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:40])

"""How a browser comes to hold the key of its history: a route that sets a cookie, asked by a form of the page, answered with nothing.

The page shows a form with a ticket, once usable, that stands for a key which only this process knows. The browser posts it to our own route;
204 keeps the page where it is, and the cookie is HttpOnly and SameSite=Strict. The key is in no address, no page and no log; without a ticket
of an open page nothing can be set or removed from elsewhere.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pages.parts.errors import caught

COOKIE = "kvledger_history"
PATH = "api/history-key"
KEY_BYTES = 32
KEY_LENGTH = len(secrets.token_urlsafe(KEY_BYTES))
DAYS = 400  # the longest that browsers keep a cookie (RFC 6265bis)
LIFE_S = 3_600
MOST_TICKETS, MOST_FORGOTTEN, MAX_BODY_BYTES = 1_000, 10_000, 1_000


@dataclass(slots=True, kw_only=True)
class Ticket:
    """What one form is for: the browser is to keep `key`, or, where that is empty, `forget` deletes the owner's rows. `used`: it was answered."""

    owner: str
    key: str
    forget: Callable[[str], object]
    until: float
    used: bool = False


class Desk:
    """The tickets of all open pages, each for an hour at most; the oldest go first."""

    def __init__(self) -> None:
        self._open: dict[str, Ticket] = {}
        self._gone: dict[str, None] = {}
        self._lock = threading.Lock()

    def issue(self, owner: str, key: str = "", forget: Callable[[str], object] = len) -> str:
        name = secrets.token_urlsafe(KEY_BYTES)
        with self._lock:
            now = time.monotonic()
            fresh = [(n, t) for n, t in self._open.items() if t.until > now][1 - MOST_TICKETS :]
            self._open = {**dict(fresh), name: Ticket(owner=owner, key=key, forget=forget, until=now + LIFE_S)}
        return name

    def waiting(self, name: str) -> bool:
        """Whether this ticket may still be used."""
        t = self._open.get(name)
        return t is not None and not t.used and t.until > time.monotonic()

    def take(self, name: str) -> Ticket | None:
        """The ticket, this once."""
        with self._lock:
            t = self._open.get(name)
            if t is None or t.used or t.until <= time.monotonic():
                return None
            t.used = True
            return t

    def forget(self, owner: str) -> None:
        """Another tab of that browser, which still has the cookie that it came with, must keep nothing more for it."""
        with self._lock:
            self._gone = dict.fromkeys([*self._gone, owner][-MOST_FORGOTTEN:])

    def forgotten(self, owner: str) -> bool:
        return owner in self._gone

    def done(self, name: str) -> Ticket | None:
        """The ticket if it was used; it is then forgotten here, and its key with it."""
        with self._lock:
            t = self._open.get(name)
            return self._open.pop(name) if t is not None and t.used else None


DESK = Desk()


def well_formed(key: str) -> bool:
    return len(key) == KEY_LENGTH and key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()


async def post(request: Request) -> Response:
    """POST api/history-key, with a ticket of an open page: sets the cookie, or deletes all rows and the cookie. 204, and the page stays."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return Response(status_code=413)
    name = parse_qs(body.decode("ascii", "replace")).get("ticket", [""])[0]
    ticket = DESK.take(name)
    if ticket is None:
        return RedirectResponse("../history", status_code=303)  # the form of an old page: a new one
    answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
    where = {"path": "/" + request.url.path.removesuffix(PATH).strip("/"), "httponly": True, "samesite": "strict", "secure": _secure(request)}
    if ticket.key:
        answer.set_cookie(COOKIE, ticket.key, max_age=DAYS * 86_400, **where)
        return answer
    try:
        await run_in_threadpool(ticket.forget, ticket.owner)
    except Exception as e:
        caught(e)
        ticket.used = False
        return RedirectResponse("../history", status_code=303)  # the page says what is wrong
    DESK.forget(ticket.owner)
    answer.delete_cookie(COOKIE, **where)
    return answer


def _secure(request: Request) -> bool:
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def routes() -> list[Route]:
    """Under the root, and under whatever base path the app is served at."""
    return [Route(f"/{PATH}", post, methods=["POST"]), Route(f"/{{base:path}}/{PATH}", post, methods=["POST"])]

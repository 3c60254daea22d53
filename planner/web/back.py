"""Back after a login to the page that it began on: Streamlit's callback leads to the start, and the plan in the address would be lost. Plain ASGI.

The page is known by the Referer of the login's own request (`SecurityHeaders` lets it through within the origin), and kept in a cookie for the
time of a login. Where it leads to is one of our pages, whatever the cookie or the Referer say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from planner.web.headers import App, Message, Receive, Send

COOKIE = "kvledger_back"
LIFE_S = 600
MOST = 3_500  # bytes of the cookie's value: browsers keep 4,096 with name and attributes
_QUERY = re.compile(r"[!-~]*")


class BackAfterLogin:
    """`pages`: the last parts of our pages' addresses. `base`: the path that they are served under."""

    def __init__(self, app: App, pages: Iterable[str], base: str = "") -> None:
        self.app, self.pages = app, frozenset(pages)
        self.base = "/" + base.strip("/") if base.strip("/") else ""

    def page(self, address: str) -> str:
        """The address as it is, where it is one of our pages without a host, with its query or none; empty for any other."""
        try:
            found = urlsplit(address)
        except ValueError:
            return ""
        name = found.path.removeprefix(f"{self.base}/")
        if found.scheme or found.netloc or found.path != f"{self.base}/{name}" or name not in self.pages or not _QUERY.fullmatch(found.query):
            return ""
        return f"{self.base}/{name}{'?' if found.query else ''}{found.query}"

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        work = {f"{self.base}/auth/login": self._noted, f"{self.base}/oauth2callback": self._led_back}.get(scope.get("path", ""))
        if scope["type"] != "http" or work is None:
            await self.app(scope, receive, send)
            return
        asked = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 302:
                message["headers"] = work(asked, list(message["headers"]))
            await send(message)

        await self.app(scope, receive, changed)

    def _noted(self, asked: dict[str, str], headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        host, slash, rest = asked.get("referer", "").partition("://")[2].partition("/")
        page = self.page(slash + rest) if host == asked.get("host") else ""
        return [*headers, self._cookie(quote(page, safe=""))]

    def _led_back(self, asked: dict[str, str], headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        try:
            held = SimpleCookie(asked.get("cookie", "")).get(COOKIE)
        except CookieError:
            held = None
        page = self.page(unquote(held.value)) if held else ""
        kept = [(n, page.encode() if n == b"location" and page else v) for n, v in headers]
        return [*kept, self._cookie("")] if held else kept

    def _cookie(self, value: str) -> tuple[bytes, bytes]:
        """Empty or too long: it is taken away."""
        life = LIFE_S if 0 < len(value) <= MOST else 0
        return b"set-cookie", f"{COOKIE}={value if life else ''}; Path={self.base or '/'}; HttpOnly; SameSite=Lax; Max-Age={life}".encode()

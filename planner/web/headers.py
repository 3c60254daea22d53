"""What every answer of the server tells the browser: what the page may load, who may frame it, what it may use. Plain ASGI."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from planner import environment

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# Streamlit 1.67 in Chromium: its styles are written into the page by script (emotion), its charts and uploads use blob:, its scripts are
# files, but for one in the page that is allowed by its hash. Nothing comes from another host. Scripts that are let in may evaluate text, for
# tools that drive a browser wait for a page that way.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "media-src": "'self' data: blob:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "frame-src": "'none'",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}
UNUSED = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "magnetometer", "microphone", "midi", "payment", "serial", "usb")


def page_hashes() -> tuple[str, ...]:
    """Of the scripts that stand in Streamlit's own page, as CSP writes them; none where it is not installed."""
    found = importlib.util.find_spec("streamlit")
    try:
        page = Path(str(found.origin if found else ""), "..", "static", "index.html").resolve().read_text(encoding="utf-8")
    except OSError:
        return ()
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return tuple(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in inline)


def headers(frames: str, scripts: tuple[str, ...] = (), referrer: str = "no-referrer") -> tuple[tuple[bytes, bytes], ...]:
    """`frames`: who may show the page in a frame; `scripts`: hashes of scripts that stand in the page; both as CSP writes them. `referrer`: who is
    told which page a link was on."""
    own = {"script-src": " ".join((POLICY["script-src"], *scripts)), "frame-ancestors": frames}
    policy = "; ".join(f"{name} {value}" for name, value in (POLICY | own).items())
    pairs = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": referrer,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED),
    }
    return tuple((name.lower().encode(), value.encode()) for name, value in pairs.items())


class SecurityHeaders:
    """Around the whole app. A header that an answer has already is left alone."""

    def __init__(self, app: App, frames: str | None = None, referrer: str = "no-referrer") -> None:
        self.app = app
        self.own = headers(environment.value("KVLEDGER_FRAMES") if frames is None else frames, page_hashes(), referrer)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in self.own if pair[0] not in there)]
            await send(message)

        await self.app(scope, receive, with_headers)

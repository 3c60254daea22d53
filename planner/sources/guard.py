"""Where the hub's client may connect to: the hub that the host of this program named, and addresses that everybody can reach.

A hub answers files by redirects, and what it is led to must not lie inside the host's own network (SSRF). So every request is looked at, redirects
too, and the name is resolved once, checked and connected to by that address: a name that resolves to something else a moment later changes
nothing. Numbers in any spelling (decimal, hex, IPv4 inside IPv6) are what the system's own resolver makes of them. Behind a proxy that the
environment names the proxy resolves; then names that are addresses are refused, others are the proxy's to judge.
Tested with huggingface_hub 2.4 (httpx2 2.16, httpcore2 2.16).
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from planner import environment
from planner.units import MIB

MAX_ANSWER = 64 * MIB  # of one answer, whoever reads it
MAX_PACKED = MIB // 2
MAX_REDIRECTS = 5
_SPECIAL = (ipaddress.ip_network("192.0.0.0/24"), ipaddress.ip_network("192.88.99.0/24"))  # not in every version's is_global
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_trusted: ContextVar[frozenset[str]] = ContextVar("trusted hosts", default=frozenset())
_until: ContextVar[float | None] = ContextVar("deadline", default=None)
_lock = threading.Lock()
_installed = False


class Forbidden(OSError):
    """A connection that is not made."""


@contextmanager
def guarded(base: str, seconds: float) -> Iterator[None]:
    """Requests of the block may reach the hub at `base`, hosts that KVLEDGER_HUB_HOSTS names, and public addresses; an answer that is still
    coming after `seconds` is given up. Raises InvalidInput for a variable that cannot be."""
    install()
    hosts = frozenset((_host(base), *(h.strip("[]") for h in environment.value("KVLEDGER_HUB_HOSTS"))))
    trusted, until = _trusted.set(hosts), _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _trusted.reset(trusted)
        _until.reset(until)


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def is_public(address: str) -> bool:
    """Whether everybody can reach this IP address: not private, loopback, link-local, shared, reserved or multicast, in IPv6's wrappings too.

    >>> [is_public(a) for a in ("8.8.8.8", "169.254.169.254", "::ffff:10.0.0.1", "2002:7f00:1::")]
    [True, False, False, False]
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and any(ip in net for net in _NAT64):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip in ipaddress.ip_network("::/96"):  # IPv4-compatible, long given up
            return False
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast and not any(ip in net for net in _SPECIAL)


def allowed_addresses(host: str, port: int) -> list[str]:
    """The addresses of `host` that may be connected to. Raises Forbidden where one of them may not: then none is."""
    name = host.lower().rstrip(".").strip("[]")
    try:
        found = list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)))
    except (UnicodeError, ValueError) as e:
        raise Forbidden("name") from e
    if name not in _trusted.get() and not all(is_public(a) for a in found):
        raise Forbidden("private")
    return found


def _looked_at(request: Any) -> None:
    """An event hook: every request, those after a redirect too."""
    from huggingface_hub.utils._http import hf_request_event_hook

    host = str(request.url.host).lower().rstrip(".")
    if host not in _trusted.get():
        if request.url.scheme != "https":  # only the named hub may be spoken to in the clear
            raise Forbidden("scheme")
        try:
            literal = socket.getaddrinfo(host.strip("[]"), None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError, ValueError):
            literal = []  # a name: looked at when it is connected to
        if not all(is_public(str(info[4][0])) for info in literal):
            raise Forbidden("private")
    hf_request_event_hook(request)


def _bounded(response: Any) -> None:
    """An event hook: what is read of an answer is counted, and timed. A packed one may be much more than it looks."""
    packed = response.headers.get("content-encoding", "identity") != "identity"
    response.stream = _counted(response.stream, MAX_PACKED if packed else MAX_ANSWER, _until.get())


def install() -> None:
    """Makes the client that huggingface_hub uses in this process look where it goes. Once."""
    global _installed
    with _lock:
        if not _installed:
            from huggingface_hub import set_client_factory

            set_client_factory(_client)
            _installed = True


def _client() -> Any:
    """As huggingface_hub's own factory, with our hooks and our way to connect."""
    import httpcore2
    import httpx2

    class Backend(httpcore2.SyncBackend):
        def connect_tcp(self, host: str, port: int, *args: Any, **kw: Any) -> Any:
            fault: Exception = Forbidden("nothing")
            for address in allowed_addresses(host, port):
                try:
                    return super().connect_tcp(address, port, *args, **kw)
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as e:
                    fault = e
            raise fault

    client = httpx2.Client(
        event_hooks={"request": [_looked_at], "response": [_bounded]}, headers={"Accept-Encoding": "identity"}, follow_redirects=True, timeout=None,
        max_redirects=MAX_REDIRECTS,
    )  # fmt: skip
    transport: Any = client._transport
    transport._pool._network_backend = Backend()
    return client


def _counted(stream: Any, most: int, until: float | None) -> Any:
    import httpx2

    class Counted(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            seen = 0
            for chunk in stream:
                seen += len(chunk)
                if seen > most:
                    raise Forbidden("length")
                if until is not None and time.monotonic() > until:
                    raise TimeoutError
                yield chunk

        def close(self) -> None:
            stream.close()

    return Counted()

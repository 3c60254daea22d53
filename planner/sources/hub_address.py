"""What people paste for a model of a Hugging Face hub -> its address there: repository, revision, file. Nothing is asked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from planner.errors import SourceError

DEFAULT_ENDPOINT = "https://huggingface.co"
_OFFICIAL_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_REPO_ID = re.compile(r"(?:\w[\w.-]{0,95}/)?\w[\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[A-Za-z0-9][\w.+-]*){0,8}", re.ASCII)
_PATH = re.compile(r"[\w+=. ()\[\]-]{1,120}(?:/[\w+=. ()\[\]-]{1,120}){0,8}")
_NOT_MODELS = ("datasets", "spaces", "collections", "docs", "papers", "blog", "models", "organizations", "settings", "new", "join", "login")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a config lies on a hub. `file` is its path in the repository."""

    repo_id: str
    revision: str = "main"
    file: str = "config.json"


def endpoint_of(endpoint: str | None) -> str:
    """The hub to ask: the argument, else HF_ENDPOINT, else the official one; without a slash at the end."""
    return (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def address_of(text: str, endpoint: str | None = None) -> Address | None:
    """The address in what people paste: `org/model`, `org/model@revision`, `org/model/file.gguf`, or a page address. None: no such form.

    Raises SourceError for a web address that is not a model's page on the hub in use.
    >>> address_of("https://huggingface.co/acme/tiny/blob/main/config.json").repo_id
    'acme/tiny'
    """
    text = text.strip()
    page = _page_parts(text, endpoint)
    if page is not None:
        return _address_of_page(page, text)
    parts = text.split("/", 2)
    if len(parts) == 3 and is_gguf_path(parts[2]) and is_repo_id(f"{parts[0]}/{parts[1]}"):
        return Address(repo_id=f"{parts[0]}/{parts[1]}", file=parts[2])
    repo_id, at, revision = text.partition("@")
    if not is_repo_id(repo_id) or "/" not in repo_id or (at and not _REVISION.fullmatch(revision)):
        return None
    return Address(repo_id=repo_id, revision=revision or "main")


def is_gguf_path(path: str) -> bool:
    """A path in a repository; it goes into a web address, so no step upwards and nothing that means something there."""
    return path.lower().endswith(".gguf") and bool(_PATH.fullmatch(path)) and ".." not in path


def is_repo_id(text: str) -> bool:
    return bool(_REPO_ID.fullmatch(text)) and ".." not in text and "--" not in text and not text.endswith((".git", ".", "-"))


def _page_parts(text: str, endpoint: str | None) -> list[str] | None:
    """The path of a page address, in parts; None where the text is no web address."""
    bare = any(text.lower().startswith(host + "/") for host in _OFFICIAL_HOSTS)
    if "://" not in text and not bare:
        return None
    from urllib.parse import unquote, urlsplit

    try:
        url, own = urlsplit(text if "://" in text else "https://" + text), urlsplit(endpoint_of(endpoint))
        host, own_host = (url.hostname or "").lower(), (own.hostname or "").lower()
    except ValueError as e:
        raise SourceError("address_unreadable", field="source", address=text[:120]) from e
    if url.scheme not in ("http", "https") or host not in (*_OFFICIAL_HOSTS, own_host):
        raise SourceError("address_elsewhere", field="source", host=host[:80] or url.scheme[:20], hub=own_host)
    path = url.path
    prefix = own.path.rstrip("/")
    if host == own_host and prefix and path.startswith(prefix + "/"):
        path = path[len(prefix) :]
    parts = [unquote(part) for part in path.split("/") if part]
    return parts[2:] if parts[:2] == ["api", "models"] else parts


def _address_of_page(parts: list[str], text: str) -> Address:
    if not parts or parts[0] in _NOT_MODELS:
        raise SourceError("address_not_a_model", field="source", address=text[:120])
    verbs = ("blob", "tree", "resolve", "raw", "commit", "revision")
    split = next((i for i, part in enumerate(parts[1:3], 1) if part in verbs), min(len(parts), 2))
    repo_id, rest = "/".join(parts[:split]), parts[split + 1 :] if parts[split : split + 1] and parts[split] in verbs else []
    length = 3 if rest[:1] == ["refs"] else 1  # refs/pr/7 is one revision of three parts
    revision, path = "/".join(rest[:length]) or "main", "/".join(rest[length:])
    if not is_repo_id(repo_id) or not _REVISION.fullmatch(revision):
        raise SourceError("address_not_a_model", field="source", address=text[:120])
    named = is_gguf_path(path) or (path.endswith(".json") and ".." not in path)
    return Address(repo_id=repo_id, revision=revision, file=path if named else "config.json")


def host_of(base: str) -> str:
    """The hub's name for messages and provenance, without a user name or password in the address."""
    from urllib.parse import urlsplit

    try:
        return urlsplit(base).hostname or base[:80]
    except ValueError:
        return base[:80]

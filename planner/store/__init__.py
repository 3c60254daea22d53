"""Kept plans and probe runs: saved, listed, opened again. Each row belongs to an owner, and every question carries the owner.

An embedded SQLite file by default, any database that SQLAlchemy knows by its URL (`planner/store/place.py`). What a document means is not
known here: it is the bytes of a plan file or of a probe's result, and comes back as the same bytes or not at all.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from planner.errors import InvalidInput, StoreError
from planner.store import place, schema
from planner.store.schema import KEPT

KINDS = ("plan", "probe")
MAX_DOCUMENT_BYTES = 1_000_000
MAX_ROWS = 500
"""Of one owner. A save beyond it is refused: nothing old goes silently."""
MAX_NAME, MAX_ABOUT, MAX_SEARCH = 120, 300, 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One row without its document. `created`: seconds since 1970; `size`: bytes of the document; `about`: what it is, in the words of a search."""

    id: int
    kind: str
    name: str
    about: str
    created: float
    size: int


class Store:
    """All that may be asked of one database. Raises StoreError where it cannot be used, InvalidInput for what is too large or too much."""

    def __init__(self, engine: Engine, limit_bytes: int) -> None:
        self._engine = engine
        self.limit_bytes = limit_bytes

    def save(self, owner: str, kind: str, name: str, document: bytes, about: str = "") -> int:
        """The new row's id. It returns once the row is on the disk."""
        _known(kind)
        name = _printable(name, MAX_NAME) or _missing_name()
        if not document or len(document) > MAX_DOCUMENT_BYTES:
            raise InvalidInput("kept_too_large", field="document", size=len(document), limit=MAX_DOCUMENT_BYTES)
        row = {
            "owner": _owner(owner), "kind": kind, "name": name, "about": _printable(about, MAX_ABOUT), "created": time.time_ns() // 1000,
            "size": len(document), "sha256": hashlib.sha256(document).hexdigest(), "document": document,
        }  # fmt: skip
        with self._open(write=True) as c:
            if c.execute(select(func.count()).where(KEPT.c.owner == owner)).scalar_one() >= MAX_ROWS:
                raise InvalidInput("kept_too_many", field="document", limit=MAX_ROWS)
            if int(c.execute(select(func.coalesce(func.sum(KEPT.c.size), 0))).scalar_one()) + len(document) > self.limit_bytes:
                raise StoreError("store_full", field=place.LIMIT, limit=self.limit_bytes)
            made = c.execute(insert(KEPT).values(**row)).inserted_primary_key
        assert made is not None
        return int(made[0])

    def list(self, owner: str, search: str = "", kind: str | None = None, limit: int = MAX_ROWS) -> tuple[Kept, ...]:
        """The newest first. `search`: words that all stand in the name or in what it is, in any case."""
        asked = select(*_FACTS).where(KEPT.c.owner == _owner(owner)).order_by(KEPT.c.id.desc()).limit(max(1, min(limit, MAX_ROWS)))
        if kind is not None:
            _known(kind)
            asked = asked.where(KEPT.c.kind == kind)
        for word in _printable(search, MAX_SEARCH).split():
            asked = asked.where(KEPT.c.name.icontains(word, autoescape=True) | KEPT.c.about.icontains(word, autoescape=True))
        with self._open() as c:
            return tuple(map(_kept, c.execute(asked)))

    def get(self, owner: str, row: int) -> tuple[Kept, bytes]:
        """The row and its document, byte for byte. Raises StoreError where the owner has no such row, or the bytes are not those saved."""
        with self._open() as c:
            found = c.execute(select(*_FACTS, KEPT.c.sha256, KEPT.c.document).where(*_mine(owner, row))).one_or_none()
        if found is None:
            raise StoreError("kept_absent", field="id")
        document = bytes(found.document)
        if hashlib.sha256(document).hexdigest() != found.sha256:
            raise StoreError("kept_damaged", field="id")
        return _kept(found), document

    def rename(self, owner: str, row: int, name: str) -> None:
        name = _printable(name, MAX_NAME) or _missing_name()
        with self._open(write=True) as c:
            if c.execute(update(KEPT).where(*_mine(owner, row)).values(name=name)).rowcount != 1:
                raise StoreError("kept_absent", field="id")

    def delete(self, owner: str, row: int) -> None:
        with self._open(write=True) as c:
            if c.execute(delete(KEPT).where(*_mine(owner, row))).rowcount != 1:
                raise StoreError("kept_absent", field="id")

    def delete_all(self, owner: str) -> int:
        """How many went."""
        with self._open(write=True) as c:
            return int(c.execute(delete(KEPT).where(KEPT.c.owner == _owner(owner))).rowcount)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[Connection]:
        """A transaction, whole or not at all. What a driver says goes into no message: it may hold a path, a host or a parameter."""
        try:
            with self._engine.connect().execution_options(kept_write=write) as c, c.begin():
                yield c
        except _FAULTS as e:
            raise _unusable(e) from e


def open_store(url: str | None = None) -> Store:
    """The store at `url`, or the one that the environment names; its tables are made or brought up to date. Raises StoreError."""
    address, limit = url or place.address(), place.limit_bytes()
    if address == place.OFF:
        raise StoreError("store_off", field=place.ADDRESS)
    try:
        engine = place.engine(address)
        try:
            schema.upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
    except (*_FAULTS, ImportError, ValueError) as e:
        raise _unusable(e) from e
    return Store(engine, limit)


def owner_of(kind: str, key: str) -> str:
    """The owner of a key that only a browser has, or of a logged-in user's stable id: its SHA-256. The key itself is kept nowhere.

    Lower-case hexadecimal digits; `kind` keeps a browser's key and a user's id apart."""
    return hashlib.sha256(f"kvledger:{kind}:{key}".encode()).hexdigest()


_FACTS = tuple(KEPT.c[name] for name in ("id", "kind", "name", "about", "created", "size"))


def _kept(row: Any) -> Kept:
    return Kept(id=row.id, kind=row.kind, name=row.name, about=row.about, created=row.created / 1_000_000, size=row.size)


def _mine(owner: str, row: int) -> tuple[Any, ...]:
    if not 0 < row < 2**63:  # drivers differ in what they say of such a number
        raise StoreError("kept_absent", field="id")
    return KEPT.c.owner == _owner(owner), KEPT.c.id == int(row)


def _owner(owner: str) -> str:
    """An empty or short owner would be everybody's: a fault of ours."""
    if len(owner) != 64 or set(owner) - set("0123456789abcdef"):
        raise ValueError("owner")
    return owner


def _known(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidInput("not_a_choice", field="kind", value=str(kind)[:40], choices=", ".join(KINDS))


def _printable(value: str, most: int) -> str:
    return "".join(c if c.isprintable() else " " for c in value[:most]).strip()


def _missing_name() -> str:
    raise InvalidInput("kept_no_name", field="name")


def _unusable(e: Exception) -> StoreError:
    """What the user can do about it, by what went wrong."""
    said = str(getattr(e, "orig", None) or e).lower()
    for words, code in _WORDS:
        if any(w in said for w in words):
            return StoreError(code, field=place.ADDRESS)
    if isinstance(e, OSError):
        return StoreError("store_unwritable", field=place.ADDRESS)
    return StoreError("store_driver" if isinstance(e, ImportError) else "store_unusable", field=place.ADDRESS, kind=type(e).__name__)


_FAULTS = (SQLAlchemyError, sqlite3.Error, OSError)
_WORDS = (  # of SQLite's and PostgreSQL's messages; the first that fits
    (("authentication failed", "no pg_hba.conf", "no password supplied", 'role "', 'database "', "permission denied for"), "store_login"),
    (("connection refused", "could not connect", "connection to server", "connection is lost", "connection is closed", "terminating connection",
      "server closed", "resolve", "translate host", "timeout expired", "timed out"), "store_unreachable"),
    (("malformed", "not a database", "disk image"), "store_damaged"),
    (("readonly", "read-only", "unable to open", "permission denied"), "store_unwritable"),
    (("disk is full", "no space left"), "store_no_space"),
    (("locked", "busy", "lock timeout"), "store_busy"),
)  # fmt: skip

__all__ = ["KINDS", "MAX_DOCUMENT_BYTES", "MAX_ROWS", "Kept", "Store", "open_store", "owner_of"]

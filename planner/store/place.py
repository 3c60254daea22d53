"""Where the database is, and how it is opened: by default one SQLite file of the user who runs the program, that no other user may read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url

from planner import environment
from planner.errors import StoreError

ADDRESS, LIMIT = "KVLEDGER_DATABASE", "KVLEDGER_DATABASE_LIMIT"
OFF = "off"
FILE = "kept.sqlite3"
_WAIT_MS = 15_000  # for another writer
_LIBPQ = {"connect_timeout": 10, "tcp_user_timeout": _WAIT_MS}  # s, ms; without them a host that swallows packets holds a page for minutes
_PATIENCE: dict[str, dict[str, int]] = dict.fromkeys(("postgresql", "postgresql+psycopg", "postgresql+psycopg2"), _LIBPQ)
_ONE_WRITER = 0x6B766C65  # the number of our lock among a database's advisory locks


def address() -> str:
    """KVLEDGER_DATABASE (an URL of SQLAlchemy, or `off`), else the file in the data folder."""
    return str(environment.value(ADDRESS)) or URL.create("sqlite", database=str(data_folder() / FILE)).render_as_string()


def limit_bytes() -> int:
    """KVLEDGER_DATABASE_LIMIT: bytes of all documents together (`2GiB`), 1 GiB without it. Raises InvalidInput."""
    return int(environment.value(LIMIT))


def data_folder() -> Path:
    """The platform's folder for a user's data (XDG base directories; Known Folders; Apple's file-system guide), with ours in it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Application Support")
    else:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "kvledger"


def engine(text: str) -> Engine:
    """Raises SQLAlchemyError for an address that is none, ImportError without its driver, OSError where the file cannot be made."""
    url = make_url(text)
    if url.get_backend_name() != "sqlite":
        arguments = {k: v for k, v in _PATIENCE.get(url.drivername, {}).items() if k not in url.query}
        made = create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=arguments)  # parameters in a log would be plans
        if url.get_backend_name() == "postgresql":
            event.listen(made, "begin", _begun_on_postgresql)
        return made
    if not url.database or url.database.startswith((":", "file:")):
        raise StoreError("store_in_memory", field=ADDRESS)
    _made_private(Path(url.database))
    made = create_engine(url, hide_parameters=True, connect_args={"timeout": _WAIT_MS / 1000})
    event.listen(made, "connect", _connected)
    event.listen(made, "begin", _begun)
    return made


def _made_private(path: Path) -> None:
    """The file with rights for its user alone, before SQLite makes it with the usual ones; the files beside it take its rights."""
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))


def _connected(connection: Any, _: Any) -> None:
    """WAL: readers do not wait for a writer. FULL: what was saved is there after a power cut. Transactions are begun by `_begun`: Python's
    driver would begin them late, and two writers could then both fail."""
    connection.isolation_level = None
    for said in (f"busy_timeout = {_WAIT_MS}", "journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {said}")


def _begun(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("kept_write") else "BEGIN")


def _begun_on_postgresql(connection: Connection) -> None:
    """One writer at a time, as SQLite has it: a count that is checked against a limit stays true until the row is in, and two processes do not
    make the tables at once. The lock ends with the transaction."""
    if connection.get_execution_options().get("kept_write"):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_WAIT_MS}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITER})")

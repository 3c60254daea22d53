"""The tables, and how an older database becomes today's: steps in order, each done once, all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import BigInteger, Column, Connection, Engine, Index, Integer, LargeBinary, MetaData, String, Table, insert, inspect, select, update

from planner.errors import StoreError

_TABLES = MetaData()
VERSION = Table("kvledger_schema", _TABLES, Column("version", Integer, nullable=False))
KEPT = Table(
    "kvledger_kept",
    _TABLES,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("owner", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", String(120), nullable=False),
    Column("about", String(300), nullable=False),
    Column("created", BigInteger, nullable=False),  # microseconds since 1970
    Column("size", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("document", LargeBinary(1_000_000), nullable=False),  # last: a list then reads none of its pages
    Index("kvledger_kept_owner", "owner", "id"),
    Index("kvledger_kept_size", "size"),
    sqlite_autoincrement=True,  # an id is never used again
)


def _first(c: Connection) -> None:
    KEPT.create(c)


STEPS: tuple[Callable[[Connection], None], ...] = (_first,)
"""Step n leads from version n to n + 1. A released step never changes; a new table or column is a new step."""


def upgrade(engine: Engine, steps: tuple[Callable[[Connection], None], ...] = STEPS) -> int:
    """The version it now has. Raises StoreError where a newer program made it, SQLAlchemyError where it cannot be used."""
    if _version(engine) == len(steps):  # nothing to write: the usual start waits for no lock
        return len(steps)
    with engine.connect().execution_options(kept_write=True) as c, c.begin():
        if not inspect(c).has_table(VERSION.name):
            VERSION.create(c)
            c.execute(insert(VERSION).values(version=0))
        found = int(c.execute(select(VERSION.c.version)).scalar_one())
        if found > len(steps):
            raise StoreError("store_newer", field="version", found=found, known=len(steps))
        for step in steps[found:]:
            step(c)
        c.execute(update(VERSION).values(version=len(steps)))
    return len(steps)


def _version(engine: Engine) -> int | None:
    with engine.connect() as c:
        return c.execute(select(VERSION.c.version)).scalar_one() if inspect(c).has_table(VERSION.name) else None

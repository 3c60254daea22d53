"""Kept plans: the same bytes come back, to their owner alone, whatever happens to the process, the file and the writers beside it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from sqlalchemy import Column, Connection, Insert, Integer, Table, inspect, make_url, text
from sqlalchemy.exc import OperationalError

from planner import store
from planner.errors import InvalidInput, PlannerError, StoreError
from planner.scenario import Scenario
from planner.store import Store, open_store, owner_of, place, schema
from planner.store.schema import KEPT
from tests.conftest import ROOT, refused
from tests.planner.test_saved import choices, rendered, same_again

A, B = owner_of("browser", "a" * 43), owner_of("browser", "b" * 43)


SERVER = "KVLEDGER_TEST_DATABASE"
"""The URL of an empty database for tests, `test` in its name (docs/hosting.md): our tables in it are deleted before every test."""
EVERYWHERE = pytest.mark.parametrize("url", ["file", "server"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return emptied_server() if getattr(request, "param", "file") == "server" else f"sqlite:///{tmp_path / 'data' / 'kept.sqlite3'}"


def emptied_server() -> str:
    address = os.environ.get(SERVER, "")
    if not address:
        pytest.skip(f"no database of a server to test with (set {SERVER})")
    if "test" not in str(make_url(address).database):
        pytest.fail(f"the database that {SERVER} names is emptied: it must have test in its name")
    engine = place.engine(address)
    KEPT.metadata.drop_all(engine)
    engine.dispose()
    return address


@pytest.fixture
def kept(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


# -- what comes back -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path_factory.mktemp('generated') / 'kept.sqlite3'}")
    yield opened
    opened.close()


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture])
@given(choices())
def test_plan_to_database_to_plan_is_the_same(shared: Store, chosen: tuple[str, Scenario]) -> None:
    try:
        p, data = rendered(*chosen)
    except PlannerError:
        assume(False)
        raise
    row = shared.save(A, "plan", "generated", data)
    found, back = shared.get(A, row)
    assert (back, found.size) == (data, len(data))
    if row % 10 == 0:  # the same bytes are the same plan (test_saved.py)
        assert same_again(back) == p
    shared.delete(A, row)


@EVERYWHERE
def test_a_row_says_what_it_is_and_the_newest_is_first(kept: Store) -> None:
    names = ["Llama on an H100", "50% off_load", "한글 이름", "a\x1b[31m\nb"]
    ids = [kept.save(A, "plan" if i % 2 else "probe", name, b"{}" * (i + 1), f"about {i}") for i, name in enumerate(names)]
    rows = kept.list(A)
    assert [r.id for r in rows] == ids[::-1]
    assert [r.name for r in rows] == ["a [31m b", *names[2::-1]]
    assert [r.size for r in rows] == [8, 6, 4, 2]
    assert [r.created for r in rows] == sorted((r.created for r in rows), reverse=True)
    assert [r.id for r in kept.list(A, kind="plan")] == [ids[3], ids[1]]
    for search, wanted in (
        ("LLAMA h100", [0]),
        ("about 3", [3]),
        ("%", [1]),
        ("_", [1]),
        ("한글", [2]),
        ("llama 3", []),
        ("' OR 1=1 --", []),
        ("\0\ud800", [3, 2, 1, 0]),
    ):
        assert [r.id for r in kept.list(A, search)] == [ids[i] for i in wanted], search
    kept.rename(A, ids[0], "another' name; DROP TABLE kvledger_kept")
    assert kept.list(A)[-1].name == "another' name; DROP TABLE kvledger_kept"
    assert len(kept.list(A, limit=2)) == 2


# -- owners --------------------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_two_owners_see_nothing_of_each_other_in_any_operation(kept: Store) -> None:
    mine, theirs = kept.save(A, "plan", "mine", b"A"), kept.save(B, "plan", "theirs", b"B")
    assert [r.name for r in kept.list(A)] == ["mine"]
    assert kept.list(A, "theirs") == kept.list(owner_of("user", "a" * 43)) == ()
    for act in (
        lambda: kept.get(A, theirs),
        lambda: kept.rename(A, theirs, "taken"),
        lambda: kept.delete(A, theirs),
        lambda: kept.get(A, 10**9),
        lambda: kept.get(A, 10**30),
        lambda: kept.delete(A, -1),
    ):
        with refused(StoreError, "id"):
            act()
    assert kept.delete_all(A) == 1
    assert kept.get(B, theirs) == (kept.list(B)[0], b"B")
    assert kept.list(B)[0].name == "theirs"
    with refused(StoreError, "id"):
        kept.get(A, mine)
    assert kept.save(A, "plan", "new", b"A") not in (mine, theirs)


def test_every_question_carries_the_owner() -> None:
    """Read in the source, so that a new method without an owner is seen: `Store` has no public method that lacks it."""
    methods = {n: m for n, m in vars(Store).items() if callable(m) and not n.startswith("_")}
    assert set(methods) == {"save", "list", "get", "rename", "delete", "delete_all", "close"}
    assert all("owner" in m.__annotations__ for n, m in methods.items() if n != "close")


@EVERYWHERE
@pytest.mark.parametrize("owner", ["", "%", "a" * 63, "A" * 64, A.upper(), A + "0"])
def test_an_owner_is_a_whole_hash_or_nothing(kept: Store, owner: str) -> None:
    for act in (lambda: kept.list(owner), lambda: kept.save(owner, "plan", "x", b"x"), lambda: kept.delete_all(owner), lambda: kept.get(owner, 1)):
        with pytest.raises(ValueError, match="owner"):
            act()


def test_the_file_holds_no_key_and_only_its_user_may_read_it(kept: Store, url: str, tmp_path: Path) -> None:
    key = "k" * 43
    kept.save(owner_of("browser", key), "plan", "x", b"x")
    files = list((tmp_path / "data").iterdir())
    assert {f.name for f in files} >= {"kept.sqlite3"}
    assert all(key.encode() not in f.read_bytes() for f in files)
    if os.name == "posix":
        assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert owner_of("browser", key) != owner_of("user", key)


# -- bounds --------------------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_what_is_too_large_or_too_much_is_refused_and_nothing_old_goes(kept: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save(A, "plan", "largest", b"x" * store.MAX_DOCUMENT_BYTES)
    for document in (b"", b"x" * (store.MAX_DOCUMENT_BYTES + 1)):
        with refused(InvalidInput, "document"):
            kept.save(A, "plan", "x", document)
    for kind, name, field in (("song", "x", "kind"), ("plan", " \n", "name")):
        with refused(InvalidInput, field):
            kept.save(A, kind, name, b"x")
    monkeypatch.setattr(store, "MAX_ROWS", 3)
    kept.save(A, "plan", "2", b"x")
    kept.save(A, "plan", "3", b"x")
    with refused(InvalidInput, "document"):
        kept.save(A, "plan", "4", b"x")
    assert [r.name for r in kept.list(A)] == ["3", "2", "largest"]
    kept.save(B, "plan", "another's", b"x")
    monkeypatch.setenv(place.LIMIT, "1MiB")
    small = open_store(url)
    small.save(B, "plan", "fits", b"x" * 40_000)
    with refused(StoreError, place.LIMIT):
        small.save(B, "plan", "does not", b"x" * 10_000)
    small.close()


@EVERYWHERE
def test_who_saves_at_once_goes_over_no_limit(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_ROWS", 5)
    real = store.insert

    def late(table: Table) -> Insert:
        time.sleep(0.03)  # between the count and the row
        return real(table)

    monkeypatch.setattr(store, "insert", late)

    def save(i: int) -> None:
        with suppress(InvalidInput):
            kept.save(A, "plan", f"{i}", b"x")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(save, range(24)))
    monkeypatch.setattr(store, "MAX_ROWS", 24)  # the most that a list gives
    assert len(kept.list(A)) == 5


# -- the file and its schema ---------------------------------------------------------------------------------------------------


def test_the_default_is_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(place.ADDRESS, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a b"))
    opened = open_store()
    opened.save(A, "plan", "x", b"x")
    opened.close()
    assert (tmp_path / "a b" / "kvledger" / place.FILE).is_file()


@pytest.mark.parametrize("value", ["off", "sqlite://", "sqlite:///:memory:", "nothing", "sqlite:////proc/none/kept.sqlite3", "what://x"])
def test_an_address_that_cannot_be_is_told_without_its_text(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.ADDRESS, value)
    with pytest.raises(StoreError) as e:
        open_store()
    assert e.value.field == place.ADDRESS
    assert e.value.hint
    assert "proc" not in e.value.message + e.value.hint


def test_a_servers_password_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(place.ADDRESS, "postgresql+psycopg://kv:secret-word@127.0.0.1:1/kv")
    with pytest.raises(StoreError) as e:
        open_store()
    assert "secret-word" not in json.dumps(e.value.to_json())


@pytest.mark.parametrize("where", ["whole", "head", "page"])
def test_a_damaged_file_is_told_and_left_as_it_is(where: str, url: str, tmp_path: Path) -> None:
    opened = open_store(url)
    for i in range(30):
        opened.save(A, "plan", f"{i}", os.urandom(20_000))
    opened.close()
    path = tmp_path / "data" / "kept.sqlite3"
    data = bytearray(path.read_bytes())
    start, end = {"whole": (0, len(data)), "head": (0, 100), "page": (4096, len(data))}[where]
    data[start:end] = b"\x5a" * (end - start)
    path.write_bytes(data)
    with pytest.raises(StoreError) as e:
        open_store(url).list(A)
    assert e.value.code == "store_damaged"
    assert path.read_bytes() == data


def test_a_document_changed_behind_our_back_is_not_given_out(kept: Store, tmp_path: Path) -> None:
    row = kept.save(A, "plan", "x", b"honest")
    with sqlite3.connect(tmp_path / "data" / "kept.sqlite3") as c:
        c.execute("UPDATE kvledger_kept SET document = ? WHERE id = ?", (b"forged", row))
    c.close()
    with refused(StoreError, "id"):
        kept.get(A, row)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as e:
        open_store(f"sqlite:///{tmp_path / 'file' / 'kept.sqlite3'}")
    assert e.value.code == "store_unwritable"


@EVERYWHERE
def test_an_older_database_takes_the_new_steps_once_and_keeps_its_rows(kept: Store, url: str) -> None:
    row = kept.save(A, "plan", "old", b"document")
    done: list[int] = []

    def second(c: Connection) -> None:
        done.append(2)
        c.execute(text("ALTER TABLE kvledger_kept ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT ''"))

    def failing(c: Connection) -> None:
        Table("half_done", schema.VERSION.metadata, Column("x", Integer), extend_existing=True).create(c)
        raise OperationalError("x", {}, Exception("stop"))

    engine = place.engine(url)
    assert schema.upgrade(engine) == 1
    with pytest.raises(OperationalError):
        schema.upgrade(engine, (*schema.STEPS, failing))
    assert not inspect(engine).has_table("half_done")
    for _ in range(2):
        assert schema.upgrade(engine, (*schema.STEPS, second)) == 2
    assert done == [2]
    assert kept.get(A, row)[1] == b"document"
    engine.dispose()
    with refused(StoreError, "version"):  # the program of before
        open_store(url)


# -- processes -----------------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from planner.store import open_store, owner_of
s = open_store(sys.argv[1])
print("ready", flush=True)
for i in range(int(sys.argv[3])):
    s.save(owner_of("browser", sys.argv[2]), "plan", str(i), (sys.argv[2] + str(i)).encode() * 2000)
    print(i, flush=True)
"""


def writer(url: str, key: str, saves: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, url, key, str(saves)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def sound(tmp_path: Path) -> None:
    if not (tmp_path / "data").is_dir():
        return  # of a server
    with sqlite3.connect(tmp_path / "data" / "kept.sqlite3") as c:
        assert c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    c.close()


@EVERYWHERE
@pytest.mark.skipif(os.name != "posix", reason="no SIGKILL")
def test_killed_in_the_midst_of_saves_no_finished_save_is_lost(url: str, tmp_path: Path) -> None:
    for number, after in enumerate((1, 17, 60)):
        child = writer(url, f"key{number}", 100)
        assert child.stdout is not None
        finished = -1
        for line in child.stdout:
            finished = int(line) if line.strip().isdigit() else finished
            if finished >= after:
                os.kill(child.pid, signal.SIGKILL)
                break
        finished = max([finished, *(int(line) for line in child.stdout if line.strip().isdigit() and line.endswith("\n"))])
        assert child.wait(30) == -signal.SIGKILL
        child.stdout.close()
        sound(tmp_path)
        opened = open_store(url)
        rows = opened.list(owner_of("browser", f"key{number}"))
        assert {int(r.name) for r in rows} >= set(range(finished + 1))
        assert len(rows) <= finished + 2
        for r in rows:
            assert opened.get(owner_of("browser", f"key{number}"), r.id)[1] == f"key{number}{r.name}".encode() * 2000
        opened.close()


@EVERYWHERE
def test_two_processes_that_make_and_write_the_file_at_once(url: str, tmp_path: Path) -> None:
    children = [writer(url, key, 50) for key in ("one", "two")]
    outs = [c.communicate(timeout=120)[0] for c in children]
    assert [c.returncode for c in children] == [0, 0]
    assert [out.split()[-1] for out in outs] == ["49", "49"]
    sound(tmp_path)
    opened = open_store(url)
    for key in ("one", "two"):
        assert sorted(int(r.name) for r in opened.list(owner_of("browser", key))) == list(range(50))
    opened.close()


# -- a server ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code"),
    [  # as psycopg 3.3.9 with PostgreSQL 15.18 says it
        ('connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "kv"', "store_login"),
        ('connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  database "nodb" does not exist', "store_login"),
        ("permission denied for schema public\nLINE 2: CREATE TABLE kvledger_schema (", "store_login"),
        ('connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused\n\tIs the server running?', "store_unreachable"),
        ("failed to resolve host 'no-such-host.invalid': [Errno -2] Name or service not known", "store_unreachable"),
        ("connection timeout expired", "store_unreachable"),
        ("terminating connection due to administrator command\nSSL connection has been closed unexpectedly", "store_unreachable"),
        ("canceling statement due to lock timeout", "store_busy"),
        ("could not extend file: No space left on device", "store_no_space"),
        ("what nobody has seen", "store_unusable"),
    ],
)
def test_what_a_server_says_is_told_in_our_words(said: str, code: str) -> None:
    e = store._unusable(OperationalError("SELECT 1", {}, Exception(said)))
    assert (e.code, e.field) == (code, place.ADDRESS)
    assert said not in json.dumps(e.to_json())


@pytest.mark.parametrize("url", ["server"], indirect=True)
def test_a_server_that_refuses_or_is_not_there_is_told_apart(url: str) -> None:
    for change, code in (({"password": "secret-word"}, "store_login"), ({"database": "no_such_test"}, "store_login"), ({"port": 1}, "store_unreachable")):
        with pytest.raises(StoreError) as e:
            open_store(make_url(url).set(**change).render_as_string(hide_password=False))
        assert e.value.code == code
        told = json.dumps(e.value.to_json())
        assert not [word for word in ("secret-word", str(make_url(url).password), str(make_url(url).host)) if word in told]


@pytest.mark.parametrize("url", ["server"], indirect=True)
def test_a_connection_that_the_server_ended_is_made_anew(kept: Store, url: str) -> None:
    row = kept.save(A, "plan", "x", b"x")
    other = place.engine(url)
    for _ in range(2):
        with other.begin() as c:
            ended = c.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"))
            assert ended.all()
        assert kept.get(A, row)[1] == b"x"
    other.dispose()


def test_nothing_else_loads_the_database() -> None:
    code = "import sys, planner.__main__, planner.api, planner.report, planner.saved; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0

"""The History page and the place to save: what is kept comes back on every page, belongs to one owner, and its loss spoils nothing."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from streamlit.testing.v1 import AppTest

from pages.parts import history, history_key
from planner.scenario import Scenario
from planner.store import Store, owner_of
from tests.pages.conftest import fresh, shown, upload, values
from tests.pages.hostile import changed
from tests.pages.test_probe_results import RAW, given

A, B = owner_of("browser", "a" * 43), owner_of("browser", "b" * 43)
MIX = "512+128:0.7,8192+1024:0.3"


def session(owner: str | None = A, **query: str) -> AppTest:
    at = fresh(**query)
    if owner is not None:
        at.session_state["_history"] = owner
    return at


def save(at: AppTest, name: str, kind: str = "plan") -> AppTest:
    at.session_state[f"save_{kind}"] = True
    at.run()
    next(t for t in at.text_input if str(t.key).startswith(f"save_{kind}_name_")).set_value(name).run()
    return at.button(key=f"save_{kind}_now").click().run()


def page(at: AppTest) -> AppTest:
    at.switch_page("history.py").run()
    assert not at.exception
    return at


def texts(at: AppTest) -> str:
    return "\n".join(str(x.value) for x in (*at.markdown, *at.caption, *at.success, *at.info)).replace("\\", "")


def test_a_plan_with_all_that_no_address_holds_comes_back_in_another_session(kept: Store) -> None:
    at = upload(session(sequences="4", lengths=MIX, kv_dtype="fp8", calibration="1.2500;0.0300;3;points;H100 SXM;vllm;Llama-3.1-8B"),
                ("my.json", changed(num_hidden_layers=7)))  # fmt: skip
    wanted, figures = at.session_state["_current"], values(at)
    save(at, "seven layers")
    assert "seven layers" in texts(at)
    other = page(session())
    assert "seven layers" in texts(other)
    other.button(key=f"kept_open_{kept.list(A)[0].id}").click().run()
    found = other.session_state["_current"]
    assert (found.scenario, found.loaded.raw, found.model) == (wanted.scenario, wanted.loaded.raw, wanted.model)
    for name in ("layers.py", "report.py", "plan.py"):
        other.switch_page(name).run().run()
        assert not other.exception
        assert other.session_state["_current"].scenario == wanted.scenario
    assert values(other) == figures
    assert other.query_params["lengths"] == [MIX] or other.query_params["lengths"] == MIX
    # an upload after it leaves it there; going back to the model field leaves it
    upload(other, ("x.json", changed(num_hidden_layers=3)))
    assert other.session_state["_current"].model.layers != found.model.layers
    assert any(i.startswith("kept:") for i in other.session_state["_uploads"])


def test_a_saved_document_is_the_plan_file(kept: Store) -> None:
    at = save(session(sequences="5"), "five")
    _, document = kept.get(A, kept.list(A)[0].id)
    body = json.loads(document)
    assert (body["format"], body["scenario"]["sequences"]) == ("kvledger-plan", 5)
    again = upload(fresh(), ("plan.json", document))
    assert again.session_state["_current"].scenario == at.session_state["_current"].scenario == Scenario(sequences=5)


def test_without_a_key_nothing_is_kept_and_the_page_says_the_way(kept: Store) -> None:
    at = session(None)
    at.session_state["save_plan"] = True
    at.run()
    for found in (texts(at), texts(page(at))):
        assert "Download plan (JSON)" in found
        assert "cookie" in found
    assert not [b for b in at.button if str(b.key).startswith("kept_")]
    assert kept.list(A) == ()


def test_two_owners(kept: Store) -> None:
    save(session(A), "of A")
    mine, other = page(session(A)), page(session(B))
    assert "of A" in texts(mine)
    assert "of A" not in texts(other)
    assert not [b for b in other.button if str(b.key).startswith("kept_open_")]


def test_search_choose_rename_and_delete(kept: Store) -> None:
    for i in range(25):
        kept.save(A, "probe" if i == 3 else "plan", f"plan {i:02}", b"{}", "Llama L4" if i % 2 else "Gemma H100")
    at = page(session())
    opens = lambda: [b for b in at.button if str(b.key).startswith("kept_open_")]  # noqa: E731
    assert len(opens()) == 20
    at.button(key="kept_more").click().run()
    assert len(opens()) == 25
    at.text_input(key="kept_search").set_value("llama L4").run()
    assert len(opens()) == 12
    at.selectbox(key="kept_kind").set_value("probe").run()
    (one,) = kept.list(A, kind="probe")
    assert len(opens()) == 1
    at.checkbox(key=f"kept_pick_{one.id}").check().run()
    assert at.button(key="kept_compare").disabled
    at.text_input(key=f"kept_name_{one.id}").set_value("**bold** <b>").run()
    at.button(key="kept_rename").click().run()
    assert kept.list(A, kind="probe")[0].name == "**bold** <b>"
    assert "\\*\\*bold\\*\\* \\<b\\>" in "\n".join(m.value for m in at.markdown)
    at.button(key="kept_delete").click().run()
    assert kept.list(A, kind="probe") == ()
    assert "1 deleted" in texts(at)
    at.session_state["kept_all"] = True
    at.selectbox(key="kept_kind").set_value("all").run()
    at.button(key="kept_all_yes").click().run()
    assert kept.list(A) == ()


def test_two_to_six_plans_become_columns(kept: Store) -> None:
    save(session(sequences="8"), "eight")
    save(upload(session(sequences="4"), ("my.json", changed(num_hidden_layers=7))), "seven layers")
    save(session(sequences="2", kv_dtype="fp8"), "two")
    at = page(session())
    two, seven, eight = (k.id for k in kept.list(A))
    at.checkbox(key=f"kept_pick_{two}").check().run()
    assert at.button(key="kept_compare").disabled
    for i in (seven, eight):
        at.checkbox(key=f"kept_pick_{i}").check().run()
    at.button(key="kept_compare").click().run()
    assert not at.error
    at.switch_page("compare.py").run()
    assert not at.exception
    assert at.session_state["_current"].scenario == Scenario(sequences=2, kv_dtype="fp8")
    copies = at.session_state["_columns"]
    assert [(c.scenario.sequences, c.own is None) for c in copies] == [(4, False), (8, True)]
    assert len(at.session_state["_column_models"]["1"][1].layers) == 7
    assert at.query_params["column"] in (["sequences=8"], "sequences=8")


def test_a_probe_is_kept_and_comes_back(kept: Store) -> None:
    at = given(session().switch_page("validate.py").run(), RAW)
    assert not at.error
    save(at, "my probe", "probe")
    other = page(session())
    other.button(key=f"kept_open_{kept.list(A, kind='probe')[0].id}").click().run()
    other.switch_page("validate.py").run()
    assert other.session_state["_probe_results"] == at.session_state["_probe_results"]


@pytest.mark.parametrize(
    "document", [b"{}", b'{"format": "kvledger-plan"}', b"\xff\xfe", b'{"format": "kvledger-plan", "scenario": {"tokens": -1}, "provenance": {}}']
)
@pytest.mark.parametrize("kind", ["plan", "probe"])
def test_what_is_no_plan_any_more_is_told_and_the_page_stays(kept: Store, document: bytes, kind: str) -> None:
    row = kept.save(A, kind, "odd", document)
    at = page(session())
    at.button(key=f"kept_open_{row}").click().run()
    assert not at.exception
    assert shown(at)
    assert at.session_state["_current"].scenario == Scenario()


@pytest.mark.parametrize("how", ["off", "damaged", "unwritable"])
def test_without_its_database_the_app_works_on(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.sqlite3"
    path.write_bytes(b"not a database, and quite long for one " * 50)
    url = {"off": "off", "damaged": f"sqlite:///{path}", "unwritable": f"sqlite:///{path / 'sub' / 'kept.sqlite3'}"}[how]
    monkeypatch.setenv("KVLEDGER_DATABASE", url)
    history.store.clear()
    at = session()
    at.session_state["save_plan"] = True
    at.run()
    assert "KVLEDGER_DATABASE" in shown(at)
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    page(at)
    assert "KVLEDGER_DATABASE" in shown(at)
    assert str(tmp_path) not in shown(at)
    assert path.read_bytes().startswith(b"not a database")


# -- the key of a browser -----------------------------------------------------------------------------------------------------


def post(body: bytes, path: str = "/api/history-key", **headers: str) -> Response:
    """Straight through the routes, as the server calls them."""
    app = Starlette(routes=history_key.routes())
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "scheme": "http", "query_string": b"",
             "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
             "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return Response(status_code=sent[0]["status"], headers={k.decode(): v.decode() for k, v in sent[0]["headers"]})


def asked(ticket: str) -> bytes:
    return urlencode({"ticket": ticket}).encode()


@pytest.mark.parametrize(("path", "where"), [("/api/history-key", "/"), ("/tools/kv/api/history-key", "/tools/kv")])
def test_a_ticket_sets_the_cookie_once(path: str, where: str) -> None:
    key = "K" * history_key.KEY_LENGTH
    ticket = history_key.DESK.issue(A, key)
    assert history_key.DESK.done(ticket) is None
    answer = post(asked(ticket), path, x_forwarded_proto="https")
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204
    for part in (f"{history_key.COOKIE}={key}", "HttpOnly", "SameSite=strict", "Secure", f"Path={where};", "Max-Age=34560000"):
        assert part in cookie, part
    assert "set-cookie" not in post(asked(ticket), path).headers
    assert history_key.DESK.done(ticket) is not None
    assert history_key.DESK.done(ticket) is None


@pytest.mark.parametrize("body", [b"", b"ticket=", b"ticket=" + b"x" * 43, b"\xff" * 100, b"ticket=%00"])
def test_without_a_ticket_of_an_open_page_nothing_is_set_or_removed(body: bytes) -> None:
    answer = post(body)
    assert (answer.status_code, answer.headers["location"]) == (303, "../history")
    assert "set-cookie" not in answer.headers
    assert post(b"x" * 5_000).status_code == 413


def test_an_old_ticket_is_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = history_key.DESK.issue(A, "k" * history_key.KEY_LENGTH)
    later = time.monotonic() + history_key.LIFE_S + 1
    monkeypatch.setattr(history_key.time, "monotonic", lambda: later)
    assert post(asked(ticket)).status_code == 303
    desk = history_key.Desk()
    for _ in range(history_key.MOST_TICKETS + 50):
        desk.issue(A)
    assert len(desk._open) == history_key.MOST_TICKETS


def test_forgetting_deletes_the_rows_and_the_cookie(kept: Store) -> None:
    owner = owner_of("browser", "forgotten" * 5)
    kept.save(owner, "plan", "x", b"x")
    kept.save(B, "plan", "y", b"y")
    at = page(session(owner))
    assert at.button(key=f"kept_open_{kept.list(owner)[0].id}")
    answer = post(asked(history_key.DESK.issue(owner, forget=kept.delete_all)))
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert kept.list(owner) == ()
    assert len(kept.list(B)) == 1
    at.run()  # another tab, which still has the cookie that it came with
    assert not [b for b in at.button if str(b.key).startswith("kept_open_")]
    assert "cookie" in texts(at)


def test_where_the_rows_cannot_be_deleted_the_cookie_stays() -> None:
    def fail(_: str) -> None:
        raise OSError

    ticket = history_key.DESK.issue("0" * 64, forget=fail)
    answer = post(asked(ticket))
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers
    assert not history_key.DESK.forgotten("0" * 64)
    assert history_key.DESK.waiting(ticket)


@pytest.mark.parametrize("key", ["", "short", "x" * 44, "x" * 42 + "/", "x" * 42 + "é", "\n" * 43])
def test_a_cookie_that_is_no_key_of_ours_is_nobody(key: str) -> None:
    assert not history_key.well_formed(key)


def test_the_session_holds_no_key_and_the_page_does_not_show_it(kept: Store) -> None:
    at = page(session(None))
    ticket = at.session_state["_history_tickets"]["start"]
    key = history_key.DESK._open[ticket].key
    assert history_key.well_formed(key)
    assert key not in str([e.proto for e in at.main]) + repr(at.session_state)
    assert ticket in "".join(h.proto.body for h in at.get("html"))

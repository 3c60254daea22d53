"""Whose history this session sees, and the one place to save. The database is opened once a history is asked for, never before.

`_history` in the session: the owner that this session switched on, or "" once it was forgotten; the cookie that the browser came with counts
only while there is none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import errors, history_key, login
from planner.messages import render
from planner.scenario import Scenario
from planner.units import count

if TYPE_CHECKING:
    from planner.store import Store

OWNER, TICKETS = "_history", "_history_tickets"
POLL_S = 2.0


@st.cache_resource(show_spinner=False)
def store() -> Store:
    """One a process; a failure is not kept. Raises PlannerError."""
    from planner.store import open_store

    return open_store()


def owner() -> str | None:
    """The owner of this session's rows, or None where there is no login and no key. A hash: the key is in the browser alone."""
    user = login.identity()
    if user:
        return _owner_of("user", user)
    found = st.session_state.get(OWNER)
    if found is None:
        key = st.context.cookies.get(history_key.COOKIE, "")
        found = _owner_of("browser", key) if history_key.well_formed(key) else ""
    return found if found and not history_key.DESK.forgotten(found) else None


def by_login() -> bool:
    return bool(login.identity())


def _owner_of(kind: str, key: str) -> str:
    from planner.store import owner_of

    return owner_of(kind, key)


# -- the forms that the browser posts by itself --------------------------------------------------------------------------------


def switch_on(where: str = "history") -> None:
    """What a history is, and the button that begins one."""
    st.markdown(render("page.history.off"))
    st.caption(render("page.history.off.cookie", {"days": history_key.DAYS}))
    _form(_ticket("start", lambda: history_key.DESK.issue(*_new_key())), render("page.history.start"))
    if login.offered():
        st.caption(render("page.login.or"))
        login.ways_in(where)
    _wait("start")


def forget() -> None:
    """The button that deletes all and the cookie."""
    now = owner()
    if now is None:
        return
    delete = store().delete_all
    _form(_ticket("forget", lambda: history_key.DESK.issue(now, forget=delete)), render("page.history.forget.yes"))
    _wait("forget")


def _new_key() -> tuple[str, str]:
    key = secrets.token_urlsafe(history_key.KEY_BYTES)
    return _owner_of("browser", key), key


def _ticket(what: str, issue: Callable[[], str]) -> str:
    """The session's own, until it is used or too old."""
    held: dict[str, str] = st.session_state.setdefault(TICKETS, {})
    if not history_key.DESK.waiting(held.get(what, "")):
        held[what] = issue()
    return held[what]


def _form(ticket: str, label: str) -> None:
    """A relative address: all pages are one level deep, whatever the base path."""
    st.html(f'<form method="post" action="{history_key.PATH}"><input type="hidden" name="ticket" value="{ticket}">'
            f'<button type="submit" class="kept">{label}</button></form>{STYLE}')  # fmt: skip


STYLE = """<style>
button.kept {font: inherit; color: inherit; background: transparent; border: 1px solid rgba(128, 128, 128, 0.45); border-radius: 0.5rem;
             padding: 0.4rem 0.9rem; cursor: pointer}
button.kept:hover, button.kept:focus-visible {border-color: #0f8a7a; color: #0f8a7a}
</style>"""


@st.fragment(run_every=POLL_S)
def _wait(what: str) -> None:
    """Drawn beside a form: once the browser has its answer, the whole page runs again."""
    s = st.session_state
    ticket = history_key.DESK.done(s.get(TICKETS, {}).get(what, ""))
    if ticket is not None:
        s[OWNER] = ticket.owner if ticket.key else ""
        s[TICKETS].pop(what, None)
        st.rerun()


# -- saving --------------------------------------------------------------------------------------------------------------------


def words_of(s: Scenario) -> tuple[str, str]:
    """(a name to begin with, what a search finds it by), of a plan; no words of any language."""
    load = s.lengths or f"{count(s.sequences)} x {count(s.tokens)}"
    types = (s.kv_dtype,) if s.kv_dtype != "auto" else ()
    return f"{s.model}, {s.gpus} x {s.gpu}", " · ".join((s.model, f"{s.gpus} x {s.gpu}", s.engine, load, *types))


def save_box(kind: str, name: str, about: str, make: Callable[[], bytes]) -> None:
    """The one place to save: opened, it asks for a name; then the document is made and kept. Without a history it says how to begin one."""
    with st.expander(render("page.history.save"), key=f"save_{kind}", on_change="rerun") as box:
        if not box.open:
            return
        with errors.shown(stop=False):
            store()
            if owner() is None:
                switch_on(f"save_{kind}")
                return
            key = f"save_{kind}_name_{name}"
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_input(render("page.history.name"), value=name, max_chars=120, key=key, width=420, help=render("page.history.save.help"))
                st.button(render("page.history.keep"), key=f"save_{kind}_now", type="primary", on_click=_save, args=(kind, key, about, make))
            said = st.session_state.pop("_history_said", None)
            if isinstance(said, dict):
                errors.show(said)
            elif said:
                st.success(said)


def _save(kind: str, name_key: str, about: str, make: Callable[[], bytes]) -> None:
    """A callback."""
    s, now = st.session_state, owner()
    if now is None:
        return
    try:
        name = str(s.get(name_key) or "").strip()
        store().save(now, kind, name, make(), about)
        s["_history_said"] = render("page.history.saved", {"name": errors.plain(name)})
    except Exception as e:
        s["_history_said"] = errors.caught(e).to_json()

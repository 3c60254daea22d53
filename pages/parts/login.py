"""Signing in, where whoever runs the server set it up: Streamlit's OpenID Connect (the section [auth] of its secrets), or a proxy in front that
names the user (server.trustedUserHeaders). Without either nothing of it is drawn, and nothing is imported for it.

A session knows who signed in from the moment it began. What a browser's cookie was worth in other tabs ends with signing out (`DESK.forget`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from streamlit.errors import StreamlitAPIException

from pages.parts import errors
from pages.parts.history_key import DESK
from planner.errors import PlannerError
from planner.messages import render
from planner.web.back import BackAfterLogin

SAID = "_login_said"
COOKIES = "_streamlit_user"  # how Streamlit 1.67 begins the names of a login's cookies; a long one is cut into several
LEAST_SECRET = 32  # characters: whoever guesses the secret can sign as anybody
MOST_NAME = 32


class NotSetUp(PlannerError):
    """The section [auth] cannot be used."""


def identity() -> str:
    """Issuer and subject of who signed in (OpenID Connect, core 1.0, 5.7: only both together are stable and unique); empty without one."""
    user: Any = st.user
    who = user.get("sub")
    if not who:
        return ""
    if user.get("is_logged_in"):
        return "" if _weak(_section()) or DESK.forgotten(_of_browser()) else f"{user.get('iss', '')}\n{who}"
    return f"\n{who}" if "sub" in (st.get_option("server.trustedUserHeaders") or {}).values() else ""


def offered() -> bool:
    """Whether there is a way to sign in: Streamlit then says of everybody whether they are."""
    return "is_logged_in" in st.user and bool(providers())


def providers() -> tuple[str, ...]:
    """The names that st.login knows: "" for the keys of [auth] itself, then its sections [auth.NAME]."""
    section = _section()
    own = ("",) if "client_id" in section else ()
    return (*own, *(name for name, value in section.items() if isinstance(value, Mapping) and "client_id" in value))


def fault() -> NotSetUp | None:
    """Why nobody can sign in although [auth] is there; None where they can, or where it is not there."""
    section = _section()
    if not section:
        return None
    if not find_spec("authlib") or not find_spec("httpx"):
        return NotSetUp("login_library", field="[auth]")
    if _weak(section):
        return NotSetUp("login_secret", field="cookie_secret", least=LEAST_SECRET)
    if not providers() or not str(section.get("redirect_uri", "")).endswith("/oauth2callback"):
        return NotSetUp("login_settings", field="[auth]")
    return None


def set_up() -> bool:
    """Whether [auth] is there at all."""
    return bool(_section())


def middleware(base: str) -> list[Middleware]:
    """What the server needs for a login; the log has what is wrong with it. Nothing without [auth]."""
    if not set_up():
        return []
    if wrong := fault():
        errors.LOG.error("%s %s", wrong.message, wrong.hint)
    pages = ("", *(p.stem for p in Path(__file__).parents[1].glob("*.py")))
    return [Middleware(BackAfterLogin, pages=pages, base=base)]


def draw() -> None:
    """In the head of every page: the way in, or who signed in and the way out."""
    if not offered():
        return
    if not identity():
        ways_in("head")
        return
    with st.popover(errors.plain(_name()), key="login", icon=":material/account_circle:"):
        st.caption(render("page.login.as", {"name": errors.plain(_name())}))
        st.button(render("page.login.out"), key="login_out", on_click=_leave)


def ways_in(where: str) -> None:
    """A button for each provider; several of them open from one."""
    found = providers()
    if len(found) == 1:
        st.button(render("page.login.in"), key=f"login_{where}", on_click=_enter, args=(found[0],))
        return
    with st.popover(render("page.login.in"), key=f"login_{where}"):
        for name in found:
            label = render("page.login.with", {"name": errors.plain(name.capitalize())}) if name else render("page.login.in")
            st.button(label, key=f"login_{where}_{name}", on_click=_enter, args=(name,))


def told() -> None:
    """What the last click came to, where it did not lead away."""
    said = st.session_state.pop(SAID, None)
    if said:
        errors.show(said)


def _enter(provider: str) -> None:
    """A callback: the browser is sent to the provider."""
    wrong = fault()
    if wrong is None:
        try:
            st.login(provider or None)
        except StreamlitAPIException as e:  # it names the key that is missing and no value
            wrong = NotSetUp("login_settings", field=f"[auth.{provider}]" if provider else "[auth]")
            errors.LOG.error("%s %s", wrong.message, e)
    if wrong is not None:
        st.session_state[SAID] = wrong.to_json()


def _leave() -> None:
    """A callback: this session and the browser's other tabs are signed out, then the provider is asked to do so too."""
    if mine := _of_browser():
        DESK.forget(mine)
    st.logout()


def _section() -> Mapping[str, Any]:
    try:
        found = st.secrets["auth"]
    except (KeyError, FileNotFoundError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _weak(section: Mapping[str, Any]) -> bool:
    return len(str(section.get("cookie_secret", ""))) < LEAST_SECRET


def _of_browser() -> str:
    """A hash of the login's cookies that this browser came with; empty without."""
    held = sorted((n, v) for n, v in st.context.cookies.to_dict().items() if n.startswith(COOKIES))
    return hashlib.sha256(repr(held).encode()).hexdigest() if held else ""


def _name() -> str:
    """What the provider calls the user."""
    user: Any = st.user
    name = next((str(user[k]) for k in ("name", "preferred_username", "email", "sub") if user.get(k)), "")
    shown = "".join(c if c.isprintable() else " " for c in name)
    return shown if len(shown) <= MOST_NAME else shown[: MOST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"

"""Signing in: seen only where it is set up, each user's history is their own, signing out hides it, and what is set up wrongly is said."""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages.parts import login
from planner.store import Store, owner_of
from tests.pages.conftest import ROUTER, fresh, shown, values
from tests.pages.test_history_page import page, save, texts

AUTH = {
    "redirect_uri": "https://kv.example.org/oauth2callback", "cookie_secret": "s" * login.LEAST_SECRET, "client_id": "kv", "client_secret": "never-shown",
    "server_metadata_url": "https://id.example.org/.well-known/openid-configuration",
}  # fmt: skip
ALICE = {"is_logged_in": True, "iss": "https://id.example.org", "sub": "a", "name": "Alice *Kim* <b>"}
BOB = {**ALICE, "sub": "b", "name": "Bob"}
OUT = {"is_logged_in": False}


def session(user: dict[str, Any], auth: dict[str, Any] = AUTH) -> AppTest:
    at = AppTest.from_file(ROUTER, default_timeout=30)
    at.secrets = {"auth": auth}
    at.user = user
    at.run()
    assert not at.exception
    return at


def keys(at: AppTest) -> set[str]:
    return {str(b.key) for b in at.button if str(b.key).startswith("login")}


def test_without_it_nothing_of_it_is_seen() -> None:
    at = fresh()
    assert keys(at) == set()
    assert "Sign in" not in texts(at)
    assert login.middleware("") == []


def test_each_user_has_a_history_of_their_own_and_signing_out_hides_it(kept: Store) -> None:
    at = save(session(ALICE), "plan of Alice")
    assert [k.name for k in kept.list(owner_of("user", "https://id.example.org\na"))] == ["plan of Alice"]
    assert "plan of Alice" in texts(page(at))
    assert "plan of Alice" in texts(page(session(ALICE)))
    browser = owner_of("browser", "a" * 43)
    kept.save(browser, "plan", "plan of the browser", b"{}")
    for user in (BOB, OUT, {**ALICE, "iss": "https://other.example.org"}, {**ALICE, "is_logged_in": False}, {**ALICE, "sub": ""}):
        assert "plan of Alice" not in texts(page(session(user))), user
    with_key = session(ALICE)
    with_key.session_state["_history"] = browser
    assert "plan of Alice" in texts(page(with_key))
    assert "plan of the browser" not in texts(with_key)
    page(at).button(key="login_out").click().run()
    assert not at.exception
    assert "plan of Alice" not in texts(at)
    assert not [b for b in at.button if str(b.key).startswith("kept_")]
    assert "login_head" in keys(at)


def test_signing_out_ends_the_browsers_other_tabs_and_no_other_browser(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = ["cookie of one browser"]
    monkeypatch.setattr(login, "_of_browser", lambda: browser[0])
    kept.save(owner_of("user", "https://id.example.org\na"), "plan", "plan of Alice", b"{}")
    first, tab = page(session(ALICE)), page(session(ALICE))
    assert "plan of Alice" in texts(tab)
    first.button(key="login_out").click().run()
    assert "plan of Alice" not in texts(tab.run())
    assert "login_head" in keys(tab)
    browser[0] = "cookie of another"
    assert "plan of Alice" in texts(page(session(ALICE)))


def test_a_name_is_no_markup_and_not_long() -> None:
    at = session(ALICE)
    assert any(r"Alice \*Kim\* \<b\>" in str(c.value) for c in at.caption)
    long = session({**ALICE, "name": "x" * 500 + "\n"})
    assert max(len(str(c.value)) for c in long.caption if "xxx" in str(c.value)) < 60
    assert keys(at) == {"login_out"}


@pytest.mark.parametrize(
    ("change", "library", "said"),
    [
        ({}, False, "streamlit[auth]"),
        ({"cookie_secret": "xxx"}, True, "cookie_secret"),
        ({"redirect_uri": "https://kv.example.org/"}, True, "docs/hosting.md"),
        ({"server_metadata_url": None}, True, "docs/hosting.md"),
    ],
)
def test_what_is_set_up_wrongly_is_said_and_the_rest_works(change: dict[str, Any], library: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "find_spec", lambda _: library or None)
    monkeypatch.setattr(st, "login", refuse)
    at = session(OUT, {k: v for k, v in {**AUTH, **change}.items() if v is not None})
    at.button(key="login_head").click().run()
    assert not at.exception
    assert said in shown(at)
    assert "never-shown" not in shown(at)
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    assert not at.run().error


def refuse(provider: str | None = None) -> None:
    from streamlit.errors import StreamlitAuthError

    raise StreamlitAuthError(f"{provider} has no server_metadata_url")


def test_who_could_be_forged_is_nobody(kept: Store) -> None:
    kept.save(owner_of("user", "https://id.example.org\na"), "plan", "plan of Alice", b"{}")
    at = page(session(ALICE, {**AUTH, "cookie_secret": "guessable"}))
    assert "plan of Alice" not in texts(at)
    assert "login_head" in keys(at)


def test_each_provider_has_a_button(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(login, "find_spec", lambda _: True)
    monkeypatch.setattr(st, "login", lambda provider=None: asked.append(provider))
    shared = {k: AUTH[k] for k in ("redirect_uri", "cookie_secret")}
    at = session(OUT, {**shared, "okta": AUTH, "google": AUTH})
    assert keys(at) == {"login_head_okta", "login_head_google"}
    at.button(key="login_head_google").click().run()
    session(OUT).button(key="login_head").click().run()
    assert asked == ["google", None]


def test_who_a_proxy_names_is_believed_only_where_the_host_said_so(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save(owner_of("user", "\ncarol"), "plan", "plan of Carol", b"{}")

    def named() -> AppTest:
        at = AppTest.from_file(ROUTER, default_timeout=30)
        at.user = {"sub": "carol"}
        return page(at.run())

    assert "plan of Carol" not in texts(named())
    real = st.get_option
    monkeypatch.setattr(st, "get_option", lambda name: {"X-Forwarded-User": "sub"} if name == "server.trustedUserHeaders" else real(name))
    at = named()
    assert "plan of Carol" in texts(at)
    assert keys(at) == set()

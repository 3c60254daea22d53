"""Back after a login to the page it began on, and nowhere else: whatever Referer, cookie or query say."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit.web.server.starlette.starlette_auth_routes import create_auth_routes

from planner.web.back import COOKIE, MOST, BackAfterLogin
from planner.web.headers import SecurityHeaders

PAGES = ("", "plan", "history")
PROVIDER = "https://id.example.org/authorize?client_id=kv&state=s"
PLAN = "/plan?sequences=24&lengths=512%2B128&model=a/b"


def client(base: str = "") -> TestClient:
    """The middleware around routes that answer as Streamlit's do in a login that goes well."""

    async def login(_: object) -> RedirectResponse:
        return RedirectResponse(PROVIDER, 302)

    async def callback(_: object) -> RedirectResponse:
        return RedirectResponse(f"{base}/", 302)

    routes = [Route(f"{base}/auth/login", login), Route(f"{base}/oauth2callback", callback), Route(f"{base}/other", login)]
    return TestClient(BackAfterLogin(Starlette(routes=routes), PAGES, base), base_url="http://kv.example.org", follow_redirects=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("base", ["", "/tools/kv"])
def test_a_login_comes_back_to_its_page_once(base: str) -> None:
    c = client(base)
    gone = c.get(f"{base}/auth/login", headers={"Referer": f"http://kv.example.org{base}{PLAN}"})
    assert gone.headers["location"] == PROVIDER
    assert {"HttpOnly", "SameSite=Lax", f"Path={base or '/'}", "Max-Age=600"} <= set(gone.headers["set-cookie"].split("; "))
    back = c.get(f"{base}/oauth2callback?code=c&state=s")
    assert back.headers["location"] == base + PLAN
    assert "Max-Age=0" in back.headers["set-cookie"]
    assert c.get(f"{base}/oauth2callback").headers["location"] == f"{base}/"


@pytest.mark.parametrize(
    "where",
    [
        "https://evil.example.org/", "//evil.example.org/plan", "http:///evil.example.org", "\\\\evil.example.org", "/\\evil.example.org/plan", "/plan/../../x",
        "/plan@evil.example.org", "/plan%2f..", "/plan\r\nSet-Cookie: a=b", "/plan?a=b\r\nX: y", "/auth/logout", "/oauth2callback", "javascript:alert(1)",
        "/tools/plan", "http://[", "", "plan", "/plan?a=한글",
    ],
)  # fmt: skip
def test_a_forged_address_leads_to_the_start(where: str) -> None:
    c = client()
    found = c.get("/oauth2callback", headers={"Cookie": f"{COOKIE}={quote(where, safe='')}"})
    assert found.headers["location"] == "/"
    assert "evil" not in str(found.headers)
    raw = c.get("/oauth2callback", headers={"Cookie": f"{COOKIE}={where}".encode()})  # type: ignore[dict-item]
    assert raw.headers["location"] == "/"


@pytest.mark.parametrize(
    "referer", ["https://evil.example.org/plan?model=x", "http://kv.example.org.evil.org/plan", "http://kv.example.org/plan?" + "a" * MOST, ""]
)
def test_only_a_page_of_ours_is_kept_and_no_longer_than_a_cookie(referer: str) -> None:
    c = client()
    answer = c.get("/auth/login", headers={"Referer": referer} if referer else {})
    assert f"{COOKIE}=;" in answer.headers["set-cookie"]
    assert c.get("/oauth2callback").headers["location"] == "/"
    assert "set-cookie" not in c.get("/other", headers={"Referer": "http://kv.example.org/plan"}).headers


def test_a_callback_that_this_browser_did_not_begin_signs_nobody_in() -> None:
    """Streamlit's own routes as they are served here: another's code and state, or a link to the login, set no identity and lead nowhere else."""
    middleware = [Middleware(BackAfterLogin, pages=PAGES), Middleware(SecurityHeaders, frames="'self'"), Middleware(SessionMiddleware, secret_key="k" * 32)]
    c = TestClient(Starlette(routes=create_auth_routes(""), middleware=middleware), follow_redirects=False)
    for path in ("/oauth2callback?state=theirs&code=theirs", "/oauth2callback?error=x&error_description=y", "/auth/login?provider=https://evil.example.org",
                 "/auth/login?provider=default&redirect_uri=https://evil.example.org", "/auth/login"):  # fmt: skip
        found = c.get(path)
        assert (found.status_code, found.headers["location"]) == (302, "/"), path
        assert "_streamlit_user" not in found.headers.get("set-cookie", ""), path
        assert "form-action 'self'" in found.headers["content-security-policy"]

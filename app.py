"""What `streamlit run app.py` (or `uvicorn app:app`) starts: the pages, and the JSON API with the command line's answers (planner/web/).

The script is pages/router.py, not this file: a folder pages/ beside the script itself would switch on Streamlit's old page discovery.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from pages.parts import history_key
from planner import environment
from planner.errors import InvalidInput
from planner.web.headers import SecurityHeaders
from planner.web.routes import Service

try:
    environment.check()
except InvalidInput as e:  # a setting with a slip is worse than none: nothing is served
    raise SystemExit(f"{e.message} {e.hint}") from None

app = st.App(
    Path(__file__).parent / "pages/router.py",
    routes=[*history_key.routes(), *Service(str(st.get_option("server.baseUrlPath") or "")).routes()],
    middleware=[Middleware(SecurityHeaders)],
)

"""What `streamlit run app.py` (or `uvicorn app:app`) starts: the pages, and the JSON API with the command line's answers (planner/web/).

The script is pages/router.py, not this file: a folder pages/ beside the script itself would switch on Streamlit's old page discovery.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pandas  # noqa: F401 what every table needs
import pyarrow  # noqa: F401
import streamlit as st
from starlette.middleware import Middleware

from pages.parts import charts, history_key, inputs, login, tables  # noqa: F401 what every page needs, plotly with them
from planner import environment
from planner.errors import InvalidInput
from planner.web.headers import SecurityHeaders
from planner.web.routes import Service

try:
    environment.check()
except InvalidInput as e:  # a setting with a slip is worse than none: nothing is served
    raise SystemExit(f"{e.message} {e.hint}") from None

# Streamlit collects garbage after every run of a page. That walks all that libraries hold, 0.15 s of a run's 0.3, where it is not set aside;
# here, before the first user, nothing of anybody's is among it.
gc.collect()
gc.freeze()

base = str(st.get_option("server.baseUrlPath") or "")
app = st.App(
    Path(__file__).parent / "pages/router.py",
    routes=[*history_key.routes(), *Service(base).routes()],
    middleware=[*login.middleware(base), Middleware(SecurityHeaders, referrer="same-origin" if login.set_up() else "no-referrer")],
)

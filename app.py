"""What `streamlit run app.py` (or `uvicorn app:app`) starts: the pages, and a small JSON API with the command line's answers.

The script is pages/router.py, not this file: a folder pages/ beside the script itself would switch on Streamlit's old page discovery.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from planner.api import answer
from planner.errors import InvalidInput, PlannerError

MAX_BODY_BYTES = 64 * 1024


async def get_plan(request: Request) -> JSONResponse:
    """GET /api/plan?source=catalog:Llama-3.1-8B&gpu=H100 SXM&tokens=8192 (`model` is another word for `source`)."""
    return await _answer("plan", dict(request.query_params))


async def post(request: Request) -> JSONResponse:
    """POST /api/read, /api/kv, /api/plan: {"source": ..., options under their flag names}."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return _refused(InvalidInput("request_too_large", field="body", limit=MAX_BODY_BYTES), 413)
    try:
        options = json.loads(body)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        return _refused(InvalidInput("request_not_object", field="body"))
    return await _answer(request.path_params["command"], options)


async def _answer(command: str, options: dict[str, Any]) -> JSONResponse:
    model = options.pop("model", "")
    source = options.pop("source", model)
    try:
        return JSONResponse(await run_in_threadpool(answer, command, str(source), options, allow_paths=False))
    except PlannerError as e:
        return _refused(e)


def _refused(error: PlannerError, status: int = 400) -> JSONResponse:
    return JSONResponse({"error": error.to_json()}, status_code=status)


app = st.App(Path(__file__).parent / "pages/router.py", routes=[Route("/api/plan", get_plan), Route("/api/{command}", post, methods=["POST"])])

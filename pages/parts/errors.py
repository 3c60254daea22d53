"""The one place that turns an error into what the user sees: message, field, way out; never a traceback."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.messages import render

LOG = logging.getLogger("kvledger.pages")


class Unexpected(PlannerError):
    """A fault of ours: the log has it, the page says only its kind."""


def plain(text: str) -> str:
    """Text of users and files as it stands: no Markdown, links, images, formulas or colours."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def caught(error: Exception) -> PlannerError:
    """The error as one that can be shown; anything unexpected goes to the log first."""
    if isinstance(error, PlannerError):
        return error
    LOG.error("unexpected error in a page", exc_info=error)
    return Unexpected("unexpected", kind=type(error).__name__)


def show(error: PlannerError | Mapping[str, Any]) -> None:
    """A PlannerError, or its JSON form from a child process."""
    e = error.to_json() if isinstance(error, PlannerError) else error
    args = {name: plain(str(e.get(name, ""))) for name in ("field", "message", "hint")}
    st.error(render("page.error.field" if args["field"] else "page.error", args))


@contextmanager
def shown(*, stop: bool = True) -> Iterator[None]:
    """Errors of the block are shown in place; `stop` ends the page there, for nothing below can be computed."""
    try:
        yield
    except Exception as e:
        show(caught(e))
        if stop:
            st.stop()

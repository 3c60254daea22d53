"""The plan of the inputs as its file: what is downloaded, and what the history keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pages.parts import history, language, mix_view
from pages.parts.source import Current
from planner.capacity import CapacityPlan
from planner.report import render as report


def maker(current: Current, p: CapacityPlan) -> Callable[[], bytes]:
    """Makes the file's bytes when they are asked for, outside the script: it holds values, and reads no session."""
    loaded, declared, mix = current.loaded, current.harmless, mix_view.chosen()
    return language.kept(partial(report, p, "json", loaded.provenance, config=loaded.raw, notes=loaded.notes, harmless=declared, mix=mix))


def save_box(current: Current, p: CapacityPlan) -> None:
    """The one place to keep this plan."""
    history.save_box("plan", *history.words_of(p.scenario), maker(current, p))

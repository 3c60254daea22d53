"""A lesson on the page: its texts, its table, its chart, and what this host measured to it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from gpu_probe.claims import Item, read
from pages.parts import jobs, learn_charts, tables
from pages.parts.errors import plain
from planner.learn import CLAIMS, Lesson
from planner.messages import render

READABLE = 860  # pixels of a line of text


def draw(lesson: Lesson, items: Sequence[Item]) -> None:
    st.subheader(render(f"learn.{lesson.code}"), anchor=lesson.code)
    for text in lesson.texts:
        st.markdown(text, width=READABLE)
    if lesson.rows:
        tables.plain_rows(lesson.columns, lesson.rows, words=lesson.words)
    if lesson.chart is not None:
        title = plain(lesson.chart.title)
        st.markdown(render("page.chart.title", {"title": title}))
        st.plotly_chart(learn_charts.figure(lesson.chart), key=f"learn_{lesson.code}", config={"displayModeBar": False},
                        alt=render("page.learn.alt", {"title": lesson.chart.title}))  # fmt: skip
    _measured(lesson, items)


def _measured(lesson: Lesson, items: Sequence[Item]) -> None:
    """The probe's figures, and the suite's items whose first claim is this lesson's."""
    mine = [i for i in items if i.claims and i.claims[0] in CLAIMS[lesson.code]]
    if not lesson.measured and not mine:
        return
    with st.container(border=True):
        if lesson.measured:
            st.caption(render("page.learn.measured", _run()))
        for name, value in lesson.measured:
            st.markdown(render("page.learn.line", {"name": plain(name), "value": plain(value)}))
        if mine:
            st.caption(render("page.learn.measured.suite", {"device": plain(str((jobs.suite() or {}).get("device_name", "-"))[:80])}))
        for i in mine:
            said = {"says": plain(i.says), "measured": plain(i.measured), "verdict": render(f"suite.verdict.{i.verdict}")}
            st.markdown(render("page.learn.claim", said))


def _run() -> dict[str, str]:
    """What the probe's figures are of: its device, the layers that ran, its own load."""
    result = jobs.result()
    assert result is not None  # else no lesson has such figures
    asked = {name: str(result.request.get(name, "-")) for name in ("batch", "prompt", "output")}
    return {k: plain(str(v)) for k, v in {**asked, "device": result.device_name, "run": result.layers_run, "total": result.layers_total}.items()}


def items() -> tuple[Item, ...]:
    """Of the suite's result in this session."""
    found = jobs.suite()
    return read(found) if found is not None else ()

"""The suite on the Validate page: what the articles say, started here or brought from elsewhere, as a table and a chart a claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from gpu_probe import calibration, claims
from gpu_probe.claims import catalog, report, views
from gpu_probe.claims.view import View
from gpu_probe.client import DEVICES, SUITE_LIMITS, SuiteRun, allowed
from pages.parts import errors, jobs, suite_charts, tables
from pages.parts.errors import plain
from planner.errors import PlannerError
from planner.messages import render
from planner.units import seconds


def draw() -> None:
    """The whole section."""
    st.subheader(render("page.suite.title"), anchor=False)
    st.caption(render("page.suite.intro"))
    _form()
    s = st.session_state
    if said := s.get(jobs.SUITE_SAID):
        st.info(render(said))
    if error := s.get(jobs.SUITE_ERROR):
        errors.show(error)
    result = jobs.suite()
    if result is not None:
        with errors.shown(stop=False):
            outcome(result)
    elif not isinstance(jobs.job().run, SuiteRun):
        st.info(render("page.suite.none"))
        _entries(dict.fromkeys(catalog.ENTRIES, ""))


def _form() -> None:
    run, names = jobs.job().run, tuple(catalog.ENTRIES)
    low, high = SUITE_LIMITS["time_limit"]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        only = st.multiselect(render("page.suite.only"), names, key="suite_only", format_func=lambda n: render(f"suite.entry.{n}"), width=420,
                              placeholder=render("page.suite.only.all"), help=render("page.suite.only.help"), persist_state="session")  # fmt: skip
        device = st.selectbox(render("page.suite.device"), DEVICES, key="suite_device", width=115, help=render("page.suite.device.help"),
                              persist_state="session")  # fmt: skip
        limit = st.number_input(render("page.suite.time_limit"), low, high, 600, key="suite_time_limit", width=130, help=render("page.suite.time_limit.help"),
                                persist_state="session")  # fmt: skip
    if allowed():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(render("page.suite.start"), key="suite_start", type="primary", disabled=run is not None, on_click=jobs.begin_suite,
                      args=(tuple(only), str(device), float(limit)))  # fmt: skip
            st.button(render("page.suite.cancel"), key="suite_cancel", disabled=not isinstance(run, SuiteRun), on_click=jobs.cancel)
            st.caption(render("page.suite.expected", {"seconds": catalog.expected_seconds(only)}))
    if isinstance(run, SuiteRun):
        _watch()


@st.fragment(run_every=0.5)
def _watch() -> None:
    """Drawn only while a suite runs: one line a claim, then one whole rerun at its end."""
    run = jobs.job().run
    if not isinstance(run, SuiteRun):
        return
    status = run.poll()
    code = {"start": "starting", "wait": "wait", "ceilings": "ceilings", "done": "ceilings"}.get(status.phase, "running")
    entry = render(f"suite.entry.{status.phase}") if status.phase in catalog.ENTRIES else status.phase
    st.progress(min(1.0, max(0.0, status.fraction)), text=render(f"page.suite.{code}", {"entry": entry, "done": status.done, "total": len(run.entries)}))
    finished = [i.get("name") for i in status.items]
    left = [i.get("name") for i in status.items if views.left_out(i.get("numbers"))]
    states = {name: "left" if name in left else "done" if _given(name, finished) else "running" if name == status.phase else "waiting" for name in run.entries}
    _entries(states)
    if not status.running:
        jobs.finish_suite(run)


def _given(name: str, finished: list[Any]) -> bool:
    return any(item in finished for item in (name, *catalog.ENTRIES[name].items))


def _entries(states: Mapping[str, str]) -> None:
    """A row an entry: what a document says, and its state, or how long it takes where it has none yet."""
    rows = []
    for name, state in states.items():
        says = " ".join(render(f"suite.{item}.says") for item in catalog.ENTRIES[name].items)
        about = render("page.suite.about_seconds", {"seconds": catalog.ENTRIES[name].seconds}) if not state else ""
        rows.append({"entry": render(f"suite.entry.{name}"), "says": says, "state": state and render(f"page.suite.state.{state}"), "about_seconds": about})
    tables.text(tables.Listing(columns=("entry", "says", "state", "about_seconds"), rows=tuple(rows)))


def outcome(result: Mapping[str, Any]) -> None:
    """The claims beside what some host measured, a chart for each, and what that host is worth to a latency model."""
    items = claims.read(result)
    st.caption(render("page.suite.about", {"device": plain(str(result.get("device_name", ""))[:80])}))
    left = views.absent(items)
    if result.get("partial"):
        st.warning(render("page.suite.partial", {"count": str(len(catalog.ENTRIES) - len(left)), "total": len(catalog.ENTRIES)}))
    if report.unsteady(result):
        st.warning(render("suite.unsteady"))
    if any(i.bytes_right is False for i in items):
        st.error(render("suite.bytes_wrong"))
    with st.container(horizontal=True):
        for kind, body in (("json", json.dumps(result, indent=1)), ("md", report.markdown(result))):
            mime = "application/json" if kind == "json" else "text/markdown"
            st.download_button(render(f"page.suite.download_{kind}"), data=body, file_name=f"suite.{kind}", mime=mime, on_click="ignore",
                               key=f"suite_{kind}", icon=":material/download:")  # fmt: skip
    for view in views.views(result, items):
        _view(view)
    st.markdown(render("page.chart.title", {"title": render("page.suite.table")}))
    rows = [{"claims": " ".join(i.claims), "says": i.says, "found": i.measured, "verdict": render(f"suite.verdict.{i.verdict}")} for i in items]
    tables.text(tables.Listing(columns=("claims", "says", "found", "verdict"), rows=tuple(rows)))
    if left:
        st.caption(render("page.suite.absent", {"entries": ", ".join(render(f"suite.entry.{name}") for name in left)}))
    if not result.get("partial"):
        _calibration(result)


def _view(v: View) -> None:
    """The finding, the picture with its table beside it (below it on a phone), what the document says, and how it was measured."""
    with st.container(border=True, key=f"view_{v.name}"):
        st.markdown(render("page.chart.title", {"title": plain(v.title)}))
        for says, verdict in v.said:
            st.caption(render("page.suite.chart.about", {"says": plain(says), "verdict": render(f"suite.verdict.{verdict}")}))
        if v.reason:
            st.info(plain(v.reason))
            return
        picture, table = st.columns([3, 2], vertical_alignment="center")
        with picture:
            alt = render("page.suite.chart.alt", {"title": v.title, "says": " ".join(says for says, _ in v.said)})
            st.plotly_chart(suite_charts.figure(v), key=f"chart_{v.name}", config={"displayModeBar": False}, alt=alt)
        with table:
            tables.plain_rows(v.columns, v.rows)
        st.caption(render("page.suite.chart.how", {"claims": ", ".join(v.claims), "how": plain(v.how)}))


def _calibration(result: Mapping[str, Any]) -> None:
    try:
        c = calibration.of(result)
    except PlannerError as e:
        st.info(render("page.suite.no_calibration", {"reason": plain(e.message)}))
    else:
        words = {"read": f"{c.read_bytes_per_s / 1e9:.3g}", "flop": f"{c.flop_per_s / 1e9:.3g}", "fixed": seconds(c.t_fixed_s), "layer": seconds(c.t_layer_s)}
        st.caption(render("page.suite.calibration", words))

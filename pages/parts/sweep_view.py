"""The Sweep page's inputs, its job, cards and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from pages.parts import errors, language, source, tables
from planner.api import model_of
from planner.dtypes import KV_DTYPES
from planner.hardware import find
from planner.hardware import names as gpu_names
from planner.messages import render
from planner.model import ModelSpec
from planner.scenario import ENGINE_NAMES, Scenario, from_options
from planner.sources import catalog, load
from planner.sweep import run
from planner.sweep.files import BEST, best_cells, choices, refusals, text_bytes
from planner.sweep.grid import Grid, from_fields
from planner.sweep.job import Job
from planner.sweep.table import X_AXES, Y_AXES, Table
from planner.throughput import MARGIN
from planner.units import count, milliseconds

MOST_POINTS = 50_000
FIRST_WAIT_S = 5.0
GPUS = ("H100 SXM", "H200 SXM", "L40S")
TARGETS_MS = (("target_itl", 50.0), ("target_ttft", 2000.0))
TEXTS = (("tp", "1,2,4,8", 130), ("tokens", "", 160), ("sequences", "1..256*2", 160))
SHOWN, FOLLOWED = "_sweep_shown", "_sweep_followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One sweep as it was asked for."""

    grid: Grid
    base: Scenario


@st.cache_resource(scope="session", on_release=Job.cancel, show_spinner=False)
def job() -> Job:
    """One a session: released, and its thread ended, when the session goes."""
    return Job()


def inputs(current: source.Current) -> Wanted:
    """The grid that the widgets ask for. Raises PlannerError with the field."""
    s, own = current.scenario, current.scenario.model
    st.caption(errors.plain(render("page.sweep.about")))
    _follow(s)
    lists = (("model", (own, *catalog.names()), 300), ("gpu", gpu_names(), 380), ("engine", ENGINE_NAMES, 200), ("kv_dtype", KV_DTYPES, 200))
    fields: dict[str, Any] = {}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="sweep_inputs"):
        for name, options, width in lists:
            known = tuple(dict.fromkeys((*options, *st.session_state[f"sweep_{name}"])))
            fields[name] = st.multiselect(**_said(name), options=known, width=width, accept_new_options=name == "model", max_selections=16)
        for name, _, width in TEXTS:
            fields[name] = st.text_input(**_said(name), max_chars=400, width=width)
        more = st.text_input(**_said("more"), max_chars=1000, width=260)
        price = st.text_input(**_said("price"), max_chars=1000, width=260)
        targets = {name: st.number_input(**_said(name), value=None, min_value=0.01, max_value=1e7, step=5.0, width=150) for name, _ in TARGETS_MS}
    chosen = from_options({name: f"{ms}ms" for name, ms in targets.items() if ms})
    base = replace(s, lengths=None, target_itl=chosen.target_itl, target_ttft=chosen.target_ttft)
    return Wanted(grid=from_fields(fields, more, price).checked(MOST_POINTS), base=base)


def _follow(s: Scenario) -> None:
    """Each input begins with the choice above and follows it, until it is given a value of its own."""
    gpu, state = find(s.gpu).key, st.session_state
    begins = {"model": [s.model], "gpu": list(dict.fromkeys((gpu, *GPUS))), "engine": [s.engine], "kv_dtype": [s.kv_dtype],
              **{name: value or str(s.tokens) for name, value, _ in TEXTS},
              **{name: milliseconds(asked) if (asked := getattr(s, name)) else usual for name, usual in TARGETS_MS}}  # fmt: skip
    before = state.get(FOLLOWED, {})
    for name, value in begins.items():
        key = f"sweep_{name}"
        if key not in state or (value != before.get(name) and state[key] == before.get(name)):
            state[key] = value
    state[FOLLOWED] = begins


def _said(name: str) -> dict[str, Any]:
    label, said = render(f"page.sweep.{name}"), errors.plain(render(f"page.sweep.{name}.help"))
    return {"label": label, "help": said, "key": f"sweep_{name}", "persist_state": "session"}


def controls(wanted: Wanted, current: source.Current) -> None:
    """Start, progress and cancel. The first time the default grid runs by itself: a page is never empty."""
    s = st.session_state
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(render("page.sweep.start"), key="sweep_start", type="primary")
        st.caption(render("page.sweep.planned", {"points": wanted.grid.points, "combinations": sum(1 for _ in wanted.grid.combinations())}))
    if pressed or SHOWN not in s:
        _start(wanted, current)
        job().wait(FIRST_WAIT_S if SHOWN not in s else 0.3)
        s[SHOWN] = wanted
    if job().running:
        _watch()


def _start(wanted: Wanted, current: source.Current) -> None:
    token = st.session_state.get("hub_token") or None
    opened = partial(_opened, current=current, token=token, keys=source.harmless())
    draft = partial(load, token=token, allow_paths=False)
    job().start(language.kept(lambda step: run(wanted.grid, wanted.base, opened, draft, step=step, most=MOST_POINTS)))


def _opened(name: str, *, current: source.Current, token: str | None, keys: tuple[str, ...]) -> tuple[ModelSpec, Mapping[str, Any]]:
    """The model in use, which may be an upload, or another by its name."""
    if name == current.scenario.model:
        return current.model, current.loaded.provenance
    loaded = load(name, token=token, allow_paths=False)
    return model_of(loaded, keys), loaded.provenance


@st.fragment(run_every=0.5)
def _watch() -> None:
    """Drawn only while a sweep runs; one whole rerun at its end."""
    own = job()
    if not own.running:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(1.0, own.fraction), text=render("page.sweep.running", {"done": own.now.done, "total": own.now.total}))
        st.button(render("page.sweep.cancel"), key="sweep_cancel", on_click=own.cancel)


def found(wanted: Wanted) -> Table | None:
    """The results of the last sweep, its error said; None while there are none."""
    own = job()
    if own.now.error is not None:
        errors.show(errors.caught(own.now.error))
    table = own.now.table
    if table is None or own.running:
        return None
    if not table.blocks:
        st.info(render("page.sweep.nothing"))
        return None
    if not table.complete:
        st.info(render("page.sweep.cancelled"))
    if st.session_state[SHOWN] != wanted:
        st.info(render("page.sweep.stale"))
    return table


def cards(table: Table) -> None:
    with st.container(horizontal=True, gap="small", key="sweep_cards"):
        for code in ("points", "fits", "meets", "refused"):
            value = table.points if code == "points" else table.count(code)
            st.metric(render(f"page.sweep.card.{code}"), count(value), border=True, width=190)


def length(table: Table) -> int:
    """Which length is looked at."""
    every = range(len(table.lengths))
    if len(every) == 1:
        return 0
    return int(st.selectbox(render("page.sweep.length"), every, format_func=partial(_length, table), key="sweep_length", width=320) or 0)


def _length(table: Table, index: int) -> str:
    if index >= len(table.lengths):
        return ""
    row = table.length(index)
    return render("page.sweep.length.item", {name: count(n) for name, n in row.items()})


def best(table: Table, index: int) -> None:
    rows = best_cells(table, index)
    if not rows:
        st.info(render("page.sweep.best.none"))
        return
    tables.plain_rows([render(f"page.sweep.column.{c}") for c in BEST], rows, left=(BEST.index("measured"),))


def axes(table: Table) -> tuple[str, str]:
    """What the chart has across and up; cost where prices are known."""
    priced = table.has_prices()
    with st.container(horizontal=True):
        x = st.segmented_control(render("page.sweep.x"), X_AXES, default="cost" if priced else "gpus", key="sweep_x", required=True,
                                 format_func=lambda c: render(f"page.sweep.x.{c}"))  # fmt: skip
        y = st.segmented_control(render("page.sweep.y"), Y_AXES, default="itl_s", key="sweep_y", required=True,
                                 format_func=lambda c: render(f"page.sweep.y.{c}"))  # fmt: skip
    return str(x or "gpus"), str(y or "itl_s")


def refused(table: Table) -> None:
    """Combinations that no engine runs, with why."""
    found = refusals(table)
    if found:
        with st.expander(render("page.sweep.refused"), key="sweep_refused"):
            for r in found:
                st.markdown(errors.plain(render("page.sweep.refused.item", {"what": choices(r["choices"]), "reason": r["reason"]})))


def download(table: Table) -> None:
    st.download_button(render("page.sweep.csv"), data=language.kept(partial(text_bytes, table)), file_name="kv-sweep.csv", mime="text/csv", on_click="ignore",
                       key="sweep_csv", icon=":material/download:")  # fmt: skip


def how(table: Table) -> None:
    """The rule, and where each price is from."""
    with st.expander(render("page.sweep.how"), key="sweep_how"):
        st.markdown(errors.plain(render("page.sweep.how.text", {"margin": MARGIN})))
        tables.plain_rows([render(f"page.sweep.column.{c}") for c in ("gpu", "price", "source")], table.price_rows(), words=True)

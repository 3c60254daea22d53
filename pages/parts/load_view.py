"""The Serve page's load section: what comes, what is carried, and the simulation of it."""

from __future__ import annotations

import streamlit as st

from pages.parts import errors, load_chart, state, tables
from pages.parts.tables import Listing
from planner.capacity import CapacityPlan
from planner.latency import Served
from planner.load import HEADROOM, LoadPlan, load_of
from planner.messages import render
from planner.notes import Note
from planner.scenario import OPTIONS, Scenario
from planner.simulator import Limits, Simulation, simulate
from planner.simulator.requests import trace
from planner.throughput import BatchLimit
from planner.units import count, memory, money, percent, rate, seconds

LIMITS = Limits(steps=8_000, clock_s=8.0)


def section(p: CapacityPlan, own: Served, limit: BatchLimit) -> tuple[Note, ...]:
    """Inputs, what they mean for the plan, and the simulation once it is asked for. Its notes."""
    st.subheader(render("page.load"), anchor=False)
    inputs(p.scenario)
    found = load_of(p, own, limit)
    if isinstance(found, Note):
        return (found,)
    _arrivals(p, found)
    if found.speculation:
        _speculation(found)
    if found.split:
        _split(found)
    return found.notes + _simulation(p)


def inputs(s: Scenario) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="load_inputs"):
        for name in state.LOAD:
            st.session_state[f"serve_{name}"] = getattr(s, name)
            share = OPTIONS[name].kind == "fraction"
            low, high = (0.01, 1.0) if share else (OPTIONS[name].low, OPTIONS[name].high)
            st.number_input(render(f"page.load.{name}"), key=f"serve_{name}", on_change=_taken, help=render(f"page.load.{name}.help"), width=170,
                            format="%.4g", value=None, min_value=low, max_value=high, step=0.05 if share else 1.0)  # fmt: skip


def _taken() -> None:
    state.take({name: st.session_state[f"serve_{name}"] for name in state.LOAD})


def _arrivals(p: CapacityPlan, found: LoadPlan) -> None:
    """Overload in words; else what is carried, and how many replicas that takes."""
    a, fleet = found.arrivals, found.fleet
    if a is None or fleet is None:
        for n in found.notes:
            st.warning(errors.plain(n.text))
        return
    args = {"rate": rate(a.rate), "capacity": rate(a.capacity), "load": percent(a.load), "best": count(a.best)}
    if a.sequences is None or a.ttft_range_s is None or a.itl_range_s is None:
        st.error(errors.plain(render("page.load.overloaded", args)))
    else:
        args |= {"sequences": rate(a.sequences), "ttft": seconds(a.ttft_s or 0), "wait": seconds(a.wait_s or 0), "itl": seconds(a.itl_s or 0),
                 "ttft_low": seconds(a.ttft_range_s[0]), "ttft_high": seconds(a.ttft_range_s[1]), "itl_low": seconds(a.itl_range_s[0]),
                 "itl_high": seconds(a.itl_range_s[1])}  # fmt: skip
        (st.warning if a.tight else st.success)(errors.plain(render("page.load.carried", args)))
    has = render(f"page.load.fleet.{fleet.carries}", {"replicas": count(fleet.replicas)})
    st.text(render("page.load.fleet", {"least": count(fleet.least), "spare": count(fleet.with_headroom), "lost": count(fleet.one_lost),
                                       "gpus": count(fleet.gpus_each), "rate": rate(fleet.rate), "share": percent(HEADROOM)}))  # fmt: skip
    st.caption(has)
    if fleet.cost_a_day is not None and fleet.cost_per_million_output_tokens is not None:
        st.text(render("page.load.cost", {"lost": count(fleet.one_lost), "day": money(fleet.cost_a_day),
                                          "million": money(fleet.cost_per_million_output_tokens)}))  # fmt: skip


def _speculation(found: LoadPlan) -> None:
    s = found.speculation
    assert s is not None
    even = render("page.load.speculation.never") if s.break_even is None else render("page.load.speculation.from", {"even": percent(s.break_even)})
    st.text(render(f"page.load.speculation.{s.drafter}", {"drafted": count(s.drafted), "rate": percent(s.acceptance_rate), "tokens": rate(s.tokens_per_step),
                   "itl": seconds(s.itl_s), "plain": seconds(s.plain_itl_s), "gain": rate(s.gain), "sequences": count(s.sequences), "even": even}))  # fmt: skip


def _split(found: LoadPlan) -> None:
    s = found.split
    assert s is not None
    with st.expander(render("page.load.split"), width="stretch"):
        args = {"prefill": count(s.prefill_workers), "decode": count(s.decode_workers), "idle": percent(s.idle), "itl": seconds(s.itl_s)}
        more = {"sequences": count(s.sequences), "together": seconds(s.together_itl_s), "bytes": memory(s.transfer_bytes)}
        st.text(render("page.load.split.about", args | more))
        rows = tuple({"link": render(f"page.load.link.{name}"), "sent": seconds(time), "exposed": seconds(s.exposed_s[name])}
                     for name, time in s.transfer_s.items())  # fmt: skip
        tables.text(Listing(columns=("link", "sent", "exposed"), rows=rows))


def _simulation(p: CapacityPlan) -> tuple[Note, ...]:
    """Run when asked for, and again when the plan changes while it is switched on."""
    if not st.toggle(render("page.load.simulate"), key="serve_simulate", help=render("page.load.simulate.help")):
        return ()
    file = st.file_uploader(render("page.load.trace"), type=["csv", "tsv", "txt"], key="serve_trace", max_upload_size=5, width=480,
                            help=render("page.load.trace.help"))  # fmt: skip
    found: Simulation | Note | None = None
    with errors.shown(stop=False):
        requests = trace(file.getvalue(), p.sequences_per_replica) if file else None
        found = simulate(p, requests=requests, rate=p.scenario.request_rate, limits=LIMITS)
    if found is None:
        return ()
    if isinstance(found, Note):
        st.info(errors.plain(found.text))
        return ()
    st.markdown(render("page.chart.title", {"title": errors.plain(title(p, found, str(file.name)[:120] if file else None))}))
    st.plotly_chart(load_chart.occupancy(found), key="occupancy", config={"displayModeBar": False}, alt=render("page.load.chart.alt"))
    st.caption(render("page.load.simulated.about", {"requests": count(found.finished), "seed": count(found.seed), "steps": count(found.steps),
                      "span": seconds(found.simulated_s), "used": percent(found.most_used), "preemptions": count(found.preemptions)}))  # fmt: skip
    tables.text(percentile_rows(found))
    if form := found.closed_form:
        st.caption(render("page.load.simulated.form", {"itl": seconds(form["itl_s"]), "rate": count(form["output_tokens_per_s"])}))
    return found.notes


def title(p: CapacityPlan, found: Simulation, name: str | None = None) -> str:
    """`name`: of the trace's file, where one was simulated."""
    args = {"rate": count(found.output_tokens_per_s), "itl": seconds(found.itl_s["mean"]) if found.itl_s else "-"}
    if name is not None:
        return render("page.load.simulated.trace", args | {"requests": count(found.requests), "name": name, "running": rate(found.mean_running)})
    if p.scenario.request_rate:
        return render("page.load.simulated.open", args | {"arrivals": rate(p.scenario.request_rate), "running": rate(found.mean_running)})
    return render("page.load.simulated.closed", args | {"sequences": count(p.sequences_per_replica)})


def percentile_rows(found: Simulation) -> Listing:
    columns = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99_each"}
    rows = tuple(
        {"what": render(f"page.load.row.{name}"), **{columns[k]: seconds(v) for k, v in values.items()}}
        for name, values in (("ttft", found.ttft_s), ("itl", found.itl_s))
        if values
    )
    return Listing(columns=("what", *columns.values()), rows=rows)

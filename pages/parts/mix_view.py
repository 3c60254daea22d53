"""A mix of lengths on the Plan page: a text that lives in the address, or a CSV that lives in the session."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import streamlit as st

from pages.parts import errors, state, tables
from planner.capacity import CapacityPlan
from planner.errors import InvalidInput
from planner.heatmap import short_count
from planner.messages import render
from planner.mix import MAX_BYTES, Mix, from_csv, from_text
from planner.mix_capacity import MixCapacity, mix_capacity
from planner.report import colours
from planner.report.content import mix_rows
from planner.scenario import MAX_LENGTHS_TEXT
from planner.units import count, memory, percent

WIDTH = 200
REQUESTS, BYTES = colours.KINDS["index"], colours.LEDGER["kv_rows"]


def chosen() -> Mix | None:
    """The mix of this session: the CSV's, or the text's. A text that cannot be read is none; the expander says why."""
    s = st.session_state
    if s["_mix"] is not None:
        found: Mix = s["_mix"][1]
        return found
    text = state.lengths()
    return from_text(text) if text else None


def draw(p: CapacityPlan) -> None:
    """The expander. Its inputs are drawn once it is opened, or where there is a mix: a first page stays light."""
    s = st.session_state
    with st.expander(render("page.mix"), key="mix", on_change="rerun", expanded=bool(s["_mix"] or state.lengths_text())) as box:
        if not (box.open or s["_mix"] or state.lengths_text()):
            return
        if "lengths" not in s:
            s["lengths"] = state.lengths_text()  # from the address, or back from another page
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.text_input(
                render("input.lengths"), key="lengths", max_chars=MAX_LENGTHS_TEXT, on_change=_typed, width=480,
                placeholder="512+128:0.7,8192+1024:0.3", help=render("input.lengths.help"),
            )  # fmt: skip
            st.file_uploader(
                render("page.mix.upload"), type=["csv", "tsv", "txt"], key="mix_csv", max_upload_size=5, on_change=_uploaded, width=360,
                help=render("page.mix.upload.help"),
            )  # fmt: skip
        if s["_mix_fault"] is not None:
            errors.show(s["_mix_fault"])
        if s["_mix"] is not None:
            st.info(render("page.mix.session", {"name": errors.plain(s["_mix"][0])}))
        with errors.shown(stop=False):
            if s["_mix"] is None and state.lengths_text():
                from_text(state.lengths_text())
            mix = chosen()
            if mix is None:
                st.caption(render("page.mix.none"))
            else:
                _result(_capacity(p, mix))


def _typed() -> None:
    st.session_state["_mix"] = st.session_state["_mix_fault"] = None


def _uploaded() -> None:
    """Reads the CSV. A mix that is short enough becomes the text, and so has an address; a longer one stays in the session."""
    s = st.session_state
    s["_mix"] = s["_mix_fault"] = None
    file = s["mix_csv"]
    if file is None:
        return
    try:
        if file.size > MAX_BYTES:
            raise InvalidInput("lengths_bytes", field="lengths", limit=MAX_BYTES)
        mix = from_csv(file.getvalue())
    except Exception as e:
        s["_mix_fault"] = errors.caught(e)
        return
    text = mix.text()
    s["lengths"] = text or ""
    if text is None:
        s["_mix"] = (str(file.name)[:120], mix)


def _capacity(p: CapacityPlan, mix: Mix) -> MixCapacity:
    """The last answer of the session, or a new one: thousands of lengths take a second."""
    s, key = st.session_state, (p.model, p.scenario, p.kv_pool_bytes, mix)
    if s.get("_mix_answer", (None,))[0] != key:
        s["_mix_answer"] = (key, mix_capacity(p, mix))
    found: MixCapacity = s["_mix_answer"][1]
    return found


def _result(m: MixCapacity) -> None:
    mix = m.mix
    if m.limited_by:
        st.warning(render(f"mix.limited.{m.limited_by}"))
    for n in mix.notes:
        st.caption(errors.plain(n.text))
    with st.container(horizontal=True, gap="small"):
        _card("guaranteed", count(m.total_guaranteed), {}, {"replicas": m.plan.replicas})
        _card("typical", count(m.total_typical), {}, {"bytes": memory(m.mean_bytes)})
        quantiles = {f"p{q}": count(mix.quantile_tokens(q)) for q in (50, 99)}
        _card("mean", count(mix.mean_tokens), quantiles, {"longest": count(mix.longest)})
    if len(mix.points) > 1:
        st.markdown(render("page.chart.title", {"title": errors.plain(title(m))}))
        st.plotly_chart(figure(m), key="mix_chart", config={"displayModeBar": False}, alt=render("page.mix.chart.alt"))
    labels = render("page.column.line"), render("report.column.value")
    tables.worded([dict(zip(labels, map(errors.plain, row), strict=True)) for row in mix_rows(m)], render("page.mix"))


def _card(code: str, value: str, delta: dict[str, Any], help_: dict[str, Any]) -> None:
    words = render(f"page.mix.{code}.delta", delta), render(f"page.mix.{code}.help", help_)
    st.metric(render(f"page.mix.{code}"), value, words[0], delta_color="off", delta_arrow="off", help=words[1], border=True, width=WIDTH, height="stretch")


def title(m: MixCapacity) -> str:
    tokens, requests, sizes = m.beyond_median()
    return render("page.mix.chart", {"tokens": count(tokens), "requests": percent(requests), "bytes": percent(sizes)})


def figure(m: MixCapacity) -> go.Figure:
    """Two bars a length: its share of the requests, and of the bytes."""
    x = [short_count(b.tokens) for b in m.bins]
    series = (("requests", REQUESTS, [b.requests for b in m.bins]), ("bytes", BYTES, [b.bytes for b in m.bins]))
    data = [
        {
            "type": "bar", "name": render(f"page.mix.chart.{code}"), "x": x, "y": [100 * v for v in shares], "marker": {"color": colour}, "hoverinfo": "text",
            "hovertext": [
                render("page.mix.chart.hover", {"tokens": count(b.tokens), "share": percent(v), "what": render(f"page.mix.chart.{code}")})
                for b, v in zip(m.bins, shares, strict=True)
            ],
        }
        for code, colour, shares in series
    ]  # fmt: skip
    return go.Figure(
        {
            "data": data,
            "layout": {
                "height": 230,
                "margin": {"l": 6, "r": 12, "t": 28, "b": 6},
                "barmode": "group",
                "bargap": 0.3,
                "xaxis": {"title": {"text": render("page.mix.chart.x")}, "type": "category", "fixedrange": True, "automargin": True},
                "yaxis": {"ticksuffix": " %", "fixedrange": True, "automargin": True, "zeroline": False},
                "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
                "dragmode": False,
            },
        }
    )

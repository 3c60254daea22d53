"""The Serve page's knobs: which one buys the most sequences and what it costs in time; and its measured scale, taken over only on request."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import streamlit as st

from pages.parts import state, tables
from pages.parts.charts import MARGIN
from pages.parts.errors import plain, shown
from pages.parts.serve_charts import MAIN_COLOUR
from planner.calibrate import MAX_BYTES, fit
from planner.capacity import CapacityPlan
from planner.messages import render
from planner.notes import Note
from planner.scale import First, Scale, from_text
from planner.sensitivity import Sensitivity, sensitivity
from planner.units import count, milliseconds, seconds

LESS_COLOUR = "#e09f2d"
COLUMNS = ("knob", "gained", "most", "gpus", "itl", "itl_added", "itl_best", "costs")


def knobs(p: CapacityPlan) -> None:
    found = sensitivity(p)
    if isinstance(found, Note):
        return
    st.subheader(render("page.knobs"), anchor=False)
    st.markdown(render("page.chart.title", {"title": plain(_title(found))}))
    if any(b.low or b.high for b in found.bars):
        st.plotly_chart(tornado(found), key="tornado", config={"displayModeBar": False}, alt=render("page.knobs.alt"))
    tables.plain_rows([render(f"page.knobs.{c}") for c in COLUMNS], rows(found), left=(COLUMNS.index("costs"),))
    st.caption(render("page.knobs.about"))


def _title(found: Sensitivity) -> str:
    best = found.best
    if best is None:
        return render("page.knobs.title.none")
    own, after = found.before.best_itl_s, best.turned.after
    args = {"text": best.turned.text, "gained": count(best.gained), "gpus": after.gpus, "after": seconds(after.best_itl_s) if after.best_itl_s else "-"}
    return render("page.knobs.title", {**args, "before": seconds(own)}) if own else render("page.knobs.title.first", args)


def rows(found: Sensitivity) -> list[tuple[str, ...]]:
    return [
        (r.turned.text, f"{r.gained:+,}", count(r.turned.after.best), count(r.turned.after.gpus), seconds(r.turned.after.itl_s),
         _added(r.itl_added_s), seconds(r.turned.after.best_itl_s) if r.turned.after.best_itl_s else "-", r.turned.cost)
        for r in found.rows
    ]  # fmt: skip


def _added(time: float) -> str:
    text = f"{milliseconds(time):+.2f} ms"
    return text.replace("-0.00", "+0.00")


def tornado(found: Sensitivity) -> go.Figure:
    """One bar a knob, its two ends left and right of what the plan serves now."""
    bars = [b for b in found.bars if b.low or b.high][::-1]
    names = [render(f"page.knobs.of.{b.knob}") for b in bars]
    data = [
        {"type": "bar", "orientation": "h", "y": names, "x": [getattr(b, end) for b in bars], "marker": {"color": colour}, "showlegend": False,
         "hoverinfo": "text", "hovertext": [getattr(b, f"{end}_text") for b in bars]}
        for end, colour in (("low", LESS_COLOUR), ("high", MAIN_COLOUR))
    ]  # fmt: skip
    axis: dict[str, Any] = {"automargin": True, "fixedrange": True}
    x = render("page.knobs.x.memory" if found.by_memory else "page.knobs.x")
    layout = {"barmode": "overlay", "height": 90 + 30 * len(bars), "margin": {**MARGIN, "t": 10}, "dragmode": False,
              "xaxis": {**axis, "title": {"text": x}, "zeroline": True}, "yaxis": axis}  # fmt: skip
    return go.Figure({"data": data, "layout": layout})


def calibration(p: CapacityPlan) -> None:
    """Measured points -> one factor; shown first, applied by a click, and said on the page as long as it is."""
    kept = p.scenario.calibration
    with st.expander(render("page.calibrate"), key="calibrate"):
        if kept is not None:
            s = from_text(kept)
            words = _words(s)
            where = {"gpu": plain(s.gpu), "engine": plain(s.engine), "model": plain(s.model)}
            st.markdown(render("page.calibrate.kept", {**words, **where}))
            _first(s)
            st.button(render("page.calibrate.forget"), key="calibrate_forget", on_click=state.take, args=(_with(p, None),))
        text = st.text_area(render("page.calibrate.points"), key="calibrate_points", height=120, max_chars=MAX_BYTES, help=render("page.calibrate.help"),
                            placeholder="concurrency,isl,osl,tpot_ms\n1,1024,256,7.1\n16,1024,256,9.8\n64,1024,256,17.4", persist_state="session")  # fmt: skip
        if text and text.strip():
            with shown(stop=False):
                s = fit(p, text.encode("utf-8", errors="replace"))
                st.markdown(render("page.calibrate.found", _words(s)))
                _first(s)
                st.button(render("page.calibrate.use"), key="calibrate_use", on_click=state.take, args=(_with(p, s.text()),), disabled=s.text() == kept)


def _words(s: Scale | First) -> dict[str, Any]:
    return {"factor": f"{s.factor:.3f}", "residual": f"{100 * s.residual:.1f} %", "points": s.points}


def _first(s: Scale) -> None:
    if s.first is not None:
        st.caption(render("page.calibrate.first" if s.first.usable else "page.calibrate.first_not", _words(s.first)))


def _with(p: CapacityPlan, text: str | None) -> dict[str, Any]:
    s = p.scenario
    return {"calibration": text, "prompt": s.prompt, "output": s.output, "tokens": s.tokens}

"""Columns as cards and as one table; the form that copies one and changes one thing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from pages.parts import columns, errors, source, state, tables
from pages.parts.look import COLOURS
from planner import compare
from planner.compare import NAMES, Column
from planner.compare.lines import Cell, Line
from planner.hardware import names as gpu_names
from planner.messages import render
from planner.scenario import OPTIONS
from planner.sources import catalog
from planner.units import count, gib

WIDTH = 170  # six side by side on a laptop, two on a phone
SHORT = 24  # a figure stays with its unit
SHOWN_CHANGES = 2


def cards(found: Sequence[Column], current: source.Current) -> None:
    """The answer of each column, and what may be done with it."""
    with st.container(horizontal=True, gap="small"):
        for i, c in enumerate(found):
            with st.container(border=True, width=WIDTH, height="stretch", gap="xsmall", key=f"column_card_{i}"):
                st.markdown(render("page.compare.card", {"name": NAMES[i], "what": errors.plain(what(found, i))}))
                word = render(f"page.state.{c.state}" if c.plan else "page.compare.refused")
                st.markdown(render("page.compare.card.state", {"colour": COLOURS.get(c.state, "red"), "state": word}))
                if c.plan is not None:
                    said = render("page.compare.card.load", {"load": gib(c.plan.load_bytes), "most": count(c.plan.total_max_sequences)})
                    st.caption(errors.plain(said), help=render("report.bytes", {"bytes": count(c.plan.load_bytes)}))
                if i:
                    with st.container(horizontal=True, gap="xsmall"):
                        st.button(render("page.compare.take"), key=f"column_take_{i}", on_click=columns.take, args=(current, i),
                                  help=render("page.compare.take.help"))  # fmt: skip
                        st.button(render("page.compare.remove"), key=f"column_remove_{i}", on_click=columns.remove, args=(current, i))
    for i, c in enumerate(found):
        if c.error is not None:
            errors.show({**c.error.to_json(), "field": render("page.compare.name", {"name": NAMES[i], "what": c.error.field})})


def what(found: Sequence[Column], index: int) -> str:
    """How a column differs from the first, in few words."""
    if not index:
        return render("page.compare.this")
    changed = compare.changes(found[0].scenario, found[index].scenario)
    if not changed:
        return render("page.compare.same", {"first": NAMES[0]})
    if len(changed) > SHOWN_CHANGES:
        return render("page.compare.changes", {"count": len(changed)})
    return ", ".join(render("page.compare.change", {"name": name, "new": new}) for name, _, new in changed)


def form(found: Sequence[Column], current: source.Current) -> None:
    """Duplicate and change one thing."""
    if len(found) >= compare.MOST:
        st.caption(render("page.compare.full", {"most": compare.MOST}))
    else:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            base = int(st.selectbox(render("page.compare.copy"), range(len(found)), format_func=lambda i: NAMES[i], key="column_base", width=90,
                                    help=render("page.compare.copy.help")))  # fmt: skip
            field = str(st.selectbox(render("page.compare.field"), compare.FIELDS, format_func=compare.label, key="column_field", width=230,
                                     index=compare.FIELDS.index("sequences"), help=render("page.compare.field.help")))  # fmt: skip
            key = f"column_to_{field}_{base}"
            _value(found[base], field, key)
            st.button(render("page.compare.add"), key="column_add", type="primary", on_click=columns.add, args=(current, base, field, key))
    if fault := st.session_state["_column_fault"]:
        errors.show(fault)


def _value(c: Column, field: str, key: str) -> None:
    """The widget that suits the field, with another value than the column has."""
    option, now = OPTIONS[field], getattr(c.scenario, field)
    said: dict[str, Any] = {"label": render("page.compare.value"), "help": render("page.compare.value.help"), "key": key, "width": 230}
    suggested = compare.suggestion(c.scenario, field)
    listed = {"model": catalog.names, "gpu": gpu_names}.get(field)
    if listed:
        typed = st.session_state.get(key)
        others = [n for n in listed() if n != now]
        st.selectbox(**said, options=[*others, *([typed] if typed and typed not in others else [])], accept_new_options=True)
    elif option.kind == "choice":
        optional = getattr(state.DEFAULTS, field) is None
        others = [v for v in (*((state.AUTO,) if optional else ()), *option.choices) if v != now and (v != state.AUTO or now is not None)]
        st.selectbox(**said, options=others, index=others.index(suggested) if suggested in others else 0)
    elif option.kind == "flag":
        st.selectbox(**said, options=[suggested], format_func=compare.chosen)
    elif option.kind == "int":
        st.number_input(**said, min_value=int(option.low), max_value=int(option.high), value=suggested)
    elif option.kind == "fraction":
        st.number_input(**said, min_value=0.01, max_value=1.0, value=suggested, step=0.01, format="%.4g")
    else:
        st.text_input(**said, value="" if suggested is None else str(suggested), max_chars=400)


def table(lines: Sequence[Line], names: str) -> None:
    """One row a figure under the name of its section; what differs from the first column is bold on a shade."""
    rows = [[render("page.compare.row"), *names], ["---", *("---:" for _ in names)]]
    for section, group in groupby(lines, key=lambda line: line.section):
        rows.append([render("page.chart.title", {"title": render(f"compare.section.{section}")}), *("" for _ in names)])
        rows += [[errors.plain(line.label), *(_cell(c) for c in line.cells)] for line in group]
    st.markdown("\n".join("| " + " | ".join(row) + " |" for row in rows))


def _cell(c: Cell | None) -> str:
    if c is None:
        return "-"
    text = errors.plain(c.text if len(c.text) > SHORT else c.text.replace(" ", "\N{NO-BREAK SPACE}"))
    return f":blue-background[**{text}**]" if c.differs else text


def sources(lines: Sequence[Line], names: str) -> None:
    """Columns with the same source stand together."""
    rows, sections = [], {""}
    for line in lines:
        if line.section not in sections:
            sections.add(line.section)
            heading = render("page.chart.title", {"title": render(f"compare.section.{line.section}")})
            rows.append({render("page.compare.row"): heading, render("page.column.source"): ""})
        by_source: dict[str, list[str]] = {}
        for name, c in zip(names, line.cells, strict=True):
            if c is not None and c.source:
                by_source.setdefault(c.source, []).append(name)
        said = ["; ".join(render("page.compare.source", {"names": ", ".join(of), "source": text}) for text, of in by_source.items())]
        rows.append({render("page.compare.row"): errors.plain(line.label), render("page.column.source"): errors.plain(*said)})
    tables.worded(rows, render("page.compare.sources"))

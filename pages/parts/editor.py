"""The layer editor: rows of equal layers, by hand or by a rule. Applied, they become a pasted config, so that everything else works."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from pages.parts import errors
from planner.describe import COLUMNS, Row, by_rule
from planner.messages import render
from planner.model import ModelSpec
from planner.readers.described import KINDS, MODEL_TYPE

ROWS = "_layer_rows"


def draw(model: ModelSpec, rows: list[Row], build: Callable[[ModelSpec, list[Row]], dict[str, Any]]) -> None:
    """The editor over `rows` of `model`. The frame given to the widget stays the same from run to run: edits live in the widget."""
    s = st.session_state
    st.caption(render("page.layers.edit.about"))
    key = (model.name, len(model.layers), json.dumps(rows))
    if s.get(ROWS, (None,))[0] != key:
        s[ROWS] = (key, rows)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        every = int(st.number_input(render("page.layers.every"), 1, 1000, 6, key="rule_every", help=render("page.layers.every.help"), width=190))
        window = int(st.number_input(render("page.layers.window"), 1, 10_000_000, 1024, key="rule_window", help=render("page.layers.window.help"), width=210))
        st.button(render("page.layers.use_rule"), on_click=_use_rule, args=(model, key, every, window), key="use_rule")
    edited = _table(s[ROWS][1])
    _finish(build(model, edited), "layers")


def start(raw: dict[str, Any]) -> None:
    """For a refused config: one row with what can be read of it, to be completed by hand."""
    st.caption(render("page.layers.start"))
    whole = {k: v for k, v in raw.items() if isinstance(v, int) and not isinstance(v, bool) and v > 0}
    heads, hidden = whole.get("num_attention_heads", 32), whole.get("hidden_size", 4096)
    row: Row = {"layers": whole.get("num_hidden_layers", 32), "kind": "full", "kv_heads": whole.get("num_key_value_heads", heads), "q_heads": heads,
                "k_dim": whole.get("head_dim", max(1, hidden // heads))}  # fmt: skip
    facts = {"hidden_size": hidden, "vocab_size": whole.get("vocab_size", 32_000), "max_position_embeddings": whole.get("max_position_embeddings"),
             "torch_dtype": raw.get("torch_dtype") or raw.get("dtype") or "bfloat16"}  # fmt: skip
    edited = _table([row])
    _finish({"model_type": MODEL_TYPE, **facts, "layer_rows": [{k: v for k, v in r.items() if v is not None and v == v} for r in edited]}, "refused")


def _table(rows: list[Row]) -> list[Row]:
    numbers = {c: st.column_config.NumberColumn(c, min_value=0, step=1, format="%d") for c in COLUMNS if c != "kind"}
    columns = {**numbers, "kind": st.column_config.SelectboxColumn("kind", options=list(KINDS), required=True)}
    frame = [{c: row.get(c) for c in COLUMNS} for row in rows]
    edited = st.data_editor(frame, num_rows="dynamic", hide_index=True, column_config=columns, key="layer_editor", column_order=COLUMNS, alt=", ".join(COLUMNS))
    return [_whole(row) for row in edited]


def _whole(row: Row) -> Row:
    """Numbers of the grid come back as floats."""
    return {k: int(v) if isinstance(v, float) and v == v and v.is_integer() else v for k, v in row.items()}


def _use_rule(model: ModelSpec, key: Any, every: int, window: int) -> None:
    s = st.session_state
    try:
        s[ROWS] = (key, by_rule(model, every, window))
        s.pop("layer_editor", None)
    except Exception as e:
        s["_link_faults"] = [errors.caught(e).message]


def _finish(config: dict[str, Any], where: str) -> None:
    body = json.dumps(config, indent=1)
    with st.container(horizontal=True):
        st.button(render("page.layers.apply"), on_click=_apply, args=(body,), key=f"apply_{where}", type="primary")
        st.download_button(
            render("page.layers.download"), data=body, file_name="layers.json", mime="application/json", on_click="ignore", key=f"layers_{where}"
        )


def _apply(body: str) -> None:
    """The rows as a pasted config: one way in for everything that is not a model of the list."""
    st.session_state["paste"] = body
    st.session_state["_own"] = "paste"
    st.session_state.pop("layer_editor", None)

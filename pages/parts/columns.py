"""The columns of the Compare page: the current plan first, then copies that stay as they are, in the session and in the address.

`_columns` in the session: None (untouched: the current plan and one copy), or a list of the copies. Each that has a model with a name is
one `column` of the address; a copy of an upload or a paste is not, and its config stays in the session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.parts import source, state
from pages.parts.errors import caught, plain
from planner import compare
from planner.api import model_of
from planner.capacity import CapacityPlan
from planner.compare import Column
from planner.errors import PlannerError
from planner.messages import render
from planner.model import ModelSpec
from planner.scenario import Scenario
from planner.sources import Loaded, load

PARAMETER = "column"
OTHERS = compare.MOST - 1
Source = tuple[Loaded, tuple[str, ...]] | None
KEPT = 24  # answers and models of one session


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`own`: which config of the session it is planned from; None: the scenario's model by its name."""

    scenario: Scenario
    own: str | None = None


def begin() -> None:
    """Once a session: the copies that the address names. Those that cannot be read are left out, and said."""
    s = st.session_state
    if "_columns" in s:
        return
    s["_columns"], s["_column_models"], s["_column_answers"], s["_column_fault"] = None, {}, {}, None
    asked = st.query_params.get_all(PARAMETER)
    s["_column_faults"], s["_columns_asked"] = [], len(asked)
    found = []
    for text in asked[:OTHERS]:
        try:
            found.append(Copy(scenario=compare.from_text(text)))
        except PlannerError as e:
            s["_column_faults"].append(e.message)
    if asked:
        s["_columns"] = found


def keep_in_address() -> None:
    wanted = [compare.as_text(c.scenario) for c in st.session_state["_columns"] or () if c.own is None]
    if wanted and st.query_params.get_all(PARAMETER) != wanted:
        st.query_params[PARAMETER] = wanted
    elif not wanted and PARAMETER in st.query_params:
        del st.query_params[PARAMETER]


def found(current: source.Current) -> tuple[list[Copy], list[Column]]:
    """All columns of this run, the current plan first: where each comes from, and what came of it."""
    copies = [_copy_of(current), *(_others(current))]
    return copies, [_planned(c, current) for c in copies]


def _copy_of(current: source.Current) -> Copy:
    return Copy(scenario=current.scenario, own="current" if st.session_state["_own"] is not None else None)


def _others(current: source.Current) -> list[Copy]:
    """Those of the session, or the one that the page begins with."""
    kept = st.session_state["_columns"]
    if kept is not None:
        return list(kept)
    first = _copy_of(current)
    copy = compare.instructive(_planned(first, current), _maker(first, current))
    return [Copy(scenario=copy.scenario, own=first.own)]


def _planned(c: Copy, current: source.Current) -> Column:
    """Through plan() once a session; whatever goes wrong stays in its column."""
    try:
        loaded, model = _model(c, current)
    except Exception as e:
        return Column(scenario=c.scenario, error=caught(e))
    answers: dict[Any, tuple[ModelSpec, Column]] = st.session_state["_column_answers"]
    key = (id(model), c.scenario)
    if key not in answers:
        try:
            made = compare.column(c.scenario, lambda s: source.Current(scenario=s, loaded=loaded, model=model).plan())
        except Exception as e:
            made = Column(scenario=c.scenario, error=caught(e))
        _keep(answers, key, (model, made))  # the model is kept, so that its id stays its own
    return answers[key][1]


def _maker(c: Copy, current: source.Current) -> Callable[[Scenario], CapacityPlan]:
    def make(s: Scenario) -> CapacityPlan:
        loaded, model = _model(c, current)
        return source.Current(scenario=s, loaded=loaded, model=model).plan()

    return make


def _model(c: Copy, current: source.Current) -> tuple[Loaded, ModelSpec]:
    """Raises PlannerError. A name is looked up once a session, its error kept too: one request to the hub, not one a rerun."""
    s = st.session_state
    if c.own == "current" or (c.own is None and s["_own"] is None and c.scenario.model == current.scenario.model):
        return current.loaded, current.model
    models: dict[Any, Any] = s["_column_models"]
    key = c.own or (c.scenario.model, s.get("hub_token"), source.harmless())
    if key not in models:
        try:
            loaded = load(c.scenario.model, token=s.get("hub_token") or None, allow_paths=False)
            _keep(models, key, (loaded, model_of(loaded, source.harmless())))
        except Exception as e:
            _keep(models, key, caught(e))
    answer = models[key]
    if isinstance(answer, PlannerError):
        raise answer
    loaded, model = answer
    return loaded, model


def _keep(where: dict[Any, Any], key: Any, value: Any) -> None:
    """At most so many, the oldest dropped; configs of the session's own stay."""
    where[key] = value
    old = [k for k in where if not isinstance(k, str)]
    for k in old[:-KEPT]:
        del where[k]


# -- callbacks -----------------------------------------------------------------------------------------------------------------


def add(current: source.Current, base: int, field: str, key: str) -> None:
    """A copy of column `base` with `field` changed to what stands in widget `key`."""
    s = st.session_state
    copies, _ = found(current)
    value = s.get(key)
    try:
        changed = compare.changed(copies[base].scenario, field, None if value == state.AUTO and field != "kv_dtype" else value)
    except PlannerError as e:
        s["_column_fault"] = e.to_json()
        return
    s["_column_fault"] = None
    own = None if field == "model" else copies[base].own
    _set(current, [*copies[1:], Copy(scenario=changed, own=own)])


def _kept_own(c: Copy, current: source.Current) -> str | None:
    """A copy of the current upload or paste keeps its config, whatever is uploaded later."""
    if c.own != "current":
        return c.own
    s = st.session_state
    models: Mapping[Any, Any] = s["_column_models"]
    for key, kept in models.items():
        if isinstance(key, str) and kept[0] is current.loaded:
            return key
    key = str(sum((1, *(int(k) for k in models if isinstance(k, str)))))  # one that no other has
    s["_column_models"][key] = (current.loaded, current.model)
    return key


def remove(current: source.Current, index: int) -> None:
    copies, _ = found(current)
    _set(current, [c for i, c in enumerate(copies) if i not in (0, index)])


def _set(current: source.Current, copies: list[Copy]) -> None:
    """From now on these stay as they are; configs that none of them is planned from are forgotten."""
    s = st.session_state
    s["_columns"] = [Copy(scenario=c.scenario, own=_kept_own(c, current)) for c in copies[:OTHERS]]
    used = {c.own for c in s["_columns"]}
    s["_column_models"] = {k: v for k, v in s["_column_models"].items() if not isinstance(k, str) or k in used}


def place(opened: list[source.Upload]) -> None:
    """Saved plans as the columns beside the current one. A model of the catalog keeps its name, so that the address holds the column; any other
    is planned from its own config, which is the session's."""
    begin()
    s = st.session_state
    copies, models = [], {}
    for number, found in enumerate(opened[:OTHERS], 1):
        assert found.saved is not None
        own = None if found.loaded is None or found.saved.provenance.get("kind") == "catalog" else str(number)
        if own is not None:
            models[own] = (found.loaded, found.model)
        copies.append(Copy(scenario=found.saved.scenario, own=own))
    s["_columns"] = copies
    s["_column_models"] = {**{k: v for k, v in s["_column_models"].items() if not isinstance(k, str)}, **models}


def take(current: source.Current, index: int) -> None:
    """The inputs take the values of a column, which stays beside them; so do the others."""
    s = st.session_state
    copies, _ = found(current)
    _set(current, copies[1:])
    chosen: Copy = s["_columns"][index - 1]
    changes = chosen.scenario.to_json()
    name = changes.pop("model")
    if chosen.own is None:
        s["model"], s["_own"], s["_link_faults"] = name, None, []
    else:
        _own_again(chosen, current)
    state.take(changes)


def _own_again(chosen: Copy, current: source.Current) -> None:
    """Back to an upload that is still there; a paste or an upload that is gone comes back as a pasted config."""
    s = st.session_state
    loaded, _ = _model(chosen, current)
    if loaded is current.loaded:
        return
    upload = next((i for i, u in s["_uploads"].items() if u.loaded is loaded), None)
    s["_own"] = upload or "paste"
    if upload is None:
        s["paste"] = json.dumps(loaded.raw)


def start_over() -> None:
    st.session_state["_columns"], st.session_state["_column_fault"] = None, None
    st.session_state["_column_faults"], st.session_state["_columns_asked"] = [], 0


def sources(copies: list[Copy], current: source.Current) -> list[Source]:
    """What each column was planned from, with the keys declared harmless; None where its model cannot be had."""
    found: list[Source] = []
    for c in copies:
        try:
            found.append((_model(c, current)[0], current.harmless))
        except PlannerError:
            found.append(None)
    return found


# -- said on the page ------------------------------------------------------------------------------------------------------------


def faults() -> None:
    s = st.session_state
    for fault in s["_column_faults"]:
        st.warning(render("page.compare.unread", {"detail": plain(fault)}))
    if s["_columns_asked"] > OTHERS:
        st.warning(render("page.compare.many", {"count": s["_columns_asked"], "most": OTHERS}))


def session_only(copies: list[Copy]) -> None:
    """Which columns the address cannot hold."""
    names = [name for name, c in zip(compare.NAMES, copies, strict=False) if c.own is not None]
    if names:
        st.caption(render("page.compare.own", {"names": ", ".join(names)}))

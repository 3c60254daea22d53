"""The config in use in one session: the model field's, a paste or one of the uploads. Each is read once.

`_own` in the session: None (the model field counts), "paste", or the id of an upload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.parts import state
from pages.parts.errors import caught
from planner.api import model_of
from planner.cache import Kind
from planner.capacity import CapacityPlan, plan
from planner.draft import attach
from planner.engines.options import for_engine
from planner.errors import NotAConfig, PlannerError
from planner.footprint import Footprint, measure
from planner.hardware import find
from planner.model import ModelSpec
from planner.saved import Saved, is_report, read_back
from planner.scenario import Scenario
from planner.sources import Loaded, load, load_bytes
from planner.why import deciding_keys

MAX_FILES = 64
KEPT = "kept:"  # begins the id of what was opened from the history, which is no file of the uploader


@dataclass(slots=True, kw_only=True)
class Upload:
    """One uploaded file: read once. Exactly one of `error` and `loaded` is set."""

    name: str
    loaded: Loaded | None = None
    model: ModelSpec | None = None
    saved: Saved | None = None
    harmless: tuple[str, ...] = ()
    error: PlannerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What the shared inputs came to in this run."""

    scenario: Scenario
    loaded: Loaded
    model: ModelSpec
    harmless: tuple[str, ...] = ()

    def plan(self) -> CapacityPlan:
        model, chosen = attach(self.model, self.scenario, self.loaded.provenance, _draft)
        return plan(model, find(chosen.gpu) if chosen.gpu else None, chosen)

    def by_architecture(self) -> Footprint:
        """The load's bytes with no engine, which every model that was read has."""
        return measure(self.model, None, for_engine(self.scenario, "architecture"))

    def deciding_keys(self) -> dict[Kind, tuple[tuple[str, Any], ...]]:
        """Which keys of the file decide what; found once a file and session."""
        s, key = st.session_state, (self.loaded.provenance, self.harmless)
        if s.get("_why", (None,))[0] != key:
            s["_why"] = (key, deciding_keys(self.loaded.raw, self.harmless))
        found: dict[Kind, tuple[tuple[str, Any], ...]] = s["_why"][1]
        return found


def leave_own() -> None:
    """Back from an upload or a paste to the model field."""
    st.session_state["_own"] = None
    st.session_state["_link_faults"] = []


def ask_again() -> None:
    st.session_state.pop("_loaded", None)


def pasted() -> None:
    st.session_state["_own"] = "paste" if (st.session_state["paste"] or "").strip() else None


def chosen_file() -> None:
    st.session_state["_own"] = st.session_state["file_choice"]


def uploaded() -> None:
    """Reads new files, forgets those taken away, and plans the first new one that can be read."""
    s = st.session_state
    known: dict[str, Upload] = s["_uploads"]
    files = (s["uploads"] or [])[:MAX_FILES]
    opened = {i: u for i, u in known.items() if i.startswith(KEPT)}
    s["_uploads"] = {**opened, **{f.file_id: known.get(f.file_id) or _read(f.name, f.getvalue()) for f in files}}
    fresh = [(i, u) for i, u in s["_uploads"].items() if i not in known and u.loaded]
    if fresh:
        s["_own"], first = fresh[0]
        if first.saved:
            _take_saved(first.saved, first.name)
    elif s["_own"] not in ("paste", None, *s["_uploads"]):
        s["_own"] = None


def _read(name: str, data: bytes) -> Upload:
    try:
        loaded, saved, keys = load_bytes(data, name), None, harmless()
        if is_report(loaded.raw):
            saved = read_back(loaded.raw)
            loaded, keys = saved.loaded(), tuple(dict.fromkeys((*saved.harmless, *keys)))
        return Upload(name=name, loaded=loaded, model=model_of(loaded, keys), saved=saved, harmless=keys)
    except Exception as e:
        return Upload(name=name, error=caught(e))


def read_kept(name: str, document: bytes) -> Upload:
    """A saved plan out of the history, read as an upload is. Raises PlannerError."""
    found = _read(name, document)
    if found.error is not None:
        raise found.error
    if found.saved is None:
        raise NotAConfig("report_part_missing", field="scenario")
    return found


def take_up(found: Upload, row: int | str) -> None:
    """A callback's part: this saved plan is the current one from now on, in place of one that was opened before it."""
    s = st.session_state
    assert found.saved is not None
    others = {i: u for i, u in s["_uploads"].items() if not i.startswith(KEPT)}
    named = found.saved.provenance.get("kind") == "catalog"  # the model field says it all
    s["_uploads"] = others if named else {**others, f"{KEPT}{row}": found}
    s["_own"], s["_link_faults"] = None if named else f"{KEPT}{row}", []
    _take_saved(found.saved, found.name)


def _take_saved(saved: Saved, file_name: str) -> None:
    """A saved plan brings its choices; a catalog or hub model goes back into the model field, so that it has a permalink again."""
    changes = saved.scenario.to_json()
    name = changes.pop("model")
    kind = saved.provenance.get("kind")
    if kind in ("catalog", "hub"):
        st.session_state["model"] = name
        if kind == "catalog":
            st.session_state["_own"] = None
    state.take(changes)
    if saved.mix_beyond_text():
        st.session_state["_mix"] = (file_name[:120], saved.mix)
    if saved.parts:
        from pages.parts import jobs  # which knows this module

        jobs.take_parts(saved.parts)


def current() -> Current:
    """The model and the choices of this run. Raises PlannerError."""
    s = st.session_state
    own = s["_own"]
    if own in s["_uploads"]:
        upload: Upload = s["_uploads"][own]
        assert upload.loaded is not None
        assert upload.model is not None
        loaded, model = upload.loaded, upload.model
        name = upload.saved.scenario.model if upload.saved else loaded.name
        return Current(scenario=state.scenario(name[:400]), loaded=loaded, model=model, harmless=upload.harmless)
    if own == "paste":
        loaded, model = _once(("paste", s["paste"]), lambda: load_bytes(s["paste"].encode("utf-8", "surrogatepass"), ""))
        name = loaded.name
    else:
        name, token = str(s["model"] or ""), s.get("hub_token") or None
        loaded, model = _once((name, token), lambda: load(name, token=token, allow_paths=False))
    return Current(scenario=state.scenario(name[:400]), loaded=loaded, model=model, harmless=harmless())


def _draft(name: str) -> Loaded:
    """The config of a draft model, fetched once while its name stays."""
    s = st.session_state
    key = (name, s.get("hub_token") or None)
    if s.get("_drafted", (None,))[0] != key:
        s["_drafted"] = (key, load(name, token=key[1], allow_paths=False))
    found: Loaded = s["_drafted"][1]
    return found


def _once(key: tuple[Any, ...], get: Callable[[], Loaded]) -> tuple[Loaded, ModelSpec]:
    """The last config that was fetched, or the error that came instead, kept for the session: one request to the hub, not one a rerun."""
    s = st.session_state
    key = (*key, harmless())
    if s.get("_loaded", (None,))[0] != key:
        s["_refused"] = None
        try:
            loaded = get()
            s["_refused"] = loaded.raw  # until a reader takes it
            s["_loaded"] = (key, (loaded, model_of(loaded, harmless())), None)
            s["_refused"] = None
        except Exception as e:
            s["_loaded"] = (key, None, caught(e))
    _, found, error = s["_loaded"]
    if error is not None:
        raise error
    return found


def refused() -> dict[str, Any] | None:
    """The config that was found but not understood, for the layer editor."""
    found: dict[str, Any] | None = st.session_state.get("_refused")
    return found


def harmless() -> tuple[str, ...]:
    return tuple(k.strip() for k in str(st.session_state.get("harmless") or "").split(",") if k.strip())

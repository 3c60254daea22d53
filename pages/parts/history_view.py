"""The History page: what is kept, found again, opened, compared, renamed, deleted."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import streamlit as st

from gpu_probe.uploads import read_result
from pages.parts import columns, errors, history, jobs, plan_file, source
from pages.parts.headline import headline
from planner import compare
from planner.errors import InvalidInput
from planner.messages import render
from planner.units import memory

if TYPE_CHECKING:
    from planner.store import Kept, Store

STEP = 20  # rows drawn at first, and more at each click
SAID, ALL = "_history_told", "all"


def draw() -> None:
    """The whole page."""
    s = st.session_state
    st.caption(render("page.history.about"))
    _say(s.pop(SAID, None))
    try:
        store = history.store()
    except Exception as e:
        errors.show(errors.caught(e))
        st.info(render("page.history.unavailable"))
        return
    with errors.shown(stop=False):
        current: source.Current = s["_current"]
        p = current.plan()
        headline(p)
        if history.owner() is not None:
            plan_file.save_box(current, p)
    owner = history.owner()
    if owner is None:
        if s.get(history.OWNER) == "":
            st.success(render("page.history.forgotten"))
        history.switch_on()
        return
    with errors.shown(stop=False):
        _listed(store, owner)


def _say(told: dict[str, str] | tuple[str, str] | None) -> None:
    """What the last click came to: an error's JSON, or a text and the page that shows it (empty: none)."""
    if isinstance(told, dict):
        errors.show(told)
    elif told:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.success(told[0])
            if told[1]:  # a link, not a switch by us: that would drop the address of the widgets
                st.page_link(f"{told[1]}.py", label=render("page.history.see", {"page": render(f"page.{told[1]}")}))


def _listed(store: Store, owner: str) -> None:
    everything = store.list(owner)
    _search(everything)
    s = st.session_state
    kind = s.get("kept_kind") or ALL
    found = store.list(owner, str(s.get("kept_search") or ""), None if kind == ALL else kind)
    if not everything:
        st.info(render("page.history.none"))
    elif not found:
        st.info(render("page.history.nothing_found"))
    most = s.get("_kept_shown", STEP)
    _actions(store, owner, [k for k in found[:most] if s.get(f"kept_pick_{k.id}")])
    for k in found[:most]:
        _row(k, owner)
    if len(found) > most:
        st.button(render("page.history.more", {"count": min(STEP, len(found) - most)}), key="kept_more", on_click=_more, args=(most,))
    st.caption(render("page.history.owner.user" if history.by_login() else "page.history.owner.browser"))
    _endings(owner, len(everything))


def _search(everything: tuple[Kept, ...]) -> None:
    from planner.store import KINDS, MAX_ROWS, MAX_SEARCH

    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(render("page.history.search"), key="kept_search", max_chars=MAX_SEARCH, width=320, help=render("page.history.search.help"))
        st.selectbox(render("page.history.kind"), (ALL, *KINDS), key="kept_kind", format_func=lambda k: render(f"page.history.kind.{k}"), width=140)
        size = memory(sum(k.size for k in everything))
        st.caption(render("page.history.count", {"count": len(everything), "limit": MAX_ROWS, "size": size}))


def _row(k: Kept, owner: str) -> None:
    with st.container(border=True, horizontal=True, vertical_alignment="center", gap="small", key=f"kept_row_{k.id}"):
        st.checkbox(render("page.history.pick", {"name": errors.plain(k.name)}), key=f"kept_pick_{k.id}", label_visibility="collapsed", width=24)
        with st.container(gap="xxsmall", width="stretch"):
            st.markdown(render("page.history.row", {"name": errors.plain(k.name), "kind": render(f"page.history.kind.{k.kind}")}))
            st.caption(render("page.history.row.about", {"about": errors.plain(k.about), "date": _date(k.created), "size": memory(k.size)}))
        st.button(render("page.history.open"), key=f"kept_open_{k.id}", on_click=_open, args=(owner, k.id))


def _date(created: float) -> str:
    """In the reader's own time zone where the browser tells it."""
    try:
        zone: datetime.tzinfo = ZoneInfo(st.context.timezone or "UTC")
    except (ValueError, KeyError, OSError):
        zone = datetime.UTC
    return datetime.datetime.fromtimestamp(created, zone).strftime("%Y-%m-%d %H:%M %Z")


def _actions(store: Store, owner: str, chosen: list[Kept]) -> None:
    """What may be done with the rows that are chosen; nothing where none is."""
    if not chosen:
        return
    ids = tuple(k.id for k in chosen)
    st.caption(render("page.history.chosen", {"count": len(chosen)}))
    with st.container(horizontal=True, vertical_alignment="bottom", border=True, key="kept_actions"):
        st.button(render("page.history.compare"), key="kept_compare", on_click=_compare, args=(owner, ids, st.session_state["_current"]),
                  disabled=not 2 <= len(chosen) <= compare.MOST or any(k.kind != "plan" for k in chosen),
                  help=render("page.history.compare.help", {"low": 2, "most": compare.MOST}))  # fmt: skip
        if len(chosen) == 1:
            one = chosen[0]
            st.download_button(render("page.history.download"), data=lambda: store.get(owner, one.id)[1], file_name=f"kvledger-{one.kind}-{one.id}.json",
                               mime="application/json", on_click="ignore", key="kept_download", icon=":material/download:")  # fmt: skip
            st.text_input(render("page.history.new_name"), value=one.name, max_chars=120, key=f"kept_name_{one.id}", width=260)
            st.button(render("page.history.rename"), key="kept_rename", on_click=_rename, args=(owner, one.id))
        st.button(render("page.history.delete"), key="kept_delete", on_click=_delete, args=(owner, ids), help=render("page.history.delete.help"))


def _endings(owner: str, count: int) -> None:
    """Deleting all, and forgetting the browser: each opened first, then said what goes."""
    with st.container(horizontal=True):
        if count:
            with st.expander(render("page.history.delete_all"), key="kept_all", on_change="rerun", width=360) as box:
                if box.open:
                    st.markdown(render("page.history.delete_all.sure", {"count": count}))
                    st.button(render("page.history.delete_all.yes"), key="kept_all_yes", on_click=_delete_all, args=(owner,))
        if not history.by_login():
            with st.expander(render("page.history.forget"), key="kept_forget", on_change="rerun", width=360) as box:
                if box.open:
                    st.markdown(render("page.history.forget.sure", {"count": count}))
                    history.forget()


# -- callbacks -----------------------------------------------------------------------------------------------------------------


def _more(most: int) -> None:
    st.session_state["_kept_shown"] = sum((most, STEP))


def _told(error: Exception) -> None:
    st.session_state[SAID] = errors.caught(error).to_json()


def _open(owner: str, row: int) -> None:
    """A plan becomes the current one on all pages; a probe's result joins those of the session."""
    s = st.session_state
    try:
        kept, document = history.store().get(owner, row)
        if kept.kind == "plan":
            source.take_up(source.read_kept(kept.name, document), row)
        else:
            jobs.keep(read_result(json.loads(document)))
        s[SAID] = (render(f"page.history.opened.{kept.kind}", {"name": errors.plain(kept.name)}), "plan" if kept.kind == "plan" else "validate")
    except Exception as e:
        _told(e)


def _compare(owner: str, rows: tuple[int, ...], current: source.Current) -> None:
    """The newest of those chosen becomes the current plan, the others its columns."""
    try:
        opened = [(row, source.read_kept(kept.name, document)) for row in rows for kept, document in (history.store().get(owner, row),) if kept.kind == "plan"]
        if not 2 <= len(opened) <= compare.MOST:
            raise InvalidInput("kept_several", field="", low=2, most=compare.MOST, count=len(opened))
        (first_row, first), *others = opened
        columns.place([upload for _, upload in others])
        source.take_up(first, first_row)
        st.session_state[SAID] = (render("page.history.compared", {"count": len(opened)}), "compare")
    except Exception as e:
        _told(e)


def _rename(owner: str, row: int) -> None:
    try:
        history.store().rename(owner, row, str(st.session_state.get(f"kept_name_{row}") or ""))
    except Exception as e:
        _told(e)


def _delete(owner: str, rows: tuple[int, ...]) -> None:
    gone = 0
    try:
        for row in rows:
            history.store().delete(owner, row)
            gone = sum((gone, 1))
            st.session_state.pop(f"kept_pick_{row}", None)
        st.session_state[SAID] = (render("page.history.deleted", {"count": gone}), "")
    except Exception as e:
        _told(e)


def _delete_all(owner: str) -> None:
    try:
        st.session_state[SAID] = (render("page.history.deleted", {"count": history.store().delete_all(owner)}), "")
    except Exception as e:
        _told(e)

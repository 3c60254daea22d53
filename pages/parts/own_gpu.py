"""A device that is not in the table: typed in, or what this machine has. It becomes a text in the GPU field, and so has an address."""

from __future__ import annotations

from functools import partial

import streamlit as st

from gpu_probe import host
from pages.parts import errors, state
from planner import environment, owngpu
from planner.messages import render
from planner.units import count, from_gib, gib

LOCAL = ("localhost", "127.0.0.1", "::1")
SAID, FAULT = "_gpu_said", "_gpu_fault"
GIGA, TERA = 1e9, 1e12


def draw() -> None:
    """Drawn once it is opened: most sessions never do."""
    s = st.session_state
    with st.expander(render("page.machine"), key="own_gpu", on_change="rerun", width=300) as box:
        if not box.open:
            return
        st.caption(render("page.gpu.about"))
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input(**_named("name"), value="My GPU", max_chars=40, width=160)
            _number("memory", 24.0, 0.01, 1e6)
            _number("bandwidth", 0.0, 0.0, 1e6)
            _number("peak", 0.0, 0.0, 1e6)
            st.button(render("page.gpu.take"), key="own_gpu_take", on_click=_typed)
        _host()
        if fault := s.get(FAULT):
            errors.show(fault)
        text, said = s.get(SAID) or ("", "")
        if said and text == s.get("gpu"):
            st.info(errors.plain(said))


def _host() -> None:
    if not environment.value("KVLEDGER_PROBE"):
        st.caption(render("page.host.off"))
        return
    where = "here" if is_local() else "server"
    st.button(render(f"page.host.{where}"), key="own_gpu_host", help=render(f"page.host.help.{where}"), on_click=partial(_this_host, where))


def is_local() -> bool:
    """Whether the reader sits at the machine that serves the page, as far as the address tells."""
    address = str(st.context.url or "").partition("://")[2].partition("/")[0]
    name = address.rpartition("]")[0].lstrip("[") if address.startswith("[") else address.partition(":")[0]
    return name in ("", *LOCAL) and st.context.ip_address in (None, *LOCAL)


def _named(name: str) -> dict[str, str]:
    return {"label": render(f"page.gpu.{name}"), "help": render(f"page.gpu.{name}.help"), "key": f"own_gpu_{name}"}


def _number(name: str, value: float, low: float, high: float) -> None:
    st.number_input(**_named(name), min_value=low, max_value=high, value=value, width=150, format="%.6g")


def _typed() -> None:
    s = st.session_state
    s[SAID] = s[FAULT] = None
    bandwidth, peak = (float(s[f"own_gpu_{name}"] or 0) for name in ("bandwidth", "peak"))
    try:
        text = owngpu.as_text(
            str(s["own_gpu_name"] or ""), from_gib(float(s["own_gpu_memory"] or 0)), bandwidth_bytes_per_s=bandwidth * GIGA or None,
            flops_per_s=dict.fromkeys(("fp16", "bf16"), peak * TERA) if peak else None,
        )  # fmt: skip
    except Exception as e:
        s[FAULT] = errors.caught(e).to_json()
        return
    state.take({"gpu": text})


def _this_host(where: str) -> None:
    s = st.session_state
    s[SAID] = s[FAULT] = None
    try:
        if not environment.value("KVLEDGER_PROBE"):
            return
        first, *others = host.devices()
        text = owngpu.named(first.name, first.memory_bytes)
    except Exception as e:
        s[FAULT] = errors.caught(e).to_json()
        return
    more = [render("page.host.more", {"what": "; ".join(_said(d) for d in others)})] if others else []
    s[SAID] = (text, " ".join([render(f"page.host.taken.{where}", {"what": _said(first)}), *more]))
    state.take({"gpu": text, "gpus": first.count, "tp": None, "pp": 1, "dp_attention": 1, "ep": 1, "dcp": 1})


def _said(d: host.HostDevice) -> str:
    return render(f"page.host.{d.kind}", {"count": d.count, "name": d.name, "memory": gib(d.memory_bytes), "bytes": count(d.memory_bytes)})

"""The inputs that all pages share, drawn by the router in the body: a phone hides the sidebar. One line of help each."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from pages.parts import errors, hub_search, language, own_gpu, source, start, state, tables
from planner.dtypes import KV_DTYPES
from planner.hardware import names as gpu_names
from planner.messages import render
from planner.scenario import ENGINE_NAMES, OPTIONS, WEIGHT_DTYPES
from planner.sources import catalog

ENGINES = ("vllm", *(e for e in ENGINE_NAMES if e != "vllm"))
CHOICES = {"kv_dtype": KV_DTYPES, "weight_dtype": (state.AUTO, *WEIGHT_DTYPES), "dtype": (state.AUTO, *OPTIONS["dtype"].choices)}
NUMBERS = ("tp", "pp", "dp_attention", "ep", "dcp", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "encoder_tokens",
           "num_speculative_tokens", "shared_prefix")  # fmt: skip
FLAGS = ("prefix_caching", "hybrid_kv_cache_manager", "async_scheduling")
FRACTIONS = ("memory_fraction", "swa_full_tokens_ratio", "mamba_full_memory_ratio", "cross_kv_cache_fraction")
# What one engine alone has: drawn while it is the engine, or where the address has one.
ENGINE_OWN = {
    "vllm": ("enforce_eager",),
    "llamacpp": ("cache_type_k", "cache_type_v", "flash_attn", "parallel", "n_gpu_layers", "n_ubatch", "n_rs_seq", "kv_unified", "swa_full"),
    "trtllm": ("window_pools",),
    "transformers": ("cache_implementation", "cache_backend", "cache_nbits", "cache_residual"),
}
LOAD = ("samples", "beams", "images", "max_loras", "max_lora_rank")  # what each sequence brings along
ADVANCED = (*CHOICES, *NUMBERS, *FRACTIONS, *state.TEXTS, *FLAGS, *LOAD, *(name for names in ENGINE_OWN.values() for name in names))


def draw() -> source.Current:
    """Raises PlannerError where the choices or the model cannot be; the widgets stay, to be corrected."""
    start.draw()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="main_inputs"):
        _text_choice("model", catalog.names(), width=230, on_change=source.leave_own)
        _text_choice("gpu", gpu_names(), width=190)
        _number("gpus", width=115)
        st.selectbox(**_named("engine"), options=ENGINES, bind="query-params", width=135)
        _number("tokens", width=160, step=1024, on_change=state.tokens_changed)
        _number("sequences", width=150)
    with st.container(horizontal=True, gap="small", key="folded_inputs"):
        _own()
        own_gpu.draw()
        _advanced()
    state.link_faults()
    state.keep_in_address()
    _which()
    with st.spinner(show_time=False, text=""):
        return source.current()


def _own() -> None:
    s = st.session_state
    with st.expander(render("page.own"), key="own_models", width=400):
        hub_search.draw()
        st.file_uploader(
            render("page.upload"), accept_multiple_files=True, key="uploads", max_upload_size=32, on_change=source.uploaded, help=render("page.upload.help")
        )
        if len(s["uploads"] or []) > source.MAX_FILES:
            st.warning(render("page.too_many_files", {"count": len(s["uploads"]), "limit": source.MAX_FILES}))
        st.text_area(render("page.paste"), key="paste", height=80, on_change=source.pasted, help=render("page.paste.help"), persist_state="session")
        with st.container(horizontal=True):
            st.text_input(render("page.token"), key="hub_token", type="password", autocomplete="off", help=render("page.token.help"))
            st.text_input(render("page.harmless"), key="harmless", help=render("page.harmless.help"))


def _advanced() -> None:
    """Drawn once it is opened, or where a choice differs from the default: a first page is then much lighter for the browser."""
    with st.expander(render("page.advanced"), key="advanced", width="stretch", on_change="rerun") as box:
        s = st.session_state
        s["_advanced"] = bool(s.get("_advanced") or box.open or any(name in st.query_params for name in ADVANCED))
        if not s["_advanced"]:
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            for name, options in CHOICES.items():
                st.selectbox(**_named(name), options=options, bind="query-params", width=150)
            for name in NUMBERS:
                _number(name, width=150)
            for name in FRACTIONS:
                st.number_input(**_named(name), min_value=0.01, max_value=1.0, value=None, step=0.01, format="%.4g", bind="query-params", width=150)
            for name in state.TEXTS:
                st.text_input(**_named(name), bind="query-params", max_chars=int(OPTIONS[name].high) if OPTIONS[name].kind == "text" else 40, width=150)
            for name in FLAGS:
                st.checkbox(**_named(name), value=True, bind="query-params")
            for name in LOAD:
                _field(name)
        for engine, own in ENGINE_OWN.items():
            if s["engine"] == engine or any(name in st.query_params for name in own):
                with st.container(horizontal=True, vertical_alignment="bottom"):
                    for name in own:
                        _field(name)


def _field(name: str) -> None:
    """The widget of one option, by its kind."""
    o, default = OPTIONS[name], getattr(state.DEFAULTS, name)
    if o.kind == "choice":
        st.selectbox(**_named(name), options=o.choices if default else (state.AUTO, *o.choices), bind="query-params", width=150)
    elif o.kind == "flag":
        st.checkbox(**_named(name), value=default, bind="query-params")
    else:
        _number(name, width=150)


def _which() -> None:
    """Says which config is planned where it is not the model field's, and shows the uploads as one table, errors in their place."""
    s = st.session_state
    uploads: dict[str, source.Upload] = s["_uploads"]
    if uploads:
        _uploads(uploads)
    if s["_own"] is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        upload = uploads.get(s["_own"])
        code = "paste" if upload is None else "saved" if upload.saved else "upload"
        st.info(render(f"page.using.{code}", {"name": errors.plain(upload.name) if upload else ""}), width="stretch")
        st.button(render("page.back"), on_click=source.leave_own, key="leave_own")


def _uploads(uploads: dict[str, source.Upload]) -> None:
    s = st.session_state
    if len(uploads) == 1:
        upload = next(iter(uploads.values()))
        if upload.error:
            errors.show(upload.error)
        elif upload.saved:
            st.info(render("page.saved_taken", {"name": errors.plain(upload.name)}))
    else:
        st.caption(render("page.files", {"good": sum(u.loaded is not None for u in uploads.values()), "count": len(uploads)}))
        with errors.shown(stop=False):
            rows = tables.upload_rows(uploads.values(), state.scenario("upload"))
            tables.show(rows, key="upload_table")
            st.download_button(render("page.files.csv"), data=language.kept(partial(tables.as_csv, rows)), file_name="kv-files.csv", mime="text/csv",
                               on_click="ignore", key="upload_csv", icon=":material/download:")  # fmt: skip
    good = [i for i, u in uploads.items() if u.loaded]
    if len(good) > 1 or (good and s["_own"] not in good):
        s["file_choice"] = s["_own"] if s["_own"] in good else None
        st.selectbox(render("page.choice"), good, index=None, key="file_choice", format_func=lambda i: uploads[i].name if i in uploads else "",
                     on_change=source.chosen_file, help=render("page.choice.help"), width=420)  # fmt: skip


def _named(name: str) -> dict[str, Any]:
    return {"label": render(f"input.{name}"), "help": render(f"input.{name}.help"), "key": name}


def _text_choice(name: str, options: tuple[str, ...], **more: Any) -> None:
    """A list with search that also takes any text; what is typed is checked in Python."""
    default = options.index(getattr(state.DEFAULTS, name))
    typed = st.session_state.get(name) or st.query_params.get(name)
    if typed and typed not in options:
        options = (*options, typed)
    st.selectbox(**_named(name), options=options, index=default, accept_new_options=True, bind="query-params", **more)


def _number(name: str, **more: Any) -> None:
    o = OPTIONS[name]
    st.number_input(**_named(name), min_value=int(o.low), max_value=int(o.high), value=getattr(state.DEFAULTS, name), bind="query-params", **more)

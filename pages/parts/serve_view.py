"""The Serve page's inputs, cards and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from pages.parts import state
from pages.parts.tables import Listing
from planner.capacity import CapacityPlan
from planner.latency import Latency, lengths
from planner.messages import render
from planner.scenario import OPTIONS, Scenario
from planner.throughput import BatchLimit, Degree
from planner.units import count, milliseconds, percent, seconds

EVEN = 0.1  # static and continuous batches differ by less: neither gains
FIELDS = ("prompt", "output", "target_itl", "target_ttft")


def inputs(s: Scenario) -> None:
    """Lengths and targets, in tokens and ms. A mix of lengths, where there is one, gives the lengths."""
    prompt, output, _ = lengths(s)
    shown = {
        "prompt": prompt,
        "output": output,
        "target_itl": s.target_itl and milliseconds(s.target_itl),
        "target_ttft": s.target_ttft and milliseconds(s.target_ttft),
    }
    with st.container(horizontal=True, vertical_alignment="bottom", key="serve_inputs"):
        for name in FIELDS:
            st.session_state[f"serve_{name}"] = shown[name]
            whole = name in ("prompt", "output")
            tokens = {"min_value": 1, "max_value": int(OPTIONS[name].high), "step": 128}
            limits: dict[str, Any] = tokens if whole else {"min_value": 0.01, "step": 5.0, "value": None}
            st.number_input(render(f"page.serve.{name}"), key=f"serve_{name}", on_change=_taken, help=render(f"page.serve.{name}.help"),
                            disabled=whole and bool(s.lengths), width=170, **limits)  # fmt: skip
        st.session_state["serve_prefill_policy"] = s.prefill_policy or state.AUTO
        st.selectbox(render("page.serve.prefill_policy"), (state.AUTO, *OPTIONS["prefill_policy"].choices), key="serve_prefill_policy", on_change=_taken,
                     help=render("page.serve.prefill_policy.help"), width=140)  # fmt: skip


def _taken() -> None:
    """What was typed becomes the scenario's, and with it the address's."""
    values = {name: st.session_state[f"serve_{name}"] for name in FIELDS}
    targets: dict[str, Any] = {name: values[name] and round(values[name] / 1e3, 9) for name in state.TARGETS}
    policy = st.session_state["serve_prefill_policy"]
    targets["prefill_policy"] = None if policy == state.AUTO else policy
    if st.session_state["serve_prompt"] is None or st.session_state["serve_output"] is None or state.lengths():
        state.take(targets)
        return
    prompt, output = int(values["prompt"]), int(values["output"])
    state.take({"prompt": prompt, "output": output, "tokens": prompt + output, **targets})


def cards(p: CapacityPlan, now: Latency, limit: BatchLimit) -> None:
    """The answer in one line: first token, next tokens, all tokens, how many at once."""
    with st.container(horizontal=True, gap="small", key="serve_cards"):
        for code, value, bounds in (("ttft", now.ttft_s, now.ttft_range_s), ("itl", now.itl_s, now.itl_range_s)):
            low, high = (seconds(x) for x in bounds)
            _card(
                code,
                seconds(value),
                {"low": low, "high": high},
                {"prompt": count(now.prompt_tokens), "output": count(now.output_tokens), "sequences": count(now.sequences)},
            )
        _card("rate", count(now.output_tokens_per_s), {"replicas": p.replicas}, {"sequences": count(now.sequences)})
        _card("bound", render(f"page.serve.part.{now.bound}"), {"share": percent(now.parts_s[now.bound] / now.itl_s)}, {}, width=250)
        _card("batch", count(limit.best), {"binding": render(f"page.serve.binds.{limit.binding}")}, {"margin": limit.margin})


def _card(code: str, value: str, delta: dict[str, Any], help_: dict[str, Any], width: int = 196) -> None:
    st.metric(render(f"page.serve.card.{code}"), value, render(f"page.serve.card.{code}.delta", delta), delta_color="gray", delta_arrow="off",
              help=render(f"page.serve.card.{code}.help", help_), border=True, width=width, height="stretch")  # type: ignore[arg-type]  # fmt: skip


def limit_rows(limit: BatchLimit) -> Listing:
    """Each limit, what sets it, and whether it binds."""
    rows = []
    for name, value, target in (("memory", limit.memory, None), ("itl", limit.itl, limit.target_itl_s), ("ttft", limit.ttft, limit.target_ttft_s),
                                ("engine", limit.engine, None)):  # fmt: skip
        rows.append({"limit": render(f"page.serve.limit.{name}"), "most": "-" if value is None else count(value), "target": seconds(target) if target else "-",
                     "binds": render(f"page.serve.binds.{'yes' if name == limit.binding else 'no'}")})  # fmt: skip
    return Listing(columns=("limit", "most", "target", "binds"), rows=tuple(rows))


def part_rows(now: Latency) -> Listing:
    rows = tuple(
        {"part": render(f"page.serve.part.{name}"), "time": seconds(value) if value else "-", "share": percent(value / now.itl_s)}
        for name, value in sorted(now.parts_s.items(), key=lambda item: -item[1])
    )
    return Listing(columns=("part", "time", "share"), rows=rows)


def chunk_rows(limit: BatchLimit) -> Listing:
    rows = tuple(
        {"chunk": render(f"page.serve.chunk.{'own' if c['chosen'] else 'other'}", {"tokens": count(c["chunk"])}), "itl": seconds(c["itl_s"]),
         "p99": seconds(c["itl_p99_s"]), "ttft": seconds(c["ttft_s"]), "steps": percent(c["share_of_steps"])}
        for c in limit.chunks
    )  # fmt: skip
    return Listing(columns=("chunk", "itl", "p99", "ttft", "steps"), rows=rows)


def degree_rows(degrees: Iterable[Degree]) -> Listing:
    rows = tuple(_degree(d.to_json()) for d in degrees)
    return Listing(columns=("tp", "most", "binding", "itl", "ttft", "rate", "rate_gpu"), rows=rows)


def plain_parallelism(p: CapacityPlan) -> bool:
    """Whether the plan is spread by tensor degree and stages alone, as the other degrees are."""
    s = p.setting.parallel
    return s.attention_data == s.expert == s.context == 1


def _degree(d: Mapping[str, Any]) -> dict[str, str]:
    none = not d["best"]
    return {"tp": count(d["tp"]), "most": count(d["best"]), "binding": render(f"page.serve.limit.{d['binding']}"), "itl": "-" if none else seconds(d["itl_s"]),
            "ttft": "-" if none else seconds(d["ttft_s"]), "rate": "-" if none else count(d["output_tokens_per_s"]),
            "rate_gpu": "-" if none else count(d["output_tokens_per_s_per_gpu"])}  # fmt: skip


def how(p: CapacityPlan, now: Latency, limit: BatchLimit) -> None:
    st.subheader(render("page.serve.how"), anchor=False)
    with st.container(border=True):
        st.text(render("page.serve.how.text", {"step": seconds(now.step_s), "others": seconds(now.parts_s["prefill"]), "itl": seconds(now.itl_s),
                                               "sequences": count(now.sequences), "output": count(now.output_tokens),
                                               "floor": seconds(now.floor_s)}))  # fmt: skip
        if limit.static and abs(limit.static["gain"] - 1) <= EVEN:
            st.caption(render("page.serve.static.even", {"static": count(limit.static["output_tokens_per_s"]), "sequences": count(limit.best),
                                                         "continuous": count(limit.static["continuous_tokens_per_s"]),
                                                         "ratio": f"{limit.static['longest_over_mean']:.2f}"}))  # fmt: skip
        elif limit.static:
            args = {"static": count(limit.static["output_tokens_per_s"]), "continuous": count(limit.static["continuous_tokens_per_s"]),
                    "gain": f"{limit.static['gain']:.2f}", "ratio": f"{limit.static['longest_over_mean']:.2f}", "sequences": count(limit.best)}  # fmt: skip
            st.caption(render("page.serve.static", args))
        st.caption(
            render(
                f"page.serve.source.{'measured' if now.measured else 'elsewhere'}", {"gpu": p.hardware.name if p.hardware else "-", "engine": p.setting.engine}
            )
        )

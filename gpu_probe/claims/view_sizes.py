"""Charts on bytes alone: blocks against reservation, shared prefixes, element types, and the example of Llama-2-13B."""

from __future__ import annotations

from collections.abc import Callable

from gpu_probe.claims.view import Part, Series, View, heads, times
from planner.messages import render
from planner.units import GIB, MIB, count, gib, percent

LLAMA_CLAIM_BYTES = 4e9
"""C20: "about 4 GB at 4,000 tokens"."""


def paged(part: Part) -> View:
    n = part("paged")
    size = {name: n.number(f"{name}_bytes", positive=True) for name in ("stored", "paged", "contiguous")}
    waste = {name: 1 - size["stored"] / size[name] for name in size}
    lengths = n.numbers("lengths", positive=True)
    said = {"requests": len(lengths), "paged": percent(waste["paged"]), "contiguous": percent(waste["contiguous"])}
    return View(
        name="paged", title=render("view.paged.title", said), x=render("view.axis.way"), y=render("view.axis.mib"),
        at=tuple(render(f"view.paged.{name}") for name in size),
        series=(Series(name=render("view.counted"), role="cache", values=tuple(b / MIB for b in size.values())),),
        columns=heads("way", "bytes", "empty"), rows=tuple((render(f"view.paged.{name}"), count(b), percent(waste[name])) for name, b in size.items()),
    )  # fmt: skip


def prefix(part: Part) -> View:
    n = part("prefix")
    size = {name: n.number(f"{name}_bytes", positive=True) for name in ("shared", "apart")}
    said = {name: count(n.number(f"{name}", positive=True)) for name in ("sequences", "prefix_tokens", "own_tokens")}
    return View(
        name="prefix", title=render("view.prefix.title", {**said, "ratio": times(size["apart"] / size["shared"])}),
        x=render("view.axis.way"), y=render("view.axis.mib"), at=tuple(render(f"view.prefix.{name}") for name in size),
        series=(Series(name=render("view.counted"), role="cache", values=tuple(b / MIB for b in size.values())),),
        columns=heads("way", "bytes"), rows=tuple((render(f"view.prefix.{name}"), count(b)) for name, b in size.items()),
    )  # fmt: skip


def kv_dtype(part: Part) -> View:
    n = part("kv_dtype")
    tokens, held, expected = n.number("tokens", positive=True), n.part("bytes"), n.part("expected_bytes")
    size = {name: held.number(name, positive=True) for name in held.names()}
    formula = {name: expected.number(name, positive=True) for name in size}
    base = held.number("bf16", positive=True)
    listed = ", ".join(render("view.kv_dtype.one", {"name": name, "times": times(b / base)}) for name, b in size.items() if name != "bf16")
    return View(
        name="kv_dtype", title=render("view.kv_dtype.title", {"listed": listed}), x=render("view.axis.kv_dtype"), y=render("view.axis.token_bytes"),
        at=tuple(size),
        series=(Series(name=render("view.counted"), role="cache", values=tuple(b / tokens for b in size.values())),
                Series(name=render("view.formula"), role="other", form="points", values=tuple(b / tokens for b in formula.values()))),
        columns=heads("kv_dtype", "bytes", "formula", "of_bf16"),
        rows=tuple((name, count(b), count(formula[name]), times(b / base)) for name, b in size.items()),
    )  # fmt: skip


def llama_size(part: Part) -> View:
    n = part("llama_size")
    each, tokens = n.number("bytes_per_token", positive=True), n.number("tokens", positive=True)
    size = {"cache": n.number("bytes", positive=True), "weights": n.number("weight_bytes", positive=True)}
    said = {"each": count(each), "tokens": count(tokens), "size": gib(size["cache"]), "weights": gib(size["weights"])}
    return View(
        name="llama_size", title=render("view.llama_size.title", said), x=render("view.axis.part"), y=render("view.axis.gib"),
        at=tuple(render(f"view.llama_size.{name}", {"tokens": count(tokens)}) for name in size),
        series=(Series(name=render("view.counted"), role="cache", values=tuple(b / GIB for b in size.values())),),
        references=((render("view.llama_size.claim"), LLAMA_CLAIM_BYTES / GIB),), columns=heads("part", "bytes", "of_weights"),
        rows=tuple((render(f"view.llama_size.{name}", {"tokens": count(tokens)}), count(b), percent(b / size["weights"])) for name, b in size.items()),
    )  # fmt: skip


VIEWS: dict[str, Callable[[Part], View]] = {"paged": paged, "prefix": prefix, "kv_dtype": kv_dtype, "llama_size": llama_size}

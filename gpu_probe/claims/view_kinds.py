"""Charts on the kinds of attention: bytes and ITL side by side, MQA's reported gains, absorbed against expanded MLA, and ranks."""

from __future__ import annotations

from collections.abc import Callable

from gpu_probe.claims.numbers import Numbers
from gpu_probe.claims.view import Part, Series, View, heads, ms, times
from planner.errors import NotAConfig
from planner.messages import render
from planner.units import MIB, count, memory

MODES = (("mla", "tp", "weights"), ("mla", "dp", "cache"), ("gqa", "tp", "third"), ("mqa", "tp", "other"))
"""Attention, way of splitting, role in the chart."""


def _by_kind(n: Numbers) -> dict[str, Numbers]:
    rows = {r.text("kind"): r for r in n.parts("rows")}
    if "MHA" not in rows:
        raise NotAConfig("result_unreadable", field=f"{n.where}.rows")
    return rows


def kinds_bytes(part: Part) -> View:
    """Bytes of the same tokens in each kind of cache, counted and by the articles' formulas."""
    n = part("kinds_bytes")
    rows = _by_kind(n)
    held = {kind: r.number("bytes", positive=True) for kind, r in rows.items()}
    expected = {kind: r.number("expected_bytes", positive=True) for kind, r in rows.items()}
    less = {kind: held["MHA"] / size for kind, size in held.items()}
    listed = ", ".join(render("view.kinds_bytes.one", {"kind": kind, "times": times(x)}) for kind, x in less.items() if kind != "MHA")
    return View(
        name="kinds_bytes", title=render("view.kinds_bytes.title", {"listed": listed}), x=render("view.axis.kind"), y=render("view.axis.mib"), at=tuple(held),
        series=(Series(name=render("view.counted"), role="cache", values=tuple(size / MIB for size in held.values())),
                Series(name=render("view.formula"), role="other", form="points", values=tuple(size / MIB for size in expected.values()))),
        columns=heads("kind", "bytes", "formula", "less"),
        rows=tuple((kind, count(held[kind]), count(expected[kind]), times(less[kind])) for kind in held),
    )  # fmt: skip


def kinds_itl(part: Part) -> View:
    """ITL of each kind; across, what MQA is reported to reach."""
    rows = _by_kind(part("gqa_speed"))
    itl = {kind: r.number("itl_s", positive=True) for kind, r in rows.items()}
    faster = {kind: r.number("mha_over_this", positive=True) for kind, r in rows.items()}
    n = part("mqa_latency")
    ratio, claimed = n.number("mqa_over_mha", positive=True), n.number("claimed", positive=True)
    said = {"percent": f"{100 * abs(1 - ratio):.0f}", "claimed": f"{100 * (1 - claimed):.0f}"}
    return View(
        name="kinds_itl", title=render("view.kinds_itl.title.lower" if ratio <= 1 else "view.kinds_itl.title.higher", said),
        x=render("view.axis.kind"), y=render("view.axis.ms_step"), at=tuple(itl),
        series=(Series(name=render("view.measured"), role="cache", values=tuple(1000 * s for s in itl.values())),),
        references=((render("view.kinds_itl.claim", said), 1000 * claimed * itl["MHA"]),), columns=heads("kind", "itl_ms", "faster"),
        rows=tuple((kind, ms(s), times(faster[kind])) for kind, s in itl.items()),
    )  # fmt: skip


def mqa_throughput(part: Part) -> View:
    """Tokens a second out of the same bytes of cache; across, the largest gain that is reported."""
    n = part("mqa_throughput")
    rate = {kind: n.number(f"{kind}_tokens_per_s", positive=True) for kind in ("mha", "mqa")}
    sequences = {kind: n.number(f"{kind}_sequences", positive=True) for kind in rate}
    claimed, ratio = n.number("claimed_up_to", positive=True), n.number("ratio", positive=True)
    said = {"ratio": times(ratio), "claimed": times(claimed)}
    return View(
        name="mqa_throughput", title=render("view.mqa_throughput.title", {**said, "sequences": count(sequences["mqa"])}),
        x=render("view.axis.kind"), y=render("view.axis.rate"),
        at=tuple(render("view.mqa_throughput.bar", {"kind": kind.upper(), "sequences": count(sequences[kind])}) for kind in rate),
        series=(Series(name=render("view.measured"), role="cache", values=tuple(rate.values())),),
        references=((render("view.mqa_throughput.claim", said), claimed * rate["mha"]),), columns=heads("kind", "sequences", "rate"),
        rows=tuple((kind.upper(), count(sequences[kind]), f"{value:,.1f}") for kind, value in rate.items()),
    )  # fmt: skip


def absorbed(part: Part) -> View:
    n = part("absorbed")
    seconds = {way: n.number(f"{way}_s", positive=True) for way in ("absorbed", "expanded")}
    size = {"absorbed": n.number("kv_bytes", positive=True), "expanded": n.number("expanded_bytes", positive=True)}
    said = {"ratio": times(n.number("ratio", positive=True)), "error": f"{n.number('max_rel_error'):.0e}", "tokens": count(n.number("tokens", positive=True))}
    return View(
        name="absorbed", title=render("view.absorbed.title", said), x=render("view.axis.way"), y=render("view.axis.ms_layer"),
        at=tuple(render(f"view.absorbed.{way}") for way in seconds),
        series=(Series(name=render("view.measured"), role="cache", values=tuple(1000 * s for s in seconds.values())),),
        columns=heads("way", "ms", "bytes_read"), rows=tuple((render(f"view.absorbed.{way}"), ms(s), count(size[way])) for way, s in seconds.items()),
    )  # fmt: skip


def ranks(part: Part) -> View:
    """Bytes on all ranks together by those of one rank alone."""
    n = part("ranks")
    found = {(r.text("attention"), r.text("mode"), r.number("ranks", positive=True)): r for r in n.parts("rows")}
    counts = sorted({key[2] for key in found})
    copies = {key: r.number("over_single", positive=True) for key, r in found.items()}
    shown = [(a, mode, role) for a, mode, role in MODES if all((a, mode, c) in found for c in counts)]
    most = counts[-1]
    if ("mla", "tp", most) not in copies or ("mla", "dp", most) not in copies:
        raise NotAConfig("result_unreadable", field=f"{n.where}.rows")
    series = tuple(Series(name=render(f"view.ranks.{a}.{mode}"), role=role, values=(1.0, *(copies[a, mode, c] for c in counts))) for a, mode, role in shown)
    rows = []
    for a, mode, _ in shown:
        single = found[a, mode, counts[0]].number("single_bytes", positive=True)
        everywhere = [sum(found[a, mode, c].numbers("measured", positive=True)) for c in counts]
        cells = [(1.0, single), *zip((copies[a, mode, c] for c in counts), everywhere, strict=True)]
        rows.append((render(f"view.ranks.{a}.{mode}"), *(render("view.ranks.cell", {"copies": times(x), "bytes": memory(size)}) for x, size in cells)))
    heading = [render("view.ranks.head", {"ranks": c}) for c in ("1", *map(count, counts))]
    said = {"ranks": count(most), "tp": times(copies["mla", "tp", most]), "dp": times(copies["mla", "dp", most])}
    return View(
        name="ranks", title=render("view.ranks.title", said), x=render("view.axis.ranks"), y=render("view.axis.copies"),
        at=("1", *(count(c) for c in counts)), series=series, columns=(*heads("split"), *heading),
        rows=tuple(rows),
    )  # fmt: skip


VIEWS: dict[str, Callable[[Part], View]] = {
    "kinds_bytes": kinds_bytes,
    "kinds_itl": kinds_itl,
    "mqa_throughput": mqa_throughput,
    "absorbed": absorbed,
    "ranks": ranks,
}

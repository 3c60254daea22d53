"""Charts on time: with against without a cache, doubling the prompt, the two phases, and what a step is spent on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import mean

from gpu_probe.claims.view import Part, Series, View, heads, ms, times
from planner.errors import NotAConfig
from planner.messages import render
from planner.units import count, percent


def cache(part: Part) -> View:
    """Milliseconds a token over the context, both ways, and a straight line of the fitted slope through each."""
    n = part("cache")
    at = n.numbers("contexts", positive=True)
    found = {way: n.numbers(f"{way}_s", positive=True, length=len(at)) for way in ("with", "without")}
    slopes = {way: n.number(f"slope_{way}_s_per_token") for way in found}
    held = n.numbers("kv_bytes", positive=True, length=len(at))
    series = []
    for way, role in (("with", "cache"), ("without", "other")):
        series.append(Series(name=render(f"view.cache.{way}"), role=role, form="line", values=tuple(1000 * s for s in found[way])))
        line = tuple(1000 * (mean(found[way]) + slopes[way] * (x - mean(at))) for x in at)
        series.append(Series(name=render(f"view.cache.{way}.slope"), role=role, form="trend", values=line))
    rows = [(count(x), ms(a), ms(b), count(size)) for x, a, b, size in zip(at, found["with"], found["without"], held, strict=True)]
    rows.append((render("view.cache.slopes"), *(times(1e6 * slopes[way]) for way in ("with", "without")), ""))
    grown = {f"{way}_growth": times(n.number(f"growth_{way}", positive=True)) for way in found}
    return View(
        name="cache", title=render("view.cache.title", {"first": count(at[0]), "last": count(at[-1]), **grown}),
        x=render("view.axis.context"), y=render("view.axis.ms_token"), at=tuple(at), series=tuple(series),
        columns=heads("context", "with_ms", "without_ms", "kv_bytes"), rows=tuple(rows),
    )  # fmt: skip


def prompt(part: Part) -> View:
    """By how much each doubling of the prompt multiplies the score work, the time in attention and the whole prefill."""
    n = part("prompt")
    at = n.numbers("prompts", positive=True)
    if len(at) < 2:
        raise NotAConfig("result_unreadable", field=f"{n.where}.prompts")
    steps = list(pairwise(at))
    work, whole, inner = (n.numbers(name, positive=True, length=len(at)) for name in ("score_products", "prefill_s", "attention_s"))
    ratio = {"scores": [b / a for a, b in pairwise(work)]}
    ratio |= {name: n.numbers(f"{name}_ratio", positive=True, length=len(steps)) for name in ("attention", "prefill")}
    roles = {"scores": "other", "attention": "cache", "prefill": "weights"}
    series = tuple(Series(name=render(f"view.prompt.{name}"), role=role, values=tuple(ratio[name])) for name, role in roles.items())
    said = {"before": count(steps[-1][0]), "last": count(steps[-1][1]), **{name: times(values[-1]) for name, values in ratio.items()}}
    return View(
        name="prompt", title=render("view.prompt.title", said),
        x=render("view.axis.prompt"), y=render("view.axis.times"), at=tuple(f"{count(a)} → {count(b)}" for a, b in steps), series=series,
        references=((render("view.prompt.claim"), 4.0),), columns=heads("prompt", "scores", "attention_ms", "prefill_ms"),
        rows=tuple((count(x), count(w), ms(a), ms(p)) for x, w, a, p in zip(at, work, inner, whole, strict=True)),
    )  # fmt: skip


def phases(part: Part) -> View:
    """Which share of each ceiling prefill and decode reach."""
    n = part("phases")
    share = {(phase, of): n.number(f"{phase}_of_{of}", positive=True) for phase in ("prefill", "decode") for of in ("matmul", "read")}
    series = tuple(
        Series(name=render(f"view.phases.{of}"), role=role, values=tuple(100 * share[phase, of] for phase in ("prefill", "decode")))
        for of, role in (("matmul", "weights"), ("read", "cache"))
    )
    seconds = {"prefill": n.number("ttft_s", positive=True), "decode": n.number("itl_s", positive=True)}
    rows = tuple((render(f"view.phases.{p}"), ms(s), percent(share[p, "matmul"]), percent(share[p, "read"])) for p, s in seconds.items())
    shown = {f"{phase}_{of}": percent(value) for (phase, of), value in share.items()}
    return View(
        name="phases", title=render("view.phases.title", shown), x=render("view.axis.phase"), y=render("view.axis.ceiling"),
        at=tuple(render(f"view.phases.{p}") for p in seconds), series=series, columns=heads("phase", "ms", "of_matmul", "of_read"), rows=rows,
    )  # fmt: skip


def itl(part: Part) -> View:
    """The fitted parts of a step on each other, and the step that was measured: what does not grow (reading the weights is in it), what each
    sequence adds, and what each cached token adds (reading KV)."""
    n = part("itl")
    fit = {name: n.number(name) for name in ("fixed_s", "per_sequence_s", "per_token_s")}
    points = [(p.number("batch", positive=True), p.number("context", positive=True), p.number("itl_s", positive=True), p.number("kv_bytes", positive=True))
              for p in n.parts("points")]  # fmt: skip
    split = [(fit["fixed_s"], fit["per_sequence_s"] * b, fit["per_token_s"] * b * c) for b, c, _, _ in points]
    names = ("fixed", "sequence", "token")
    series = [
        Series(name=render(f"view.itl.{name}"), role=role, values=tuple(1000 * parts[i] for parts in split))
        for i, (name, role) in enumerate(zip(names, ("weights", "third", "cache"), strict=True))
    ]
    series.append(Series(name=render("view.itl.measured"), role="other", form="points", values=tuple(1000 * p[2] for p in points)))
    shares = [parts[2] / sum(parts) if sum(parts) else 0.0 for parts in split]
    said = {when: percent(shares[i]) for i, when in ((0, "first_share"), (-1, "last_share"))}
    for i, when in ((0, "first"), (-1, "last")):
        said |= {f"{when}_batch": count(points[i][0]), f"{when}_context": count(points[i][1])}
    rows = tuple((count(b), count(c), ms(s), *(ms(x) for x in parts), count(size)) for (b, c, s, size), parts in zip(points, split, strict=True))
    fitted = (render("view.itl.fit"), "", "", ms(fit["fixed_s"]), ms(fit["per_sequence_s"]), ms(fit["per_token_s"]), "")
    return View(
        name="itl", title=render("view.itl.title", said), x=render("view.axis.batch_context"), y=render("view.axis.ms_step"),
        at=tuple(f"{count(b)} x {count(c)}" for b, c, _, _ in points), series=tuple(series), stacked=True,
        columns=heads("batch", "context", "itl_ms", "fixed_ms", "sequence_ms", "token_ms", "kv_bytes"), rows=(*rows, fitted),
    )  # fmt: skip


VIEWS: dict[str, Callable[[Part], View]] = {"cache": cache, "prompt": prompt, "phases": phases, "itl": itl}

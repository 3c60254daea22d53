"""Prefill and decode, and the five steps of the cache between them (claims C1 to C6, C19)."""

from __future__ import annotations

from typing import Any

from planner.cache import State, last
from planner.heatmap import powers
from planner.learn import Chart, Figures, Lesson
from planner.learn.words import columns, exactly, row, said, times, work
from planner.messages import render
from planner.scenario import MAX_TOKENS
from planner.units import count, memory, seconds

SHORTEST = 512


def phases(f: Figures) -> Lesson:
    """What a prefill of one prompt and a decode step of one sequence do, and what a step of all sequences reads."""
    w, n, tokens, sequences = f.work, f.prompt, f.scenario.tokens, f.scenario.sequences
    linear, attention = float(w.linear_flops(n)), float(w.attention_flops(n))
    more = float(w.attention_flops(2 * n))
    whole = linear + attention
    pairs = max((int(a.pairs(n)) for a in w.attends), default=0)
    seen = max((int(a.rows(tokens)) for a in w.attends), default=0)
    read, weights = int(w.cache_bytes_read(tokens)), float(w.weight_bytes_read(1))
    args: dict[str, Any] = {
        "prompt": n, "layers": len(f.model.layers), "rows": f.rows_layers, "made": render(f"learn.made.{'latent' if f.latent else 'rows'}"),
        "kept": memory(f.kept(n)), "pairs": pairs, "attention_share": f"{100 * attention / whole:.1f}",
        "attention_ratio": times(more, attention), "whole_ratio": times(float(w.linear_flops(2 * n)) + more, whole),
    }  # fmt: skip
    step = {"sequences": sequences, "weights": memory(float(w.weight_bytes_read(sequences))), "cache": memory(sequences * read), "tokens": tokens}
    rows = [
        row("tokens", count(n), count(1)),
        row("weights_read", exactly(int(w.weight_bytes_read(n))), exactly(int(weights))),
        row("cache_written", exactly(f.kept(n)), exactly(f.token_bytes)),
        row("cache_read.state" if f.has_state else "cache_read", "-", exactly(read)),
        row("pairs", count(pairs), count(seen)),
        row("flop", work(whole), work(float(w.decode_flops(1, tokens)))),
        row("flop_a_byte", times(whole, float(w.weight_bytes_read(n))), times(float(w.decode_flops(1, tokens)), weights + read)),
    ]
    if f.latency is not None:
        low, high = f.latency.ttft_range_s, f.latency.itl_range_s
        rows.append(row("time", *(render("learn.range", {"value": seconds(v), "low": seconds(a), "high": seconds(b)})
                                  for v, (a, b) in ((f.latency.ttft_s, low), (f.latency.itl_s, high)))))  # fmt: skip
    windows = [int(a.limit) for a in w.attends if a.limit is not None]
    args |= {"full": sum(a.layers for a in w.attends if a.limit is None), "attending": sum(a.layers for a in w.attends), "window": max(windows, default=0)}
    attends = "phases.prefill.state" if not w.attends else "phases.prefill.window" if windows else "phases.prefill"
    reads = "phases.decode.state" if f.has_state else "phases.decode"
    return Lesson(code="phases", texts=(said(attends, args), said(reads, step)), columns=columns("what", "prefill", "decode"), rows=tuple(rows),
                  chart=_reads(f), measured=_measured(f))  # fmt: skip


def _reads(f: Figures) -> Chart:
    """Bytes that a step of all sequences reads, over the tokens that each holds: weights stay, the cache grows."""
    sequences = f.scenario.sequences
    limit = min(MAX_TOKENS, max(f.model.max_context_tokens or 0, f.scenario.tokens, 4 * SHORTEST))
    weights = float(f.work.weight_bytes_read(sequences))

    def cache(tokens: int) -> int:
        return sequences * int(f.work.cache_bytes_read(tokens))

    x = powers(SHORTEST, limit)
    even = last(limit, lambda t: cache(t) <= weights)
    name = "phases.chart.never" if even >= limit else "phases.chart.always" if not even else "phases.chart"
    return Chart(kind="lines", title=said(name, {"tokens": even + 1, "sequences": sequences, "limit": limit}), x_title=render("learn.axis.tokens"), x=x,
                 series=((render("learn.series.weights"), "weights", tuple(weights for _ in x)),
                         (render("learn.series.cache"), "kv_rows", tuple(float(cache(t)) for t in x))))  # fmt: skip


def _measured(f: Figures) -> tuple[tuple[str, str], ...]:
    if not f.probe:
        return ()
    p = f.probe
    return (
        (render("learn.measured.ttft"), seconds(p["ttft_s"])),
        (render("learn.measured.itl"), seconds(p["itl_s"]["p50"])),
        (render("learn.measured.prefill_rate"), f"{p['prefill_tokens_per_s']:,.0f}"),
        (render("learn.measured.decode_rate"), f"{p['decode_tokens_per_s']:,.0f}"),
    )


def steps(f: Figures) -> Lesson:
    """The five steps, with this model's counts; what is never cached; what there would be to do without a cache. A model of states alone has
    no such steps."""
    n, tokens, a = f.prompt, f.scenario.tokens, f.attention
    q_heads = a.q_heads if a else 0
    layers = f.attention_layers
    seen = sum(x.layers * int(x.rows(tokens)) for x in f.work.attends)
    scores = q_heads * seen
    own = f.token_bytes
    q = q_heads * a.qk_dim if a else 0
    kv = max((k.heads * (k.k_dim + k.v_dim) for layer in f.model.layers for k in layer.caches if not isinstance(k, State)), default=0)
    again, once = float(f.work.prefill_flops(tokens)), float(f.work.decode_flops(1, tokens))
    read = int(f.work.cache_bytes_read(tokens))
    windowed = any(a.limit for a in f.work.attends)
    rows = (
        (render("learn.step.make"), said("step.make.text", {"prompt": n, "layers": f.rows_layers, "elements": kv})),
        (render("learn.step.store"), said("step.store.text", {"kept": exactly(f.kept(n)), "grown": own, "kv_dtype": f.kv.name})),
        (render("learn.step.new"), said("step.new.text", {"q": q, "kv": kv, "layers": layers})),
        (render("learn.step.append"), said("step.append.window" if windowed else "step.append.text", {"own": own, "before": tokens - 1, "tokens": tokens})),
        (render("learn.step.score"), said("step.score.text", {"scores": scores, "q_heads": q_heads, "read": exactly(read)})),
    )
    element = f.own.nbytes(1)
    args = {"scores": exactly(scores * element), "q": exactly(q * layers * element), "own": exactly(own), "ratio": times(again, once), "again": work(again),
            "once": work(once), "tokens": tokens, "stored": exactly(f.kept(tokens)), "read": exactly(read), "output": f.output}  # fmt: skip
    if not any(not isinstance(k, State) for layer in f.model.layers for k in layer.caches):
        return Lesson(code="steps", texts=(said("steps.state", args),), measured=_counted(f))
    code = "steps.never" if a else "steps.never.state"
    texts = (said("steps.about", args), said(code, args), said("steps.without.state" if f.has_state else "steps.without", args))
    return Lesson(code="steps", texts=texts, columns=columns("step", "this"), rows=rows, words=True, measured=_counted(f))


def _counted(f: Figures) -> tuple[tuple[str, str], ...]:
    if not f.probe:
        return ()
    layers = {"run": count(f.probe["layers_run"]), "total": count(f.probe["layers_total"])}
    return (
        (render("learn.measured.predicted", layers), exactly(f.probe["predicted_kv_bytes"])),
        (render("learn.measured.counted", layers), exactly(f.probe["measured_kv_bytes"])),
    )

"""How good the times are: docs/latency.md from the measured rows of the corpus.

python -m tests.latency_table          writes it; a test fails where its figures no longer hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from planner.latency.load import times
from planner.latency.speeds import FORMS
from planner.scale import First, Scale
from planner.throughput import MARGIN
from tests.conftest import ROOT
from tests.latency_left_out import FREE, left_out
from tests.latency_others import percent, side_by_side
from tests.latency_rows import DENSE, Row, end_to_end, single_streams, within

TARGET = ROOT / "docs" / "latency.md"
TARGETS_S = (0.015, 0.020, 0.030, 0.050)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of some rows. Shares of 1. `bias`: predicted over measured, median."""

    rows: int
    itl_mape: float
    itl_inside: float
    width: float
    bias: float
    ttft_inside: float
    ttft_width: float


def figures(rows: Sequence[Row]) -> Figures:
    itl = [(r.itl_s, r.got.itl_range_s, r.got.itl_s) for r in rows if r.itl_s]
    ttft = [(r.ttft_s, r.got.ttft_range_s) for r in rows if r.ttft_s]
    return Figures(
        rows=len(rows),
        itl_mape=mean(abs(p / t - 1) for t, _, p in itl),
        itl_inside=mean(within(t, bounds) for t, bounds, _ in itl),
        width=median(high / low for _, (low, high), _ in itl),
        bias=median(p / t for t, _, p in itl),
        ttft_inside=mean(within(t, bounds) for t, bounds in ttft),
        ttft_width=median(high / low for _, (low, high) in ttft),
    )


def batches(rows: Iterable[Row], margin: float) -> tuple[int, float, float, float]:
    """(cases, share within one measured step, share too large, share the same): the largest measured batch within a target, by the
    measurement and by the model with its margin."""
    series: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for r in rows:
        series[(r.model, r.gpu, r.engine, r.precision, r.tp, r.prompt, r.output)].append(r)
    near = large = same = cases = 0
    for many in series.values():
        by_batch = {r.sequences: r for r in sorted(many, key=lambda r: r.sequences)}
        steps = list(by_batch.values())
        if len(steps) < 3:
            continue
        for target in TARGETS_S:
            true, got = (sum(1 for _ in _leading(steps, good)) for good in (_measured(target), _predicted(target / margin)))
            if 0 < true < len(steps):
                cases, near, large, same = cases + 1, near + (abs(true - got) <= 1), large + (got > true), same + (got == true)
    return cases, near / cases, large / cases, same / cases


def _leading(steps: Sequence[Row], good: Callable[[Row], bool]) -> Iterable[Row]:
    for r in steps:
        if not good(r):
            return
        yield r


def _measured(target: float) -> Callable[[Row], bool]:
    return lambda r: (r.itl_s or 0) <= target


def _predicted(target: float) -> Callable[[Row], bool]:
    return lambda r: r.got.itl_s <= target


def rivals(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Method -> ITL in seconds of each row: other tools' forms, with our own counts of bytes and FLOPs."""
    return {
        "roofline, no constants (LLM-Viewer's form)": [_bare(r, 1.0, 1.0) for r in rows],
        "shares 0.6 and 0.4, no fixed times (llm-analysis's form)": [_bare(r, 0.6, 0.4) for r in rows],
    }


def _bare(r: Row, of_bytes: float, of_products: float) -> float:
    """The ITL with one share of bandwidth, one of the peak and no fixed time."""
    from planner.hardware import find

    h, v = find(r.gpu), r.own.speeds
    assert h.bandwidth_bytes_per_s
    read, plain = h.bandwidth_bytes_per_s * of_bytes, h.flops_per_s["bf16"] * of_products
    peak = {form: h.flops_per_s.get(form, h.flops_per_s["bf16"]) * of_products for form in FORMS}
    free = dict.fromkeys(("attention_layer_s", "latent_layer_s", "state_layer_s", "mlp_layer_s", "moe_layer_s", "step_s", "prefill_layer_s",
                          "first_layer_s", "serve_s", "request_s", "reduce_s"), 0.0)  # fmt: skip
    bare = replace(v, read=dict.fromkeys(FORMS, read), read_experts=dict.fromkeys(FORMS, read), multiply=peak, multiply_experts=peak, read_cache=read,
                   read_latent=read, read_state=read, attend_prefill=plain, attend_decode=plain, **free)  # fmt: skip
    return float(times(r.own.stages, bare, r.own.at(r.sequences)).itl_s)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Of the rows that were not among a deployment's three measured points: errors with and without its factor, and the range after it."""

    deployments: int
    rows: int
    mean: float
    median: float
    plain_mean: float
    plain_median: float
    inside: float
    width: float


def three_points(rows: Iterable[Row]) -> tuple[Calibrated, Calibrated]:
    """Each deployment (model, device, engine, precision, ranks) calibrated with its lowest, middle and highest load, as planner/calibrate.py does:
    the median of measured over predicted, the residual of the worst of the three. ITL, and TTFT where one factor describes the three."""
    series: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for r in rows:
        series[(r.model, r.gpu, r.engine, r.precision, r.tp)].append(r)
    chosen = [sorted(many, key=lambda r: (r.sequences, r.prompt, r.output)) for many in series.values() if len(many) > 3]
    itl, ttft = ([(many, _spread([(value(r), predicted(r)) for r in (many[i] for i in _points(many))])) for many in chosen] for value, predicted in SIDES)
    return (
        _calibrated([(many, Scale(factor=f, residual=e, points=3, of="points", gpu="g", engine="e", model="m").narrowed, f) for many, (f, e) in itl], 0),
        _calibrated([(many, first.narrowed, first.factor) for many, (f, e) in ttft if (first := First(factor=f, residual=e, points=3)).usable], 1),
    )


SIDES: tuple[tuple[Callable[[Row], float], Callable[[Row], float]], ...] = (
    (lambda r: r.itl_s or 0.0, lambda r: r.got.itl_s),
    (lambda r: r.ttft_s or 0.0, lambda r: r.got.ttft_s),
)
Narrowed = Callable[[tuple[float, float]], tuple[float, float]]


def _points(many: Sequence[Row]) -> tuple[int, int, int]:
    return 0, len(many) // 2, len(many) - 1


def _spread(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    ratios = [true / got for true, got in pairs]
    factor = median(ratios)
    return factor, max(max(x / factor, factor / x) for x in ratios) - 1


def _calibrated(chosen: Sequence[tuple[Sequence[Row], Narrowed, float]], side: int) -> Calibrated:
    value, predicted = SIDES[side]
    errors, plain, inside, widths = [], [], [], []
    for many, narrowed, factor in chosen:
        for r in (r for i, r in enumerate(many) if i not in _points(many)):
            true, got = value(r), factor * predicted(r)
            low, high = _bounds(r, narrowed, factor, side)
            errors.append(abs(got / true - 1))
            plain.append(abs(predicted(r) / true - 1))
            inside.append(within(true, (low, high)))
            widths.append(high / low)
    return Calibrated(deployments=len(chosen), rows=len(errors), mean=mean(errors), median=median(errors), plain_mean=mean(plain), plain_median=median(plain),
                      inside=mean(inside), width=median(widths))  # fmt: skip


def _bounds(r: Row, narrowed: Narrowed, factor: float, side: int) -> tuple[float, float]:
    v, t = r.own.speeds, r.got.itl_s
    if side == 0:
        down, up = narrowed(v.range_itl)
        return factor * t / down, factor * t * up
    found = times(r.own.stages, v, r.own.at(r.sequences))
    low, high = v.range_ttft.changed(narrowed).of(found.ttft_s - found.wait_s, found.wait_s, r.prompt + r.output)
    return factor * float(low), factor * float(high)


def line(name: str, f: Figures) -> str:
    itl = f"{percent(f.itl_mape)} | {f.bias:.2f} | {percent(f.itl_inside)} | {f.width:.2f}"
    return f"| {name} | {f.rows} | {itl} | {percent(f.ttft_inside)} | {f.ttft_width:.2f} |"


LEFT_OUT: tuple[tuple[str, Callable[[Row], str]], ...] = (("family", lambda r: r.model), ("device", lambda r: r.gpu))


def _left_out(rows: Sequence[Row]) -> list[str]:
    out = ["## TTFT with a family or a device left out", "",
           "The constants of the TTFT fitted anew, engine by engine, on all rows but those of one family or one device, then held against "
           "these. Form and ranges stay. This is what to expect of a deployment that is unlike those above. It is less than four in five: versions and flags "
           "of the left-out rows differ from the others as much as their models do.", "",
           "| left out | " + " | ".join(FREE) + " | all |", "|---|" + "---|" * (len(FREE) + 1)]  # fmt: skip
    for kind, key in LEFT_OUT:
        found = left_out(rows, key)
        for name in sorted({name for name, _ in found}):
            cells = [found.get((name, engine)) for engine in FREE]
            out.append(f"| {name} | " + " | ".join(map(_share, [*cells, _sum(c for c in cells if c)])) + " |")
        totals = [_sum(v for (_, e), v in found.items() if e == engine) for engine in FREE]
        out.append(f"| **each {kind} in turn** | " + " | ".join(map(_share, [*totals, _sum(totals)])) + " |")
    return out


def _sum(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    a, b = zip(*parts, strict=True)
    return sum(a), sum(b)


def _share(part: tuple[int, int] | None) -> str:
    return f"{percent(part[0] / part[1])} of {part[1]}" if part else ""


def table(rows: Sequence[Row], streams: Sequence[Row]) -> str:
    families: dict[str, list[Row]] = defaultdict(list)
    for r in rows:
        families[r.model].append(r)
    head = ["| rows | count | ITL error (mean) | predicted / measured (median) | ITL inside the range | ITL high / low | TTFT inside | TTFT high / low |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    out = ["# How good the times are", "", "Written by `python -m tests.latency_table`; a test fails where the figures no longer hold.", "",
           "Measured rows: aggregated serving on one replica of up to eight ranks, from silicon_sample.csv of aiconfigurator-core 0.12.0 "
           "(Apache-2.0), without those that its gatherers flagged. Prompts and outputs are the labels; the true means are 0.9 of them.", "",
           "The constants of `planner/data/efficiency.toml` were fitted on the families marked *fitted*; *held out* ones had no part in it. "
           "Shares that kernels reach are from kernel tables and were not fitted. The form of the model, which constants it has and how wide "
           "its ranges are were settled while all these families were in sight.", "",
           "Rows are of closed loops that send their first requests together, so a TTFT holds the wait of that wave. It is the less certain time: it "
           "hangs on versions and on flags that the rows do not name. So its range has two parts, by engine: what a request takes alone, and what "
           "others add. It is narrow where engines agree with each other (vLLM, and long requests of TensorRT-LLM), wide where they do not "
           "(short ones of TensorRT-LLM, many at once in SGLang). Which requests count as which was settled on these rows, so that the middle "
           "range spans less than a factor of two.", "", "## Families", "", *head]  # fmt: skip
    for name, some in sorted(families.items()):
        out.append(line(f"{name} ({'fitted' if some[0].fitted else 'held out'})", figures(some)))
    for name, chosen in (
        ("dense", [r for r in rows if r.model in DENSE]),
        ("experts", [r for r in rows if r.model not in DENSE]),
        ("all fitted", [r for r in rows if r.fitted]),
        ("all held out", [r for r in rows if not r.fitted]),
        ("all", list(rows)),
    ):
        out.append(line(f"**{name}**", figures(chosen)))
    out += ["", "## By engine", "", *head, *(line(e, figures([r for r in rows if r.engine == e])) for e in sorted({r.engine for r in rows}))]
    out += ["", "## By device", "", *head, *(line(g, figures([r for r in rows if r.gpu == g])) for g in sorted({r.gpu for r in rows}))]
    out += ["", *_left_out(rows), "", "## The batch that keeps an ITL target", "",
            f"Targets of {', '.join(f'{t * 1e3:.0f}' for t in TARGETS_S)} ms over every series of three or more measured batches.", "",
            "| margin | cases | within one measured step | too large | the same |", "|---|---|---|---|---|"]  # fmt: skip
    for margin in (1.0, MARGIN, 1.2):
        cases, near, large, same = batches(rows, margin)
        out.append(f"| {margin:.1f} | {cases} | {percent(near)} | {percent(large)} | {percent(same)} |")
    c, first = three_points(rows)
    out += ["", "## With three measured points", "",
            f"Each of {c.deployments} deployments calibrated with its lowest, middle and highest load (`--calibration`); the {c.rows} other rows. A "
            f"measured TTFT has its own factor. In {first.deployments} of the deployments one factor describes the three of it, with {first.rows} "
            "other rows.", "",
            "| | error (mean) | (median) | inside the range | high / low |", "|---|---|---|---|---|",
            f"| ITL as predicted | {percent(c.plain_mean)} | {percent(c.plain_median)} | | |",
            f"| ITL calibrated | {percent(c.mean)} | {percent(c.median)} | {percent(c.inside)} | {c.width:.2f} |",
            f"| TTFT as predicted | {percent(first.plain_mean)} | {percent(first.plain_median)} | | |",
            f"| TTFT calibrated | {percent(first.mean)} | {percent(first.median)} | {percent(first.inside)} | {first.width:.2f} |"]  # fmt: skip
    inside = [within(r.itl_s or r.ttft_s or 0.0, r.got.itl_range_s if r.itl_s else r.got.ttft_range_s) for r in streams]
    out += ["", "## Single streams", "", "gpt-fast (as vllm) and llama.cpp rows of public benchmark pages, decode and prefill.", "",
            "| rows | inside the range |", "|---|---|"]  # fmt: skip
    for name in ("gpt-fast", "llama.cpp"):
        part = [ok for r, ok in zip(streams, inside, strict=True) if r.engine == name]
        out.append(f"| {name} | {sum(part)} of {len(part)} |")
    ours = {"**KVLedger**": [r.got.itl_s for r in rows]}
    out += ["", *side_by_side(rows, ours | rivals(rows))]
    return "\n".join([*out, ""])


if __name__ == "__main__":
    measured = list(end_to_end())
    TARGET.write_text(table(measured, list(single_streams())))
    print(len(measured), "rows")

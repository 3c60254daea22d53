"""From what was seen and what is predicted to the part that binds, or to the figure that would decide.

Measured facts come first (preemptions, usage, the queue), then the time that is complained of, by its predicted parts. Two measurements at
different loads decide what one leaves open: a part that grows with the load is told from one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

from planner.capacity import CapacityPlan
from planner.diagnose.observed import Observed
from planner.latency import Latency, Served, parts_of
from planner.latency.load import Times, times
from planner.latency.steps import Parts, prefill
from planner.units import count, gib, percent, seconds

CLEAR, CLEAR_TWICE = 1.25, 1.1
"""By so much the largest part must exceed the next: the model's own shares are off by about a fifth; two measurements need less."""
FULL, NEARLY = 0.95, 0.8
BELOW_FLOOR = 0.9
QUEUED, NOT_QUEUED = 0.5, 0.2
GROWS, STAYS = 0.7, 0.3
FITS_BOTH, APART = 0.08, 0.04
SLOWEST, FASTEST = 8.0, 0.25
"""A part may be so much slower or faster than predicted before it is no explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sentence of evidence: a code with its numbers."""

    code: str
    args: tuple[tuple[str, Any], ...]

    @property
    def text(self) -> str:
        from planner.messages import render

        return render(f"diagnose.{self.code}", dict(self.args))


def line(code: str, **args: Any) -> Line:
    return Line(code=code, args=tuple(args.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    verdict: str
    complaint: str
    evidence: tuple[Line, ...]
    asks: tuple[Line, ...] = ()


def judge(p: CapacityPlan, own: Served, predicted: Latency, seen: Observed) -> Finding:
    """Of what was seen on one replica of `p`, whose load is the seen one."""
    if (found := _pool(p, own, seen)) is not None:
        return found
    complaint = _complaint(seen, predicted)
    if complaint == "ttft":
        return _ttft(own, predicted, seen)
    if seen.itl_s is None:
        asks = [line("ask_sequences")] if seen.tokens_per_s is not None else [line("ask_times")]
        return Finding(verdict="undecided", complaint=complaint, evidence=(line("no_itl"),), asks=tuple(asks))
    found = _itl(own, predicted, seen, complaint)
    return found if p.fits else replace(found, evidence=(*found.evidence, _holds(p)))


def _complaint(seen: Observed, predicted: Latency) -> str:
    """What is too slow: as said, else the time that is above its range alone, else the one that takes more of a request."""
    if seen.complaint != "auto":
        return seen.complaint
    if seen.ttft_s is None or seen.itl_s is None:
        return "ttft" if seen.ttft_s is not None or (seen.queue_s is not None and seen.itl_s is None) else "itl" if seen.itl_s is not None else "throughput"
    first, next_ = seen.ttft_s > predicted.ttft_range_s[1], seen.itl_s > predicted.itl_range_s[1]
    if first != next_:
        return "ttft" if first else "itl"
    return "ttft" if seen.ttft_s > predicted.output_tokens * seen.itl_s else "itl"


# -- memory ----------------------------------------------------------------------------------------------------------------


def _pool(p: CapacityPlan, own: Served, seen: Observed) -> Finding | None:
    """Whether the pool binds: by what was counted, else by an out-of-memory that the plan explains. None where nothing says so."""
    holds = (_holds(p),)
    evidence: list[Line] = []
    if seen.preemptions:
        evidence.append(line("preempted", count=seen.preemptions))
    if seen.kv_usage is not None:
        evidence.append(line("usage", usage=percent(seen.kv_usage)))
    if seen.oom != "none":
        if not p.fits:
            evidence.append(line("oom_short", short=gib(p.shortfall_bytes)))
            return Finding(verdict="pool", complaint="memory", evidence=(*evidence, *holds))
        evidence.append(line("oom_but_fits", free=gib(p.free_bytes)))
        return Finding(verdict="undecided", complaint="memory", evidence=(*evidence, *holds), asks=(line("ask_log"),))
    full = seen.kv_usage is not None and seen.kv_usage >= FULL
    if seen.preemptions and (seen.kv_usage is None or seen.kv_usage >= NEARLY):
        if p.fits and p.sequences_per_replica < NEARLY * p.max_sequences:
            evidence.append(line("smaller_pool"))
        return Finding(verdict="pool", complaint="memory", evidence=(*evidence, *holds))
    if full and seen.waiting:
        return Finding(verdict="pool", complaint="memory", evidence=(*evidence, line("waiting", waiting=seen.waiting), *holds))
    nearly = seen.sequences is not None and seen.sequences >= NEARLY * p.max_sequences > 0
    if seen.waiting and seen.kv_usage is None and nearly and (own.most is None or own.most > p.max_sequences):
        return Finding(verdict="pool", complaint="memory", evidence=(line("waiting", waiting=seen.waiting), *holds))
    return None


def _holds(p: CapacityPlan) -> Line:
    return line("pool_holds", pool=gib(max(0, p.kv_pool_bytes)), most=count(p.max_sequences), tokens=count(p.scenario.tokens),
                sequences=count(p.sequences_per_replica))  # fmt: skip


# -- the first token --------------------------------------------------------------------------------------------------------


def _ttft(own: Served, predicted: Latency, seen: Observed) -> Finding:
    asked = int(own.load.sequences)
    low, high = predicted.ttft_range_s
    evidence = [line("ttft_is", seen=seconds(seen.ttft_s), low=seconds(low), high=seconds(high))] if seen.ttft_s is not None else []
    waits = own.most is not None and asked > own.most
    if seen.queue_s is not None and seen.ttft_s is not None:
        share = seen.queue_s / seen.ttft_s
        evidence.append(line("queued", queue=seconds(seen.queue_s), share=percent(min(share, 1.0))))
        if share >= QUEUED:
            return Finding(verdict="queueing", complaint="ttft", evidence=tuple(evidence))
        if share <= NOT_QUEUED:
            return _first(own, predicted, evidence)
    if waits:
        evidence.append(line("slots", most=count(own.most or 0), sequences=count(asked)))
        return Finding(verdict="queueing", complaint="ttft", evidence=tuple(evidence))
    if seen.ttft_s is None:
        if seen.waiting:
            return Finding(verdict="queueing", complaint="ttft", evidence=(line("waiting", waiting=seen.waiting),))
        return Finding(verdict="undecided", complaint="ttft", evidence=tuple(evidence), asks=(line("ask_times"),))
    if seen.waiting and seen.ttft_s > high:
        return Finding(verdict="queueing", complaint="ttft", evidence=(*evidence, line("waiting", waiting=seen.waiting)))
    if seen.ttft_s <= high and not seen.waiting:
        return _first(own, predicted, evidence)
    if seen.other_ttft_s is not None and seen.other_prompt and seen.other_prompt != own.load.prompt:
        grows = log(seen.other_ttft_s / seen.ttft_s) / log(seen.other_prompt / own.load.prompt)
        evidence.append(line("ttft_grows", power=f"{grows:.2f}", prompt=count(own.load.prompt), other=count(seen.other_prompt)))
        if grows >= GROWS:
            return _first(own, predicted, evidence)
        if grows <= STAYS:
            return Finding(verdict="queueing", complaint="ttft", evidence=tuple(evidence))
    return Finding(verdict="undecided", complaint="ttft", evidence=tuple(evidence), asks=(line("ask_waiting"), line("ask_other_prompt")))


def _first(own: Served, predicted: Latency, evidence: list[Line]) -> Finding:
    """No queue: what the prefill itself takes its time for."""
    load = own.at(predicted.sequences)
    parts = Parts()
    for w in own.stages:
        parts = parts + prefill(w, own.speeds, load.new, load.chunks, load.cached)
    work, read = float(parts.compute), float(parts.weights + parts.cache)
    together = 1 + own.speeds.wait_share * max(predicted.sequences / own.stages[0].attention_data - 1, 0)
    sizes = {"prefill": work * together, "weights": read * together, "links": float(parts.links) * together}
    sizes["launches"] = max(predicted.ttft_s - sum(sizes.values()), 0.0)
    new, cached = int(load.new), int(load.cached)  # whole numbers of any size: products of them outgrow 64 bits
    flops = sum(float(w.prefill_flops(new, cached)) for w in own.stages)
    attention = sum(float(w.attention_flops(new, cached)) for w in own.stages)
    tflop = f"{flops * own.stages[0].reduce_ranks / 1e12:,.1f}"
    evidence.append(line("prefill_work", prompt=count(load.new), tflop=tflop, attention=percent(attention / flops), alone=seconds(work)))
    return _largest(sizes, "ttft", evidence, CLEAR, asks=(line("ask_other_prompt"),))


# -- the next tokens ---------------------------------------------------------------------------------------------------------


def _itl(own: Served, predicted: Latency, seen: Observed, complaint: str) -> Finding:
    assert seen.itl_s is not None
    low, high = predicted.itl_range_s
    evidence = [line("itl_is", seen=seconds(seen.itl_s), low=seconds(low), high=seconds(high), sequences=count(predicted.sequences))]
    if seen.itl_s < BELOW_FLOOR * predicted.floor_s:
        evidence.append(line("below_floor", floor=seconds(predicted.floor_s)))
        return Finding(verdict="undecided", complaint=complaint, evidence=tuple(evidence), asks=(line("ask_inputs"),))
    evidence.append(_reads(own, predicted))
    parts = predicted.parts_s
    asks = (line("ask_other_batch"), line("ask_other_context"))
    second = _second(own, seen)
    if second is not None:
        assert seen.other_itl_s is not None
        fitted, error = _explained(parts, parts_of(second), seen.itl_s, seen.other_itl_s)
        evidence.append(line("itl_other", seen=seconds(seen.other_itl_s), predicted=seconds(float(second.itl_s))))
        down, up = own.speeds.range_itl
        as_predicted = low <= seen.itl_s <= high and float(second.itl_s) / down <= seen.other_itl_s <= float(second.itl_s) * up
        if fitted is None and not as_predicted:
            return Finding(verdict="undecided", complaint=complaint, evidence=(*evidence, line("no_part_explains", error=percent(error))),
                           asks=(line("ask_overhead"),))  # fmt: skip
        if fitted is not None:
            return _largest(fitted, complaint, evidence, CLEAR_TWICE, asks=asks)
    if seen.itl_s > high:
        return Finding(verdict="undecided", complaint=complaint, evidence=(*evidence, line("above_range")), asks=(line("ask_overhead"), *asks))
    scaled = {k: v * seen.itl_s / predicted.itl_s for k, v in parts.items()}
    return _largest(scaled, complaint, evidence, CLEAR, asks=asks)


def _reads(own: Served, predicted: Latency) -> Line:
    """Bytes that one rank reads in a step, of weights and of cache."""
    load = own.at(predicted.sequences)
    mine = -(-predicted.sequences // (own.stages[0].attention_data * len(own.stages)))
    weights = max(float(w.weight_bytes_read(mine)) for w in own.stages)
    cache = max(float(w.cache_bytes_read(load.context)) for w in own.stages) * mine
    return line("reads", weights=gib(weights), cache=gib(cache), context=count(load.context), bandwidth=f"{own.bandwidth_bytes_per_s / 1e12:.2f} TB/s")


def _second(own: Served, seen: Observed) -> Times | None:
    """Predicted times of the other measurement; None where there is none at another load."""
    load = own.at(min(int(own.load.sequences), own.most or int(own.load.sequences)))
    prompt, sequences = seen.other_prompt or load.prompt, seen.other_sequences or load.sequences
    if seen.other_itl_s is None or (prompt, sequences) == (load.prompt, load.sequences):
        return None
    other = replace(load, prompt=prompt, sequences=sequences, cached=min(int(load.cached), int(prompt) - 1))
    return times(own.stages, own.speeds, other)


def _explained(one: dict[str, float], two: dict[str, float], itl: float, other: float) -> tuple[dict[str, float] | None, float]:
    """(the parts as they must be, the error at the other load): all parts slower alike, else the one part that is slower than predicted and
    explains both measurements. None where no such part is told from the others."""
    alike = itl / sum(one.values())
    found = {"alike": (abs(alike * sum(two.values()) / other - 1), {k: v * alike for k, v in one.items()})}
    for k, part in one.items():
        factor = (itl - sum(one.values()) + part) / part if part > 0 else 0.0
        if FASTEST <= factor <= SLOWEST:
            expected = sum(two.values()) + (factor - 1) * two[k]
            found[k] = (abs(expected / other - 1), {**one, k: part * factor})
    ranked = sorted(found.values(), key=lambda x: x[0])
    error, parts = ranked[0]
    tops = {max(p, key=lambda k: p[k]) for e, p in ranked if e <= error + APART}
    return (parts if error <= FITS_BOTH and len(tops) == 1 else None), error


def _largest(parts: dict[str, float], complaint: str, evidence: list[Line], clear: float, asks: tuple[Line, ...]) -> Finding:
    first, next_ = sorted(parts, key=lambda k: -parts[k])[:2]
    whole = sum(parts.values())
    shares = line("shares", **{f"{which}_{what}": value for which, k in (("first", first), ("next", next_))
                               for what, value in (("name", _name(k)), ("time", seconds(parts[k])), ("share", percent(parts[k] / whole)))})  # fmt: skip
    if parts[first] < clear * parts[next_]:
        return Finding(verdict="undecided", complaint=complaint, evidence=(*evidence, shares, line("too_near", clear=f"{clear:.2f}")), asks=asks)
    return Finding(verdict=first, complaint=complaint, evidence=(*evidence, shares))


def _name(part: str) -> str:
    from planner.messages import render

    return render(f"diagnose.part.{part}")

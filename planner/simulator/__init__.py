"""Serve requests step by step: what a plan's pool, slots and chunks do over time, and a check of the closed form (planner/latency/load.py).

`simulate` takes a plan; the parts are `requests` (who comes when, how long), `clock` (the time of one step), `memory` (the pool) and
`scheduler` (who runs). The same seed gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.capacity import CapacityPlan
from planner.latency import Served, served
from planner.latency.load import times
from planner.mix import Mix, from_text
from planner.notes import Note, note
from planner.simulator.clock import Clock
from planner.simulator.memory import Memory, memory_of
from planner.simulator.requests import Requests, closed, open_arrivals
from planner.simulator.scheduler import Limits, Run, run

USUAL = Limits()
PERCENTS = (50, 90, 99)
CLOSED_REQUESTS, OPEN_REQUESTS = 16, 512
POINTS = 240
"""Moments of the timeline that are kept, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One stream of one replica: one attention group, one micro-batch of its pipeline. Rates and `sequences` are of the whole replica
    (stream x `streams`), times in seconds. ITL and TTFT without the requests of the warm-up. `stopped`: done | steps | time | clock.

    `timeline`: rows of `seconds, running, waiting, used, preemptions`; `used` is the part of the pool's bytes, the most in that interval.
    `closed_form`: the same load by planner/latency/load.py; None for open arrivals.
    """

    seed: int
    streams: int
    requests: int
    finished: int
    refused: int
    preemptions: int
    steps: int
    simulated_s: float
    stopped: str
    mean_running: float
    most_running: int
    most_waiting: int
    most_used: float
    most_blocks: int | None
    blocks: int | None
    output_tokens_per_s: float
    requests_per_s: float
    ttft_s: dict[str, float]
    itl_s: dict[str, float]
    timeline: tuple[dict[str, float], ...]
    closed_form: dict[str, float] | None
    notes: tuple[Note, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("notes", "timeline")} | {
            "timeline": list(self.timeline), "notes": [n.to_json() for n in self.notes],
        }  # fmt: skip


def simulate(p: CapacityPlan, *, requests: Requests | None = None, mix: Mix | None = None, rate: float | None = None, count: int | None = None,
             seed: int = 0, limits: Limits = USUAL) -> Simulation | Note:  # fmt: skip
    """Of one replica of a plan; a note where no times or no pool can be given.

    `rate`: requests a second of all replicas, in random (Poisson) arrivals; without it the plan's sequences run in a closed loop, each
    finished one replaced at once. Lengths: `mix`, else those of the plan. `requests`: a trace instead of both.
    """
    own = served(p)
    if isinstance(own, Note):
        return own
    if own.load.fan > 1:
        return note("warning", "simulate_fan", field="samples", copies=own.load.fan)
    own, apart = replace(own, speeds=replace(own.speeds, ttft_factor=1.0)), own.speeds.ttft_factor != 1.0
    stages = own.stages
    streams = stages[0].attention_data * len(stages)
    memory = memory_of(p, len(stages))
    if memory is None:
        return note("warning", "simulate_no_pool", field="gpu")
    lengths = mix or (from_text(p.scenario.lengths) if p.scenario.lengths else None)
    together = max(1, -(-int(own.load.sequences) // streams))
    if requests is None:
        each = rate and rate / p.replicas / streams
        n = count or (_enough(3 * round(each * life_s(own)), OPEN_REQUESTS) if each else _enough(together, CLOSED_REQUESTS))
        requests = open_arrivals(own, lengths, n, each, seed) if each else closed(own, lengths, n, together, seed)
    most = max(1, -(-(own.most or int(memory.slots or 1_000_000)) // streams))
    hits = np.maximum(p.footprint.prefix_tokens, (requests.prompt * (p.scenario.prefix_hit_rate or 0.0)).astype(np.int64))
    done = run(requests, Clock(own.stages, own.speeds), memory, chunk=int(own.load.chunk), policy=own.load.policy, most=most, cached=hits, limits=limits)
    found = _summary(own, requests, memory, done, streams, seed, together)
    return replace(found, notes=(*found.notes, note("assumed", "simulate_first", field="calibration"))) if apart else found


def _enough(together: int, least: int) -> int:
    """Requests after which so many at once have turned over a few times."""
    return min(max(4 * together, least), 4096)


def life_s(own: Served) -> float:
    """A request's time from arrival to its last token at the plan's load, by the closed form."""
    t = times(own.stages, own.speeds, own.load)
    return float(t.ttft_s) + float(own.load.output) * float(t.itl_s)


def _summary(own: Served, requests: Requests, memory: Memory, done: Run, streams: int, seed: int, together: int) -> Simulation:
    closed_loop = requests.together is not None
    begin, end = done.steady_s(requests.together or len(requests.prompt) // 4)
    span = max(end - begin, 1e-12)
    counted = (done.arrival_s >= begin) & (done.first_s <= end)
    ttft = done.first_s[counted] - done.arrival_s[counted]
    since = (done.gap_end_s >= begin) & (done.gap_end_s <= end)
    gaps, weights = done.gap_s[since], done.gap_n[since]
    after = (done.step_end_s > begin) & (done.step_end_s <= end)
    notes: tuple[Note, ...] = (note("warning", "simulate_cut", field="trace", requests=len(requests.prompt)),) if requests.cut else ()
    if done.stopped != "done":
        notes += (note("warning", "simulate_stopped", steps=done.steps, finished=done.finished, requests=len(requests.prompt)),)
    if done.refused:
        notes += (note("warning", "simulate_refused", refused=done.refused),)
    if done.preemptions:
        notes += (note("warning", "simulate_preempted", preemptions=done.preemptions),)
    return Simulation(
        seed=seed,
        streams=streams,
        requests=len(requests.prompt),
        finished=done.finished,
        refused=done.refused,
        preemptions=done.preemptions,
        steps=done.steps,
        simulated_s=done.end_s,
        stopped=done.stopped,
        mean_running=float(np.average(done.running[after], weights=done.step_s[after])) * streams if after.any() else 0.0,
        most_running=int(done.running.max(initial=0)) * streams,
        most_waiting=int(done.waiting.max(initial=0)) * streams,
        most_used=float(done.used.max(initial=0.0)),
        most_blocks=round(float(done.used.max(initial=0.0)) * memory.blocks) if memory.blocks is not None else None,
        blocks=memory.blocks,
        output_tokens_per_s=float(done.tokens[after].sum()) / span * streams,
        requests_per_s=int(np.sum((done.finish_s > begin) & (done.finish_s <= end))) / span * streams,
        ttft_s=percentiles(ttft, np.ones(len(ttft))),
        itl_s=percentiles(gaps, weights),
        timeline=_timeline(done, streams),
        closed_form=_closed_form(own, requests) if closed_loop else None,
        notes=notes,
    )


def percentiles(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of values that each stand for so many; empty where there are none."""
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    out = {"mean": float(np.average(values, weights=weights))}
    for q in PERCENTS:
        out[f"p{q}"] = float(values[order][np.searchsorted(reached, q / 100 * reached[-1])])
    return out


def _timeline(done: Run, streams: int) -> tuple[dict[str, float], ...]:
    """At most POINTS intervals of equal time: the most of each figure in it."""
    if not done.steps:
        return ()
    at = np.minimum((done.step_end_s / done.end_s * POINTS).astype(int), POINTS - 1)
    starts = np.unique(at, return_index=True)[1]
    top = {name: np.maximum.reduceat(getattr(done, name), starts) for name in ("step_end_s", "running", "waiting", "used", "preempted")}
    rows = zip(*(top[name] for name in ("step_end_s", "running", "waiting", "used", "preempted")), strict=True)
    return tuple({"seconds": float(t), "running": int(r) * streams, "waiting": int(w) * streams, "used": float(u), "preemptions": int(x) * streams}
                 for t, r, w, u, x in rows)  # fmt: skip


def _closed_form(own: Served, requests: Requests) -> dict[str, float]:
    whole = requests.output[requests.together or 0 :]  # the first ones are met in the middle of theirs
    output = (whole if len(whole) else requests.output).mean()
    load = replace(own.load, prompt=max(1, round(float(requests.prompt.mean()))), output=max(1, round(float(output))))
    running = min(int(load.sequences), own.most or int(load.sequences))
    load = replace(load, sequences=running)
    t = times(own.stages, own.speeds, load)
    rate = running * load.output / (float(t.ttft_s) + load.output * float(t.itl_s))
    return {"itl_s": float(t.itl_s), "itl_p99_s": float(t.itl_p99_s), "ttft_s": float(t.ttft_s), "output_tokens_per_s": rate}

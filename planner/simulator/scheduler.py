"""Who runs in each step: continuous batching with a token budget, blocks taken as sequences grow, preemption by recompute.

The order of vLLM's scheduler (0.33 v1/core/sched/scheduler.py): running requests first, each with what it lacks of the budget; where a block
is missing the last one that came goes back to the queue's head and loses its blocks; waiting requests join, first come first, while slots,
budget and room for their whole prompt are there, and not in a step that preempted. A preempted request computes its prompt and what it had
generated anew.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.simulator.clock import Clock
from planner.simulator.memory import Memory
from planner.simulator.requests import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A simulation ends at the first of these: steps, simulated seconds, seconds of this host's clock."""

    steps: int = 30_000
    simulated_s: float = 1e12
    clock_s: float = 20.0


class Run(NamedTuple):
    """What happened. Arrays over requests (`arrival_s`, `first_s`, `finish_s`; inf: not yet), over steps (`step_*`, `running`, `waiting`,
    `used`, `preempted`: so far, `tokens`: that came out), and over gaps between tokens (`gap_s`, for `gap_n` sequences, at `gap_end_s`)."""

    arrival_s: np.ndarray
    first_s: np.ndarray
    finish_s: np.ndarray
    step_s: np.ndarray
    step_end_s: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    used: np.ndarray
    preempted: np.ndarray
    tokens: np.ndarray
    gap_s: np.ndarray
    gap_n: np.ndarray
    gap_end_s: np.ndarray
    finished: int
    refused: int
    preemptions: int
    steps: int
    end_s: float
    stopped: str
    supply_end_s: float

    def steady_s(self, together: int) -> tuple[float, float]:
        """From when the first `together` requests have finished (a loop has then turned over once) until no new ones come. The whole run
        where too few finished."""
        done = np.sort(self.finish_s[np.isfinite(self.finish_s)])
        if together <= 0 or len(done) < 2 * together or self.supply_end_s <= done[together - 1]:
            return 0.0, self.end_s
        return float(done[together - 1]), min(self.supply_end_s, self.end_s)


class _State:
    """The requests, and the queues that they stand in."""

    def __init__(self, requests: Requests, memory: Memory, cached: np.ndarray) -> None:
        n = len(requests.prompt)
        self.r, self.memory = requests, memory
        self.cached = np.minimum(cached, requests.prompt - 1)
        self.delay_s = np.zeros(n)
        self.computed = np.zeros(n, np.int64)
        self.made = np.zeros(n, np.int64)
        self.arrival_s = np.full(n, np.inf)
        self.first_s, self.last_s, self.finish_s = np.full(n, np.inf), np.full(n, np.inf), np.full(n, np.inf)
        self.running = np.zeros(0, np.int64)
        self.waiting: deque[int] = deque()
        self.coming: deque[int] = deque()
        self.next = 0
        self.supply_end_s = np.inf
        self.refused = self.preemptions = 0
        whole = memory.need(requests.prompt + requests.output)
        sizes = np.array([size for _, size in memory.parts], np.int64)
        self.too_large: np.ndarray = np.asarray(np.any(whole > sizes[:, None], axis=0)) if memory.slots is None else np.zeros(n, bool)
        if requests.arrival_s is not None:
            self.arrival_s[:] = requests.arrival_s
            self.coming.extend(range(n))
            self.next, self.supply_end_s = n, float(requests.arrival_s[-1])
        else:
            for _ in range(requests.together or 0):
                self.send(0.0)

    def send(self, now: float) -> None:
        """A client of a closed loop sends its next request; one that could never run is answered with a refusal at once."""
        while self.next < len(self.arrival_s):
            i, self.next = self.next, self.next + 1
            self.arrival_s[i] = now
            if not self.too_large[i]:
                self.coming.append(i)
                return
            self.refused += 1
        self.supply_end_s = min(self.supply_end_s, now)

    def ready_s(self) -> float:
        """When the next that was sent reaches the queue."""
        return float(self.arrival_s[self.coming[0]] + self.delay_s[self.coming[0]])

    def arrive(self, now: float) -> None:
        """Those that have reached the engine by now stand in its queue."""
        while self.coming and self.ready_s() <= now:
            i = self.coming.popleft()
            if self.too_large[i]:
                self.refused += 1
            else:
                self.waiting.append(i)


def run(requests: Requests, clock: Clock, memory: Memory, *, chunk: int, policy: str, most: int, cached: np.ndarray, limits: Limits) -> Run:
    """`chunk`: tokens of a step; `most`: sequences at once; `cached`: of each request, prompt tokens that
    need no prefill."""
    s = _State(requests, memory, cached)
    s.delay_s = clock.delay_s(requests.prompt - s.cached, chunk)
    most = min(most, memory.slots) if memory.slots is not None else most
    rows: list[tuple[float, float, int, int, float, int, int]] = []
    gaps: list[tuple[float, float, float]] = []
    now, stopped, until = 0.0, "done", time.monotonic() + limits.clock_s
    while s.running.size or s.waiting or s.coming:
        if len(rows) >= limits.steps or now > limits.simulated_s or (len(rows) % 256 == 0 and time.monotonic() > until):
            stopped = "steps" if len(rows) >= limits.steps else "time" if now > limits.simulated_s else "clock"
            break
        s.arrive(now)
        if not s.running.size and not s.waiting:
            if not s.coming:
                break
            now = max(now, s.ready_s())
            continue
        take, held = _schedule(s, memory, chunk, policy, most)
        ids = s.running
        if not ids.size:
            break  # no slots at all
        known = requests.prompt[ids] + s.made[ids]
        before = s.computed[ids]
        decoding = (s.made[ids] > 0) & (known - before == 1)
        gives = before + take == known
        pieces = [(int(n), int(b)) for n, b in zip(take[~decoding], before[~decoding], strict=True) if n]
        step = clock.step_s(before[decoding & (take > 0)] + 1, pieces, int(gives.sum()))
        now += step
        s.computed[ids] += take
        given = ids[gives]
        _give(s, given, now, gaps)
        rows.append((step, now, len(ids), len(s.waiting), memory.used(held), s.preemptions, len(given)))
        ended = given[s.made[given] >= requests.output[given]]
        if ended.size:
            s.finish_s[ended] = now
            s.running = ids[~(gives & (s.made[ids] >= requests.output[ids]))]
            if requests.arrival_s is None:
                for _ in ended:
                    s.send(now)
    columns = [np.array(c) for c in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 7
    g = np.array(gaps).reshape(-1, 3)
    step_s, step_end_s, running, waiting, used, preempted, tokens = columns
    return Run(
        arrival_s=s.arrival_s, first_s=s.first_s, finish_s=s.finish_s, step_s=step_s, step_end_s=step_end_s, running=running, waiting=waiting, used=used,
        preempted=preempted, tokens=tokens, gap_s=g[:, 0], gap_n=g[:, 1], gap_end_s=g[:, 2], finished=int(np.isfinite(s.finish_s).sum()),
        refused=s.refused, preemptions=s.preemptions, steps=len(rows), end_s=now, stopped=stopped, supply_end_s=s.supply_end_s,
    )  # fmt: skip


def _schedule(s: _State, memory: Memory, chunk: int, policy: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens that each running request computes, bytes that each then holds): those that wait may join, those that came last may leave."""
    preempted = False
    while True:
        ids = s.running
        lacks = s.r.prompt[ids] + s.made[ids] - s.computed[ids]
        take = _shares(lacks, chunk, policy)
        held = memory.need(s.r.prompt[ids] + s.r.output[ids] if memory.reserve else s.computed[ids] + take)
        if len(ids) <= 1 or (memory.left(held) >= 0).all():
            break
        out = int(ids[-1])
        s.running, preempted = ids[:-1], True
        s.preemptions += 1
        s.waiting.appendleft(out)
    free, budget = memory.left(held), chunk - int(take.sum())
    whole_taken = policy == "whole" and bool((lacks > 1).any())
    joined: list[int] = []
    tokens: list[int] = []
    while s.waiting and not preempted and len(s.running) + len(joined) < most and (budget > 0 or policy == "whole") and not whole_taken:
        i = s.waiting[0]
        length = int(s.r.prompt[i] + (s.r.output[i] if memory.reserve else s.made[i]))
        need = memory.need(np.array([length]))[:, 0]
        if (need > free).any():
            break
        s.waiting.popleft()
        s.computed[i] = s.cached[i]
        lack = int(s.r.prompt[i] + s.made[i] - s.computed[i])
        part = lack if policy == "whole" else min(lack, budget)
        joined.append(i)
        tokens.append(part)
        free, budget, whole_taken = free - need, budget - part, policy == "whole"
    if joined:
        s.running = np.concatenate([s.running, np.array(joined, np.int64)])
        take = np.concatenate([take, np.array(tokens, np.int64)])
        held = memory.need(s.r.prompt[s.running] + s.r.output[s.running] if memory.reserve else s.computed[s.running] + take)
    return take, held


def _shares(lacks: np.ndarray, chunk: int, policy: str) -> np.ndarray:
    """Tokens of a step's budget, in the order of arrival. Whole prompts: one in a step, beside all that decode."""
    if policy == "whole":
        prompts = np.cumsum(lacks > 1)
        return np.where((lacks > 1) & (prompts > 1), 0, lacks)
    return np.asarray(np.clip(chunk - (np.cumsum(lacks) - lacks), 0, lacks))


def _give(s: _State, given: np.ndarray, now: float, gaps: list[tuple[float, float, float]]) -> None:
    """Each of these requests gets a token."""
    first = given[s.made[given] == 0]
    s.first_s[first] = now
    again = given[s.made[given] > 0]
    if again.size:
        values, counts = np.unique(now - s.last_s[again], return_counts=True)
        gaps.extend((float(v), float(n), now) for v, n in zip(values, counts, strict=True))
    s.last_s[given] = now
    s.made[given] += 1

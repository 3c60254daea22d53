"""Who comes when, with how many tokens: lengths of a plan or a mix drawn by seed, or a trace; a closed loop or arrivals in time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from planner.errors import InvalidInput
from planner.latency import Served
from planner.mix import Mix, trace_rows

MAX_REQUESTS = 20_000
TIMES = frozenset("timestamp arrival arrival_time arrived_at time".split())
_STAMP = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*", re.ASCII)
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Requests:
    """In order of arrival. `arrival_s`: of each, None in a closed loop of `together` clients, each of which sends its next request as soon
    as its last is answered. The loop is met as it runs: its first requests have a random part of their output still to come, else equal
    lengths would stay in step for ever. `cut`: the trace had more."""

    prompt: np.ndarray
    output: np.ndarray
    arrival_s: np.ndarray | None
    together: int | None
    cut: bool = False


def closed(own: Served, mix: Mix | None, count: int, together: int, seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    return _met(*_lengths(own, mix, count, rng), together, rng)


def _met(prompt: np.ndarray, output: np.ndarray, together: int, rng: np.random.Generator) -> Requests:
    first = output[:together]
    left = np.concatenate([np.maximum(1, np.ceil(first * rng.random(len(first)))).astype(np.int64), output[together:]])
    return Requests(prompt, left, None, together)


def open_arrivals(own: Served, mix: Mix | None, count: int, rate: float, seed: int) -> Requests:
    """`rate`: requests a second. Arrivals are independent of each other: the time between two is exponential."""
    rng = np.random.default_rng(seed)
    prompt, output = _lengths(own, mix, count, rng)
    return Requests(prompt, output, np.cumsum(rng.exponential(1.0 / rate, count)), None)


def _lengths(own: Served, mix: Mix | None, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if not 1 <= count <= MAX_REQUESTS:
        raise InvalidInput("out_of_range", field="requests", value=count, low=1, high=MAX_REQUESTS)
    if mix is None:
        return np.full(count, int(own.load.prompt), np.int64), np.full(count, int(own.load.output), np.int64)
    share = np.array([p.weight for p in mix.points], float)
    chosen = rng.choice(len(mix.points), count, p=share / share.sum())
    prompt = np.array([max(1, p.prompt) for p in mix.points], np.int64)[chosen]
    return prompt, np.array([max(1, p.output) for p in mix.points], np.int64)[chosen]


def trace(data: bytes, together: int = 1, seed: int = 0) -> Requests:
    """A CSV with a column of prompts and one of outputs (names: planner/mix.py), in their order; a column of times in seconds, if there is one,
    gives the arrivals. Without it `together` of them run in a closed loop. At most the first 20,000, and then it is `cut`. Raises
    InvalidInput with the row and the column."""
    found = trace_rows(data, TIMES, MAX_REQUESTS + 1)
    if not found:
        raise InvalidInput("lengths_empty", field="trace")
    found, cut = found[:MAX_REQUESTS], len(found) > MAX_REQUESTS
    prompt = np.array([max(1, p) for _, p, _, _ in found], np.int64)
    output = np.array([max(1, o) for _, _, o, _ in found], np.int64)
    stamps = [(row, cell) for row, _, _, cell in found if cell is not None]
    if not stamps:
        return replace(_met(prompt, output, together, np.random.default_rng(seed)), cut=cut)
    times = np.array([_seconds(cell, row) for row, cell in stamps])
    order = np.argsort(times, kind="stable")
    return Requests(prompt[order], output[order], times[order] - times.min(), None, cut)


def _seconds(cell: str, row: int) -> float:
    """A number of seconds, or a date with its time as ISO 8601 writes it."""
    if match := _STAMP.fullmatch(cell):
        return float(match[1])
    try:
        return (datetime.fromisoformat(cell.strip()[:26]).replace(tzinfo=None) - EPOCH).total_seconds()
    except ValueError:
        raise InvalidInput("trace_time", field="trace", row=row, value=repr(cell[:40])) from None

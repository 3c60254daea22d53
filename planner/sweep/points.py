"""The points of one combination, as arrays over its lengths and numbers of sequences: what plan() and latency() say of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.capacity import CapacityPlan, plan
from planner.errors import PlannerError
from planner.hardware import Hardware
from planner.latency import Served, cached_tokens, figures, lengths, served, tokens_per_s
from planner.model import ModelSpec
from planner.notes import Note
from planner.scenario import Scenario
from planner.sweep.memory import LIMITS, memory
from planner.throughput import MARGIN

ARRAYS = ("architecture", "vllm", "sglang", "trtllm")
"""Engines whose budget does not hang on the load; of the others each point is a plan of its own."""
AT_ONCE = 1 << 15
TIMES = ("ttft_s", "ttft_low_s", "ttft_high_s", "itl_s", "itl_low_s", "itl_high_s", "tokens_per_s", "cost")
NO_TOKENS = REFUSED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """One length, as a scenario has it; `mean`: prompt and output tokens of a request, as times are computed for."""

    tokens: int
    prompt: int | None
    output: int | None
    mean: tuple[int, int]

    def on(self, s: Scenario) -> Scenario:
        return replace(s, tokens=self.tokens, prompt=self.prompt, output=self.output)


def length_of(s: Scenario) -> Length:
    return Length(tokens=s.tokens, prompt=s.prompt, output=s.output, mean=lengths(s)[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One combination. `columns`: arrays of shape (lengths, sequences): limited (index of LIMITS), kv_bytes, max_sequences, kv_tokens (-1:
    the engine prints none), TIMES in seconds (NaN: unknown), `tokens_per_s` of all its GPUs, `cost` in USD a million output tokens (NaN: no
    price, or it does not fit), meets (the targets, with the margin). `error`: why no engine runs any of it; `errors`: why one does not run
    the point at (length, sequences), whose limited is REFUSED; `note`: why no times can be given; `measured`: whether
    whole engines were measured on this GPU (None: no times)."""

    choices: tuple[tuple[str, Any], ...]
    scenario: Scenario
    gpus: int
    price: float | None
    shape: tuple[int, int]
    error: PlannerError | None = None
    errors: dict[tuple[int, int], PlannerError]
    note: Note | None = None
    measured: bool | None = None
    columns: dict[str, Any]

    @property
    def fits(self) -> Any:
        return self.columns["limited"] == 0

    @property
    def points(self) -> int:
        return self.shape[0] * self.shape[1]


class Cancelled(Exception):
    """The caller asked for the end; what was finished is kept."""


def refused(choices: dict[str, Any], s: Scenario, price: float | None, shape: tuple[int, int], error: PlannerError) -> Block:
    return Block(choices=tuple(choices.items()), scenario=s, gpus=s.gpus, price=price, shape=shape, error=error, errors={}, columns={})


def plans_of(model: ModelSpec, s: Scenario, shape: tuple[int, int]) -> int:
    """How many plans a block of points takes: one, one a length, or one a point."""
    if s.engine not in ARRAYS:
        return shape[0] * shape[1]
    return shape[0] if _by_length(model, s) else 1


def _by_length(model: ModelSpec, s: Scenario) -> bool:
    """Whether the setting or the pools hang on the length."""
    return bool(s.images or s.samples > 1 or s.beams > 1 or s.shared_prefix or not (s.max_model_len or model.max_context_tokens))


def block(model: ModelSpec, hardware: Hardware, choices: dict[str, Any], s: Scenario, at: tuple[Length, ...], sequences: tuple[int, ...],
          price: float | None, step: Callable[[int], None]) -> Block:  # fmt: skip
    """All points of one combination, the scenario `s` at each length of `at`. `step` hears of finished points, and may raise Cancelled.
    A combination that no engine runs is a block with its error."""
    shape, s = (len(at), len(sequences)), at[0].on(s)
    try:
        if s.engine in ARRAYS and not _by_length(model, s):
            p = plan(model, hardware, replace(s, sequences=sequences[0]))
            if _one_binds(p):
                return _joined(choices, s, price, shape, _chunks(p, at, sequences, price, step), {})
    except PlannerError as e:
        return refused(choices, s, price, shape, e)
    parts: list[Part] = []
    errors: dict[tuple[int, int], PlannerError] = {}
    for j, length in enumerate(at):
        here = length.on(s)
        one: CapacityPlan | None = None
        try:
            one = plan(model, hardware, replace(here, sequences=sequences[0]))
        except PlannerError as e:
            if here.engine in ARRAYS:  # its settings hang on the length, never on the number of sequences
                errors |= {(j, k): e for k in range(shape[1])}
                parts.append((None, {name: np.broadcast_to(v, (1, shape[1])) for name, v in _refused_point().items()}))
                step(shape[1])
                continue
        if one is not None and here.engine in ARRAYS and _one_binds(one):
            parts += _chunks(one, (length_of(one.scenario),), sequences, price, step)
            continue
        row = []
        for k, n in enumerate(sequences):
            try:
                one = plan(model, hardware, replace(here, sequences=n))
                row.append(_single(one, price))
            except PlannerError as e:
                errors[j, k] = e
                row.append(_refused_point())
            step(1)
        parts.append((one, _side_by_side(row)))
    if len(errors) == shape[0] * shape[1]:
        return refused(choices, s, price, shape, errors[0, 0])
    return _joined(choices, s, price, shape, parts, errors)


def _one_binds(p: CapacityPlan) -> bool:
    """Whether the rank that decides is the same for every load."""
    return p.setting.parallel.pipeline == 1 or p.sizes is not None or p.pools[0].priced == "pooled"


Part = tuple[CapacityPlan | None, dict[str, Any]]


def _chunks(p: CapacityPlan, at: tuple[Length, ...], sequences: tuple[int, ...], price: float | None, step: Callable[[int], None]) -> list[Part]:
    """A few lengths at a time, so that arrays stay in the processor's cache."""
    out: list[Part] = []
    row = np.array(sequences, dtype=np.int64)[None, :]
    own = served(p)
    every = max(1, AT_ONCE // len(sequences))
    for start in range(0, len(at), every):
        here = at[start : start + every]
        tokens = np.array([length.tokens for length in here], dtype=np.int64)[:, None]
        found = memory(p, tokens, row)
        columns = {"limited": found.limited, "kv_bytes": found.kv_bytes, "max_sequences": found.max_sequences, "kv_tokens": _kv_tokens(p)}
        out.append((p, columns | _times(p, own, here, row, found.limited == 0, price)))
        step(len(here) * len(sequences))
    return out


def _kv_tokens(p: CapacityPlan) -> Any:
    return np.int64(NO_TOKENS if p.kv_tokens is None else p.kv_tokens)


def _said(own: Served | Note) -> dict[str, Any]:
    return {"note": own} if isinstance(own, Note) else {"measured": own.speeds.measured}


def _times(p: CapacityPlan, own: Served | Note, at: tuple[Length, ...], row: Any, fits: Any, price: float | None) -> dict[str, Any]:
    s = p.scenario
    if isinstance(own, Note):
        return {name: np.float64(np.nan) for name in TIMES} | {"meets": fits & (s.target_itl is None and s.target_ttft is None)}
    prompt, output = (np.array([length.mean[k] for length in at], dtype=np.int64)[:, None] for k in (0, 1))
    per_replica = -(-row // p.replicas)
    cached = np.array([cached_tokens(p, length.mean[0]) for length in at], dtype=np.int64)[:, None]
    f = figures(replace(own, load=replace(own.load, prompt=prompt, output=output, sequences=per_replica, cached=cached)))
    rate = tokens_per_s(f.times, f.load) * (row / per_replica)
    return _timed(s, f.ttft_s, f.ttft_range_s, f.itl_s, f.itl_range_s, rate, fits, price, gpus_of(p))


def _timed(s: Scenario, ttft: Any, ttft_range: tuple[Any, Any], itl: Any, itl_range: tuple[Any, Any], rate: Any, fits: Any, price: float | None,
           gpus: int) -> dict[str, Any]:  # fmt: skip
    cost = np.where(fits, np.nan if price is None else price * gpus / 3600 / rate * 1e6, np.nan)
    meets = fits
    for time, target in ((ttft, s.target_ttft), (itl, s.target_itl)):
        meets = meets & (target is None or time * MARGIN <= target)
    found = (ttft, *ttft_range, itl, *itl_range, rate, cost)
    return dict(zip(TIMES, found, strict=True)) | {"meets": meets}


def gpus_of(p: CapacityPlan) -> int:
    return p.replicas * p.setting.parallel.ranks


def _single(p: CapacityPlan, price: float | None) -> dict[str, Any]:
    """One point from its own plan, where the budget hangs on the load."""
    limited = np.array([[LIMITS.index(p.limited_by or "")]], dtype=np.int8)
    columns = {"limited": limited, "kv_bytes": np.array([[p.load_bytes]], dtype=object if p.load_bytes >= 2**62 else np.int64),
               "max_sequences": np.array([[p.total_max_sequences]]), "kv_tokens": _kv_tokens(p)}  # fmt: skip
    return columns | _times(p, served(p), (length_of(p.scenario),), np.array([[p.scenario.sequences]]), limited == 0, price)


def _refused_point() -> dict[str, Any]:
    return {"limited": np.array([[REFUSED]], dtype=np.int8), "kv_bytes": np.int64(0), "max_sequences": np.int64(0), "kv_tokens": np.int64(NO_TOKENS),
            "meets": np.False_} | dict.fromkeys(TIMES, np.float64(np.nan))  # fmt: skip


def _side_by_side(row: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([np.broadcast_to(c[name], (1, 1)) for c in row], axis=1) for name in row[0]}


def _joined(choices: dict[str, Any], s: Scenario, price: float | None, shape: tuple[int, int], parts: list[Part],
            errors: dict[tuple[int, int], PlannerError]) -> Block:  # fmt: skip
    """The parts below each other. A figure that is the same in all of them stays one number, seen as a whole array."""
    columns = {}
    for name in parts[0][1]:
        found = [np.asarray(c[name]) for _, c in parts]
        if all(f.ndim == 0 for f in found) and len({f.item() for f in found} if name not in TIMES else {0}) == 1:
            columns[name] = np.broadcast_to(found[0], shape)
            continue
        height = [len(c["limited"]) for _, c in parts]
        width = 1 if all(f.ndim == 0 or f.shape[1] == 1 for f in found) else shape[1]
        whole = np.concatenate([np.broadcast_to(f, (h, width)) for f, h in zip(found, height, strict=True)])
        columns[name] = np.broadcast_to(whole, shape)
    p = next(p for p, _ in parts if p is not None)
    own = served(p)
    return Block(choices=tuple(choices.items()), scenario=s, gpus=gpus_of(p), price=price, shape=shape, errors=errors, columns=columns,
                 **_said(own))  # fmt: skip

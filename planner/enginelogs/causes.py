"""Why a figure is not what was planned: candidates, each planned again, and named only where that closes the difference.

A candidate is a change of the Scenario. It explains the lines of a route (all from the pool, say) only if all of them then come out within
what printing rounded, those too that came out before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from planner.cache import Rows
from planner.enginelogs.compare import Predicted, answered
from planner.enginelogs.reader import LogReading
from planner.hardware import Hardware
from planner.hardware import find as device
from planner.model import ModelSpec
from planner.scenario import Scenario

Changes = dict[str, Any]
MAX_SECONDS = 6.0  # of planning again for one log
MAX_PAIRS = 150
UNKNOWN = frozenset(("per_group_figure", "older_rule", "device"))
DEVICES = ("H100 SXM", "A100 SXM 80GB", "B200", "RTX 5090")  # one of each generation whose defaults differ
EXACT = ("pool", "context", "request")  # routes whose lines must come out to the printed digit


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """`changes`: what to change in the scenario; `predicted`: figure -> its prediction then. `also`: other candidates that close it too."""

    codes: tuple[str, ...]
    changes: tuple[tuple[str, Any], ...]
    predicted: tuple[Predicted, ...]
    also: tuple[tuple[str, Changes], ...] = ()

    @property
    def text(self) -> str:
        from planner.messages import render

        first, *rest = (_said(code, dict(self.changes)) for code in self.codes)
        return render("log.cause.with", {"first": first, "then": rest[0]}) if rest else first

    @property
    def also_texts(self) -> list[str]:
        """The other causes in words, each with its own changes."""
        return [_said(code, changes) for code, changes in self.also]

    def to_json(self, name: str) -> dict[str, Any]:
        """For the line of one figure: the cause, what it predicts there, and the difference that is left."""
        own = next((p for p in self.predicted if p.name == name), None)
        out: dict[str, Any] = {"code": "+".join(self.codes), "text": self.text, "changes": dict(self.changes), "also": [code for code, _ in self.also]}
        return out | ({"predicted": own.value, "difference": own.difference} if own else {})


def _said(code: str, changes: Changes) -> str:
    from planner.messages import render

    return render(f"log.cause.{code}", {"changes": ", ".join(f"{k} {v}" for k, v in changes.items())})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`changes(log, model, scenario)`: the changes to try, most likely first."""

    code: str
    changes: Callable[[LogReading, ModelSpec, Scenario], Iterable[Changes]]
    engines: tuple[str, ...] = ("vllm", "sglang", "trtllm")


def _versions(*names: str) -> Callable[[LogReading, ModelSpec, Scenario], Iterable[Changes]]:
    """Older rules, only where the log does not say which release it is: a printed version is not doubted."""
    return lambda log, m, s: ({"engine_version": v} for v in names if s.engine_version is None or log.version is None)


def _other(option: str, *values: Any) -> Callable[[LogReading, ModelSpec, Scenario], Iterable[Changes]]:
    return lambda log, m, s: ({option: v} for v in values if v != getattr(s, option))


def _ranks(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    """Fewer or more ranks; heads that do not divide are copied, so that the same tokens cost each rank as much."""
    for tp in (1, 2, 4, 8, 16):
        if tp != (s.tp or s.gpus // max(1, s.pp)):
            yield {"tp": tp, "gpus": tp * s.pp}


def _latent(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    if any(isinstance(k, Rows) and k.heads == 1 and not k.v_dim for k, _ in m.cache_groups()):
        yield {"engine_version": "0.7.0"}


def _drafts(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    if s.num_speculative_tokens:
        yield {"num_speculative_tokens": 0}
    elif m.draft_layers or m.drafts:
        yield from ({"num_speculative_tokens": n} for n in (1, 2, 3, 4, 5, 7))


def _length(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    for value in (log.value("concurrency_tokens"), log.flag("max_model_len"), log.value("max_model_len"), m.max_context_tokens):
        if value and value != s.max_model_len:
            yield {"max_model_len": value}


def _fraction(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    for value in (log.flag("memory_fraction"), log.value("memory_fraction"), 0.9, 0.92, 0.95, 0.85, 0.8, 0.88):
        if value and value != s.memory_fraction and 0.01 <= value <= 1:
            yield {"memory_fraction": value}


def _used(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    """Memory that others held before the engine came: total less free, as the log prints both."""
    free, total = log.one("free_memory_bytes"), log.one("total_memory_bytes")
    if free and total and total.value > free.value:
        yield {"used_memory_bytes": total.value - free.value}


def _loaded_weights(log: LogReading, m: ModelSpec, s: Scenario) -> Iterator[Changes]:
    weights = log.one("weights_bytes")
    if weights and weights.value > 0:
        yield {"weight_bytes": weights.value * (s.tp or 1) * s.pp, "weight_dtype": None}


# In the order in which they are tried: the likeliest first.
CANDIDATES: tuple[Candidate, ...] = (
    Candidate(code="per_group_figure", changes=_versions("0.21.0"), engines=("vllm",)),
    Candidate(code="kv_dtype", changes=_other("kv_dtype", "fp8", "bf16", "fp32", "int8_per_token_head", "fp8_per_token_head", "nvfp4", "fp8_ds_mla")),
    Candidate(code="max_model_len", changes=_length),
    Candidate(code="device", changes=lambda log, m, s: [{"gpu": name} for name in DEVICES], engines=("vllm", "sglang")),
    Candidate(code="hybrid_manager", changes=lambda log, m, s: [{"hybrid_kv_cache_manager": not s.hybrid_kv_cache_manager}], engines=("vllm",)),
    Candidate(code="older_rule", changes=_versions("0.26.0", "0.9.0"), engines=("vllm",)),
    Candidate(code="latent_off", changes=_latent, engines=("vllm",)),
    Candidate(code="drafts", changes=_drafts),
    Candidate(code="prefix_caching", changes=lambda log, m, s: [{"prefix_caching": not s.prefix_caching}]),
    Candidate(code="batched_tokens", changes=_other("max_num_batched_tokens", 2048, 8192, 16384, 4096, 1024, 32768, 65536), engines=("vllm",)),
    Candidate(code="async_scheduling", changes=lambda log, m, s: [{"async_scheduling": not s.async_scheduling}], engines=("vllm",)),
    Candidate(code="block_size", changes=_other("block_size", 16, 32, 64, 128, 256)),
    Candidate(code="model_dtype", changes=_other("dtype", "fp32", "bf16")),
    Candidate(code="ranks", changes=_ranks),
    Candidate(code="context_ranks", changes=_other("dcp", 2, 4, 8), engines=("vllm",)),
    Candidate(code="memory_fraction", changes=_fraction),
    Candidate(code="used_memory", changes=_used),
    Candidate(code="graphs_outside", changes=_versions("0.20.0"), engines=("vllm",)),
    Candidate(code="weights_as_loaded", changes=_loaded_weights),
    Candidate(code="cache_types", engines=("llamacpp",),
              changes=lambda log, m, s: [{"cache_type_k": k, "cache_type_v": v} for k, v in (("q8_0", "q8_0"), ("f16", "f16"), ("q4_0", "q4_0"),
                                                                                             ("q8_0", "q4_0"), ("bf16", "bf16"), ("f32", "f32"))]),
    Candidate(code="swa_full", changes=lambda log, m, s: [{"swa_full": not s.swa_full}], engines=("llamacpp",)),
    Candidate(code="unified", changes=lambda log, m, s: [{"kv_unified": not s.kv_unified}], engines=("llamacpp",)),
    Candidate(code="slots", changes=_other("parallel", 1, 2, 4, 8), engines=("llamacpp",)),
    Candidate(code="ubatch", changes=_other("n_ubatch", 512, 1024, 2048, 256, 128), engines=("llamacpp",)),
    Candidate(code="flash_off", changes=_other("flash_attn", "off", "on"), engines=("llamacpp",)),
)  # fmt: skip


def find(log: LogReading, model: ModelSpec, hardware: Hardware | None, s: Scenario, before: list[Predicted]) -> dict[str, Cause]:
    """Figure -> the cause that closes its difference. Lines of the exact routes are closed together; the budget's pool for itself.
    `before` empty: the scenario itself cannot be planned, and what closes every line of another one is looked for."""
    search = _Search(log, model, hardware, s, time.monotonic() + MAX_SECONDS)
    singles = [(c.code, changes) for c in CANDIDATES if s.engine in c.engines for changes in c.changes(log, model, s)]
    singles = [(code, changes) for code, changes in singles if hardware is None or "gpu" not in changes]  # a device that is known is not doubted
    exact = [p for p in before if p.how in EXACT]
    causes: dict[str, Cause] = {}
    if not before or any(not p.agrees for p in exact):
        closing = [(code, changes, new) for code, changes in singles if (new := search.after(changes)) is not None and _closes(exact, new)]
        closing = sorted(closing, key=lambda c: _weights_off(c[2])) or _pairs(singles, exact, search)
        if closing:
            cause = _cause(closing)
            causes |= {p.name: cause for p in exact if not p.agrees} or {p.name: cause for p in cause.predicted if p.how in EXACT}
    if any(p.how == "device" and not p.agrees and p.name == "available_kv_bytes" for p in before):
        closing = [(code, ch, new) for code, ch in singles if (new := search.after(ch)) is not None and _close_to("available_kv_bytes", new)]
        if closing:
            causes["available_kv_bytes"] = _cause(closing)
    return causes


@dataclass(slots=True)
class _Search:
    """Plans each change once, while there is time."""

    log: LogReading
    model: ModelSpec
    hardware: Hardware | None
    scenario: Scenario
    deadline: float
    tried: dict[str, list[Predicted] | None] = field(default_factory=dict)

    def after(self, changes: Changes) -> list[Predicted] | None:
        key = repr(sorted(changes.items()))
        if key not in self.tried:
            self.tried[key] = self._planned(changes) if time.monotonic() < self.deadline else None
        return self.tried[key]

    def _planned(self, changes: Changes) -> list[Predicted] | None:
        rest = {k: v for k, v in changes.items() if k != "gpu"}
        hardware = device(changes["gpu"]) if "gpu" in changes else self.hardware
        return answered(self.log, self.model, hardware, replace(self.scenario, **rest), budget="gpu" not in changes)


def _closes(before: list[Predicted], after: list[Predicted]) -> bool:
    """Whether every exact line is there and agrees now; without lines before, whether there are any and all agree."""
    now = {(p.name, p.how): p for p in after}
    if not before:
        lines = [p for p in after if p.how in EXACT]
        return bool(lines) and all(p.agrees for p in lines)
    return all((p.name, p.how) in now and now[p.name, p.how].agrees for p in before)


def _weights_off(after: list[Predicted]) -> float:
    """How far the weights are off then, in steps of 5 %: among causes that close all lines, the one whose weights fit comes first."""
    weights = next((p for p in after if p.how == "weights"), None)
    return round(abs(weights.difference) / max(1.0, abs(weights.value)) / 0.05) if weights else 0.0


def _close_to(name: str, after: list[Predicted]) -> bool:
    """The budget has constants with bands: closed means that the figure itself, not only its band, is met within printing."""
    found = next((p for p in after if p.name == name and p.how == "device"), None)
    return found is not None and abs(found.difference) <= max(found.figure.off, 1)


def _cause(closing: list[tuple[Any, Changes, list[Predicted]]]) -> Cause:
    code, changes, new = closing[0]
    also: dict[str, Changes] = {}
    for other, its, _ in closing[1:]:
        if other != code and isinstance(other, str):
            also.setdefault(other, its)
    return Cause(codes=code if isinstance(code, tuple) else (code,), changes=tuple(changes.items()), predicted=tuple(new), also=tuple(also.items()))


def _pairs(singles: list[tuple[str, Changes]], exact: list[Predicted], search: _Search) -> list[tuple[Any, Changes, list[Predicted]]]:
    """Two causes at once, only where no single one does it, and only an unknown release or device with one more: of freer pairs some
    would fit by chance. The first pair that closes everything."""
    tried = 0
    for (a, first), (b, second) in combinations(singles, 2):
        if not {a, b} & UNKNOWN or set(first) & set(second):
            continue
        if exact and (search.after(first) is None or search.after(second) is None):
            continue
        tried += 1
        if tried > MAX_PAIRS:
            break
        new = search.after(first | second)
        if new is not None and _closes(exact, new):
            return [((a, b), first | second, new)]
    return []

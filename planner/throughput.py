"""How many sequences at once: the limits of memory, of ITL, of TTFT and of the engine, which binds, and what each batch gives.

Memory and time are separate limits. The mean ITL sets the batch; the size of a prefill chunk sets the p99 ITL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.cache import last
from planner.capacity import CapacityPlan, replan
from planner.errors import PlannerError
from planner.latency import Served, served, tokens_per_s
from planner.latency.load import Load, Times, times
from planner.mix import from_text
from planner.notes import Note

MARGIN = 1.1
"""Times are held below their targets by so much: docs/latency.md says how often the batch is then too large all the same."""
MOST = 1 << 17
CHUNKS = (512, 1024, 2048, 4096, 8192, 16384)
DEGREES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """Sequences of one replica. `memory`: by the pool; `itl`, `ttft`: by the targets, None without one, 0 where not even one sequence meets
    it; `engine`: max_num_seqs, None where there is none. `best` = the least of them; `binding` names it."""

    best: int
    binding: str
    memory: int
    itl: int | None
    ttft: int | None
    engine: int | None
    margin: float
    target_itl_s: float | None
    target_ttft_s: float | None
    at_best: dict[str, Any] | None
    frontier: tuple[dict[str, Any], ...]
    chunks: tuple[dict[str, Any], ...]
    static: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return {
            "best": self.best, "binding": self.binding, "b_mem": self.memory, "b_itl": self.itl, "b_ttft": self.ttft, "max_num_seqs": self.engine,
            "margin": self.margin, "target_itl_s": self.target_itl_s, "target_ttft_s": self.target_ttft_s, "at_best": self.at_best,
            "frontier": list(self.frontier), "chunks": list(self.chunks), "static": self.static,
        }  # fmt: skip


def batch_limit(p: CapacityPlan, own: Served | None = None, margin: float = MARGIN) -> BatchLimit | Note:
    """Of one replica of a plan, by its targets. `margin` x time <= target. A note where no times can be given."""
    found = own or served(p)
    if isinstance(found, Note):
        return found
    s = p.scenario
    memory, slots = max(0, p.max_sequences), found.most
    high = min(MOST, max(memory, slots or 0, 1) * 4)
    by_itl = most(found, "itl_s", s.target_itl, margin, high)
    by_ttft = most(found, "ttft_s", s.target_ttft, margin, high)
    limits = {"memory": memory, "itl": by_itl, "ttft": by_ttft, "engine": slots}
    known = {k: v for k, v in limits.items() if v is not None}
    binding = min(known, key=lambda k: known[k])
    best = known[binding]
    sizes = [1 << k for k in range(MOST.bit_length()) if 1 << k <= max(2 * max(known.values()), 8) and 1 << k <= 4096]
    sizes = sorted({*sizes, *([best] if best else [])})
    return BatchLimit(
        best=best,
        binding=binding,
        memory=memory,
        itl=by_itl,
        ttft=by_ttft,
        engine=slots,
        margin=margin,
        target_itl_s=s.target_itl,
        target_ttft_s=s.target_ttft,
        at_best=points(found, [best], memory)[0] if best else None,
        frontier=tuple(points(found, sizes, memory)),
        chunks=tuple(by_chunk(found, best)) if best else (),
        static=static(p, found, best) if best else None,
    )


def most(own: Served, name: str, target: float | None, margin: float, high: int) -> int | None:
    """The most sequences whose time `name` stays within `target` with its margin: a bisection, since times rise with the batch."""
    if target is None:
        return None
    return last(high, lambda n: bool(margin * float(getattr(times(own.stages, own.speeds, own.at(n)), name)) <= target))


def points(own: Served, sizes: list[int], memory: int) -> list[dict[str, Any]]:
    """What each batch gives, of one replica: the curve of all tokens a second against the ITL of one request."""
    load = own.at(np.array(sizes, dtype=np.int64))
    t = times(own.stages, own.speeds, load)
    return [_point(t, load, i, n, n <= memory) for i, n in enumerate(sizes)]


def _point(t: Times, load: Load, i: int, sequences: int, fits: bool) -> dict[str, Any]:
    ttft, itl, p99 = float(t.ttft_s[i]), float(t.itl_s[i]), float(t.itl_p99_s[i])
    rate, each = float(tokens_per_s(t, load)[i]), load.output * load.fan
    return {"sequences": sequences, "fits": fits, "itl_s": itl, "itl_p99_s": p99, "ttft_s": ttft, "output_tokens_per_s": rate,
            "tokens_per_s": rate * (each + load.prompt) / each, "requests_per_s": rate / each}  # fmt: skip


def by_chunk(own: Served, sequences: int) -> list[dict[str, Any]]:
    """Chunked prefill at one batch: what the step's token budget does to the mean ITL, the p99 ITL and TTFT."""
    out = []
    for chunk in sorted({*CHUNKS, int(own.load.chunk)}):
        if chunk <= sequences:
            continue
        t = times(own.stages, own.speeds, replace(own.at(sequences), chunk=chunk))
        out.append({"chunk": chunk, "chosen": chunk == own.load.chunk, "itl_s": float(t.itl_s), "itl_p99_s": float(t.itl_p99_s), "ttft_s": float(t.ttft_s),
                    "share_of_steps": float(t.chunk_share)})  # fmt: skip
    return out


def static(p: CapacityPlan, own: Served, sequences: int) -> dict[str, Any]:
    """Static batching of the same sequences: all prompts first, then as many steps as the longest output has, then the next batch.

    `longest_over_mean` is of the mix of lengths, where one was given; 1 otherwise (equal lengths, the best case for static batching).
    """
    ratio = 1.0
    if p.scenario.lengths:
        mix = from_text(p.scenario.lengths)
        ratio = mix.longest_output / max(1.0, mix.mean_tokens - mix.mean_prompt_tokens)
    load = own.at(sequences)
    t = times(own.stages, own.speeds, load)
    batch_s = sequences * load.prompts * float(t.prefill_s) + load.output * ratio * float(t.step_s)
    rate = sequences * load.fan * load.output / batch_s
    continuous = float(tokens_per_s(t, load))
    return {"output_tokens_per_s": rate, "continuous_tokens_per_s": continuous, "gain": continuous / rate, "longest_over_mean": ratio}


@dataclass(frozen=True, slots=True, kw_only=True)
class Degree:
    """One replica at another tensor degree: a real re-plan with the same targets."""

    tp: int
    gpus: int
    limit: BatchLimit

    def to_json(self) -> dict[str, Any]:
        best = self.limit.at_best or {}
        rate = best.get("output_tokens_per_s", 0.0)
        return {
            "tp": self.tp,
            "gpus": self.gpus,
            "best": self.limit.best,
            "binding": self.limit.binding,
            **best,
            "output_tokens_per_s_per_gpu": rate / self.gpus,
        }


def over_parallelism(p: CapacityPlan, margin: float = MARGIN) -> tuple[Degree, ...]:
    """The same targets at other tensor degrees; those that no engine runs are left out."""
    out = []
    for tp in DEGREES:
        try:
            other = replan(p, tp=tp, gpus=tp * p.setting.parallel.pipeline, dp_attention=1, ep=1, dcp=1)
        except PlannerError:
            continue
        limit = batch_limit(other, margin=margin)
        if isinstance(limit, Note):
            return ()
        out.append(Degree(tp=tp, gpus=other.setting.parallel.ranks, limit=limit))
    return tuple(out)


def by_prompt(own: Served, longest: int) -> list[dict[str, Any]]:
    """TTFT of the plan's load against the prompt's length, with its range."""
    prompts = [1 << k for k in range(7, 21) if 1 << k <= longest] or [longest]
    t = times(own.stages, own.speeds, replace(own.load, prompt=np.array(prompts, dtype=np.int64), cached=0))
    lows, highs = own.speeds.range_ttft.of(t.ttft_s - t.wait_s, t.wait_s, np.array(prompts) + own.load.output)
    rows = zip(prompts, t.ttft_s, lows, highs, strict=True)
    return [{"prompt": n, "ttft_s": float(x), "low_s": float(low), "high_s": float(high)} for n, x, low, high in rows]

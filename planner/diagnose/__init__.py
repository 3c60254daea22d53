"""It is slow, or it dies: why? What was seen is set beside what the plan predicts, the bottleneck is named with its evidence in numbers or is
said to be open, and only then come remedies, each of them planned anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.capacity import CapacityPlan, replan
from planner.diagnose.judge import Line, line
from planner.diagnose.judge import judge as judged
from planner.diagnose.observed import Observed, observed
from planner.knobs import Outcome, Turned, outcome, turned
from planner.latency import Latency, Served, latency, lengths, served
from planner.notes import Note

__all__ = ["Diagnosis", "Fix", "Line", "Observed", "diagnose", "example", "observed"]

FIXES: dict[str, tuple[str, ...]] = {
    "weights": ("fp8_weights", "int4_weights", "double_tp", "double_sequences"),
    "cache": ("fp8_cache", "fewer_kv_heads", "half_context", "double_tp", "double_replicas", "half_sequences"),
    "compute": ("fp8_weights", "double_tp", "double_replicas", "half_sequences"),
    "prefill": ("shared_prefix", "half_prompt", "half_chunk", "double_chunk", "fp8_weights", "double_tp", "double_replicas"),
    "pool": ("fp8_cache", "cap_sequences", "half_context", "higher_fraction", "shared_prefix", "fp8_weights", "double_tp", "double_replicas", "half_sequences"),
    "launches": ("graphs_on", "half_tp", "double_sequences"),
    "links": ("half_tp", "pipeline", "half_sequences", "double_sequences"),
    "queueing": ("double_replicas", "double_slots", "fp8_cache", "half_context", "double_tp", "higher_fraction"),
}
"""Bottleneck -> knobs that can help (the articles' signals: prefill, weights, cache, memory)."""
BETTER, RATE_BETTER = 0.99, 1.1
EXAMPLE_TIMES = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One remedy. `itl_s`, `ttft_s`: what was seen, changed as the plan changes (None where it was not seen)."""

    turned: Turned
    itl_s: float | None
    ttft_s: float | None

    def to_json(self) -> dict[str, Any]:
        t = self.turned
        return {"code": t.code, "text": t.text, "cost": t.cost, "changes": dict(t.changes), "seen_itl_s": self.itl_s, "seen_ttft_s": self.ttft_s,
                **t.after.to_json()}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`verdict`: weights | cache | compute | prefill | pool | launches | links | queueing | undecided. `plan`: of the load that was seen;
    `asks`: figures that would decide. `before`: what the plan gives as it is."""

    verdict: str
    complaint: str
    seen: Observed
    plan: CapacityPlan
    predicted: Latency | None
    before: Outcome | None
    evidence: tuple[Line, ...]
    asks: tuple[Line, ...]
    fixes: tuple[Fix, ...]

    @property
    def decided(self) -> bool:
        return self.verdict != "undecided"

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "decided": self.decided, "complaint": self.complaint, "evidence": [e.text for e in self.evidence],
                "would_decide": [a.text for a in self.asks], "before": self.before.to_json() if self.before else None,
                "remedies": [f.to_json() for f in self.fixes]}  # fmt: skip


def of_load(p: CapacityPlan, seen: Observed) -> CapacityPlan:
    """The plan with the load that was seen, on each of its replicas. Raises InvalidInput where the engine cannot run it."""
    changes: dict[str, Any] = {}
    if seen.sequences is not None:
        changes["sequences"] = seen.sequences * p.replicas
    if seen.prompt is not None or seen.output is not None:
        prompt, output, _ = lengths(p.scenario)
        prompt, output = seen.prompt or prompt, seen.output or output
        changes |= {"prompt": prompt, "output": output, "tokens": prompt + output, "lengths": None,
                    "shared_prefix": min(p.scenario.shared_prefix, prompt)}  # fmt: skip
    return replan(p, **changes) if changes else p


def example(p: CapacityPlan) -> Observed | None:
    """What a server would show that runs as this plan is predicted to: where nothing was seen yet. None: no times can be predicted.

    At the plan's own number of sequences, or at the nearest larger one (twice, four times, while they fit) where one part clearly binds, so
    that the example leads to remedies."""
    first, n = None, p.sequences_per_replica
    for times in EXAMPLE_TIMES:
        if times > 1 and times * n > p.max_sequences:
            break
        own = served(p if times == 1 else replan(p, sequences=times * n * p.replicas))
        if isinstance(own, Note):
            break
        found = latency(own)
        seen = Observed(ttft_s=found.ttft_s, itl_s=found.itl_s, sequences=found.sequences, prompt=found.prompt_tokens, output=found.output_tokens)
        first = first or seen
        if _decides(of_load(p, seen), seen):
            return seen
    return first


def _decides(p: CapacityPlan, seen: Observed) -> bool:
    own = served(p)
    return not isinstance(own, Note) and judged(p, own, latency(own), seen).verdict in FIXES


def diagnose(p: CapacityPlan, seen: Observed) -> Diagnosis:
    """Of what was seen of one server of the plan `p`. Raises InvalidInput for a load that cannot be planned."""
    own_plan = of_load(p, seen)
    own = served(own_plan)
    if isinstance(own, Note) or seen.empty:
        ask = (line("ask_times"),) if seen.empty else ()
        why = (line("no_times", detail=own.text),) if isinstance(own, Note) else ()
        return Diagnosis(verdict="undecided", complaint=seen.complaint, seen=seen, plan=own_plan, predicted=None, before=None, evidence=why, asks=ask, fixes=())
    predicted = latency(own)
    seen, derived = _with_itl(seen, own, predicted)
    found = judged(own_plan, own, predicted, seen)
    before = outcome(own_plan)
    assert isinstance(before, Outcome)
    return Diagnosis(
        verdict=found.verdict,
        complaint=found.complaint,
        seen=seen,
        plan=own_plan,
        predicted=predicted,
        before=before,
        evidence=derived + found.evidence,
        asks=found.asks,
        fixes=fixes(own_plan, found.verdict, found.complaint, seen, before) if found.verdict in FIXES else (),
    )


def _with_itl(seen: Observed, own: Served, predicted: Latency) -> tuple[Observed, tuple[Line, ...]]:
    """The ITL out of tokens a second, where both the rate and the number of sequences were seen: ``B output / rate = TTFT + output ITL``."""
    if seen.itl_s is not None or seen.tokens_per_s is None or seen.sequences is None:
        return seen, ()
    output = int(own.load.output)
    request_s = seen.sequences * output / seen.tokens_per_s
    first = seen.ttft_s if seen.ttft_s is not None else predicted.ttft_s
    itl = (request_s - first) / output if request_s > first else request_s / output
    return replace(seen, itl_s=itl), (line("itl_derived", rate=f"{seen.tokens_per_s:,.0f}", sequences=seen.sequences, itl=f"{itl * 1e3:.1f} ms"),)


def fixes(p: CapacityPlan, verdict: str, complaint: str, seen: Observed, before: Outcome) -> tuple[Fix, ...]:
    """Those that help, the best first: by sequences where memory or a queue binds, else by the time that was complained of. A remedy that only
    raises the rate of all together counts where it does so by a tenth."""
    out = []
    for t in turned(p, FIXES[verdict]):
        after = t.after
        score = _score(after, verdict, complaint) / max(_score(before, verdict, complaint), 1e-12)
        fitted = verdict == "pool" and after.fits and not before.fits
        if score < BETTER or fitted or (verdict != "pool" and after.rate > RATE_BETTER * before.rate):
            itl = seen.itl_s and seen.itl_s * after.itl_s / before.itl_s
            ttft = seen.ttft_s and seen.ttft_s * after.ttft_s / before.ttft_s
            out.append((not fitted, score, Fix(turned=t, itl_s=itl, ttft_s=ttft)))
    return tuple(fix for _, _, fix in sorted(out, key=lambda x: x[:2]))


def _score(o: Outcome, verdict: str, complaint: str) -> float:
    """Less is better."""
    if verdict == "pool":
        return 1 / max(o.memory, 0.5)
    if verdict == "queueing":
        return o.ttft_s if complaint == "ttft" and o.best == 0 else 1 / max(o.best, 0.5)
    if complaint == "ttft":
        return o.ttft_s
    return o.itl_s if complaint == "itl" else 1 / max(o.rate, 1e-9)

"""One choice changed, everything else as it is: the candidates of a plan, each a real re-plan, and the figures that are set side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.cache import Rows
from planner.capacity import CapacityPlan, plan, replan
from planner.engines import engine
from planner.errors import PlannerError
from planner.images import for_asked
from planner.latency import latency, served
from planner.notes import Note
from planner.remedies import HIGH_FRACTION
from planner.throughput import batch_limit
from planner.units import count

FRACTION_STEP = 0.05
MOST_RANKS = 64
LEAST_CHUNK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a plan gives. Sequences and tokens a second of all replicas; times in seconds, at the plan's own load (`itl_s`, `itl_p99_s`,
    `ttft_s`) and at the most sequences (`best_itl_s`; None where none fits). `memory`: sequences by the pool alone; `best`: by pool, targets and
    engine; `binding` names the limit."""

    fits: bool
    memory: int
    best: int
    binding: str
    gpus: int
    itl_s: float
    itl_p99_s: float
    ttft_s: float
    rate: float
    best_itl_s: float | None
    best_rate: float

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def outcome(p: CapacityPlan) -> Outcome | Note:
    """A note where no times can be given."""
    own = served(p)
    if isinstance(own, Note):
        return own
    now, limit = latency(own), batch_limit(p, own)
    if isinstance(limit, Note):
        return limit
    at = limit.at_best
    return Outcome(
        fits=p.fits,
        memory=p.total_max_sequences,
        best=limit.best * p.replicas,
        binding=limit.binding,
        gpus=p.setting.parallel.ranks * p.replicas,
        itl_s=now.itl_s,
        itl_p99_s=now.itl_p99_s,
        ttft_s=now.ttft_s,
        rate=now.output_tokens_per_s * p.replicas,
        best_itl_s=at["itl_s"] if at else None,
        best_rate=at["output_tokens_per_s"] * p.replicas if at else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """One knob turned: `side` says which way (more or less of it), `after` what the plan then gives. No `changes`: another model is meant, of
    which `args` tell the shape."""

    code: str
    side: str
    changes: tuple[tuple[str, Any], ...]
    plan: CapacityPlan
    after: Outcome
    args: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        from planner.messages import render

        return render(f"knob.{self.code}", self._said)

    @property
    def cost(self) -> str:
        """What it costs beside time and memory, which the figures show."""
        from planner.messages import render

        return render(f"knob.{self.code}.cost", self._said)

    @property
    def _said(self) -> dict[str, Any]:
        """What the texts may name; whole numbers with separators."""
        named = {**self.plan.scenario.to_json(), **dict(self.args)}
        return {k: count(v) if isinstance(v, int) and not isinstance(v, bool) else v for k, v in named.items()}


Changes = dict[str, Any]
Knob = Callable[[CapacityPlan], Changes | None]


def _fp8_cache(p: CapacityPlan) -> Changes | None:
    element = p.setting.kv.element
    if element.block_bytes < 2 * element.block_elements:
        return None
    return {"kv_dtype": "q8_0", "cache_type_k": None, "cache_type_v": None} if p.setting.context is not None else {"kv_dtype": "fp8"}


def _weights(dtype: str, rank: int) -> Knob:
    order = {"bf16": 0, "fp16": 0, "fp32": 0, "fp8": 1, "int8": 1}

    def changes(p: CapacityPlan) -> Changes | None:
        s = p.scenario
        now = order.get(s.weight_dtype or ("bf16" if p.model.quantization is None else ""), 9)
        return {"weight_dtype": dtype, "weight_bytes": None} if now < rank else None

    return changes


def _ranks(up: int, down: int) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        tp, rest = divmod(p.setting.parallel.tensor * up, down)
        if rest or not 1 <= tp <= MOST_RANKS or not engine(p.setting.engine).many_ranks:
            return None
        apart = {name: 1 for name in ("dp_attention", "ep", "dcp") if getattr(p.scenario, name) != 1}
        return {"tp": tp, "gpus": tp * p.setting.parallel.pipeline * p.replicas, **apart}

    return changes


def _pipeline(p: CapacityPlan) -> Changes | None:
    """The same GPUs with half the tensor degree and twice the stages: smaller all-reduces, no faster a single request."""
    tp, s = p.setting.parallel.tensor, p.scenario
    plain = s.dp_attention == s.ep == s.dcp == 1
    return {"tp": tp // 2, "pp": 2 * s.pp} if tp % 2 == 0 and plain and engine(p.setting.engine).many_ranks else None


def _replicas(p: CapacityPlan) -> Changes | None:
    return {"tp": p.setting.parallel.tensor, "gpus": 2 * p.setting.parallel.ranks * p.replicas} if engine(p.setting.engine).many_ranks else None


def _lengths(up: int, down: int, *, prompt_only: bool = False) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        from planner.latency import lengths

        s = p.scenario
        if s.lengths:
            return None
        prompt, output, _ = lengths(s)
        prompt, output = max(1, prompt * up // down), output if prompt_only else max(1, output * up // down)
        limit = min(p.model.max_context_tokens or prompt + output, s.max_model_len or prompt + output)
        if prompt + output > limit:
            return None
        return {"prompt": prompt, "output": output, "tokens": prompt + output, "shared_prefix": min(s.shared_prefix, prompt)}

    return changes


def _fraction(step: float) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        now = p.setting.memory_fraction
        to = round(min(HIGH_FRACTION, now + step), 4)
        grows = engine(p.setting.engine).many_ranks and p.scenario.kv_memory is None
        return {"memory_fraction": to} if grows and to >= 0.05 and abs(to - now) > 1e-3 and (to > now) == (step > 0) else None

    return changes


def _slots(up: int, down: int) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        if not engine(p.setting.engine).reserves:
            return None
        return {"max_num_seqs": max(1, p.setting.max_num_seqs * up // down)}

    return changes


def _chunk(up: int, down: int) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        to = p.setting.max_num_batched_tokens * up // down
        chunked = engine(p.setting.engine).many_ranks and p.scenario.prefill_policy != "whole"
        return {"max_num_batched_tokens": to} if chunked and to >= LEAST_CHUNK else None

    return changes


def _prefix(p: CapacityPlan) -> Changes | None:
    from planner.latency import lengths

    s = p.scenario
    prompt, _, _ = lengths(s)
    return {"shared_prefix": prompt // 2, "prefix_caching": True} if not s.lengths and s.shared_prefix < prompt // 2 else None


def _graphs(on: bool) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        return {"enforce_eager": not on} if p.setting.engine == "vllm" and p.scenario.enforce_eager is on else None

    return changes


def _sequences(up: int, down: int) -> Knob:
    def changes(p: CapacityPlan) -> Changes | None:
        to = max(1, p.scenario.sequences * up // down)
        slots = p.setting.max_num_seqs
        over = engine(p.setting.engine).reserves and to > slots * p.replicas * p.setting.parallel.attention_data
        return None if to == p.scenario.sequences else {"sequences": to} | ({"max_num_seqs": to} if over else {})

    return changes


def _cap(p: CapacityPlan) -> Changes | None:
    """As many sequences as the pool holds."""
    return {"sequences": p.total_max_sequences} if 0 < p.total_max_sequences < p.scenario.sequences else None


KNOBS: tuple[tuple[str, str, Knob], ...] = (
    ("fp8_cache", "more", _fp8_cache),
    ("fp8_weights", "more", _weights("fp8", 1)),
    ("int4_weights", "more", _weights("int4", 2)),
    ("half_context", "more", _lengths(1, 2)),
    ("double_context", "less", _lengths(2, 1)),
    ("double_tp", "more", _ranks(2, 1)),
    ("half_tp", "less", _ranks(1, 2)),
    ("double_replicas", "more", _replicas),
    ("higher_fraction", "more", _fraction(FRACTION_STEP)),
    ("lower_fraction", "less", _fraction(-FRACTION_STEP)),
    ("double_slots", "more", _slots(2, 1)),
    ("half_slots", "less", _slots(1, 2)),
    ("double_chunk", "more", _chunk(2, 1)),
    ("half_chunk", "less", _chunk(1, 2)),
    ("shared_prefix", "more", _prefix),
    ("graphs_on", "more", _graphs(True)),
    ("graphs_off", "less", _graphs(False)),
)
LOADS: tuple[tuple[str, str, Knob], ...] = (
    ("half_prompt", "more", _lengths(1, 2, prompt_only=True)),
    ("double_sequences", "more", _sequences(2, 1)),
    ("half_sequences", "less", _sequences(1, 2)),
    ("cap_sequences", "less", _cap),
    ("pipeline", "more", _pipeline),
)
"""Changes of the load itself: remedies, but no knobs of a deployment."""
_ALL = {code: (side, knob) for code, side, knob in (*KNOBS, *LOADS)}


FEWER_KV_HEADS, SHARED_BY = "fewer_kv_heads", 4


def _fewer_kv_heads(p: CapacityPlan) -> Iterator[Turned]:
    """Another model of the same shape whose KV heads are each shared by four times as many query heads (GQA, arXiv 2305.13245); its weights are
    counted as they are. Not for models with latents, states or chosen rows."""
    kinds = [kind for layer in p.model.layers for kind in layer.caches]
    heads = {kind.heads for kind in kinds if isinstance(kind, Rows) and kind.shard == "heads" and kind.format == "kv"}
    plain = all(isinstance(kind, Rows) and kind.shard == "heads" and kind.format == "kv" for kind in kinds)
    if not plain or len(heads) != 1 or (most := heads.pop()) < SHARED_BY:
        return
    few = most // SHARED_BY
    layers = tuple(
        replace(layer, caches=tuple(replace(kind, heads=few) for kind in layer.caches if isinstance(kind, Rows)),
                attention=layer.attention and replace(layer.attention, kv_heads=few))
        for layer in p.model.layers
    )  # fmt: skip
    try:
        other = plan(replace(p.model, layers=layers), p.hardware, p.scenario)
    except PlannerError:
        return
    after = outcome(other)
    if isinstance(after, Outcome):
        yield Turned(code=FEWER_KV_HEADS, side="less", changes=(), plan=other, after=after, args=(("kv_heads", few), ("kv_heads_now", most)))


def turned(p: CapacityPlan, codes: Iterable[str]) -> Iterator[Turned]:
    """Each knob of `codes` that this model and engine have, turned on its own."""
    for code in codes:
        if code == FEWER_KV_HEADS:
            yield from _fewer_kv_heads(p)
            continue
        side, knob = _ALL[code]
        changes = {k: v for k, v in (knob(p) or {}).items() if v != getattr(p.scenario, k)}
        if not changes:
            continue
        try:
            other = replan(p, **changes)
        except PlannerError:
            continue  # this engine or model does not allow the change
        after = outcome(other)
        if isinstance(after, Outcome):
            yield Turned(code=code, side=side, changes=tuple(for_asked(p.asked, p.scenario, changes).items()), plan=other, after=after)

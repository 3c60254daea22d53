"""The cache explained in one model's own figures: lessons as texts, rows and one chart each. Pages only lay them out.

Counts are of one copy of the model, whatever the ranks, but for the lesson on ranks. No figure is made here: bytes come from the cache
kinds and pools, work from planner/latency/work.py, times from planner/latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.cache import Rows, State
from planner.capacity import CapacityPlan
from planner.dtypes import DType, KvLayout
from planner.engines.architecture import ideal_pools
from planner.footprint import drafting, measure
from planner.latency import Latency, estimate, lengths
from planner.latency.work import Work, work_of
from planner.layermap import groups
from planner.model import Attention, ModelSpec
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.weights import weight_format

CODES = ("phases", "steps", "forms", "absorption", "ranks", "paging", "prefix", "held")
CLAIMS: dict[str, frozenset[str]] = {
    "phases": frozenset(("C1", "C2", "C3")), "steps": frozenset(("C4", "C5", "C6", "C19")), "forms": frozenset(("C8", "C10", "C21", "C22", "C23")),
    "absorption": frozenset(("C9",)), "ranks": frozenset(("C11",)), "paging": frozenset(("C15",)), "prefix": frozenset(), "held": frozenset(("C7", "C20")),
}  # fmt: skip
"""Which numbers of the list of claims belong to which lesson; a measured item stands where its first one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`kind`: lines | bars. Each series: (name, colour's key, values over `x`). `x` as numbers (lines, powers of two) or labels (bars)."""

    kind: str
    title: str
    x_title: str
    x: tuple[Any, ...]
    series: tuple[tuple[str, str, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """`texts`: paragraphs; `columns`, `rows`: one table, all text, figures unless `words`; `measured`: what a probe on this host found, as (name, value)."""

    code: str
    texts: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: bool = False
    chart: Chart | None = None
    measured: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the lessons are computed from. `plan` None: the engine does not run this model. `work`: of one copy on one device, `latent`
    absorbed as the engine has it."""

    model: ModelSpec
    scenario: Scenario
    plan: CapacityPlan | None
    kv: KvLayout
    own: DType
    encoder_tokens: int
    work: Work
    prompt: int
    output: int
    latency: Latency | None
    probe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attention(self) -> Attention | None:
        """The largest attention shape; None for models without."""
        shapes = [layer.attention for layer in self.model.layers if layer.attention is not None]
        return max(shapes, key=lambda a: (a.q_heads, a.qk_dim)) if shapes else None

    @property
    def attention_layers(self) -> int:
        return sum(layer.attention is not None for layer in self.model.layers)

    @property
    def rows_layers(self) -> int:
        """Layers that keep rows of their own."""
        return sum(any(isinstance(k, Rows) for k in layer.caches) for layer in self.model.layers)

    @property
    def latent(self) -> Attention | None:
        """The shape of an MLA that caches a latent; None for all others."""
        kept = (x.attention for x in self.model.layers if any(k.kind == "latent" for k in x.caches))
        return next((a for a in kept if a is not None and a.kv_rank is not None), None)

    @property
    def token_bytes(self) -> int:
        """What one more token writes in all layers, windows included: their oldest row leaves for it."""
        return sum(g.token_bytes for g in groups(self.model, self.kv, self.own, self.scenario.tokens, self.encoder_tokens))

    @property
    def has_state(self) -> bool:
        return any(isinstance(k, State) for layer in self.model.layers for k in layer.caches)

    def kept(self, tokens: int, sequences: int = 1, parallel: Parallel | None = None) -> int:
        """Bytes that must be remembered, no engine: one copy, or what each rank of `parallel` keeps of them."""
        pools = ideal_pools(self.model, self.kv, self.own, parallel=parallel or Parallel(), encoder_tokens=self.encoder_tokens)
        return sum(int(p.bytes(sequences, tokens)) for p in pools)


def figures(model: ModelSpec, s: Scenario, plan: CapacityPlan | None, probe: Mapping[str, Any] | None = None) -> Figures:
    """`plan` of the same scenario, where the engine runs the model. Raises PlannerError for a model that cannot be measured at all."""
    model = drafting(model, s)
    setting = plan.setting if plan else measure(model, None, _plain(s)).setting
    fmt = weight_format(model, s.weight_dtype, setting.model_dtype)
    prompt, output, _ = lengths(s)
    times = estimate(plan) if plan else None
    return Figures(
        model=model, scenario=s, plan=plan, kv=setting.kv, own=setting.model_dtype, encoder_tokens=setting.encoder_tokens, prompt=prompt, output=output,
        work=work_of(model, fmt, setting.kv, Parallel(), model_bytes=setting.model_dtype.nbytes(1), encoder_tokens=setting.encoder_tokens),
        latency=times if isinstance(times, Latency) else None, probe=probe or {},
    )  # fmt: skip


def _plain(s: Scenario) -> Scenario:
    """The same load with no engine."""
    return replace(s, engine="architecture")


def lessons(f: Figures) -> tuple[Lesson, ...]:
    """In the order of CODES."""
    from planner.learn import forms, memory, phases, ranks

    return (
        phases.phases(f), phases.steps(f), forms.forms(f), forms.absorption(f), ranks.ranks(f), memory.paging(f), memory.prefix(f), memory.held(f),
    )  # fmt: skip

"""Speculative decoding: a step verifies drafted tokens beside its own, and gives as many as are accepted in a row, and one.

Tokens a step at a per-token acceptance rate a and m drafted tokens: ``(1 - a^(m + 1)) / (1 - a)`` (Leviathan et al. 2023, arXiv 2211.17192,
equation 1). The step computes m + 1 tokens a sequence but reads weights and cache once; experts are touched by all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.budget import weights_counted
from planner.cache import last
from planner.capacity import CapacityPlan
from planner.latency import Served
from planner.latency.load import times
from planner.latency.speeds import STAGE_S
from planner.latency.steps import decode
from planner.latency.work import Work, work_of
from planner.parallel import Parallel
from planner.weights import weight_format

DEFAULT_DRAFTED = 3
GRID = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """At `sequences` sequences. `plain_itl_s`, `itl_s`: without and with; `verify_s`, `draft_s`: of one step. `break_even`: the acceptance
    rate from which it helps, None where none does. `drafter`: layers | none (tokens that cost nothing: looked up in the prompt)."""

    sequences: int
    drafted: int
    acceptance_rate: float
    tokens_per_step: float
    plain_itl_s: float
    itl_s: float
    plain_step_s: float
    verify_s: float
    draft_s: float
    break_even: float | None
    drafter: str

    @property
    def gain(self) -> float:
        return self.plain_itl_s / self.itl_s

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"gain": self.gain}


def tokens_per_step(acceptance: Any, drafted: int) -> Any:
    """Expected tokens of one verification; `acceptance` in [0, 1], a number or an array. m + 1 where all are accepted."""
    return sum(acceptance**k for k in range(drafted + 1))


def speculation(p: CapacityPlan, own: Served, sequences: int, acceptance: float) -> Speculation:
    """The plan's number of speculative tokens (3 where it has none); the draft is its draft layers, where it runs them."""
    drafted = p.scenario.num_speculative_tokens or DEFAULT_DRAFTED
    t = times(own.stages, own.speeds, own.at(sequences))
    mine = -(-sequences * own.load.fan // (own.stages[0].attention_data * len(own.stages)))
    fixed_s = own.speeds.step_s + STAGE_S * (len(own.stages) - 1)
    verify_s = fixed_s + sum(float(decode(w, own.speeds, mine, int(own.load.context), drafted + 1).total) for w in own.stages)
    drafter = _drafter(p)
    draft_s = drafted * float(decode(drafter, own.speeds, mine, int(own.load.context)).total) if drafter else 0.0
    others_s = float(t.others_s)

    def itl(rate: float) -> float:
        return (verify_s + draft_s) / float(tokens_per_step(rate, drafted)) + others_s

    plain = float(t.itl_s)
    fails = last(GRID, lambda k: itl(k / GRID) > plain)
    found = None if fails >= GRID else (fails + 1) / GRID if itl(0.0) > plain else 0.0
    return Speculation(sequences=sequences, drafted=drafted, acceptance_rate=acceptance, tokens_per_step=float(tokens_per_step(acceptance, drafted)),
                       plain_itl_s=plain, itl_s=itl(acceptance), plain_step_s=float(t.step_s), verify_s=verify_s, draft_s=draft_s, break_even=found,
                       drafter="layers" if drafter else "none")  # fmt: skip


def _drafter(p: CapacityPlan) -> Work | None:
    """The draft's layers as a model of their own, with the model's output matrix; they run one token at a time on the last stage."""
    rest = p.model.resting()
    if not p.model.drafts or not rest.draft_layers:
        return None
    setting, parallel = p.setting, p.setting.parallel
    alone = replace(rest, layers=rest.draft_layers, draft_layers=(), drafts=0)
    one = Parallel(tensor=parallel.tensor, attention_data=parallel.attention_data, expert=parallel.expert, context=parallel.context)
    fmt = weight_format(p.model, p.scenario.weight_dtype, setting.model_dtype)
    return work_of(alone, fmt, setting.kv, one, model_bytes=setting.model_dtype.nbytes(1), weight_bytes=weights_counted(p.model, p.scenario, setting),
                   latent=setting.latent)  # fmt: skip

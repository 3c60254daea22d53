"""No engine at all: what the model must remember, one copy, no blocks, no ranks. Also the ideal share of one rank."""

from __future__ import annotations

from planner.cache import Cross, Group, Kind, Pool, Rows, State, Term
from planner.dtypes import DType, KvLayout
from planner.engines.settings import Allocation, LedgerLine, Setting, kv_dtype, model_dtype
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.scenario import Scenario

NAME, VERSION = "architecture", "1"
ALONE = Parallel()


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    return Setting(
        engine=NAME,
        version=VERSION,
        parallel=ALONE,
        kv=kv_dtype(model, s, follow_checkpoint=True, own=model.dtype if s.dtype is None else model_dtype(model, s)),
        model_dtype=model_dtype(model, s),
        max_model_len=s.max_model_len or model.max_context_tokens or s.tokens,
        encoder_tokens=s.encoder_tokens or 0,
    )


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    return Allocation(stages=(ideal_pools(model, setting.kv, setting.model_dtype, encoder_tokens=setting.encoder_tokens),))


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Nothing but the weights comes off: the upper bound of what any engine could do."""
    return (weights,)


def ideal_pools(
    model: ModelSpec,
    kv: KvLayout,
    own: DType,
    *,
    parallel: Parallel = ALONE,
    layers: range | None = None,
    encoder_tokens: int = 0,
) -> tuple[Pool, ...]:
    """Exact rows, windows cut at the window, states once a sequence: the share of one rank of `parallel` over `layers`."""
    groups = []
    for kind, where in model.cache_groups():
        here = tuple(i for i in where if layers is None or i in layers)
        if here:
            term = ideal_term(kind, kv, own, parallel, encoder_tokens)
            groups.append(Group(kind=kind.kind, layers=here, admission=term, resident=term))
    return (Pool(name="rows", groups=tuple(groups)),)


def ideal_term(kind: Kind, kv: KvLayout, own: DType, p: Parallel, encoder_tokens: int) -> Term:
    """The term of one kind on one rank: heads are shared out (at least one each), a latent is on every rank."""
    if isinstance(kind, Rows):
        heads = kind.heads if kind.shard == "copy" else p.heads_on_rank(kind.heads)
        if p.context > 1 and kind.limit_tokens is None:  # the ranks take the tokens in turn
            return Term(unit_bytes=kv.row_bytes(heads, kind.k_dim, kind.v_dim), unit_tokens=kind.ratio * p.context)
        return Term(unit_bytes=kv.row_bytes(heads, kind.k_dim, kind.v_dim), unit_tokens=kind.ratio, rounding="floor", cap_tokens=kind.limit_tokens)
    if isinstance(kind, Cross):
        rows = kind.source_tokens or encoder_tokens
        return Term(unit_bytes=kv.row_bytes(p.heads_on_rank(kind.heads), kind.k_dim, kind.v_dim), unit_tokens=None, extra_units=rows)
    return Term(unit_bytes=state_bytes(kind, own, p), unit_tokens=None, extra_units=1)


def state_bytes(kind: State, own: DType, p: Parallel, drop_conv_columns: int = 1) -> int:
    """State of one layer and sequence on one rank; K - 1 convolution columns are what must be remembered between steps."""
    return kind.bytes_per_sequence(own, drop_conv_columns, p.attention_ranks)

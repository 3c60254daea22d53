"""transformers 5.24 with DynamicCache, as measured tensor by tensor: windows keep W - 1 rows between steps, states all K columns.

MLA families cache the latent and the RoPE key (5.24); Falcon's new architecture caches K and V repeated to every query head.
Runs on one device: tensor parallelism, blocks and a reserved pool do not exist here.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Group, Pool, Rows, State, Term
from planner.engines.architecture import ideal_term, state_bytes
from planner.engines.settings import Allocation, LedgerLine, Setting, kv_dtype, model_dtype
from planner.engines.vllm_budget import non_torch, visible_memory
from planner.errors import InvalidInput
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import GIB

NAME, VERSION = "transformers", "5.24"
SOURCE = cite("transformers 5.24 cache_utils.py, measured")


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    for name in ("tp", "pp", "dp_attention", "ep"):
        if (getattr(s, name) or 1) > 1:
            raise InvalidInput("one_device_only", field=name, engine=NAME)
    own = model_dtype(model, s)
    return Setting(
        engine=NAME,
        version=VERSION,
        parallel=Parallel(),
        kv=kv_dtype(model, s, follow_checkpoint=False, own=own),
        model_dtype=own,
        max_model_len=s.max_model_len or model.max_context_tokens or s.tokens,
        encoder_tokens=s.encoder_tokens or 0,
    )


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    p, groups, notes = setting.parallel, [], []
    for kind, where in model.cache_groups():
        if isinstance(kind, Rows):
            held = kind
            if "transformers_caches_query_heads" in model.quirks:
                attention = model.layers[where[0]].attention
                held = replace(kind, heads=attention.q_heads if attention else kind.heads)
            term = ideal_term(held, setting.kv, setting.model_dtype, p, setting.encoder_tokens)
            if kind.limit_tokens:
                term = replace(term, cap_tokens=kind.limit_tokens - 1)
        elif isinstance(kind, State):
            term = Term(unit_bytes=state_bytes(kind, setting.model_dtype, p, drop_conv_columns=0), unit_tokens=None, extra_units=1)
        else:
            term = ideal_term(kind, setting.kv, setting.model_dtype, p, setting.encoder_tokens)
        groups.append(Group(kind=kind.kind, layers=where, admission=term, resident=term))
    if "transformers_caches_query_heads" in model.quirks:
        notes.append(note("warning", "cached_after_repeat", source=SOURCE))
    return Allocation(stages=((Pool(name="rows", groups=tuple(groups)),),), notes=tuple(notes))


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """No pool is reserved: what is left beside weights, context and one prefill is what the cache can grow into."""
    _, gap = visible_memory(hardware)
    return (gap, weights, _activation(model, s, setting), non_torch(setting))


def _activation(model: ModelSpec, s: Scenario, setting: Setting) -> LedgerLine:
    """One prefill of the whole prompt: the widest feed-forward layer's intermediates and four hidden states, plus one row of logits a
    sequence in fp32. Assumed: no logs of transformers were fitted."""
    size = s.tokens * (3 * model.widest_mlp() + 4 * model.hidden_size) * setting.model_dtype.nbytes(1) + s.sequences * model.vocab_size * 4
    return LedgerLine(code="activation", bytes=size, kind="assumed", source=cite("2 T (3 I + 4 H) + 4 B V for one prompt at a time"),
                      low_bytes=size // 2, high_bytes=size * 2 + GIB // 4)  # fmt: skip

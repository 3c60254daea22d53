"""transformers 5.24's other cache classes (cache_utils.py): StaticCache, taken whole, and QuantizedCache with quanto or hqq.

Run on tensors: quanto 0.2.7 and hqq 0.2.8 keep nbits a value and, for each 64 values, a scale and a shift in the model's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Group, Rows, Slots, Term
from planner.dtypes import DType, KvLayout
from planner.engines.settings import Setting
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.messages import kind_word
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.scenario import MAX_SEQUENCES, Scenario

SOURCE = cite("transformers 5.24 cache_utils.py, run on tensors")
GROUP = 64  # q_group_size: values that share a scale and a shift
NBITS = {"quanto": (2, 4), "hqq": (2, 4, 8)}
# What a class holds beside rows: not looked at in a static cache.
NOT_STATIC = ("shared_kv_rows", "transformers_index_raw", "transformers_index_gates", "transformers_index_fp32", "transformers_index_positions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """`static`: rows for `cache_tokens` from the start (0: the load's own length). `quantized`: the newest `residual` rows of those after
    the prompt's `prompt` tokens stay in the model's dtype."""

    static: bool = False
    cache_tokens: int = 0
    quantized: bool = False
    residual: int = 0
    prompt: int = 0


def values(s: Scenario) -> Values:
    if s.cache_implementation == "static":
        return Values(static=True, cache_tokens=s.max_model_len or 0)
    if s.cache_implementation == "quantized":
        return Values(quantized=True, residual=s.cache_residual, prompt=s.prompt if s.prompt is not None else s.tokens)
    return Values()


def check(model: ModelSpec, s: Scenario, own: DType) -> tuple[Note, ...]:
    """Notes on the cache that was chosen. Raises for models that it cannot hold and for choices that its classes refuse."""
    if s.cache_implementation == "static":
        if any(q in model.quirks for q in NOT_STATIC):
            raise UnsupportedModel("static_not_covered", field="cache_implementation", model_type=model.model_type)
        by_load = () if s.max_model_len else (note("assumed", "cache_static_load", field="max_model_len", source=SOURCE),)
        return (note("derived", "cache_static", field="cache_implementation", source=SOURCE, tokens=s.max_model_len or s.tokens), *by_load)
    if s.cache_implementation != "quantized":
        return ()
    known = NBITS[s.cache_backend]
    if s.cache_nbits not in known:
        raise UnsupportedValue("nbits_not_in_backend", field="cache_nbits", value=s.cache_nbits, backend=s.cache_backend, known=", ".join(map(str, known)))
    if s.kv_dtype not in ("auto", "bf16", "fp16", "fp32"):
        raise InvalidInput("quantized_dtype", field="kv_dtype", value=s.kv_dtype, nbits=s.cache_nbits)
    kinds = sorted({k.kind for k, _ in model.cache_groups() if k.kind not in ("full", "latent")})
    if kinds:  # the class itself refuses them
        raise UnsupportedModel("quantized_full_only", field="cache_implementation", kinds=tuple(map(kind_word, kinds)))
    for kind, _ in model.cache_groups():
        if isinstance(kind, Rows) and (kind.k_dim % GROUP or kind.v_dim % GROUP):
            raise UnsupportedModel("quantized_groups", field="head_dim", elements=kind.k_dim if kind.k_dim % GROUP else kind.v_dim, group=GROUP)
    out = (note("derived", "cache_quantized", field="cache_implementation", source=SOURCE, residual=s.cache_residual - 1),)
    return out if s.prompt is not None else (*out, note("assumed", "cache_quantized_prompt", field="prompt", source=SOURCE))


def layout(s: Scenario, own: DType) -> KvLayout | None:
    """Rows of a quantized cache; None for the others."""
    if s.cache_implementation != "quantized":
        return None
    element = DType(name=f"int{s.cache_nbits}/{GROUP}", block_elements=GROUP, block_bytes=GROUP * s.cache_nbits // 8 + 2 * own.nbytes(1))
    return KvLayout(name=f"{s.cache_backend}_int{s.cache_nbits}", element=element)


def static_term(term: Term, kind: Rows, quirks: frozenset[str]) -> Term:
    """StaticSlidingWindowLayer keeps min(W, max_cache_len) rows, one more than a growing window between steps."""
    more = 1 if "transformers_window_plus_one" in quirks else 0
    return replace(term, cap_tokens=kind.limit_tokens + more) if kind.limit_tokens else term


def slots(setting: Setting) -> Slots | None:
    """A static cache has every sequence's rows from the start; its batch is the load's."""
    return Slots(most=MAX_SEQUENCES, tokens=setting.own.cache_tokens) if setting.own.static else None


def quantized(group: Group, setting: Setting) -> tuple[Group, Group]:
    """The sawtooth of QuantizedCache: the rows of `group` at their quantized price, and what the newest of them cost more in full.

    The prompt is quantized at once. Each further row is appended in full; when they would be `residual`, all rows are quantized anew and
    none is left in full (QuantizedLayer.update). Reserved is the tooth's peak, ``residual - 1`` rows.
    """
    term, v, element = group.resident, setting.own, setting.kv.element
    full = setting.model_dtype.nbytes(term.unit_bytes // element.block_bytes * element.block_elements)  # groups divide rows evenly
    more = full - term.unit_bytes
    tooth = Term(unit_bytes=more, unit_tokens=v.residual, rounding="rest", offset_tokens=v.prompt)
    peak = Term(unit_bytes=more, unit_tokens=1, cap_tokens=v.residual - 1)
    return group, Group(kind=group.kind, layers=group.layers, admission=peak, resident=tooth)

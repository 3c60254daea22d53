"""transformers 5.24 with DynamicCache, as measured tensor by tensor: windows keep W - 1 rows between steps, states all K columns.
StaticCache and QuantizedCache: transformers/caches.py.

MLA families cache the latent and the RoPE key (5.24); Falcon's new architecture caches K and V repeated to every query head.
Runs on one device: tensor parallelism, blocks and a reserved pool do not exist here.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Group, Pool, Rows, State, Term
from planner.dtypes import DTYPES, KvLayout
from planner.engines.architecture import ideal_term, state_bytes
from planner.engines.settings import Allocation, LedgerLine, Setting, kv_dtype, model_dtype
from planner.engines.shared import visible_memory
from planner.engines.transformers import caches
from planner.engines.vllm.overhead import non_torch
from planner.errors import InvalidInput, UnsupportedValue
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import GIB

NAME, VERSION = "transformers", "5.24"
SOURCE = cite("transformers 5.24 cache_utils.py, measured")
KV_DTYPES = frozenset(("auto", "bf16", "fp16", "fp32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"))


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    for name in ("tp", "pp", "dp_attention", "ep", "dcp"):
        if (getattr(s, name) or 1) > 1:
            raise InvalidInput("one_device_only", field=name, engine=NAME)
    own = model_dtype(model, s)
    notes = caches.check(model, s, own)
    if s.kv_dtype not in KV_DTYPES:
        raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=s.kv_dtype, engine=NAME, known=", ".join(sorted(KV_DTYPES)))
    return Setting(
        engine=NAME,
        version=VERSION,
        parallel=Parallel(),
        kv=caches.layout(s, own) or kv_dtype(model, s, follow_checkpoint=False, own=own),
        model_dtype=own,
        max_model_len=s.max_model_len or model.max_context_tokens or s.tokens,
        encoder_tokens=s.encoder_tokens or 0,
        own=caches.values(s),
        notes=notes,
    )


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    p, groups, notes = setting.parallel, [], []
    for kind, where in model.cache_groups():
        if isinstance(kind, Rows):
            held = kind
            if "transformers_caches_query_heads" in model.quirks:
                attention = model.layers[where[0]].attention
                held = replace(kind, heads=attention.q_heads if attention else kind.heads)
            layout = setting.kv
            if held.format == "index":
                held, layout = held_index(held, layout, model.quirks)
            term = ideal_term(held, layout, setting.model_dtype, p, setting.encoder_tokens)
            if setting.own.static:
                term = caches.static_term(term, kind, model.quirks)
            elif kind.limit_tokens:
                more = 1 if "transformers_window_plus_one" in model.quirks else 0  # models/mimo_v2_flash: sliding_window_size + 1
                term = replace(term, cap_tokens=kind.limit_tokens - 1 + more)
        elif isinstance(kind, State):
            term = Term(unit_bytes=state_bytes(kind, setting.model_dtype, p, drop_conv_columns=0), unit_tokens=None, extra_units=1)
        else:
            term = ideal_term(kind, setting.kv, setting.model_dtype, p, setting.encoder_tokens)
        twice = () if "shared_kv_rows" not in model.quirks else tuple(i for i in where if len(model.layers[i].caches) == 1)
        for here, times in ((tuple(i for i in where if i not in twice), 1), (twice, 2)):
            if here:
                held_term = replace(term, unit_bytes=term.unit_bytes * times)
                groups.append(Group(kind=kind.kind, layers=here, admission=held_term, resident=held_term))
    if "position_counter" in model.quirks:  # one int64 tensor beside the states (xLSTMCache.seqlen_offset)
        counter = Term(unit_bytes=8, unit_tokens=None, extra_units=1)
        groups.append(Group(kind="state", layers=(0,), admission=counter, resident=counter))
    indexed = [i for i, layer in enumerate(model.layers) if any(k.kind == "index" for k in layer.caches)]
    if indexed and "transformers_index_positions" in model.quirks:  # three int64 positions a token, once for all indexers (models/qwen4_exp)
        positions = Term(unit_bytes=3 * 8, unit_tokens=1)
        groups.append(Group(kind="index", layers=(indexed[0],), admission=positions, resident=positions))
    if "shared_kv_rows" in model.quirks:
        groups += compressor_groups(model, setting)
    if "transformers_caches_query_heads" in model.quirks:
        notes.append(note("warning", "cached_after_repeat", source=SOURCE))
    if setting.own.quantized:
        groups = [g for of in groups for g in caches.quantized(of, setting)]
    return Allocation(stages=((Pool(name="rows", groups=tuple(groups), slots=caches.slots(setting)),),), notes=tuple(notes))


def held_index(kind: Rows, layout: KvLayout, quirks: frozenset[str]) -> tuple[Rows, KvLayout]:
    """The index row that these classes really hold (run on small models): every token's where an engine needs one a pool, beside it the
    pool's gate and a mark (models/glm5_next), or in fp32 (models/dots3_note)."""
    if "transformers_index_raw" in quirks:
        kind = replace(kind, ratio=1)
    if "transformers_index_gates" in quirks:
        kind = replace(kind, ratio=1, k_dim=2 * kind.k_dim + 1)
    return kind, KvLayout(name="fp32", element=DTYPES["fp32"]) if "transformers_index_fp32" in quirks else layout


def compressor_groups(model: ModelSpec, setting: Setting) -> list[Group]:
    """What DeepSeek-V4's compressors hold beside their rows (transformers 5.24 models/deepseek_v4, run on small models).

    A compressor buffers key and gate of the tokens beyond the last whole chunk: a sawtooth. Where chunks overlap (layers that choose
    rows by an index) both are twice as wide, and the last chunk is kept: its keys in the model's dtype, its gates in fp32.
    Layers without a compressor hold their one row as K and as V (`shared_kv_rows` in `allocate`).
    """
    groups = []
    for kind, where in model.cache_groups():
        if not isinstance(kind, Rows) or kind.ratio == 1:
            continue
        for here, overlap in ((tuple(i for i in where if _chooses(model, i)), True), (tuple(i for i in where if not _chooses(model, i)), False)):
            if not here:
                continue
            one = setting.model_dtype.nbytes(kind.k_dim)
            terms = [Term(unit_bytes=2 * one * (2 if overlap else 1), unit_tokens=kind.ratio, rounding="rest")]
            if overlap:
                terms.append(Term(unit_bytes=kind.ratio * (one + 4 * kind.k_dim), unit_tokens=kind.ratio, rounding="floor", cap_tokens=kind.ratio))
            groups += [Group(kind="state", layers=here, admission=t, resident=t) for t in terms]
    return groups


def _chooses(model: ModelSpec, layer: int) -> bool:
    return any(kind.kind == "index" for kind in model.layers[layer].caches)


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """No pool is reserved: what is left beside weights, context and one prefill is what the cache can grow into."""
    _, gap = visible_memory(hardware)
    return (gap, weights, _activation(model, s, setting), non_torch(setting, "plain"))


def _activation(model: ModelSpec, s: Scenario, setting: Setting) -> LedgerLine:
    """One prefill of the whole prompt: the widest feed-forward layer's intermediates and four hidden states, plus one row of logits a
    sequence in fp32. Assumed: no logs of transformers were fitted."""
    size = s.tokens * (3 * model.widest_mlp() + 4 * model.hidden_size) * setting.model_dtype.nbytes(1) + s.sequences * model.vocab_size * 4
    return LedgerLine(code="activation", bytes=size, kind="assumed", source=cite("2 T (3 I + 4 H) + 4 B V for one prompt at a time"),
                      low_bytes=size // 2, high_bytes=size * 2 + GIB // 4)  # fmt: skip

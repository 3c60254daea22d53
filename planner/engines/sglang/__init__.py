"""SGLang 0.5.23: its defaults for a device and a model, and the pools that it makes of the layers.

One pool of tokens; windowed layers of a few families in a second one (sglang/rows.py), states in slots of their own, DeepSeek-V4 apart
(sglang/v4.py). How many bytes each pool gets: sglang/sizes.py. Sources: srt/arg_groups/ of the sglang 0.5.23 wheel, run on real configs for
H100, A100, L4 and B200.
"""

from __future__ import annotations

from planner.cache import Cross, Group, Pool, Rows, State, Term
from planner.dtypes import DTYPES, DType, KvLayout, dtype, kv_layout
from planner.engines.settings import Allocation, Setting, parallel
from planner.engines.sglang import v4
from planner.engines.sglang.device import RUN_ON, V4_PAGE, backend_of, capacity, memory_fraction, page_size
from planner.engines.sglang.models import BF16_SPARSE, EXTRA_BUFFER, MINIMAX_SPARSE, NO_DP_ATTENTION, NO_RADIX, WINDOWED, class_of, is_native
from planner.engines.sglang.rows import STATES_RUN, Charge, charges, has_states, is_packed, is_sparse, major, state_bytes
from planner.engines.sglang.sizes import Values, window_cap
from planner.engines.shared import nearest, version_tuple
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario
from planner.units import GIB, MIB

NAME, VERSION = "sglang", "0.5.23"
SOURCE = cite("sglang 0.5.23 srt/model_executor/pool_configurator.py")
KV_DTYPES = frozenset(("bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4"))
SPARSE_KV_DTYPES = frozenset(("bf16", "fp8", "fp8_e4m3"))
PAGE_SIZES = {"trtllm_mla": (32, 64), "trtllm_mha": (16, 32, 64, 128), "fa4": (128,), "fa3_minimax": None}
DRAFTING_SEQUENCES = 48  # max_running_requests while it speculates (srt/arg_groups/speculative_hook.py)
DEFAULT_MEMORY = 80 * GIB


# -- defaults ----------------------------------------------------------------------------------------------------------


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    """Raises for what SGLang refuses, and for what these rules do not cover (context ranks, uneven stages, drafts beside windows or states)."""
    notes: list[Note] = []
    p = parallel(s)
    check(model, s, p)
    if s.engine_version and version_tuple(s.engine_version)[:2] != version_tuple(VERSION)[:2]:
        notes.append(nearest(s.engine_version, VERSION))
    capability = hardware.compute_capability if hardware else None
    if hardware is not None and capability not in RUN_ON:
        notes.append(note("assumed", "sglang_device_not_run", field="gpu", gpu=hardware.name, source=SOURCE))
    if p.pipeline > 1 or s.num_speculative_tokens or s.kv_dtype == "nvfp4":
        notes.append(note("assumed", "sglang_rule_read", source=SOURCE))
    own = model_dtype(model, s)
    kv = kv_dtype(model, s, own, capability)
    radix = s.prefix_caching and class_of(model) not in NO_RADIX
    backend = backend_of(model, capability, prefix_caching=radix, drafting=s.num_speculative_tokens > 0)
    memory = hardware.memory_bytes if hardware else DEFAULT_MEMORY
    chunk = s.max_num_batched_tokens or capacity(memory // MIB, p.tensor)[0]
    asked = s.max_num_seqs or (v4.MAX_RUNNING if backend == "dsv4" else DRAFTING_SEQUENCES if s.num_speculative_tokens else None)
    fraction, exact = memory_fraction(model, memory, p, backend, chunk, s.max_num_seqs)
    if s.memory_fraction is None and not exact:
        notes.append(note("assumed", "sglang_vision_unknown", field="vision_config", source=cite("sglang 0.5.23 srt/arg_groups/memory_hook.py")))
    if s.max_model_len and model.server.context_tokens and s.max_model_len > model.server.context_tokens:
        notes.append(note("warning", "sglang_context", field="max_model_len", longest=s.max_model_len, limit=model.server.context_tokens))
    slots = 0 if not has_states(model) else 1 if not radix else 5 if class_of(model) in EXTRA_BUFFER else 3
    return Setting(
        engine=NAME,
        version=VERSION,
        asked_version=s.engine_version,
        parallel=p,
        kv=kv,
        model_dtype=own,
        block_size=page(model, s, backend, slots, notes),
        max_model_len=s.max_model_len or model.server.context_tokens or model.max_context_tokens or s.tokens,
        longest_possible=model.server.context_tokens,
        max_num_seqs=asked or 4096,
        max_num_batched_tokens=max(1, chunk // p.attention_data),
        prefix_caching=radix,
        memory_fraction=s.memory_fraction or fraction,
        capability=capability,
        encoder_tokens=s.encoder_tokens or 0,
        draft_tokens=s.num_speculative_tokens,
        own=Values(
            backend=backend,
            window_ratio=s.swa_full_tokens_ratio or (v4.WINDOW_RATIO if backend == "dsv4" else 0.8),
            state_ratio=s.mamba_full_memory_ratio or 0.9,
            slots=slots,
            asked_sequences=asked,
        ),
        notes=tuple(notes),
    )


def check(model: ModelSpec, s: Scenario, p: Parallel) -> None:
    name = class_of(model)
    if p.context > 1:
        raise UnsupportedValue("option_not_covered", field="dcp", value=p.context, engine=NAME)
    if p.attention_data > 1 and name in NO_DP_ATTENTION:
        raise InvalidInput("no_dp_attention", field="dp_attention", architecture=name, engine=NAME)
    split = has_states(model) or is_packed(model) or name in WINDOWED
    if s.num_speculative_tokens and split:
        raise UnsupportedValue("option_not_covered", field="num_speculative_tokens", value=s.num_speculative_tokens, engine=NAME)
    if p.pipeline > 1 and (split or (len(model.layers) - model.drafts) % p.pipeline):
        raise UnsupportedValue("option_not_covered", field="pp", value=p.pipeline, engine=NAME)
    if not is_native(model) and any(not isinstance(k, Rows) for k, _ in model.cache_groups()):
        raise UnsupportedModel("no_class", field="architectures", architecture=name, engine=NAME, version=VERSION)


def model_dtype(model: ModelSpec, s: Scenario) -> DType:
    """float32, and a file that names none, run in float16, Gemma in bfloat16 (srt/configs/model_config.py _get_and_verify_dtype); gpt-oss in
    its MXFP4 form in bfloat16 (srt/arg_groups/model_overrides/gpt_oss.py)."""
    if s.dtype:
        return dtype(s.dtype, "dtype")
    if class_of(model) == "GptOssForCausalLM" and model.quantization == "mxfp4":
        return DTYPES["bf16"]
    if model.dtype.name == "fp32" or any(n.code == "no_dtype" for n in model.notes):
        return DTYPES["bf16" if model.model_type.startswith("gemma") else "fp16"]
    return model.dtype


def kv_dtype(model: ModelSpec, s: Scenario, own: DType, capability: tuple[int, int] | None) -> KvLayout:
    """--kv-dtype; else fp8 for DeepSeek-V4 and from SM10 on for sparse MLA, whose checkpoints' wishes do not count; else what the
    checkpoint asks for in a way that is honoured; else the model's dtype. Raises UnsupportedValue."""
    packed = is_packed(model)
    known = frozenset(("fp8", "fp8_e4m3")) if packed else SPARSE_KV_DTYPES - ({"fp8", "fp8_e4m3"} if class_of(model) in BF16_SPARSE else set())
    known = known if packed or is_sparse(model) else KV_DTYPES | {own.name}
    if s.kv_dtype != "auto":
        if s.kv_dtype not in known:
            raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=s.kv_dtype, engine=NAME, known=", ".join(sorted(known)))
        return kv_layout(s.kv_dtype)
    if packed:
        return kv_layout("fp8_e4m3")
    if is_sparse(model):
        return kv_layout("fp8_e4m3" if capability is not None and capability[0] >= 10 and class_of(model) not in BF16_SPARSE else "bf16")
    return kv_layout(model.server.kv_dtype_wish or own.name)


def page(model: ModelSpec, s: Scenario, backend: str, slots: int, notes: list[Note]) -> int:
    """--page-size where the backend takes it, else the backend's own. A page that is changed is a note. Raises InvalidInput."""
    own = page_size(model, backend)
    if s.block_size is None or s.block_size == own:
        return own
    if slots == 3:
        raise InvalidInput("page_of_one", field="block_size", value=s.block_size, engine=NAME)
    takes = (own,) if backend in ("dsv4", "dsa") else PAGE_SIZES.get(backend)
    if takes is None or s.block_size in takes:
        return s.block_size
    notes.append(note("warning", "page_size_changed", field="block_size", asked=s.block_size, used=own, engine=NAME))
    return own


# -- pools -------------------------------------------------------------------------------------------------------------


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    """The pools of one rank. Raises what SGLang refuses."""
    v: Values = setting.own
    if v.backend == "dsv4":
        return Allocation(stages=(v4.pools(model, setting, window_cap(model, setting) + V4_PAGE),), notes=tuple(_notes(model, setting, ())))
    priced = charges(model, setting)
    states = state_bytes(model, setting)
    if not priced and not states:
        raise UnsupportedModel("nothing_cached", field="engine", engine=NAME)
    stages = []
    for layers in setting.parallel.stage_layers(len(model.layers), model.drafts):
        pools = _token_pools(model, setting, priced, layers)
        stages.append((*pools, _state_pool(model, states, v.slots)) if states else pools)
    return Allocation(stages=tuple(stages), notes=tuple(_notes(model, setting, priced)))


def _token_pools(model: ModelSpec, setting: Setting, priced: tuple[Charge, ...], layers: range) -> tuple[Pool, ...]:
    """Full rows, and windowed ones where this class has a pool for them. An encoder's positions take tokens of the pool too."""
    unit = setting.block_size or 1
    encoder = -(-setting.encoder_tokens // unit) if any(isinstance(k, Cross) for k, _ in model.cache_groups()) else 0
    pools = []
    for window in (False, True):
        groups = []
        for c in priced:
            here = tuple(i for i in c.layers if i in layers)
            if c.window is not window or not here:
                continue
            cap = -(-(window_cap(model, setting)) // unit) * unit if window else None
            term = Term(unit_bytes=unit * c.row_bytes, unit_tokens=unit, cap_tokens=cap, extra_units=encoder)
            groups.append(Group(kind="window" if window else c.kind, layers=here, admission=term, resident=term,
                                content_bytes=len(here) * unit * c.row_bytes, limit_tokens=c.limit_tokens))  # fmt: skip
        if groups:
            pools.append(Pool(name="window" if window else "full", groups=tuple(groups), block_size=unit, block_bytes=sum(g.bytes_per_unit() for g in groups)))
    return tuple(pools)


def _state_pool(model: ModelSpec, size: int, slots: int) -> Pool:
    """Slots of all state layers together; one more is padding (srt/mem_cache/memory_pool.py). A running request takes `slots` of them."""
    layers = tuple(i for i, layer in enumerate(model.layers) if any(isinstance(k, State) for k in layer.caches))
    term = Term(unit_bytes=size // len(layers), unit_tokens=None, extra_units=slots)
    group = Group(kind="state", layers=layers, admission=term, resident=term, content_bytes=size)
    return Pool(name="state", groups=(group,), priced="pooled", block_bytes=size, null_blocks=1)


def _notes(model: ModelSpec, setting: Setting, priced: tuple[Charge, ...]) -> list[Note]:
    notes = []
    if not class_of(model):
        notes.append(note("assumed", "sglang_no_name", field="architectures"))
    if not is_native(model):
        notes.append(note("warning", "sglang_no_class", field="architectures", architecture=class_of(model)))
    kept, family = sum(len(c.layers) for c in priced if c.limit_tokens and not c.window), class_of(model) or model.model_type
    if kept:
        notes.append(note("info", "sglang_windows_full", layers=kept, architecture=family, source=cite("sglang 0.5.23 srt/configs/model_config.py")))
    charged = sum(1 for layer in model.layers if not layer.caches) if priced and not has_states(model) else 0
    if charged:
        notes.append(note("info", "sglang_layers_charged", layers=charged, source=SOURCE))
    if any(isinstance(k, State) and k.mechanism not in STATES_RUN for k, _ in model.cache_groups()) or (
        class_of(model) in MINIMAX_SPARSE and (major(setting) or 9) >= 10
    ):
        notes.append(note("assumed", "sglang_rule_read", source=SOURCE))
    queries = {layer.attention.q_heads for layer in model.layers if layer.attention is not None}
    ranks = setting.parallel.attention_ranks
    if any(q % ranks for q in queries):
        notes.append(note("warning", "sglang_query_heads", field="tp", heads=max(queries), tp=ranks))
    return notes

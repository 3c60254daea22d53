"""TensorRT-LLM: what a token of each layer takes on one rank, and what its KV cache managers cannot hold.

Sources (public repository, read and not run): _torch/pyexecutor/resource_manager.py (KVCacheManager), attention_backend/sparse/dsa.py
(DSACacheManager), pyexecutor/mamba_cache_manager.py. A manager has one head size for all layers; heads may differ by layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Cross, Rows, State
from planner.engines.settings import Setting
from planner.engines.trtllm.models import STATES, class_of
from planner.errors import UnsupportedModel
from planner.messages import Word, kind_word, state_word
from planner.model import ModelSpec

ENGINE = "trtllm"
INDEX_SCALES = 128  # values of an index key that one fp32 scale is for


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """`row_bytes` a token and layer on one rank. `window`: tokens of this kind's own pool, None: the pool of full layers."""

    kind: str
    layers: tuple[int, ...]
    row_bytes: int
    limit_tokens: int | None = None
    window: int | None = None


def charges(model: ModelSpec, setting: Setting, window_pools: bool) -> tuple[Charge, ...]:
    """Rows of every layer. With `window_pools` a windowed layer's rows are in the pool of its window. Raises UnsupportedModel."""
    kinds = [(k, where) for k, where in model.cache_groups() if isinstance(k, Rows)]
    latent = any(k.kind == "latent" for k, _ in kinds)
    dims = {(k.k_dim, k.v_dim) for k, _ in kinds if k.format == "kv"}
    if len(dims) > 1 or any(v not in (0, k) for k, v in dims):
        raise UnsupportedModel("head_sizes_differ", field="head_dim", engine=ENGINE, sizes=", ".join(f"{k}/{v}" for k, v in sorted(dims)))
    out = []
    for kind, where in kinds:
        if kind.ratio != 1 or (kind.format == "index" and not latent):
            what = Word("compressed", "word.cache.compressed") if kind.ratio != 1 else kind_word("index")
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=what, engine=ENGINE, version=setting.version)
        if kind.format == "index":  # fp8 keys and their scales, whatever the KV dtype
            row = kind.k_dim + 4 * -(-kind.k_dim // INDEX_SCALES)
        else:
            heads = kind.heads if kind.shard == "copy" else setting.parallel.heads_on_rank(kind.heads)
            row = setting.kv.row_bytes(heads, kind.k_dim, kind.v_dim)
        window = kind.window if kind.window and window_pools and kind.window < setting.max_model_len else None
        out.append(Charge(kind=kind.kind, layers=where, row_bytes=row, limit_tokens=kind.limit_tokens, window=window))
    return tuple(out)


def cross_charges(model: ModelSpec, setting: Setting) -> tuple[tuple[Cross, Charge], ...]:
    return tuple(
        (k, Charge(kind="cross", layers=where, row_bytes=setting.kv.row_bytes(setting.parallel.heads_on_rank(k.heads), k.k_dim, k.v_dim)))
        for k, where in model.cache_groups()
        if isinstance(k, Cross)
    )


def state_slots(setting: Setting) -> int:
    """Slots of states that a rank takes: max_batch_size for each pipeline stage in flight (mamba_cache_manager.py max_num_sequences)."""
    return setting.max_num_seqs * setting.parallel.pipeline


def state_bytes(model: ModelSpec, setting: Setting, layers: range) -> int:
    """One slot of all states of `layers` on one rank: K - 1 convolution columns in the model's dtype, the recurrent part in the dtype that
    the file asks for (mamba_ssm_cache_dtype auto), else in the model's. Raises UnsupportedModel."""
    total = 0
    for kind, where in model.cache_groups():
        if not isinstance(kind, State):
            continue
        if class_of(model) not in STATES:
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=state_word(kind.mechanism), engine=ENGINE, version=setting.version)
        mine = replace(kind, tensors=tuple(replace(t, dtype=t.asked) for t in kind.tensors))
        one = mine.bytes_per_sequence(setting.model_dtype, 1, setting.parallel.attention_ranks)
        total += one * sum(i in layers for i in where)
    return total

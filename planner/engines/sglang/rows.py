"""SGLang 0.5.23: what one token and one state slot cost on a rank, layer by layer.

Sources (sglang 0.5.23 wheel): srt/model_executor/pool_configurator.py (_compute_cell_size, HybridSWAPoolConfigurator),
srt/mem_cache/kv_cache_configurator.py (calculate_mla_kv_cache_dim), srt/configs/mamba_utils.py. Checked against that code run on real
configs; what was not run there says so in a note.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cache import Cross, Kind, Rows, State
from planner.dtypes import DTYPES, kv_layout
from planner.engines.settings import Setting
from planner.engines.sglang.models import MINIMAX_SPARSE, NOT_COVERED, WINDOWED, class_of
from planner.errors import InvalidInput, UnsupportedModel
from planner.messages import Word, kind_word, state_word
from planner.model import ModelSpec

ENGINE = "sglang"
STATES = frozenset(("mamba1", "mamba2", "gated_delta_net", "kda", "short_conv", "lightning"))
STATES_RUN = frozenset(("mamba1", "mamba2", "gated_delta_net", "short_conv"))
INDEX_QUANT_BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Rows that SGLang prices: `layers` layers at `row_bytes` a token each. `window`: they lie in the pool of windowed layers.
    `limit_tokens`: the window that the model itself would do with."""

    kind: str
    layers: tuple[int, ...]
    row_bytes: int
    window: bool = False
    limit_tokens: int | None = None


def charges(model: ModelSpec, setting: Setting) -> tuple[Charge, ...]:
    """Every row of the model as SGLang prices it, equal ones together. Raises where it refuses, or where its price hangs on one row for all
    layers and the layers differ."""
    refuse_unknown(model)
    found: dict[tuple[str, int, bool, int | None], list[int]] = {}
    for i, kinds in enumerate(priced_layers(model)):
        for kind in kinds:
            if isinstance(kind, State):
                continue
            limit = kind.limit_tokens if isinstance(kind, Rows) else None
            window = limit is not None and class_of(model) in WINDOWED
            found.setdefault((kind.kind, row_bytes(kind, model, setting), window, limit), []).append(i)
    for window in (False, True):
        rows = {bytes_ for (name, bytes_, w, _) in found if name != "index" and w is window}
        if len(rows) > 1:
            raise UnsupportedModel("uneven_rows", field="engine", engine=ENGINE, rows=", ".join(str(b) for b in sorted(rows)))
    out = [Charge(kind=name, layers=tuple(where), row_bytes=bytes_, window=window, limit_tokens=limit)
           for (name, bytes_, window, limit), where in found.items()]  # fmt: skip
    if out and class_of(model) == "WhisperForConditionalGeneration" and model.server.encoder_layers:
        # The encoder's layers count as layers of the pool and keep nothing in it (srt/configs/model_config.py num_attention_layers).
        out.append(Charge(kind="cross", layers=(0,), row_bytes=model.server.encoder_layers * out[0].row_bytes))
    return tuple(out)


def priced_layers(model: ModelSpec) -> list[tuple[Kind, ...]]:
    """The caches of each layer as SGLang counts them: a layer that reads another's cache is charged all the same, and so is one without
    attention in a stack that has no states (nemotron-nas), at the row of the others."""
    hybrid = has_states(model)
    rows = [k for k, _ in model.cache_groups() if isinstance(k, Rows) and k.format == "kv"]
    out: list[tuple[Kind, ...]] = []
    for layer in model.layers:
        kinds = layer.caches or (model.layers[layer.shares_with].caches if layer.shares_with is not None else ())
        out.append(kinds or (() if hybrid or not rows else (rows[0],)))
    return out


def refuse_unknown(model: ModelSpec) -> None:
    if class_of(model) in NOT_COVERED:
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=class_of(model), engine=ENGINE, version="0.5.23")
    for kind, _ in model.cache_groups():
        if isinstance(kind, State) and kind.mechanism not in STATES:
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=state_word(kind.mechanism), engine=ENGINE, version="0.5.23")


# -- rows --------------------------------------------------------------------------------------------------------------


def is_latent(model: ModelSpec) -> bool:
    return any(k.kind == "latent" for k, _ in model.cache_groups())


def is_sparse(model: ModelSpec) -> bool:
    """Latent rows with index keys beside them (DeepSeek sparse attention)."""
    return is_latent(model) and any(k.kind == "index" for k, _ in model.cache_groups())


def is_packed(model: ModelSpec) -> bool:
    """Compressed rows: DeepSeek-V4."""
    return any(isinstance(k, Rows) and k.ratio != 1 and k.format == "kv" for k, _ in model.cache_groups())


def has_states(model: ModelSpec) -> bool:
    return any(isinstance(k, State) for k, _ in model.cache_groups())


def major(setting: Setting) -> int | None:
    return setting.capability[0] if setting.capability else None


def row_bytes(kind: Rows | Cross, model: ModelSpec, setting: Setting) -> int:
    """Bytes of one token in one layer on one rank."""
    kv = setting.kv
    if isinstance(kind, Cross):  # Mllama's and Whisper's: layers of the pool like any other
        return kv.row_bytes(kv_heads(kind.heads, setting), kind.k_dim, kind.v_dim)
    if kind.ratio != 1 and kind.format != "index":
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=Word("compressed", "word.cache.compressed"), engine=ENGINE, version=setting.version)
    if kind.format == "index":
        if is_latent(model):  # fp8 keys and an fp32 scale for each 128 values, whatever the KV dtype; one row a pooled group
            return -(-(kind.k_dim + kind.k_dim // INDEX_QUANT_BLOCK * 4) // kind.ratio)
        if class_of(model) not in MINIMAX_SPARSE or kind.ratio != 1:
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word("index"), engine=ENGINE, version=setting.version)
        e4m3 = kv.name in ("fp8", "fp8_e4m3") and major(setting) in (9, 10)  # else MiniMax-M3 keeps its index keys in the model's dtype
        return (kv.element if e4m3 else setting.model_dtype).nbytes(kind.heads * kind.k_dim)
    if kind.shard == "copy":
        attention = next((layer.attention for layer in model.layers if layer.attention is not None), None)
        if is_sparse(model) and kv.element.block_bytes == 1 and scaled_rows(model, setting) and attention is not None and attention.kv_rank:
            # fp8 latent, an fp32 scale for each 128, the RoPE part in two bytes: 656 for 512 + 64
            return attention.kv_rank + attention.kv_rank // INDEX_QUANT_BLOCK * 4 + 2 * attention.rope_dim
        return kv.row_bytes(kind.heads, kind.k_dim, kind.v_dim)
    if kv.name == "nvfp4" and class_of(model) in WINDOWED:
        kv = kv_layout("fp8")  # priced and allocated at one byte an element there
    return kv.row_bytes(kv_heads(kind.heads, setting), kind.k_dim, kind.v_dim)


def scaled_rows(model: ModelSpec, setting: Setting) -> bool:
    """Whether sparse MLA in fp8 takes FlashMLA's rows; from SM10 on TensorRT-LLM's kernels take plain ones, but for GLM on SM12."""
    generation = major(setting)
    return generation is None or generation < 10 or (generation == 12 and class_of(model) == "GlmMoeDsaForCausalLM")


def kv_heads(heads: int, setting: Setting) -> int:
    """``max(1, heads // tp)``. SGLang's sizing does not look whether it divides; no valid split has the remainder: InvalidInput."""
    ranks = setting.parallel.attention_ranks
    small, big = sorted((heads, ranks))
    if big % small:
        raise InvalidInput("kv_heads_no_split", field="tp", kv_heads=heads, tp=ranks, engine=ENGINE)
    return max(1, heads // ranks)


# -- states ------------------------------------------------------------------------------------------------------------


def state_bytes(model: ModelSpec, setting: Setting) -> int:
    """Bytes of one slot on one rank, all layers: K - 1 convolution columns in bf16, the recurrent part in fp32 unless a gated delta net's
    file names another dtype (mamba_ssm_dtype)."""
    ranks, total = setting.parallel.attention_ranks, 0
    for kind, where in model.cache_groups():
        if not isinstance(kind, State):
            continue
        one = 0
        for t in kind.tensors:
            kept = t.elements_on_rank(ranks if kind.shard == "heads" else 1)
            if t.role == "conv":
                one += DTYPES["bf16"].nbytes(kept // t.columns * (t.columns - 1))
            else:
                one += ((t.asked if kind.mechanism == "gated_delta_net" else None) or DTYPES["fp32"]).nbytes(kept)
        total += len(where) * one
    return total

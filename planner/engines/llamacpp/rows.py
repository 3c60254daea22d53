"""llama.cpp: what each layer keeps, in bytes of a cell and of a state, with K and V in types of their own.

Sources: src/llama-kv-cache*.cpp, src/llama-memory-recurrent.cpp, src/llama-hparams.cpp, src/llama-context.cpp (library 0.5, ggml 0.25.3);
checked against contexts that were really created (tests/planner/test_llamacpp_executed.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Cross, Kind, Rows, State
from planner.dtypes import DTYPES, DType
from planner.engines.llamacpp import archs
from planner.engines.settings import Setting
from planner.errors import InvalidInput, UnsupportedModel, UnsupportedValue
from planner.messages import Word, kind_word
from planner.model import LayerSpec, ModelSpec
from planner.readers.gguf.table import NO_CACHE

ENGINE = "llamacpp"
COMPRESSED = {"deepseek4": (4, 128)}  # constants of llama-kv-cache-dsv4.cpp


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One cache of one layer. `cell_bytes`: of one cell, padding included; `content_bytes`: without it; `state_bytes`: of one sequence's
    state instead. `limit`: the window as the model has it; `capped`: whether cells stop there. `ratio`: tokens a cell."""

    kind: str
    cell_bytes: int = 0
    content_bytes: int = 0
    state_bytes: int = 0
    limit: int | None = None
    capped: bool = False
    ratio: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """K and V of one layer: heads and head sizes; `v_dim` 0: no V. `head_v`: the V head size that the file names all the same.
    `limit`: the window or `chunk` that the model has; `windowed`: whether llama.cpp's cells stop there."""

    heads: int
    k_dim: int
    v_dim: int
    head_v: int
    limit: int | None = None
    chunk: bool = False
    windowed: bool = False

    @property
    def k_width(self) -> int:
        return self.heads * self.k_dim

    @property
    def v_width(self) -> int:
        return self.heads * self.v_dim


def kept_by_layer(model: ModelSpec, setting: Setting) -> list[tuple[Kept, int]]:
    """(cache, layer) for the whole model. Raises what llama.cpp itself refuses, and what these rules do not cover."""
    arch, context = archs.architecture(model), setting.context
    assert context is not None
    if arch in NO_CACHE:
        return []
    rows = rows_by_layer(model, arch)
    check_types(arch, [row for row in rows if row], setting, latent=any(row and not row.v_dim for row in rows))
    lenders = [x.attention for x in model.layers if x.shares_with is not None and x.attention]  # a width counts though it is not stored
    widest_v = 0 if context.flash_attention else max([*(row.v_width for row in rows if row), *(a.kv_heads * a.v_dim for a in lenders)], default=0)
    out: list[tuple[Kept, int]] = []
    for i, row in enumerate(rows):
        layer = model.layers[min(i, len(model.layers) - 1)]
        if row is not None:
            out.append((_rows(row, setting, widest_v), i))
        elif widest_v and not layer.caches and layer.shares_with is None and arch not in archs.HYBRID:
            out.append((Kept(kind="padding", cell_bytes=v_type(setting).nbytes(widest_v)), i))  # no KV heads, yet a layer of the cache
        out += [(kept, i) for kind in layer.caches if (kept := _beside(kind, layer, setting, arch)) is not None]
        if arch == "deepseek4" and (size := compressor_state_bytes(layer)):
            out.append((Kept(kind="state", state_bytes=size), i))
    return out


# -- rows --------------------------------------------------------------------------------------------------------------


def rows_by_layer(model: ModelSpec, arch: str) -> list[Row | None]:
    """K and V of each layer of the cache; None: it has none of its own. T5 counts the layers of its encoder (llama-model.cpp)."""
    if arch == "t5":
        depth = model.encoder_layers or len(model.layers)
        if depth < len(model.layers):
            raise UnsupportedModel("llamacpp_decoder_deeper", field="num_decoder_layers", encoder=depth, decoder=len(model.layers))
        return [_row(model.layers[0], arch, None)] * depth
    windows = _windows(model, arch)
    owning = archs.OWNING_LAYERS.get(arch, len(model.layers))
    out: list[Row | None] = []
    for i, layer in enumerate(model.layers):
        source = i
        if layer.shares_with is not None:
            if arch not in archs.LENDING:
                raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word("shared"), engine=ENGINE, version="0.5")
            if arch in archs.OWNING_LAYERS:  # the constant may own more than the file says
                source = layer.shares_with
        out.append(_row(model.layers[source], arch, windows[source]) if i < owning else None)
    return out


def _row(layer: LayerSpec, arch: str, window: int | None) -> Row | None:
    kind = next((k for k in layer.caches if isinstance(k, Rows) and k.format == "kv" and k.ratio == 1), None)
    if kind is None:
        return None
    a = layer.attention
    if kind.v_dim == 0 and kind.shard == "copy":
        if arch == "deepseek4":
            return Row(heads=1, k_dim=kind.k_dim, v_dim=0, head_v=kind.k_dim, limit=kind.limit_tokens, windowed=True)
        if arch in archs.EXPANDED and a is not None:
            return Row(heads=a.q_heads, k_dim=a.qk_dim, v_dim=a.v_dim, head_v=a.v_dim)
        if arch not in archs.LATENT or window is not None:
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word("latent"), engine=ENGINE, version="0.5")
        return Row(heads=1, k_dim=kind.k_dim, v_dim=0, head_v=a.kv_rank or kind.k_dim if a else kind.k_dim)
    return Row(heads=kind.heads, k_dim=kind.k_dim, v_dim=kind.v_dim, head_v=kind.v_dim, limit=window or kind.limit_tokens,
               chunk=kind.chunk is not None, windowed=window is not None)  # fmt: skip


def _windows(model: ModelSpec, arch: str) -> list[int | None]:
    """The window that the architecture really uses on each layer; None: it keeps every token there, whatever the model would need."""
    kinds = [next((k for k in layer.caches if isinstance(k, Rows) and k.limit_tokens), None) for layer in model.layers]
    sizes = [k.limit_tokens if k else None for k in kinds]
    w = archs.windows_of(arch, len(model.layers))
    if w is None or arch == "deepseek4":
        return [None] * len(sizes)
    size = next((n for n in sizes if n), None)
    if size is None:
        if not w.need or arch in ("lfm2", "muse-glimmer") or archs.is_gguf(model):
            return sizes
        if w.default is None:
            raise UnsupportedModel("llamacpp_no_window", field="sliding_window", architecture=arch)
        size = w.default
    size = w.always or size
    if arch in archs.STEP_ALONE and not archs.is_gguf(model):
        return [size if near else None for near in archs.by_step(w, len(sizes))]
    return [size if n else None for n in sizes]


def _rows(row: Row, setting: Setting, widest_v: int) -> Kept:
    """Flash attention off: V is kept turned, as wide as the widest layer of the model ([TAG_V_CACHE_VARIABLE])."""
    k, v = k_type(setting), v_type(setting)
    if widest_v and row.k_width % k.block_elements:
        raise UnsupportedValue("llamacpp_abort", field="cache_type_k", kv_dtype=k.name, row=row.k_width)
    content = k.nbytes(row.k_width) + v.nbytes(row.v_width)
    cell = k.nbytes(row.k_width) + v.nbytes(widest_v if row.v_dim and widest_v else row.v_width)
    capped = row.windowed and setting.context is not None and not setting.context.swa_full
    kind = "latent" if not row.v_dim and not row.limit else "full" if not capped else "chunk" if row.chunk else "window"
    return Kept(kind=kind, cell_bytes=cell, content_bytes=content, limit=row.limit, capped=capped)


# -- types -------------------------------------------------------------------------------------------------------------


def k_type(setting: Setting) -> DType:
    return setting.kv.element


def v_type(setting: Setting) -> DType:
    return setting.kv.v_element or setting.kv.element


def check_types(arch: str, rows: list[Row], setting: Setting, *, latent: bool) -> None:
    """What llama_init_from_model refuses (src/llama-context.cpp), in its order."""
    k, v, context = k_type(setting), v_type(setting), setting.context
    flash = context is not None and context.flash_attention
    if (latent or arch == "deepseek4") and k != v:
        raise InvalidInput("llamacpp_types_differ", field="cache_type_v", k=k.name, v=v.name)
    if v.block_elements > 1 and not flash:
        raise InvalidInput("llamacpp_v_needs_flash", field="flash_attn", kv_dtype=v.name)
    if not flash:
        return
    for name, t, dims in (("cache_type_k", k, [r.k_dim for r in rows]), ("cache_type_v", v, [r.head_v for r in rows])):
        for dim in dims:
            if dim % t.block_elements:
                raise InvalidInput("llamacpp_block", field=name, kv_dtype=t.name, block=t.block_elements, head_dim=dim)


# -- what stands beside the rows ---------------------------------------------------------------------------------------


def _beside(kind: Kind, layer: LayerSpec, setting: Setting, arch: str) -> Kept | None:
    """States, index keys and compressed rows of one layer; its K and V are told elsewhere."""
    if isinstance(kind, State):
        if arch not in archs.HYBRID | archs.STATES_ONLY:
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word("state"), engine=ENGINE, version="0.5")
        return Kept(kind="state", state_bytes=state_bytes(kind))
    if isinstance(kind, Cross):
        if arch != "t5":  # whose cross attention computes K and V anew
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word("cross"), engine=ENGINE, version="0.5")
        return None
    if kind.format == "kv" and kind.ratio == 1:
        return None
    if kind.ratio not in COMPRESSED.get(arch, (1,)):
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=Word("compressed", "word.cache.compressed"), engine=ENGINE, version="0.5")
    size = k_type(setting).nbytes(kind.heads * kind.k_dim)
    if arch in archs.INDEX_WITH_VALUES and layer.attention is not None:
        size += v_type(setting).nbytes(layer.attention.v_dim)
    return Kept(kind="index" if kind.format == "index" else "latent", cell_bytes=size, content_bytes=size, ratio=kind.ratio)


def state_bytes(kind: State) -> int:
    """F32 whatever the cache types: K - 1 convolution columns and the recurrent part."""
    whole = replace(kind, tensors=tuple(replace(t, dtype=DTYPES["fp32"]) for t in kind.tensors))
    return whole.bytes_per_sequence(DTYPES["fp32"], drop_conv_columns=1)


def compressor_state_bytes(layer: LayerSpec) -> int:
    """DeepSeek-V4's buffers of a layer and sequence in F32 (llama-kv-cache-dsv4.cpp): key and gate of twice the ratio where chunks overlap
    (layers with an index, whose own buffer is kept alike), else of the ratio."""
    rows = [k for k in layer.caches if isinstance(k, Rows) and k.ratio > 1]
    overlap = any(k.format == "index" for k in rows)
    return sum(4 * 2 * k.k_dim * k.ratio * (4 if overlap else 1) for k in rows)

"""vLLM 0.33 on DeepSeek-V4: a window and compressed rows in each layer, in the packed fp8_ds_mla layout, pages rounded to 576 bytes.

Sources (vllm 0.33.0 wheel): models/deepseek_v4/attention.py, compressor.py, v1/attention/backends/mla/sparse_swa.py; groups of different
pages as in v1/core/kv_cache_planning.py for block-outermost layouts. Executed for Flash and Pro on SM9.0 and SM10.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from planner.cache import Kind, Rows
from planner.engines.settings import Setting
from planner.engines.vllm.groups import SpecGroup
from planner.engines.vllm.specs import Member, Spec, Type
from planner.errors import UnsupportedModel, UnsupportedValue
from planner.messages import Word, kind_word
from planner.model import ModelSpec

PAGE_ALIGN = 576
ROPE_DIM, SCALE_BYTES = 64, 8  # of a row of 512: 448 in fp8, 64 in bf16, 8 bytes of scales
WINDOW_BLOCK, COMPRESSED_BLOCK = 64, 256
OVERLAP_RATIO = 4  # this ratio's compressor sees two windows at once, and so keeps rows twice as wide
STATE_BLOCKS = {True: 4, False: 8}


def is_packed(model: ModelSpec) -> bool:
    return any(isinstance(k, Rows) and k.ratio != 1 for k, _ in model.cache_groups())


def packed_groups(model: ModelSpec, setting: Setting) -> list[SpecGroup]:
    """The groups of all layers: windows, compressed rows with their index keys, and the compressors' states by block size.

    Compressed rows and index keys make one group, whose bytes are the price of a block; a bucket that would cost more is cut into as
    few groups as stay below it. Raises where the model or the setting differs from what was executed.
    """
    if not setting.hybrid_manager:
        raise UnsupportedValue("hybrid_manager_needed", field="hybrid_kv_cache_manager", engine="vllm")
    if setting.capability is not None and setting.capability[0] < 9:
        raise UnsupportedModel("no_backend", field="gpu", engine="vllm", what="DeepSeek-V4", needs="9.0")
    buckets: dict[Spec, list[Member]] = {}
    for kind, where in model.cache_groups():
        for spec in _specs(kind, setting):
            key = Spec(type=spec.type, kind="", block_size=spec.block_size, page_bytes=0, window=spec.window)
            buckets.setdefault(key, []).extend((spec, i) for i in where)
    price = max((sum(s.page_bytes for s, _ in members) for key, members in buckets.items() if key.type == "full"), default=0)
    out = []
    for key, found in buckets.items():
        members = sorted(found, key=lambda pair: pair[1])
        whole = sum(s.page_bytes for s, _ in members)
        number = -(-whole // price) if price and key.type != "full" else 1
        out += [SpecGroup(spec=members[0][0], members=tuple(members[k::number])) for k in range(number)]
    return out


def older_price(groups: Sequence[SpecGroup], layers: range, rule: str) -> tuple[int, tuple[int, ...], int]:
    """What a block of releases before 0.27 costs on a stage, what each group's block weighs in the concurrency that they print, and the
    weight of one printed block (that of the compressed rows).

    All pages are padded to the next page of the compressed rows. "tuples" (0.20 to 0.22): the sum of those page sizes, as often as one
    page size occurs in one group; "buckets" (0.23 to 0.26): each page size as often as it occurs in one group.
    What 0.23 to 0.26 say that one request needs, when they refuse to start, is still priced by tuples (1.2 % more); that is not modelled.
    Source: wheels of 0.20.2, 0.22.1, 0.23.0, 0.26.0, v1/core/kv_cache_utils.py: _pool_bytes_per_block, _bucket_layers_by_page_size,
    get_max_concurrency_for_kv_cache_config.
    """
    full = next(g for g in groups if g.spec.type == "full")
    sizes = sorted({s.page_bytes for s, _ in full.members})
    counts = [Counter(min((x for x in sizes if x >= s.page_bytes), default=s.page_bytes) for s, i in g.members if i in layers) for g in groups]
    most = {size: max(c[size] for c in counts) for size in sizes}
    price = sum(sizes) * max(most.values()) if rule == "tuples" else sum(size * n for size, n in most.items())
    weights = tuple(sum(size * n for size, n in c.items()) for c in counts)
    return price, weights, weights[groups.index(full)]


def _specs(kind: Kind, setting: Setting) -> list[Spec]:
    """The row's own page, and the state of the compressor that makes it: fp32 rows that live as long as a window."""
    if not isinstance(kind, Rows) or kind.shard != "copy" or kind.v_dim or kind.heads != 1:
        raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word(kind.kind), engine="vllm", version=setting.version)
    row = _row_bytes(kind)
    if kind.ratio == 1:
        return [_page("window", "window", WINDOW_BLOCK, WINDOW_BLOCK * row, kind.window)]
    if COMPRESSED_BLOCK % kind.ratio:
        raise UnsupportedModel(
            "kind_not_in_engine", field="engine", kind=Word(f"1/{kind.ratio}", "word.cache.ratio", ratio=kind.ratio), engine="vllm", version=setting.version
        )
    overlap = kind.ratio == OVERLAP_RATIO
    block = STATE_BLOCKS[overlap]
    state_row = 4 * 2 * (1 + overlap) * kind.k_dim
    return [
        _page("full", kind.kind, COMPRESSED_BLOCK, COMPRESSED_BLOCK // kind.ratio * row),
        _page("window", "state", block, block * state_row, kind.ratio * (1 + overlap)),
    ]


def _page(type_: Type, kind: str, tokens: int, content: int, window: int | None = None) -> Spec:
    return Spec(type=type_, kind=kind, block_size=tokens, page_bytes=-(-content // PAGE_ALIGN) * PAGE_ALIGN, content_bytes=content, window=window)


def _row_bytes(kind: Rows) -> int:
    if kind.format == "index":
        return kind.k_dim + 4 * -(-kind.k_dim // 128)
    return (kind.k_dim - ROPE_DIM) + 2 * ROPE_DIM + SCALE_BYTES

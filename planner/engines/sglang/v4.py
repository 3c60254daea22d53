"""SGLang 0.5.23 on DeepSeek-V4: pages of 256 tokens of compressed rows, a pool of windows that also holds the ratio-4 compressor's states,
and the ratio-128 compressor's states, a ring for each request that may run.

Source: srt/model_executor/pool_configurator.py DSV4PoolConfigurator of the sglang 0.5.23 wheel, run for Flash and Pro (FlashMLA layout,
CUDA). Bytes of a page are whole numbers; rows are padded to 576 bytes a page.
"""

from __future__ import annotations

from planner.cache import Group, Pool, Rows, Term
from planner.engines.settings import Setting
from planner.errors import UnsupportedModel
from planner.messages import kind_word
from planner.model import ModelSpec

PAGE, ALIGN = 256, 576
ROPE_DIM, SCALE_BYTES = 64, 8  # of a row of 512: 448 in fp8, 64 in bf16, 8 bytes of scales
STATE_RING = {4: 8, 128: 128}  # rows kept by a compressor, without drafts
SPARE_REQUESTS = 3  # ring slots beyond the running requests: one request more, and rows padded to 128
WINDOW_RATIO = 0.1
MAX_RUNNING = 256
FULL, WINDOW, STATE = "full", "window", "state"


def pools(model: ModelSpec, setting: Setting, window_cap: int) -> tuple[Pool, ...]:
    """(compressed rows, windows with ratio-4 states, ratio-128 states). `window_cap`: window tokens that a request holds at most."""
    full: list[Group] = []
    window: list[Group] = []
    state_layers: tuple[int, ...] = ()
    head = 0
    for kind, where in model.cache_groups():
        if not isinstance(kind, Rows) or kind.shard != "copy" or kind.v_dim or kind.heads != 1 or kind.ratio not in (1, *STATE_RING):
            raise UnsupportedModel("kind_not_in_engine", field="engine", kind=kind_word(kind.kind), engine="sglang", version=setting.version)
        if kind.ratio == 1:
            head = kind.k_dim
            window.append(_group("window", where, padded(PAGE, kind.k_dim), PAGE * row(kind.k_dim), window_cap, kind.window))
            continue
        rows = PAGE // kind.ratio
        index = kind.format == "index"
        content = rows * (kind.k_dim + kind.k_dim // 128 * 4 if index else row(kind.k_dim))
        full.append(_group(kind.kind, where, content if index else padded(rows, kind.k_dim), content))
        if kind.ratio == 4:  # keys and gates of the present and the last chunk, of rows and of index keys alike
            ring = STATE_RING[4] * 2 * 2 * kind.k_dim * 4
            window.append(_group("state", where, ring, ring, window_cap, PAGE))
        elif not index:
            state_layers = where
    ring = len(state_layers) * STATE_RING[128] * 2 * head * 4
    held = Term(unit_bytes=ring // max(1, len(state_layers)), unit_tokens=None, extra_units=1)
    states = Group(kind="state", layers=state_layers, admission=held, resident=held, content_bytes=ring)
    return (
        Pool(name=FULL, groups=tuple(full), block_size=PAGE, block_bytes=_page(full)),
        Pool(name=WINDOW, groups=tuple(window), block_size=PAGE, block_bytes=_page(window)),
        Pool(name=STATE, groups=(states,), priced="pooled", block_bytes=ring, null_blocks=SPARE_REQUESTS),
    )


def row(width: int) -> int:
    return width - ROPE_DIM + 2 * ROPE_DIM + SCALE_BYTES


def padded(rows: int, width: int) -> int:
    """Bytes of one page of `rows` rows.

    >>> padded(256, 512), padded(64, 512), padded(2, 512)
    (149760, 37440, 1728)
    """
    return -(-rows * row(width) // ALIGN) * ALIGN


def _page(groups: list[Group]) -> int:
    return sum(g.bytes_per_unit() for g in groups)


def _group(kind: str, layers: tuple[int, ...], page_bytes: int, content: int, cap: int | None = None, limit: int | None = None) -> Group:
    term = Term(unit_bytes=page_bytes, unit_tokens=PAGE, cap_tokens=cap)
    return Group(kind=kind, layers=layers, admission=term, resident=term, content_bytes=len(layers) * content, limit_tokens=limit)


def tokens(budget_bytes: int, pools_: tuple[Pool, ...], running: int, ratio: float) -> tuple[int, int, int]:
    """(full tokens, window tokens, bytes of the ratio-128 states) in `budget_bytes`. Floats as in the engine, so that it rounds alike."""
    full, window, states = pools_
    fixed = (running + SPARE_REQUESTS) * states.block_bytes
    price = ratio * (window.block_bytes / PAGE) + full.block_bytes / PAGE
    found = int(max(budget_bytes - fixed, 0) / price) // PAGE * PAGE
    return found, int(found * ratio) // PAGE * PAGE, fixed

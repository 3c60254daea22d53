"""SGLang 0.5.23: from the bytes of the KV budget to tokens, window tokens, state slots and running requests.

Sources (sglang 0.5.23 wheel): srt/model_executor/pool_configurator.py (calculate_pool_sizes, compute_swa_request_cap),
srt/mem_cache/kv_cache_configurator.py (_handle_max_mamba_cache, resolve_max_num_reqs). Where the engine computes with floats of GiB, so does
this file: whole bytes would round another way. Infeasible is a value: pools of zero tokens and a note.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cache import Pool, Rows
from planner.engines.settings import Setting, Sizes
from planner.engines.sglang import v4
from planner.engines.sglang.models import WINDOW_LESS_ONE, class_of
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.units import GIB, gib

SOURCE = cite("sglang 0.5.23 srt/model_executor/pool_configurator.py")
EVICTION_INTERVAL = 128  # tokens between two clearings of rows that left the window (SGLANG_SWA_EVICTION_INTERVAL)
LEAST_ESTIMATE, MOST_ESTIMATE = 2048, 4096  # running requests that are tried for where the user names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """SGLang's own settings. `slots`: state slots of a running request (0: no states). `asked_sequences`: max_running_requests of the
    whole server, None where it is estimated."""

    backend: str = ""
    window_ratio: float = 0.8
    state_ratio: float = 0.9
    slots: int = 0
    asked_sequences: int | None = None


def sizes(model: ModelSpec, setting: Setting, pools: tuple[Pool, ...], budget_bytes: int) -> Sizes:
    """The pools' shares of `budget_bytes` (of one rank), and the figures of the start-up log."""
    v: Values = setting.own
    page = setting.block_size or 1
    if v.backend == "dsv4":
        running = _asked(setting) or 1
        tokens, window_tokens, fixed = v4.tokens(budget_bytes, pools, running, v.window_ratio)
        held = (tokens // page * pools[0].block_bytes, window_tokens // page * pools[1].block_bytes, min(fixed, max(0, budget_bytes)))
        return _result(setting, held, tokens, {"swa_max_total_num_tokens": window_tokens})
    by_name = {pool.name: pool for pool in pools}
    printed: dict[str, int] = {}
    rest, state_share = budget_bytes, 0
    if "state" in by_name:
        slots, state_share, rest = state_slots(setting, by_name["state"].block_bytes, budget_bytes)
        printed["max_mamba_cache_size"] = max(0, slots)
        if rest <= 0 or slots <= 0:
            return _nothing(setting, pools, printed, note("warning", "sglang_states_too_large", needs=gib(state_share), available=gib(max(0, budget_bytes))))
    full, window = by_name.get("full"), by_name.get("window")
    tokens = window_tokens = 0
    if window is not None:
        tokens, window_tokens, notes = window_split(model, setting, full, window, rest)
        printed["swa_max_total_num_tokens"] = window_tokens
        if notes:
            return _nothing(setting, pools, printed, *notes)
    elif full is not None:
        tokens = max(0, rest) // full.block_bytes * page
    else:  # states alone: the figure is no memory result
        tokens = setting.max_model_len // page * page
    units = {"full": tokens // page, "window": window_tokens // page}
    shares = tuple(state_share if pool.name == "state" else units[pool.name] * pool.block_bytes for pool in pools)
    # Buffers have a page more than their tokens; full tokens find their window row in a table of 8 bytes each (built on the meta device).
    beyond = sum(pool.block_bytes for pool in pools if pool.name != "state") + (8 * tokens if window is not None else 0)
    above = (note("info", "sglang_above_budget", bytes=beyond, source=SOURCE),) if tokens and beyond else ()
    return _result(setting, shares, tokens if full is not None or window is None else window_tokens, printed, above)


def _asked(setting: Setting) -> int | None:
    """Requests that each attention group may run, where the user or the model says so."""
    asked = setting.own.asked_sequences
    return None if asked is None else max(1, asked // setting.parallel.attention_data)


def _result(setting: Setting, shares: tuple[int, ...], tokens: int, printed: dict[str, int], notes: tuple[Note, ...] = ()) -> Sizes:
    running = running_requests(setting, tokens, printed.get("max_mamba_cache_size"))
    figures = {"max_total_num_tokens": tokens} | printed | {"max_running_requests": running}
    return Sizes(shares=shares, tokens=tokens, printed=tuple(figures.items()), notes=notes)


def _nothing(setting: Setting, pools: tuple[Pool, ...], printed: dict[str, int], *notes: Note) -> Sizes:
    figures = {"max_total_num_tokens": 0} | printed | {"max_running_requests": 0}
    return Sizes(shares=(0,) * len(pools), tokens=0, printed=tuple(figures.items()), notes=notes)


def running_requests(setting: Setting, tokens: int, slots: int | None) -> int:
    """max_running_requests of one attention group: asked for, or estimated from how many largest requests the pool holds; at most half the
    tokens, and one for each set of state slots."""
    estimate = max(min(int(tokens / setting.max_model_len * 512), MOST_ESTIMATE), LEAST_ESTIMATE)
    most = min(_asked(setting) or estimate, tokens // 2)
    return most if slots is None else min(most, slots // max(1, setting.own.slots))


# -- windows -----------------------------------------------------------------------------------------------------------


def window_of(model: ModelSpec) -> int:
    """Rows that windowed layers need, as the class counts them: some leave the present token out."""
    limit = max((k.limit_tokens or 0 for k, _ in model.cache_groups() if isinstance(k, Rows)), default=0)
    return limit - 1 if class_of(model) in WINDOW_LESS_ONE else limit


def window_cap(model: ModelSpec, setting: Setting) -> int:
    """Window tokens that one running request holds at most: the window, what is not cleared yet, and a page at either end."""
    return window_of(model) + EVICTION_INTERVAL + 2 * (setting.block_size or 1)


def window_split(model: ModelSpec, setting: Setting, full: Pool | None, window: Pool, budget_bytes: int) -> tuple[int, int, tuple[Note, ...]]:
    """(tokens of the full layers, tokens of the windowed ones, why it refuses). By ratio; or, with the radix cache off and a number of
    requests given, as many window tokens as those can hold at once, and the rest for full layers."""
    page, cell = setting.block_size or 1, window.block_bytes // (setting.block_size or 1)
    budget_bytes = max(0, budget_bytes)
    if full is None:
        return 0, budget_bytes // window.block_bytes * page, ()
    full_cell = full.block_bytes // page
    requests = _asked(setting)
    if requests is not None and not setting.prefix_caching:
        held = window_cap(model, setting) * requests + 2 * setting.max_num_batched_tokens + page
        held = -(-held // page) * page
        tokens = int((budget_bytes - held * cell) // full_cell) // page * page
        if tokens <= 0:
            needs, there = gib(held * cell), gib(budget_bytes)
            return 0, held, (note("warning", "sglang_window_cap", field="max_num_seqs", tokens=held, needs=needs, available=there, source=SOURCE),)
        return tokens, held, ()
    tokens = int(budget_bytes // (full_cell + setting.own.window_ratio * cell)) // page * page
    inside = int(tokens * setting.own.window_ratio) // page * page
    if window_of(model) + page >= inside:
        refused = note("warning", "sglang_window_small", field="swa_full_tokens_ratio", tokens=inside, window=window_of(model) + page, source=SOURCE)
        return 0, inside, (refused,)
    return tokens, inside, ()


# -- states ------------------------------------------------------------------------------------------------------------


def state_slots(setting: Setting, slot_bytes: int, budget_bytes: int) -> tuple[int, int, int]:
    """(slots, bytes of the state pool, bytes left for tokens). The pool takes ratio / (1 + ratio) of the budget whatever the model needs, or
    one slot a request with the radix cache off and their number given; one slot more is padding."""
    rest = budget_bytes / GIB
    requests = _asked(setting)
    if requests is not None and not setting.prefix_caching:
        slots = requests
    else:
        share = rest * setting.own.state_ratio / (1 + setting.own.state_ratio) * GIB
        slots = int((share - slot_bytes) // slot_bytes)
    held = (max(0, slots) + 1) * slot_bytes
    return slots, held, int((rest - held / GIB) * GIB)

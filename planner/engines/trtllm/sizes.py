"""TensorRT-LLM: from the bytes of the KV budget to blocks, pool by pool.

Sources (public repository, read): 1.x _torch/pyexecutor/_util.py configure_kv_cache_capacity (bytes // bytes a token -> max_tokens),
resource_manager.py calculate_max_num_blocks (max_tokens // tokens_per_block) and calculate_max_num_blocks_for_vswa (each window an equal
share); 0.x batch_manager/kvCacheManager.cpp calculateMaxNumBlocks (the last block is rounded up), trtGptModelInflightBatching.cpp (cross).
The states of max_batch_size requests are taken before tokens are counted.
"""

from __future__ import annotations

from planner.cache import Pool, max_tokens
from planner.engines.settings import Setting, Sizes
from planner.engines.trtllm.rows import state_slots
from planner.model import ModelSpec
from planner.notes import Note, note
from planner.units import gib


def sizes(model: ModelSpec, setting: Setting, pools: tuple[Pool, ...], budget_bytes: int) -> Sizes:
    """The pools' shares of `budget_bytes` (of one rank), and the figures of the start-up log."""
    state = next((p for p in pools if p.name == "state"), None)
    count = state_slots(setting)
    slots = state.block_bytes * count if state else 0
    rest = max(0, budget_bytes - slots)
    notes: tuple[Note, ...] = ()
    if slots and slots >= budget_bytes:
        there = gib(max(0, budget_bytes))
        notes += (note("warning", "trtllm_states_too_large", field="max_num_seqs", slots=count, needs=gib(slots), available=there),)
    token_pools = [p for p in pools if p.name not in ("state", "cross")]
    crossing = next((p for p in pools if p.name == "cross"), None)
    blocks: dict[str, int] = {}
    for pool in token_pools:
        blocks[pool.name] = _blocks(setting, pool.block_bytes, rest // len(token_pools))
    if crossing is not None and token_pools:
        own, fraction = token_pools[0], setting.own.cross_fraction or 0.0
        whole = blocks[own.name]
        blocks[own.name] = int(whole * (1 - fraction))
        blocks["cross"] = int(whole * fraction) * own.block_bytes // crossing.block_bytes
    tokens = min((n * (setting.block_size or 1) for name, n in blocks.items() if name != "cross"), default=setting.max_model_len)
    if not setting.own.prints_blocks and token_pools:
        tokens = rest * (setting.block_size or 1) // token_pools[0].block_bytes
    shares = tuple(min(slots, max(0, budget_bytes)) if p.name == "state" else blocks[p.name] * p.block_bytes for p in pools)
    printed = {"max_tokens": tokens} | {f"blocks_{name}": n for name, n in blocks.items()} | ({"state_slots": count} if state else {})
    return Sizes(shares=shares, tokens=tokens, printed=tuple(printed.items()), notes=notes + _shortened(setting, pools, shares))


def _blocks(setting: Setting, block_bytes: int, share: int) -> int:
    """Whole tokens first, then whole blocks of them: down, or up in C++ engines."""
    unit = setting.block_size or 1
    tokens = share * unit // block_bytes
    return -(-tokens // unit) if setting.own.whole_block_up else tokens // unit


def _shortened(setting: Setting, pools: tuple[Pool, ...], shares: tuple[int, ...]) -> tuple[Note, ...]:
    """The engine starts though one request of the largest length does not fit: it lowers max_seq_len to what does (both backends:
    "they are reduced to ...", _validate_and_adjust_attention_windows)."""
    longest = setting.max_model_len
    held = [max_tokens((p,), 1, share, longest, "admission") for p, share in zip(pools, shares, strict=True) if p.name not in ("state", "cross")]
    fits = min(held, default=longest)
    return (note("warning", "trtllm_shortened", field="max_model_len", longest=longest, fits=fits),) if 0 < fits < longest else ()

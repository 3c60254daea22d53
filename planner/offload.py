"""A tier of host memory behind the pool: how many blocks and tokens it keeps of those that left the device.

vLLM 0.33 v1/kv_offload/cpu/spec.py (bytes // a block's bytes over all ranks); SGLang 0.5.23 srt/mem_cache/memory_pool_host.py (bytes // bytes a
token, in whole pages); TensorRT-LLM _torch/pyexecutor/resource_manager.py (host_cache_size // bytes a token // tokens a block). Read, not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cache import Pool
from planner.engines.settings import Allocation, Setting
from planner.errors import UnsupportedModel
from planner.notes import Note, cite, note
from planner.scenario import Scenario
from planner.units import memory

SOURCE = cite("vLLM 0.33 v1/kv_offload/cpu/spec.py, SGLang 0.5.23 memory_pool_host.py, TensorRT-LLM resource_manager.py (read)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """`bytes` of the host for each rank; whole blocks of them, their tokens, and how many sequences of the load's length these are."""

    bytes: int
    blocks: int
    tokens: int
    sequences: int

    def to_json(self) -> dict[str, Any]:
        return {"bytes": self.bytes, "blocks": self.blocks, "tokens": self.tokens, "sequences": self.sequences}


def offload(s: Scenario, setting: Setting, allocation: Allocation) -> tuple[Offload | None, tuple[Note, ...]]:
    """The tier of the rank that holds the fewest tokens; None where none was asked for. Raises UnsupportedModel for models of several pools
    or groups, whose blocks leave the device by rules that are not known here."""
    if s.kv_offload is None:
        return None, ()
    tiers = [_tier(s, setting, pools) for pools in allocation.stages]
    found = min(tiers, key=lambda t: t.tokens)
    said = note("assumed", "offload_tokens", field="kv_offload", source=SOURCE, size=memory(found.bytes), tokens=found.tokens, sequences=found.sequences)
    return found, (said,)


def _tier(s: Scenario, setting: Setting, pools: tuple[Pool, ...]) -> Offload:
    groups = pools[0].groups
    terms = {g.resident.unit_tokens for g in groups}
    one_table = pools[0].priced == "own" or len(groups) == 1  # a block of all groups at once, or one group
    if len(pools) > 1 or len(terms) > 1 or None in terms or not one_table or any(g.resident.cap_tokens for g in groups):
        raise UnsupportedModel("offload_one_pool", field="kv_offload", engine=setting.engine)
    assert s.kv_offload is not None
    unit = groups[0].resident.unit_tokens or 1
    blocks = s.kv_offload // (pools[0].block_bytes or 1)
    return Offload(bytes=s.kv_offload, blocks=blocks, tokens=blocks * unit, sequences=blocks // max(1, -(-s.tokens // unit)))

"""A prefix that all sequences begin with: how much of it the engine can hold once, and what it says about the rest."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cache import Group, Pool
from planner.engines.settings import Allocation, Setting
from planner.errors import InvalidInput
from planner.notes import Note, cite, note
from planner.scenario import Scenario

SOURCE = cite("vLLM 0.33 v1/core/kv_cache_manager.py, kv_cache_coordinator.py, single_type_kv_cache_manager.py")


def shared_prefix(s: Scenario, setting: Setting, allocation: Allocation) -> tuple[int, tuple[Note, ...]]:
    """(tokens that sequences can share, notes). Whole blocks come later, by group (`Group.shared_units`).

    A prompt's last token is always computed anew, so a prefix that is the whole prompt counts one token less. 0 where the engine has no
    block tables, does not cache prefixes, or has an encoder beside (vLLM 0.33 config/vllm.py switches prefix caching off for those).
    Raises InvalidInput for a prefix that is longer than the sequence or its prompt.
    """
    if not s.shared_prefix:
        return 0, ()
    longest = s.tokens if s.prompt is None else min(s.prompt, s.tokens)
    if s.shared_prefix > longest:
        raise InvalidInput("prefix_too_long", field="shared_prefix", prefix=s.shared_prefix, tokens=longest)
    pools = [p for stage in allocation.stages for p in stage]
    if not any(p.block_size for p in pools):
        return 0, (note("warning", "prefix_no_blocks", field="shared_prefix", engine=setting.engine),)
    if not setting.prefix_caching:
        return 0, (note("warning", "prefix_caching_off", field="shared_prefix"),)
    if any(g.kind == "cross" for g in groups(pools)):
        return 0, (note("warning", "prefix_encoder", field="shared_prefix", engine=setting.engine, source=SOURCE),)
    notes: tuple[Note, ...] = ()
    if any(g.kind == "state" for g in groups(pools)):
        notes += (note("derived", "prefix_states", field="shared_prefix"),)
    if setting.draft_tokens:
        notes += (note("assumed", "prefix_drafts", field="shared_prefix", source=SOURCE),)
    return s.shared_prefix if s.prompt is None else min(s.shared_prefix, s.prompt - 1), notes


def groups(pools: Iterable[Pool]) -> list[Group]:
    return [g for p in pools for g in p.groups]

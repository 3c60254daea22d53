"""What differs between releases of vLLM, newest first. Everything else is taken by the rules of 0.33, with a note.

A row is what a release is known by: its code (0.33.0 wheel), a merged change, or a public start-up log that only one rule explains.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from planner.engines.shared import version_tuple
from planner.notes import Note, cite, note

NEWEST = "0.33.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`memory_fraction`: gpu_memory_utilization. `all_in_flight`: a window reserves the tokens of all batches that may be in flight, not
    of one. `printed_by_concurrency`: "GPU KV cache size" is concurrency x length, not blocks / groups x block size. `hybrid_manager`:
    windowed layers give blocks back. `latent`: MLA layers keep the latent, not expanded heads."""

    memory_fraction: float = 0.92
    all_in_flight: bool = True
    printed_by_concurrency: bool = True
    hybrid_manager: bool = True
    latent: bool = True


# (first release with the rule, the rule, its value before that release, where it is known from)
CHANGES: tuple[tuple[tuple[int, ...], str, object, str], ...] = (
    ((0, 27), "all_in_flight", False, cite("log of 0.26.1.dev, DeepSeek-V4-Flash: 9.65 requests; vLLM pull request 47728")),
    ((0, 22), "printed_by_concurrency", False, cite("vLLM issue 40691 (0.19), logs of the 0.21 and 0.23 releases")),
    ((0, 22), "memory_fraction", 0.90, cite("vLLM config/cache.py")),
    ((0, 10), "hybrid_manager", False, cite("log of 0.8, Gemma-3-27B: 153,200 tokens as full layers")),
    ((0, 7, 1), "latent", False, cite("log of December 2024, DeepSeek-V2-Lite: 85,968 tokens as 16 heads of 256")),
)


def rules_of(asked: str | None) -> tuple[Rules, tuple[Note, ...]]:
    """The rules of a release (None: the newest), and what was taken from which source."""
    version = version_tuple(asked or NEWEST)
    older = {name: (before, source) for since, name, before, source in CHANGES if version < since}
    values = {f.name: older[f.name][0] if f.name in older else f.default for f in fields(Rules)}
    notes: tuple[Note, ...] = ()
    if version[:2] != version_tuple(NEWEST)[:2]:
        notes = (note("warning", "engine_version_nearest", asked=str(asked)[:40], used=NEWEST, changed=len(older)),)
        notes += tuple(note("derived", "engine_version_rule", rule=name, value=str(before), source=source) for name, (before, source) in older.items())
    return Rules(**values), notes  # type: ignore[arg-type]


def printed_tokens(rules: Rules, blocks: int, blocks_per_request: int, max_model_len: int, groups: int, block_size: int) -> int:
    """ "GPU KV cache size: N tokens" of the start-up log. `block_size`: the smallest of all groups, tokens."""
    if not rules.printed_by_concurrency:
        return blocks // max(1, groups) * block_size
    return int(blocks / blocks_per_request * max_model_len) if blocks_per_request else 0

"""What the suite can be asked for, without running it. No torch: the web process reads these."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from planner.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of `gpu_probe.suite.ITEMS`. `items`: what it gives. `charts`: of `gpu_probe.claims.views`. `seconds`: about, on two CPU cores
    (measured on an AMD EPYC that was busy with other work, torch 2.13)."""

    items: tuple[str, ...]
    charts: tuple[str, ...]
    seconds: int


ENTRIES: dict[str, Entry] = {
    "cache": Entry(items=("cache",), charts=("cache",), seconds=5),
    "prompt": Entry(items=("prompt",), charts=("prompt",), seconds=7),
    "itl": Entry(items=("phases", "itl"), charts=("phases", "itl"), seconds=9),
    "kinds": Entry(
        items=("kinds_bytes", "gqa_speed", "mqa_latency", "mqa_throughput", "quality"), charts=("kinds_bytes", "kinds_itl", "mqa_throughput"), seconds=4
    ),
    "absorbed": Entry(items=("absorbed",), charts=("absorbed",), seconds=4),
    "unchanged": Entry(items=("unchanged",), charts=(), seconds=1),
    "paged": Entry(items=("paged",), charts=("paged",), seconds=1),
    "prefix": Entry(items=("prefix",), charts=("prefix",), seconds=1),
    "kv_dtype": Entry(items=("kv_dtype",), charts=("kv_dtype",), seconds=1),
    "llama": Entry(items=("llama_size", "llama_weights"), charts=("llama_size",), seconds=1),
    "ranks": Entry(items=("ranks",), charts=("ranks",), seconds=30),
}
"""In the order of the suite."""
START_SECONDS = 8
"""Importing torch, and the ceilings before and after."""


def chosen(names: Collection[str]) -> tuple[str, ...]:
    """The entries of these names, in the suite's order; none named: all. Raises InvalidInput for a name that is not there."""
    for name in names:
        if name not in ENTRIES:
            raise InvalidInput("probe_suite_item", field="only", value=str(name)[:40], known=", ".join(ENTRIES))
    return tuple(name for name in ENTRIES if not names or name in names)


def expected_seconds(names: Collection[str]) -> int:
    """About how long a run of these takes."""
    return START_SECONDS + sum(ENTRIES[name].seconds for name in chosen(names))

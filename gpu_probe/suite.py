"""The suite: what two articles on the cost of inference say, item by item, measured on this host with small shapes.

`run` gives one JSON value: the items, the ceilings before and after, and what one step costs beside its bytes (for `calibration`).
`markdown` is the same as a table. A time is never right or wrong here; a size is.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_probe import device as devices
from gpu_probe.claims import FORM, UNDECIDED, Item, kinds, ranks, sizes, speed
from gpu_probe.claims.needs import needed
from gpu_probe.claims.report import markdown
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.figures.ceilings import Host, around, ceilings
from gpu_probe.figures.overhead import step_overhead
from gpu_probe.fit import host_memory_bytes, usable_bytes
from gpu_probe.result import ProbeRequest
from gpu_probe.setup import MEMORY_LIMIT
from planner.errors import InvalidInput, PlannerError, UnsupportedValue
from planner.messages import render
from planner.units import gib

__all__ = ["ITEMS", "markdown", "run", "save"]
Progress = Callable[[str, int, int], None]
Found = Callable[[Mapping[str, Any], Sequence[Item]], None]
Run = Callable[[Host, Mapping[str, float]], Item | Sequence[Item]]
ITEMS: dict[str, Run] = {
    "cache": speed.with_and_without_cache,
    "prompt": speed.doubling_the_prompt,
    "itl": speed.step_time,
    "kinds": kinds.side_by_side,
    "absorbed": kinds.absorbed,
    "unchanged": sizes.unchanged,
    "paged": sizes.paged,
    "prefix": sizes.prefix,
    "kv_dtype": sizes.dtypes,
    "llama": sizes.llama_2_13b,
    "ranks": ranks.latent_under_ranks,
}
"""What can be asked for alone, in the order of the table. One entry may give several items."""


def run(
    *,
    device: str = "auto",
    seed: int = 0,
    only: Sequence[str] = (),
    rounds: int = 7,
    memory_cap_bytes: int | None = None,
    progress: Progress = lambda name, done, total: None,
    found: Found = lambda head, items: None,
) -> dict[str, Any]:
    """On a CPU one thread. `found` is told what each entry gave as soon as it has, with the part of the result that says where it ran.
    `memory_cap_bytes`: what the process may take beyond its start; an entry that wants more is left out with the reason, before it allocates.

    Raises InvalidInput for a name that is not in `ITEMS`.
    """
    for name in only:
        if name not in ITEMS:
            raise InvalidInput("probe_suite_item", field="only", value=name[:40], known=", ".join(ITEMS))
    began = time.perf_counter()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(seed)
    host = Host(device=devices.pick(device), seed=seed, rounds=rounds)
    threads = torch.get_num_threads()
    if host.device.type == "cpu":
        torch.set_num_threads(1)
    if memory_cap_bytes is not None:  # for what an entry takes beyond what was foreseen
        devices.limit_memory(host.device, int(memory_cap_bytes * MEMORY_LIMIT))
    try:
        chosen = [name for name in ITEMS if not only or name in only]
        progress("ceilings", 0, len(chosen) + 2)
        beyond = _beyond("ceilings", host, memory_cap_bytes)
        before, overhead = {} if beyond else ceilings(host), step_overhead(host)
        head = {
            "form": FORM, "device": str(host.device), "device_name": devices.name_of(host.device),
            "versions": {**devices.versions(host.device), "threads": "1"}, "backend": overhead["backend"], "seed": seed, "rounds": rounds,
            "memory_cap_bytes": memory_cap_bytes,
        }  # fmt: skip
        items = [_left_out("ceilings", _said(beyond))] if beyond else []
        if items:
            found(head, items)
        for done, name in enumerate(chosen, 1):
            progress(name, done, len(chosen) + 2)
            fresh = _one(name, host, before, memory_cap_bytes)
            items += fresh
            found(head, fresh)
            gc.collect()
        after = {} if beyond else ceilings(host)
        progress("done", len(chosen) + 2, len(chosen) + 2)
    finally:
        torch.set_num_threads(threads)
    return {
        **head, "items": [i.to_json() for i in items],
        "bytes_right": all(i.bytes_right is not False for i in items),
        "ceilings": around(before, after, torch.float32) if before else None, "overhead": overhead,
        "wall_s": time.perf_counter() - began,
    }  # fmt: skip


def _one(name: str, host: Host, before: Mapping[str, float], cap: int | None = None) -> list[Item]:
    """One entry's items. What this host has no memory or no format for is undecided, with the reason, and the others go on."""
    try:
        if beyond := _beyond(name, host, cap):
            raise beyond
        found = ITEMS[name](host, before)
    except (RuntimeError, MemoryError, ProbeOutOfMemory, UnsupportedValue) as e:
        if not isinstance(e, PlannerError) and not devices.is_out_of_memory(e):
            raise
        reason = _said(e) if isinstance(e, PlannerError) else (str(e).splitlines() or [type(e).__name__])[0][:160]
        return [_left_out(name, reason)]
    return [found] if isinstance(found, Item) else list(found)


def _said(e: PlannerError) -> str:
    return f"{e.message} {e.hint}"


def _left_out(name: str, reason: str) -> Item:
    return Item(name=name, claims=(), verdict=UNDECIDED, says=render("suite.failed.says"), measured=reason, numbers={"reason": reason})


def _beyond(name: str, host: Host, cap: int | None) -> ProbeOutOfMemory | None:
    """Why an entry has no room here, before it allocates: it wants more than the cap, or than 70 % of what is free."""
    wanted = needed(name, host.device.type)
    most = usable_bytes(ProbeRequest(memory_cap_bytes=cap), devices.free_bytes(host.device, host_memory_bytes()))
    if wanted <= most:
        return None
    code = "probe_suite_cap" if most == cap else "probe_suite_free"
    return ProbeOutOfMemory(code, field="memory_cap", needed=gib(wanted), available=gib(most), entry=name)


def save(result: Mapping[str, Any], folder: Path) -> None:
    """suite.json and suite.md. Raises InvalidInput where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "suite.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (folder / "suite.md").write_text(markdown(result) + "\n", encoding="utf-8")
    except OSError as e:
        raise InvalidInput("probe_out", field="out", value=str(folder)[:200], reason=e.strerror or type(e).__name__) from e

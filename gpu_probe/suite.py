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
from gpu_probe.claims.report import markdown
from gpu_probe.errors import ProbeOutOfMemory
from gpu_probe.figures.ceilings import Host, around, ceilings
from gpu_probe.figures.overhead import step_overhead
from planner.errors import InvalidInput, PlannerError, UnsupportedValue
from planner.messages import render

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
    progress: Progress = lambda name, done, total: None,
    found: Found = lambda head, items: None,
) -> dict[str, Any]:
    """On a CPU one thread. `found` is told what each entry gave as soon as it has, with the part of the result that says where it ran.

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
    try:
        chosen = [name for name in ITEMS if not only or name in only]
        progress("ceilings", 0, len(chosen) + 2)
        before, overhead, items = ceilings(host), step_overhead(host), []
        head = {
            "form": FORM, "device": str(host.device), "device_name": devices.name_of(host.device),
            "versions": {**devices.versions(host.device), "threads": "1"}, "backend": overhead["backend"], "seed": seed, "rounds": rounds,
        }  # fmt: skip
        for done, name in enumerate(chosen, 1):
            progress(name, done, len(chosen) + 2)
            fresh = _one(name, host, before)
            items += fresh
            found(head, fresh)
            gc.collect()
        after = ceilings(host)
        progress("done", len(chosen) + 2, len(chosen) + 2)
    finally:
        torch.set_num_threads(threads)
    return {
        **head, "items": [i.to_json() for i in items],
        "bytes_right": all(i.bytes_right is not False for i in items),
        "ceilings": around(before, after, torch.float32), "overhead": overhead,
        "wall_s": time.perf_counter() - began,
    }  # fmt: skip


def _one(name: str, host: Host, before: Mapping[str, float]) -> list[Item]:
    """One entry's items. What this host has no memory or no format for is undecided, with the reason, and the others go on."""
    try:
        found = ITEMS[name](host, before)
    except (RuntimeError, MemoryError, ProbeOutOfMemory, UnsupportedValue) as e:
        known = isinstance(e, PlannerError)
        if not known and not devices.is_out_of_memory(e):
            raise
        reason = str(e) if known else (str(e).splitlines() or [type(e).__name__])[0][:160]
        return [Item(name=name, claims=(), verdict=UNDECIDED, says=render("suite.failed.says"), measured=reason, numbers={"reason": reason})]
    return [found] if isinstance(found, Item) else list(found)


def save(result: Mapping[str, Any], folder: Path) -> None:
    """suite.json and suite.md. Raises InvalidInput where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "suite.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (folder / "suite.md").write_text(markdown(result) + "\n", encoding="utf-8")
    except OSError as e:
        raise InvalidInput("probe_out", field="out", value=str(folder)[:200], reason=e.strerror or type(e).__name__) from e

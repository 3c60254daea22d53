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

import numpy as np
import torch

from gpu_probe import device as devices
from gpu_probe.calibration import steady
from gpu_probe.claims import FORM, UNDECIDED, Item, kinds, ranks, sizes, speed
from gpu_probe.claims.runs import Host, Lean, decoder_of, heads, interleaved, product, reading
from gpu_probe.errors import ProbeOutOfMemory
from planner.errors import InvalidInput, PlannerError, UnsupportedValue
from planner.messages import render

OVERHEAD_LAYERS = (2, 8, 16)

Progress = Callable[[str, int, int], None]
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
    *, device: str = "auto", seed: int = 0, only: Sequence[str] = (), rounds: int = 7, progress: Progress = lambda name, done, total: None
) -> dict[str, Any]:
    """Raises InvalidInput for a name that is not in `ITEMS`. On a CPU one thread."""
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
        for done, name in enumerate(chosen, 1):
            progress(name, done, len(chosen) + 2)
            items += _one(name, host, before)
            gc.collect()
        after = ceilings(host)
        progress("done", len(chosen) + 2, len(chosen) + 2)
    finally:
        torch.set_num_threads(threads)
    return {
        "form": FORM, "device": str(host.device), "device_name": devices.name_of(host.device), "versions": {**devices.versions(host.device), "threads": "1"},
        "backend": overhead["backend"], "seed": seed, "rounds": rounds, "items": [i.to_json() for i in items],
        "bytes_right": all(i.bytes_right is not False for i in items),
        "ceilings": {"before": before, "after": after, "dtype": "fp32", "steady": steady(before, after)}, "overhead": overhead,
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


def ceilings(host: Host) -> dict[str, float]:
    """Best of seven: reading memory once (bytes/s), and square products in fp32 (FLOP/s)."""
    read, multiply = reading(host), product(host)
    best = {name: min(seconds) for name, seconds in interleaved({"read": read.call, "product": multiply.call}, host, 7).items()}
    return {"read_bytes_per_s": read.work / best["read"], "flop_per_s": multiply.work / best["product"]}


def step_overhead(host: Host) -> dict[str, Any]:
    """A step of layers so small that their bytes cost nothing, over the number of layers: the cut is the step's own cost, the slope
    that of a layer. Python and launches of the lean runner are in it. Best of the rounds, as for the ceilings."""
    small = heads(2, 1, 8)
    leans = {n: Lean(decoder_of(small, layers=n, hidden=16, mlp=16, vocab=16), host, context=15) for n in OVERHEAD_LAYERS}
    times = interleaved({str(n): lean.step for n, lean in leans.items()}, host, 15)
    best = [min(times[str(n)]) for n in OVERHEAD_LAYERS]
    slope, cut = np.polyfit(OVERHEAD_LAYERS, best, 1)
    return {
        "layers": list(OVERHEAD_LAYERS),
        "step_s": best,
        "t_layer_s": max(0.0, float(slope)),
        "t_fixed_s": max(0.0, float(cut)),
        "backend": leans[OVERHEAD_LAYERS[0]].attention.backend,
    }


def markdown(result: Mapping[str, Any]) -> str:
    """One table, and the circumstances under it."""
    lines = [render("suite.title", {"device": result["device_name"]}), "", render("suite.columns"), "|---|---|---|---|---|"]
    for i in result["items"]:
        cells = (" ".join(i["claims"]), i["name"], i["says"], i["measured"], i["verdict_text"])
        lines.append("| " + " | ".join(c.replace("|", "/") for c in cells) + " |")
    c = result["ceilings"]
    rates = {
        k: f"{c[when][name] / 1e9:.3g}" for when in ("before", "after") for name, k in (("read_bytes_per_s", f"read_{when}"), ("flop_per_s", f"flop_{when}"))
    }
    lines += ["", render("suite.circumstances", {**rates, "backend": result["backend"], "threads": result["versions"]["threads"], "rounds": result["rounds"],
                                                 "torch": result["versions"]["torch"], "wall": f"{result['wall_s']:.0f}"})]  # fmt: skip
    if not c["steady"]:
        lines += ["", render("suite.unsteady")]
    if not result["bytes_right"]:
        lines += ["", render("suite.bytes_wrong")]
    return "\n".join(lines)


def save(result: Mapping[str, Any], folder: Path) -> None:
    """suite.json and suite.md. Raises InvalidInput where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "suite.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (folder / "suite.md").write_text(markdown(result) + "\n", encoding="utf-8")
    except OSError as e:
        raise InvalidInput("probe_out", field="out", value=str(folder)[:200], reason=e.strerror or type(e).__name__) from e

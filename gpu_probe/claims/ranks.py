"""The item on ranks: MLA's latent under tensor parallelism and under data-parallel attention, in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_probe import dist
from gpu_probe.claims import HOLDS, NOT, UNDECIDED, Item, item
from gpu_probe.errors import ProbeFault, ProbeTimeLimit
from gpu_probe.figures.ceilings import Host

COUNTS = (2, 4)


def latent_under_ranks(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Undecided where the ranks could not be started; the reason is in the numbers."""
    try:
        found = {n: dist.launch(n, seed=host.seed) for n in COUNTS}
    except (ProbeFault, ProbeTimeLimit) as e:
        return item("ranks", "C10 C11", UNDECIDED, {"reason": e.message}, tp="-", dp="-", gqa="-", error="-")
    rows = [row for result in found.values() for row in result["rows"]]
    right = all(row["right"] for row in rows)
    over = {(row["ranks"], row["mode"], row["attention"]): row["over_single"] for row in rows}
    tells = all(over[n, "tp", "mla"] == n and over[n, "dp", "mla"] == 1 and over[n, "tp", "gqa"] == 1 for n in COUNTS)

    def said(mode: str, attention: str) -> str:
        return " / ".join(f"{over[n, mode, attention]:.1f}" for n in COUNTS)

    worst = max(row["max_rel_error"] for row in rows)
    same = worst <= dist.TOLERANCE
    return item("ranks", "C10 C11", HOLDS if tells and same else NOT, {"ranks": list(COUNTS), "rows": rows}, bytes_right=right,
                tp=said("tp", "mla"), dp=said("dp", "mla"), gqa=said("tp", "gqa"), error=f"{worst:.0e}")  # fmt: skip

"""What one decode step costs beside its bytes and products: its own fixed time, and that of a layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_probe.claims.runs import Lean, decoder_of, heads
from gpu_probe.figures.ceilings import Host, interleaved

LAYERS = (2, 8, 16)
ROUNDS = 15


def step_overhead(host: Host, rounds: int = ROUNDS) -> dict[str, Any]:
    """A step of layers so small that their bytes cost nothing, over the number of layers: the cut is the step's own cost, the slope
    that of a layer. Python and launches of the lean runner are in it. Best of the rounds, as for the ceilings."""
    small = heads(2, 1, 8)
    leans = {n: Lean(decoder_of(small, layers=n, hidden=16, mlp=16, vocab=16), host, context=15) for n in LAYERS}
    times = interleaved({str(n): lean.step for n, lean in leans.items()}, host, rounds)
    best = [min(times[str(n)]) for n in LAYERS]
    slope, cut = np.polyfit(LAYERS, best, 1)
    return {
        "layers": list(LAYERS), "step_s": best, "t_layer_s": max(0.0, float(slope)), "t_fixed_s": max(0.0, float(cut)),
        "backend": leans[LAYERS[0]].attention.backend,
    }  # fmt: skip

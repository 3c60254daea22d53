"""Ranks on this machine: starts torchrun over `dist_worker`, and predicts what each rank keeps. No torch.

The proof is in the bytes: tensor parallelism keeps MLA's latent whole on every rank, data-parallel attention keeps it once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_probe.errors import ProbeFault, ProbeTimeLimit
from planner.cache import Rows
from planner.dtypes import kv_layout
from planner.errors import InvalidInput
from planner.model import Attention
from planner.parallel import Parallel

TOLERANCE = 1e-5
"""Of outputs against those of one rank, relative to the largest logit, fp32."""
MAX_RANKS = 8
LIMIT_S = 120.0
LAYERS, HIDDEN, MLP, VOCAB, BLOCK_SIZE = 2, 64, 64, 97, 16
BATCH, PROMPT, OUTPUT = 8, 21, 6
ATTENTIONS: dict[str, Attention] = {
    "mla": Attention(q_heads=8, kv_heads=8, qk_dim=24, v_dim=16, kv_rank=32, nope_dim=16, rope_dim=8),
    "gqa": Attention(q_heads=8, kv_heads=4, qk_dim=16, v_dim=16),
    "gqa 2": Attention(q_heads=8, kv_heads=2, qk_dim=16, v_dim=16),
    "mqa": Attention(q_heads=8, kv_heads=1, qk_dim=16, v_dim=16),
}
MODES = ("tp", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What one of `ranks` ranks has. `q`, `kv`: its heads; `sequences`: its requests."""

    q: range
    kv: range
    sequences: tuple[int, ...]


def rows_of(a: Attention) -> Rows:
    """What one token keeps in one layer, before any split."""
    if a.kv_rank is not None:
        return Rows(heads=1, k_dim=a.kv_rank + a.rope_dim, v_dim=0, shard="copy")
    return Rows(heads=a.kv_heads, k_dim=a.qk_dim, v_dim=a.v_dim)


def checked_ranks(ranks: int) -> int:
    """Raises InvalidInput where the shapes here cannot be spread over `ranks`."""
    if ranks not in (1, 2, 4, MAX_RANKS):
        raise InvalidInput("probe_ranks", field="ranks", value=ranks, known=f"1, 2, 4, {MAX_RANKS}")
    return ranks


def split(a: Attention, mode: str, rank: int, ranks: int) -> Split:
    """Tensor parallelism: a share of the query heads and the KV heads that those read, every sequence. Data-parallel attention: all
    heads, every `ranks`-th sequence."""
    if mode == "dp":
        return Split(q=range(a.q_heads), kv=range(a.kv_heads), sequences=tuple(range(rank, BATCH, ranks)))
    q = range(rank * a.q_heads // ranks, (rank + 1) * a.q_heads // ranks)
    share = a.q_heads // a.kv_heads
    return Split(q=q, kv=range(q.start // share, (q.stop - 1) // share + 1), sequences=tuple(range(BATCH)))


def predicted_bytes(a: Attention, mode: str, ranks: int) -> list[int]:
    """Bytes of KV that each rank keeps at the end, by `planner.parallel`."""
    p = Parallel(tensor=ranks, attention_data=ranks if mode == "dp" else 1)
    rows, kv = rows_of(a), kv_layout("fp32")
    kept = rows.heads if rows.shard == "copy" else p.heads_on_rank(rows.heads)
    held = -(-(PROMPT + OUTPUT) // BLOCK_SIZE) * BLOCK_SIZE
    return [LAYERS * n * held * kv.row_bytes(kept, rows.k_dim, rows.v_dim) for n in p.spread(BATCH)]


def launch(ranks: int, *, seed: int = 0, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Runs `ranks` processes under torchrun and returns what rank 0 printed: ``{"ranks", "backend", "rows", ...}``.

    Raises ProbeFault where they die, ProbeTimeLimit where they take longer than `limit_s`. Nothing is left running either way: each
    rank has an alarm of its own too, for the case that this process dies first.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={checked_ranks(ranks)}", "-m", "gpu_probe.dist_worker",
               f"--seed={seed}", f"--limit={limit_s:g}"]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kvledger-ranks-") as folder:  # torchrun leaves its own behind
        return _launched(command, limit_s, folder)


def _launched(command: list[str], limit_s: float, folder: str) -> dict[str, Any]:
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "TMPDIR": folder})  # fmt: skip
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as e:
        raise ProbeTimeLimit("probe_time", field="time_limit", limit=f"{limit_s:g}", where="torchrun") from e
    finally:
        if child.poll() is None:  # torchrun passes SIGTERM on to its ranks
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
    found = next((line for line in reversed(out.splitlines()) if line.startswith("{")), None)
    if child.returncode or found is None:
        last = next((line.strip() for line in reversed(err.splitlines()) if "Error" in line), f"exit code {child.returncode}")
        raise ProbeFault("probe_fault", reason=f"torchrun: {last}"[:300])
    return dict(json.loads(found))


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = [f"{'attention':10}{'mode':6}{'predicted, all ranks':>22}{'measured, all ranks':>22}{'of one copy':>13}{'error':>9}"]
    lines += [
        f"{r['attention']:10}{r['mode']:6}{sum(r['predicted']):>22,}{sum(r['measured']):>22,}{r['over_single']:>12.2f}x{r['max_rel_error']:>9.0e}"
        for r in result["rows"]
    ]
    return "\n".join([*lines, f"{result['ranks']} ranks, {result['backend']}, {result['wall_s']:.1f} s"])
